"""The kernel of marks: what a strike reads of the levels before it, and the level drawn for it.

A piece's memory holds for each note the level of its last strike, the time of that strike, and two
means around the note, a near and a wide one: of the standardised levels (`loud`) of recent strikes,
weighted less the farther away they are. Then follow the numbers below; for each name that levels
have, `OF_NAME` numbers and the name's share of the strikes around each note; and for each part, if
strikes read the levels of their own, its last level and a count of each level, in which old strikes
count less. Last, if strikes read what is nearby, come for each of `SPANS` the weights of strikes as
seen from each note, and their weighted sums of levels, for each of `REACHES`; then these two for
all notes alike, and the sum of squares.
"""

from math import exp, log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel.kernels.code.language import clear, independent
from seqmodel.kernels.run.signature import Array, Signature
from seqmodel.kernels.run.threads import Kernel, compile_text
from seqmodel.media.marks import Levels
from seqmodel.outputs.notes import OCTAVE

UNKNOWN, TO_DRAW, HELD = -1, -2, -3
"""Stand for a level (1 to L) of a struck note, or for a held note. 0 is silence."""

_FOR_DRAWING = {
    "h": ("T * R", "H"), "pitches": ("D", "V"), "weight": ("J", "H + V + E + K"), "shift": ("J",),
    "out": ("L", "J + K"), "bias": ("L",), "uniforms": ("U", "Q"), "temperature": ("1",),
    "seen": ("J",), "odds": ("L",),
}  # fmt: skip
_LEVELS = Signature(
    "read_levels",
    ("T", "B", "D", "L", "M", "N", "K", "G", "S", "P"),
    (
        Array("levels", ("T", "B", "D"), torch.int64),
        Array("parts", ("T", "B", "D"), torch.int64),
        Array("memory", ("B", "M")),
        Array("loud", ("L + 1",)),
        Array("rates", ("2", "D")),
        Array("kept", ("3",)),
        Array("nearness", ("3", "D")),
        Array("features", ("N", "K")),
        Array("starts", ("B",), torch.int64),
        *(Array(name, shape, optional=True) for name, shape in _FOR_DRAWING.items()),
        Array("all_levels", ("Q", "T", "B", "D"), torch.int64, optional=True),
        Array("offsets", ("Q",), torch.int64, optional=True),
    ),
    ("H", "R", "V", "E", "J", "U", "Q", "own"),
)
_STRIKES = Signature(
    "list_strikes",
    ("D", "Q"),
    (
        Array("x", ("2 * D",)),
        Array("given", ("1",)),
        Array("levels", ("Q", "1", "1", "D"), torch.int64),
        Array("uniforms", ("1",), torch.int64),
    ),
)


def levels_kernel(itemsize: int, *, draws: bool = False) -> Kernel:
    """The kernel that reads levels, and draws those TO_DRAW."""
    return compile_text(_LEVELS, itemsize, read_levels, over="B", draws=draws)


def strikes_kernel() -> Kernel:
    """The kernel that lists a frame's strikes as levels, in float64."""
    return compile_text(_STRIKES, torch.float64.itemsize, list_strikes, over="Q")


def sizes(levels: Levels, notes: int, parts: int, *, nearby: bool) -> dict[str, int]:
    """Sizes of the kernel: `M` numbers remembered for a piece, `K` that a strike reads, and others.

    With `parts` strikes also read the levels of their own, with `nearby` what is nearby.
    """
    L, G, S, P = len(levels), len(levels.names), len(SPANS) * nearby, 2 * RANGE * notes + OF_SPAN
    memory = OF_NOTES * notes + OF_PIECE + (OF_NAME + notes) * G + (1 + L) * parts + S * P
    features = SCALARS + 2 * L + OF_NAMES * G + NEARBY * S + 2 * L * (parts > 0)
    return {"D": notes, "L": L, "M": memory, "K": features, "G": G, "S": S, "P": P}


def tables(levels: Levels, notes: int) -> dict[str, NDArray[np.float64]]:
    """Constant arrays of the kernel.

    The mean of each level, standardised, after that of none, 0; how far the means around a note
    move after a strike so many semitones away; what nearby strikes weigh a frame later; and what
    they weigh so many semitones away.
    """
    means, away = np.array(levels.means), np.arange(notes)
    return {
        "loud": np.append(0.0, (means - means.mean()) / (means.std() or 1.0)),
        "rates": np.stack([0.5 * np.exp(-away / 4), 0.25 * np.exp(-away / 12)]),
        "kept": np.exp(-1 / np.array(SPANS)),
        "nearness": np.exp(-0.5 * (away / np.array(REACHES)[:, np.newaxis]) ** 2),
    }


# ---- texts of `kernels.code.language` ------------------------------------------------------------

