"""Motifs: what came next when the last frames looked the same around some note, at any pitch.

The echo finds whole frames again, at their own pitch. But a motif may return transposed, or under
another accompaniment. So each note looks only at its surroundings: when the last n frames within w
semitones of any note of the piece looked like those around this one, how often did that note sound
next? The counts adapt, and are stored per piece, in a hash table for each context (n, w), shared by
all notes. This is the context mixing of lossless image and text compressors, with the network as
the mixer. It depends only on the past, so likelihoods stay exact.
"""

from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.language import unrolled

CONTEXTS = (
    (1, 12, False), (1, 24, False), (2, 5, False), (2, 12, False), (3, 3, False), (4, 7, False),
    (4, 20, False), (6, 12, False), (8, 2, False), (8, 12, False), (16, 5, False), (2, 12, True),
    (8, 0, True),
)  # fmt: skip
"""The number of frames, the distance in semitones, and whether only at the same pitch."""
FARTHEST = 24
"""The distance in semitones up to which surroundings are stored."""
FRAMES = 16
"""The number of frames for which they are stored, a power of two."""
CELLS = 1 << 14
"""Cells in each context's table, a power of two."""
TRIES = 8
"""Cells that are tried one after another; a new key takes the last one if all are taken."""
MAX_COUNT = 250
"""The largest count."""
COUNT_SUMS = 2 * MAX_COUNT + 1
"""The number of values that the sum of two counts may take."""
MOTIFS = 3 * len(CONTEXTS)
"""The number of these inputs per note."""

HASHES = 1 << 62
FACTOR = 0x2545F4914F6CDD1D
"""The multiplier of hashes, a large odd number."""
_BYTE = 255


def motifs_size(notes: int) -> int:
    """The number of integers stored per piece; all are 0 before its first frame.

    They hold the number of frames so far; the surroundings of each note in the last FRAMES of them,
    a bit for each note up to FARTHEST away, the lowest first; for each context and note, 1 + the
    cell that counts what comes next, or 0; and the cells: 2^16 times a tag, 2^8 times the count of
    silences, plus the count of sounds.
    """
    return 1 + (FRAMES + len(CONTEXTS)) * notes + len(CONTEXTS) * CELLS


def count_scales() -> Tensor:
    """(2, COUNT_SUMS), float64: for a count n, log(n + 0.4) / 4 and log2(1 + n) / 4."""
    counts = torch.arange(COUNT_SUMS, dtype=torch.float64)
    return torch.stack([torch.log(counts + 0.4), torch.log2(1 + counts)]) / 4


def learn_motifs(frame: Any, memory: Any, D: Any) -> None:
    """Add a frame of zeros and ones to a piece's memory. A text of `kernels.code.language`."""
    current = memory[1 + memory[0] % FRAMES * D :]
    cell_of = memory[1 + FRAMES * D :]
    cells = memory[1 + (FRAMES + len(CONTEXTS)) * D :]
    for k in range(len(CONTEXTS)):
        for n in range(D):
            if cell_of[k * D + n] > 0:
                cell = cell_of[k * D + n] - 1
                cells[k * CELLS + cell] = updated_cell(cells[k * CELLS + cell], frame[n] != 0)
    bits = 0
    for n in range(min(FARTHEST, D)):
        bits |= (frame[n] != 0) << (n + FARTHEST + 1)
    for n in range(D):
        bits = bits >> 1
        if n + FARTHEST < D:
            bits |= (frame[n + FARTHEST] != 0) << (2 * FARTHEST)
        current[n] = bits
    memory[0] += 1
    for k in unrolled(len(CONTEXTS)):
        for n in range(D):
            cell_of[k * D + n] = key_of(memory, n, D, k)
    for k in range(len(CONTEXTS)):
        for n in range(D):
            if cell_of[k * D + n] > 0:
                cell_of[k * D + n] = 1 + find_cell(cells[k * CELLS :], cell_of[k * D + n] - 1)


def updated_cell(cell: Any, sounds: Any) -> Any:
    """The cell after one more outcome; a count above 2 of the other outcome is halved."""
    silences = cell >> 8 & _BYTE
    sounded = cell & _BYTE
    if sounds:
        sounded = min(sounded + 1, MAX_COUNT)
        silences = silences if silences <= 2 else silences // 2 + 1
    else:
        silences = min(silences + 1, MAX_COUNT)
        sounded = sounded if sounded <= 2 else sounded // 2 + 1
    return cell >> 16 << 16 | silences << 8 | sounded


def key_of(memory: Any, n: Any, D: Any, k: int) -> Any:
    """1 + the key of the surroundings of note n in context k; 0 if they are silent."""
    surroundings = memory[1:]
    width = CONTEXTS[k][1]
    key = k + 1
    any_sound = 0
    for back in range(1, CONTEXTS[k][0] + 1):
        index = (memory[0] - back) % FRAMES * D + n
        near = surroundings[index] >> (FARTHEST - width) & (2 << 2 * width) - 1
        any_sound |= near
        key = hashed(key + near)
    if CONTEXTS[k][2]:
        key = hashed(key + n + 1)
    return key + 1 if any_sound != 0 else 0


def find_cell(cells: Any, key: Any) -> Any:
    """The cell with a key's tag, else the first free or last one tried, which the key claims."""
    tag = (key >> 30) + 1
    found = -1
    for probe in range(TRIES):
        if found < 0:
            cell = (key + probe) % CELLS
            occupant = cells[cell] >> 16
            if occupant == tag:
                found = cell
            elif occupant == 0 or probe == TRIES - 1:
                found = cell
                cells[cell] = tag << 16
    return found


def hashed(key: Any) -> Any:
    """A mixed key, from 0 to HASHES - 1."""
    key = key * FACTOR & HASHES - 1
    return key + (key >> 31) & HASHES - 1


def write_motifs(out: Any, memory: Any, scales: Any, n: Any, D: Any) -> None:
    """The inputs (MOTIFS,) of note n: for each context the log odds that it sounds, whether any are
    known, and how many outcomes were counted; `scales` is `count_scales`."""
    cell_of = memory[1 + FRAMES * D :]
    cells = memory[1 + (FRAMES + len(CONTEXTS)) * D :]
    for k in unrolled(len(CONTEXTS)):
        cell = cells[k * CELLS + cell_of[k * D + n] - 1] if cell_of[k * D + n] > 0 else 0
        silences = cell >> 8 & _BYTE
        sounded = cell & _BYTE
        known = silences + sounded > 0
        out[3 * k] = scales[sounded] - scales[silences] if known else 0.0
        out[3 * k + 1] = float(known)
        out[3 * k + 2] = scales[COUNT_SUMS + silences + sounded]