OF_NOTES = 4
FRAMES = 0
"""The number of frames so far, including this one."""
STRIKES = 1
"""The number of levels so far."""
FAST, SLOW = 2, 3
"""Means of recent levels."""
LATEST = 4
"""The last level."""
STRUCK = 5
"""The last frame with strikes, excluding this one."""
MEAN, BOTTOM, TOP = 6, 7, 8
"""The mean level in that frame, and the levels of its lowest and highest notes."""
SUM, COUNT, LOWER, LOWEST = 9, 10, 11, 12
"""In this frame so far: the levels' sum and count, the nearest note below, the lowest's level."""
OF_PIECE = 13

LAST_NOTE, LAST_FRAME, SOUNDING = 0, 1, 2
"""For each name: where and when it was last struck, and how many of its notes sound so far, held
into the frame or struck below."""
OF_NAME = 3

FAST_RATE, SLOW_RATE = 0.3, 0.03
CHORD = 4
"""Counts of notes are divided by this."""
SCALARS = 20
OF_NAMES = 6
"""Numbers that a strike reads for each name."""
FORGETTING = 0.95
"""What a part's counts of levels are multiplied by after each of its strikes."""
SPANS = 2.0, 16.0, 128.0
"""In frames: how long ago strikes have 1/e of the weight of new ones."""
REACHES = 1.0, 4.0, 12.0
"""In semitones: the deviations of the weights around a note."""
RANGE = len(REACHES)
OF_SPAN = 3
NEARBY = 2 * RANGE + 2
"""Numbers that a strike reads for each of the spans."""
LEAST = 0.02
"""Added to the weights of strikes: of those far away or long ago little is known."""
TINY = 1e-30
"""Added to what is nearby in each frame, so that it does not become denormal in silences."""
BOUND = 20.0
"""Beyond this, tanh is 1 or -1 to the last bit."""


def begins(level: Any) -> Any:
    """Whether a note is struck."""
    return level > HELD and level != 0


def begin_frame(f: Any, levels: Any, memory: Any) -> None:
    """Weaken what is nearby; count for each name its notes that are held into the frame."""
    nearby = memory[f.M - f.S * f.P :]
    for span in range(f.S):
        for k in independent(f.P):
            nearby[span * f.P + k] = f.kept[span] * nearby[span * f.P + k] + TINY
    piece = memory[OF_NOTES * f.D :]
    piece[FRAMES] += 1
    piece[SUM] = 0.0
    piece[COUNT] = 0.0
    for g in range(f.G):
        held = 0
        for n in independent(f.D):
            held += (levels[n] == HELD) * (memory[n] == float(g + 1))
        piece[OF_PIECE + (OF_NAME + f.D) * g + SOUNDING] = float(held)


def write_strike(f: Any, to: Any, memory: Any, levels: Any, n: Any, part: Any) -> None:
    """The features (K,) of note `n` of a frame, whose `levels` below it are known.

    Means of recent levels; of those around it; its own last level; the last of all; those of the
    last frame with strikes; those of the notes below in this frame; and what `write_above` gives.
    Then the last level of all and its own last, one-hot. Then for each of G names: how far below
    this note it was last struck, and how near; how long ago, and whether in this frame; its share
    of the strikes around; and whether one of its notes already sounds, since a voice sings one note
    at a time. Then what `write_nearby` gives. Then the last level in the note's part (from 1 on, 0
    if unknown), one-hot, and how much more often than if all were alike it has had each level
    lately, in nats.
    """
    piece = memory[OF_NOTES * f.D :]
    own = int(memory[n])
    latest = int(piece[LATEST])
    away = piece[FRAMES] - memory[f.D + n] if own > 0 else 0.0
    since = piece[FRAMES] - piece[STRUCK]
    count = piece[COUNT]
    begun = count > 0
    clear(to, f.K)
    to[0] = piece[FAST]
    to[1] = piece[SLOW]
    to[2] = memory[2 * f.D + n]
    to[3] = memory[3 * f.D + n]
    to[4] = f.loud[own]
    to[5] = 1.0 / away if own > 0 else 0.0
    to[6] = 16.0 / (16.0 + away) if own > 0 else 0.0
    to[7] = f.loud[latest]
    to[8] = 1.0 / since
    to[9] = piece[MEAN]
    to[10] = piece[BOTTOM]
    to[11] = piece[TOP]
    to[12] = float(begun)
    to[13] = (n - piece[LOWER]) / OCTAVE if begun else 0.0
    to[14] = piece[SUM] / count if begun else 0.0
    to[15] = count / CHORD
    to[16] = piece[LOWEST] if begun else 0.0
    write_above(f, to[17:], levels, n)
    if latest > 0:
        to[SCALARS + latest - 1] = 1.0
    if own > 0:
        to[SCALARS + f.L + own - 1] = 1.0
    for g in range(f.G):
        of_name = piece[OF_PIECE + (OF_NAME + f.D) * g :]
        mine = to[SCALARS + 2 * f.L + OF_NAMES * g :]
        if of_name[LAST_FRAME] > 0:
            below = n - of_name[LAST_NOTE]
            mine[0] = below / OCTAVE
            mine[1] = 1.0 / (1.0 + max(below, -below))
            mine[2] = 1.0 / (1.0 + piece[FRAMES] - of_name[LAST_FRAME])
            mine[3] = float(of_name[LAST_FRAME] == piece[FRAMES])
        mine[4] = of_name[OF_NAME + n]
        mine[5] = float(of_name[SOUNDING] > 0)
    write_nearby(f, to[SCALARS + 2 * f.L + OF_NAMES * f.G :], memory, n)
    if part > 0:
        write_part(f, to[f.K - 2 * f.L :], piece[OF_PIECE + (OF_NAME + f.D) * f.G :], part)


def write_above(f: Any, to: Any, levels: Any, n: Any) -> None:
    """Whether notes above note `n` are struck, how far above it the next one is, and how many."""
    nearest = f.D
    count = 0
    for m in independent(f.D):
        above = (m > n) * begins(levels[m])
        count += above
        nearest = min(nearest, m if above else f.D)
    to[0] = float(count > 0)
    to[1] = (nearest - n) / OCTAVE if count > 0 else 0.0
    to[2] = float(count) / CHORD


def write_part(f: Any, to: Any, parts: Any, part: Any) -> None:
    """The last level in a part (from 1 on), one-hot, and log odds of each level beside 1 / L."""
    of_part = parts[(1 + f.L) * (part - 1) :]
    total = 1.0
    for level in independent(f.L):
        total += of_part[1 + level]
    for level in independent(f.L):
        to[f.L + level] = log((1.0 + f.L * of_part[1 + level]) / total)
    if of_part[0] > 0:
        to[int(of_part[0]) - 1] = 1.0


def write_nearby(f: Any, to: Any, memory: Any, n: Any) -> None:
    """For each of `SPANS`, what is known of levels in about that time before note `n`.

    For each of `REACHES` their mean, weighted by nearness in time and pitch, and how much weight
    there is, from 0 to 1; then the mean and the variance over all notes alike.
    """
    for span in range(f.S):
        own = memory[f.M - (f.S - span) * f.P :]
        for reach in range(RANGE):
            weight = own[2 * reach * f.D + n]
            to[span * NEARBY + 2 * reach] = own[(2 * reach + 1) * f.D + n] / (weight + LEAST)
            to[span * NEARBY + 2 * reach + 1] = weight / (weight + 1.0)
        total = own[2 * RANGE * f.D :]
        mean = total[1] / (total[0] + LEAST)
        to[span * NEARBY + 2 * RANGE] = mean
        variance = total[2] / (total[0] + LEAST) - mean * mean
        to[span * NEARBY + 2 * RANGE + 1] = max(variance, 0.0)


def add_level(f: Any, memory: Any, level: Any, n: Any, part: Any) -> None:
    """Remember the level (from 1 on) of note `n`, and of its part if that is known."""
    piece = memory[OF_NOTES * f.D :]
    value = f.loud[level]
    memory[n] = float(level)
    memory[f.D + n] = piece[FRAMES]
    for m in independent(f.D):
        away = max(m - n, n - m)
        memory[2 * f.D + m] += f.rates[away] * (value - memory[2 * f.D + m])
        memory[3 * f.D + m] += f.rates[f.D + away] * (value - memory[3 * f.D + m])
    piece[STRIKES] += 1
    newest = 1.0 / piece[STRIKES]
    piece[FAST] += max(FAST_RATE, newest) * (value - piece[FAST])
    piece[SLOW] += max(SLOW_RATE, newest) * (value - piece[SLOW])
    piece[LATEST] = float(level)
    if piece[COUNT] == 0:
        piece[LOWEST] = value
    piece[SUM] += value
    piece[COUNT] += 1
    piece[LOWER] = float(n)
    for g in range(f.G):
        of_name = piece[OF_PIECE + (OF_NAME + f.D) * g :]
        struck = float(g + 1 == level)
        if g + 1 == level:
            of_name[LAST_NOTE] = float(n)
            of_name[LAST_FRAME] = piece[FRAMES]
            of_name[SOUNDING] += 1.0
        for m in independent(f.D):
            away = max(m - n, n - m)
            of_name[OF_NAME + m] += f.rates[away] * (struck - of_name[OF_NAME + m])
    if part > 0:
        of_part = piece[OF_PIECE + (OF_NAME + f.D) * f.G + (1 + f.L) * (part - 1) :]
        for other in independent(f.L):
            of_part[1 + other] *= FORGETTING
        of_part[level] += 1.0
        of_part[0] = float(level)
    for span in range(f.S):
        nearby = memory[f.M - (f.S - span) * f.P :]
        for reach in range(RANGE):
            for m in independent(f.D):
                weight = f.nearness[reach * f.D + max(m - n, n - m)]
                nearby[2 * reach * f.D + m] += weight
                nearby[(2 * reach + 1) * f.D + m] += weight * value
        total = nearby[2 * RANGE * f.D :]
        total[0] += 1.0
        total[1] += value
        total[2] += value * value


def end_frame(f: Any, memory: Any) -> None:
    """Update the memory after the highest note."""
    piece = memory[OF_NOTES * f.D :]
    if piece[COUNT] > 0:
        piece[STRUCK] = piece[FRAMES]
        piece[MEAN] = piece[SUM] / piece[COUNT]
        piece[BOTTOM] = piece[LOWEST]
        piece[TOP] = f.loud[int(piece[LATEST])]


def read_levels(f: Any, first: Any, last: Any) -> None:
    """Strike features (N, K) of pieces `first` to `last`; those of each begin at its `starts`.

    They are of strikes whose level is known or, if it `draws`, TO_DRAW: each replaces the last.
    """
    for piece in range(first, last):
        own = f.memory[piece * f.M :]
        strike = f.starts[piece]
        for t in range(f.T):
            frame = f.levels[(t * f.B + piece) * f.D :]
            part = f.parts[(t * f.B + piece) * f.D :]
            begin_frame(f, frame, own)
            for n in range(f.D):
                if frame[n] == TO_DRAW if f.draws else frame[n] > 0:
                    to = f.features[(0 if f.draws else strike) * f.K :]
                    write_strike(f, to, own, frame, n, part[n])
                    if f.draws:
                        frame[n] = drawn_level(f, to, strike, t, n)
                    strike += 1
                if frame[n] > 0:
                    add_level(f, own, frame[n], n, part[n])
            end_frame(f, own)


def list_strikes(f: Any, first: Any, last: Any) -> None:
    """The levels of a frame x before any is drawn, and how many uniforms they take.

    Those of a `given` frame remain UNKNOWN.
    """
    given = f.given[0] > 0
    for mark in range(first, last):
        count = 0
        for n in range(f.D):
            struck = f.x[f.D + n] > 0
            rest = HELD if f.x[n] > 0 else 0
            f.levels[mark * f.D + n] = (UNKNOWN if given else TO_DRAW) if struck else rest
            count += 0 if given else f.Q * struck
        f.uniforms[0] = count


def drawn_level(f: Any, features: Any, strike: Any, t: Any, n: Any) -> Any:
    """The level drawn for note `n` of frame `t`, the `strike`th to be drawn."""
    h = f.h[(t * f.R + (n if f.R > 1 else 0)) * f.H :]
    for j in range(f.J):
        weight = f.weight[j * (f.H + f.V + f.E + f.K) :]
        total = f.shift[j]
        for k in range(f.H):
            total += weight[k] * h[k]
        for k in range(f.V):
            total += weight[f.H + k] * f.pitches[n * f.V + k]
        for mark in range(f.own):
            known = f.all_levels[(mark * f.T + t) * f.D + n]
            if known > 0:
                total += weight[f.H + f.V + f.offsets[mark] + known - 1]
        for k in range(f.K):
            total += weight[f.H + f.V + f.E + k] * features[k]
        f.seen[j] = 1.0 - 2.0 / (exp(2.0 * min(max(total, -BOUND), BOUND)) + 1.0)
    sharpness = 1.0 / f.temperature[0] if f.temperature[0] > 0 else 1.0
    for level in range(f.L):
        total = f.bias[level]
        for j in range(f.J):
            total += f.out[level * (f.J + f.K) + j] * f.seen[j]
        for k in range(f.K):
            total += f.out[level * (f.J + f.K) + f.J + k] * features[k]
        f.odds[level] = total * sharpness
    return 1 + chosen(f.odds, f.uniforms[strike * f.Q + f.own], f.L, f.temperature[0] == 0)


def chosen(odds: Any, uniform: Any, L: Any, at_zero: Any) -> Any:
    """One of L by its log odds, which are overwritten; the most likely one if `at_zero`."""
    best = 0
    for k in range(1, L):
        best = k if odds[k] > odds[best] else best
    most = odds[best]
    total = 0.0
    for k in range(L):
        odds[k] = exp(odds[k] - most)
        total += odds[k]
    reached = 0.0
    found = 0
    for k in range(L - 1):
        reached += odds[k]
        found += reached <= uniform * total
    return best if at_zero else found
