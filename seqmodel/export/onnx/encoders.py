"""Encoders: the inputs of the unit and the output, computed from the frames read.

Each takes the frames read (rows, F) and keeps its memory of earlier ones in states, which are all
zero before the first frame.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch

from seqmodel.export.onnx.graph import DOUBLE, FLOAT, INT64, Graph, Step, Symbol
from seqmodel.export.onnx.texts import Array, Number, View, add_text
from seqmodel.model.ages import SILENT, SOUNDING, UNCHANGED, count_ages
from seqmodel.model.bars import SIGNATURE, write_position
from seqmodel.model.clock import MAX_HELD
from seqmodel.model.echo import MAX_LENGTH, REACH_BACK, STEPS
from seqmodel.model.encoder import WindowEncoder
from seqmodel.model.motifs import (
    CELLS,
    CONTEXTS,
    FACTOR,
    FARTHEST,
    FRAMES,
    HASHES,
    MAX_COUNT,
    MOTIFS,
    TRIES,
    count_scales,
)
from seqmodel.model.notes import WINDOW, NoteEncoder
from seqmodel.model.sound.encoder import SoundEncoder
from seqmodel.model.sound.kernel import (
    adapt,
    advance,
    find_grid,
    find_pitch,
    shift_lines,
    write_features,
)
from seqmodel.model.sound.predictors import (
    FULL,
    INSIDE,
    MAX_SEEN,
    MIN_PEAK,
    QUANTISATION,
    Predictors,
)
from seqmodel.outputs.notes import OCTAVE

WORD = 24
"""Numbers of a remembered frame that fit in a float, one bit each."""


class Encoded(NamedTuple):
    """The inputs for each row; a row follows a frame read."""

    x: Symbol
    """(rows, R, I), for the unit."""
    skip: Symbol | None
    """(rows, R, E), for the output, alongside h."""
    past: Symbol
    """(rows, C), the numbers before each frame."""
    last: Symbol | None = None
    """(rows,), whether the row is its frame's last, if a frame has several."""
    changed: Symbol | None = None
    """(rows, 1), whether the unit makes a step; None if always."""


def window(
    g: Graph, encoder: WindowEncoder, frames: Symbol, frame_size: int, labels: Symbol | None
) -> Encoded:
    """The last C numbers, standardised."""
    C, past = encoder.input_size, frames

    def windows(former: list[Symbol]) -> Step:
        line = g.concat([*former, g.reshape(frames, -1)], 0)
        starts = g("CumSum", g.repeated(np.array(frame_size), frames), 0)
        return [line[-C:]], [g("Gather", line, g.unsqueeze(starts, 1) + np.arange(C))]

    if frame_size != C:
        (past,) = g.with_states({"past": [C]}, windows)
    x = past
    if (encoder.mean, encoder.deviation) != (0, 1):
        x = (past - encoder.mean) / encoder.deviation
    return Encoded(g.unsqueeze(x, 1), None, past)


def notes(
    g: Graph, encoder: NoteEncoder, frames: Symbol, frame_size: int, labels: Symbol | None
) -> Encoded:
    """The past as seen by each note, as in `model.notes`."""
    D = encoder.rows
    sounding, note = frames[:, :D], np.arange(D)[:, np.newaxis]
    classes = sounding @ (note % OCTAVE == np.arange(OCTAVE)).astype(float)
    parts = [
        _around(g, sounding, D),
        g("Gather", classes, (note + np.arange(OCTAVE)) % OCTAVE, axis=1),
        g.repeated(g.unsqueeze(g.sum(sounding, 1) / float(OCTAVE), 1), frames, D, 1),
        g.repeated(encoder.pitch.numpy(), frames, *encoder.pitch.shape),
    ]
    if encoder.onsets:
        parts.append(_around(g, frames[:, D:], D))
    skip, ages = list[Symbol](), list[Symbol]()
    unchanged, changed = None, None
    if encoder.ages:
        note_ages, unchanged, previous = _ages(g, encoder, frames)
        ages.append(note_ages)
        if encoder.rests:
            changed = g("Equal", unchanged, 1.0)
            if encoder.hits:
                changed = changed | (g.sum(sounding, 1) > 0.0)
            parts.append(g.repeated(_reached(g, previous, UNCHANGED), frames, D, len(UNCHANGED)))
    if encoder.clock or encoder.echo or len(encoder.bars):
        elapsed = _elapsed(g, frames)
        if encoder.echo:
            with g.within("echo"):
                skip.append(_echo(g, frames, frame_size, elapsed, D))
        positions = list[Symbol]()
        if len(encoder.bars):
            positions.append(_bar_positions(g, encoder, elapsed))
        if encoder.clock:
            table, period = encoder.clock.table().float().numpy(), encoder.clock.period
            place = g("Min", elapsed, elapsed % period + (len(table) - period))
            row = g("Gather", g.constant(table, "clock"), place)
            if encoder.clock.held is not None and unchanged is not None:
                held = np.zeros((MAX_HELD, encoder.clock.size), np.float32)
                held[:, -1] = encoder.clock.held.numpy()
                count = g.cast(g("Min", g.squeeze(unchanged, 1), float(MAX_HELD - 1)), INT64)
                row = row + g("Gather", g.constant(held, "held"), count)
            positions.append(row)
        skip += [g("Expand", g.unsqueeze(row, 1), np.array([1, D, 1])) for row in positions]
    skip += ages
    if encoder.motifs:
        with g.within("motifs"):
            skip.append(_motifs(g, sounding, D))
    x = g.concat([*parts, *skip], 2)
    return Encoded(x, g.concat(skip, 2) if skip else None, frames, changed=changed)


def _elapsed(g: Graph, frames: Symbol) -> Symbol:
    """The number of frames, or samples, before each row: (rows,)."""

    def count_rows(former: list[Symbol]) -> tuple[list[Symbol], Symbol]:
        after = former[0] + g.squeeze(g.count(frames), 0)
        return [after], g("Range", *former, after, 1)

    return g.with_states({"elapsed": []}, count_rows, INT64)


def _reached(g: Graph, counts: Symbol, thresholds: Sequence[int]) -> Symbol:
    """Which of the thresholds (K,) the counts (rows, n) have reached: (rows, n, K)."""
    return g.cast(g.unsqueeze(counts, 2) >= np.array(thresholds, float), FLOAT)


def _around(g: Graph, line: Symbol, D: int) -> Symbol:
    """The notes around each of `line` (rows, D): (rows, D, WINDOW)."""
    padded = g("Pad", line, np.array([0, OCTAVE, 0, OCTAVE]))
    return g("Gather", padded, np.arange(D)[:, np.newaxis] + np.arange(WINDOW), axis=1)


def _bar_positions(g: Graph, encoder: NoteEncoder, elapsed: Symbol) -> Symbol:
    """Places in the bar, (rows, BARS), by the metre in the state or else train's usual one."""

    def known(former: list[Symbol]) -> tuple[list[Symbol], Symbol]:
        metre = g("Where", former[0][3:] > 0, former[0], encoder.bars[:SIGNATURE])
        return [metre], metre

    metre = g.unsqueeze(g.with_states({"metre": [SIGNATURE]}, known, INT64), 0)
    x, elapsed = Array(g), g.unsqueeze(elapsed, 1)
    signature = View(Array(g, metre, [1] * SIGNATURE, INT64))
    add_text(g, write_position, View(x), signature, Number(elapsed, INT64), 1)
    return g.cast(x.all(), FLOAT)


def _ages(g: Graph, encoder: NoteEncoder, frames: Symbol) -> tuple[Symbol, Symbol, Symbol]:
    """How long each note has sounded or been silent, (rows, D, AGES), as in `model.ages`.

    Also for how many frames nothing has changed, now and before the last frame: (rows, 1).
    """
    D = encoder.rows

    def body(age: Symbol, unchanged: Symbol, frame: Symbol) -> Step:
        before = g.cast(g.unsqueeze(g.concat([age, unchanged], 0), 0), INT64)
        ages = Array(g, before, [D + 1], INT64)
        read = Array(g, g.cast(g.unsqueeze(frame, 0), DOUBLE), [2 * D if encoder.onsets else D])
        add_text(g, count_ages, View(read), View(ages), D, encoder.onsets)
        after = g.cast(g.squeeze(ages.all(), 0), FLOAT)
        new = after[:D], after[D:]
        return new, [*new, unchanged]

    shapes = {"ages": [D], "unchanged": [1]}
    age, after, before = g.with_states(shapes, lambda states: g.scan(body, states, [frames]))
    # Silent notes, whose ages are negative, above a limit.
    silent = g.unsqueeze(age, 2) >= -np.array(SILENT, float)
    features = [
        _reached(g, age, SOUNDING),
        g.cast(g.unsqueeze(age < 0.0, 2) & silent, FLOAT),
        g("Expand", _reached(g, after, UNCHANGED), np.array([1, D, 1])),
    ]
    return g.concat(features, 2), after, before


def _motifs(g: Graph, frames: Symbol, D: int) -> Symbol:
    """What came next when the notes around each were the same, (rows, D, MOTIFS).

    As in `model.motifs`; each context's table begins with a dummy cell, which 0 chooses.
    """
    K, notes = len(CONTEXTS), np.arange(D)
    bits = 2 ** np.arange(2 * FARTHEST + 1)
    around_each = notes[:, np.newaxis] + np.arange(len(bits))

    def body(count: Symbol, around: Symbol, chosen: Symbol, cells: Symbol, sounds: Symbol) -> Step:
        cells = _count_outcome(g, cells, chosen, sounds > 0)
        wide = g("Pad", sounds, np.array([FARTHEST, FARTHEST]))
        now = g.sum(g("Gather", wide, around_each) * bits, 1, keep=False)
        slot = g("Equal", np.arange(FRAMES)[:, np.newaxis], count % FRAMES)
        around, count = g("Where", slot, now, around), count + 1
        keys, surroundings = list[Symbol](), list[Symbol]()
        for k, (back, width, same_pitch) in enumerate(CONTEXTS):
            key, seen = sounds * 0 + (k + 1), sounds * 0
            for frame in range(1, back + 1):
                row = g("Gather", around, (count - frame) % FRAMES)
                near = row / 2 ** (FARTHEST - width) % 2 ** (2 * width + 1)
                key, seen = _hash(key + near), g("Max", seen, near)
            keys.append(g.unsqueeze(_hash(key + (notes + 1)) if same_pitch else key, 0))
            surroundings.append(g.unsqueeze(seen, 0))
        has_context = g.concat(surroundings, 0) > 0
        cells, chosen = _claim(g, cells, g.concat(keys, 0), has_context)
        cell = g("GatherElements", cells, chosen, axis=1)
        return [count, around, chosen, cells], [g("Where", chosen > 0, cell, 0)]

    sizes = {"count": [], "around": [FRAMES, D], "chosen": [K, D], "cells": [K, 1 + CELLS]}
    shapes = {f"motifs.{name}": shape for name, shape in sizes.items()}
    rows = [g.cast(frames, INT64)]
    (cell,) = g.with_states(shapes, lambda states: g.scan(body, states, rows), INT64)
    silences, sounded = cell / 256 % 256, cell % 256
    logs, counts = (g.constant(scale.float().numpy(), "scale") for scale in count_scales())
    known = g.cast(silences + sounded > 0, FLOAT)
    odds = (g("Gather", logs, sounded) - g("Gather", logs, silences)) * known
    features = [
        g.unsqueeze(each, 3) for each in (odds, known, g("Gather", counts, silences + sounded))
    ]
    by_note = g("Transpose", g.concat(features, 3), perm=[0, 2, 1, 3])
    return g.reshape(by_note, 0, D, MOTIFS)


def _hash(key: Symbol) -> Symbol:
    key = key * FACTOR % HASHES
    return (key + key / 2**31) % HASHES


def _count_outcome(g: Graph, cells: Symbol, chosen: Symbol, sounds: Symbol) -> Symbol:
    """The cells after one more outcome (D,) for the chosen ones (K, D).

    Computed note by note, because several notes may have chosen the same cell.
    """

    def halved(count: Symbol) -> Symbol:
        return g("Where", count > 2, count / 2 + 1, count)

    def body(values: Symbol, note: Symbol, indices: Symbol, sounding: Symbol) -> Step:
        cell = g("Gather", values, note, axis=1)
        silences, sounded = cell / 256 % 256, cell % 256
        silences, sounded = (
            g("Where", sounding, halved(silences), g("Min", silences + 1, MAX_COUNT)),
            g("Where", sounding, g("Min", sounded + 1, MAX_COUNT), halved(sounded)),
        )
        cell = cell - cell % 65536 + silences * 256 + sounded
        shared = g("Equal", chosen, g.unsqueeze(indices, 1))
        return [g("Where", shared, g.unsqueeze(cell, 1), values)], []

    values = g("GatherElements", cells, chosen, axis=1)
    notes = g("Range", 0, g.squeeze(g.count(sounds), 0), 1)
    (values,), _ = g.scan(body, [values], [notes, chosen, sounds], row_axes=[0, 1, 0])
    return g("ScatterElements", cells, chosen, values, axis=1)


def _claim(g: Graph, cells: Symbol, keys: Symbol, has_context: Symbol) -> tuple[Symbol, Symbol]:
    """The cells after new keys have claimed theirs, and the chosen ones (K, D) for keys (K, D).

    Computed note by note, because two notes may claim the same cell.
    """
    tried = (g.unsqueeze(keys % CELLS, 2) + np.arange(TRIES)) % CELLS + 1
    tried = g("Where", g.unsqueeze(has_context, 2), tried, 0)

    def body(values: Symbol, note: Symbol, tag: Symbol, candidates: Symbol) -> Step:
        tag, held = g.unsqueeze(tag, 1), g("Gather", values, note, axis=1)
        fits = g("Equal", held / 65536, tag) | g("Equal", held / 65536, 0)
        fits = fits | (np.arange(TRIES) == TRIES - 1)
        first = g("ArgMax", g.cast(fits, INT64), axis=1, keepdims=1)
        choice, cell = (g("GatherElements", each, first, axis=1) for each in (candidates, held))
        cell = g("Where", g("Equal", cell / 65536, tag), cell, tag * 65536)
        shared = g("Equal", tried, g.unsqueeze(choice, 2))
        return [g("Where", shared, g.unsqueeze(cell, 2), values)], [g.squeeze(choice, 1)]

    flat = g.reshape(tried, 0, -1)
    values = g("GatherElements", cells, flat, axis=1)
    values = g.reshape(values, 0, -1, TRIES)
    notes = g("Range", 0, g.squeeze(g("Shape", keys, start=1, end=2), 0), 1)
    scan_rows = [notes, keys / 2**30 + 1, tried]
    (values,), (chosen,) = g.scan(body, [values], scan_rows, row_axes=[0, 1, 1], output_axis=1)
    return g("ScatterElements", cells, flat, g.reshape(values, 0, -1), axis=1), chosen


def _echo(g: Graph, frames: Symbol, F: int, elapsed: Symbol, D: int) -> Symbol:
    """What followed the longest earlier match, for each note (rows, D, E).

    As in `model.echo`, with frames packed into integers below 2^24, which floats hold exactly.
    """
    words, places = -(-F // WORD), np.arange(REACH_BACK)
    bits = np.zeros((F, words))
    bits[np.arange(F), np.arange(F) // WORD] = 2.0 ** (np.arange(F) % WORD)

    def body(runs: Symbol, memory: Symbol, frame: Symbol, count: Symbol) -> Step:
        word = frame @ bits
        slot = g("Equal", count % REACH_BACK, places)
        equal = g("Equal", g.sum(g("Abs", memory - word), 1, keep=False), 0.0)
        longer = g("Min", g.concat([runs[-1:], runs[:-1]], 0) + 1.0, float(MAX_LENGTH))
        runs = g("Where", equal & (count > places) & g("Not", slot), longer, 0.0)
        memory = g("Where", g.unsqueeze(slot, 1), word, memory)
        # The latest of the longest matches.
        age = g.cast((count - places) % REACH_BACK, FLOAT)
        best = g("ArgMax", runs * float(REACH_BACK) - age, axis=0, keepdims=0)
        next_word = g("Gather", memory, (best + 1) % REACH_BACK)
        return [runs, memory], [next_word, g("Gather", runs, best)]

    shapes = {"echo.runs": [REACH_BACK], "echo.frames": [REACH_BACK, words]}
    rows = [frames, elapsed]
    word, length = g.with_states(shapes, lambda states: g.scan(body, states, rows))
    # Bit k of a word is 1 if the word, halved k times and rounded down, is odd.
    halved = g("Floor", g.unsqueeze(word, 2) / 2.0 ** np.arange(WORD))
    next_frame = g.cast(g.reshape(g.cast(halved, INT64) % 2, 0, words * WORD), FLOAT)
    known = _reached(g, g.unsqueeze(length, 1), STEPS)
    ahead = [g.unsqueeze(next_frame[:, n : n + D], 2) * known for n in range(0, F, D)]
    return g.concat([g.repeated(known, frames, D, len(STEPS)), *ahead], 2)


# ---- sound


def sound(
    g: Graph, encoder: SoundEncoder, frames: Symbol, frame_size: int, labels: Symbol | None
) -> Encoded:
    """What adaptive predictors predict about the next sample; `frames` are samples (rows, 1).

    By the texts of `model.sound.kernel`, for one piece and without noise: first the memories after
    each sample, then the features of all of them at once.
    """
    p, known, elapsed = encoder.predictors, encoder.steered(), _elapsed(g, frames)
    start = p.start_memory(known.grid, 1, torch.device("cpu")).numpy()
    sizes = [*p.sizes.values()]
    replaced = (adapt, _adapt), (find_grid, _find_grid), (find_pitch, _find_pitch)
    instead = {text: partial(function, g) for text, function in replaced}

    def body(memory: Symbol, sample: Symbol, count: Symbol) -> Step:
        own = Array(g, g("Where", g("Equal", count, 0), start, memory), sizes)
        pure = Number(g.reshape(g.cast(sample, DOUBLE) * FULL, 1, 1), DOUBLE)
        add_text(g, shift_lines, View(own), p)
        add_text(g, advance, View(own), pure, None, 0, 0, 0, 0, p, instead=instead)
        return [own.all()], [g.squeeze(own.all(), 0)]

    shapes, rows = {"sound": [1, p.memory_size]}, [frames, elapsed]
    (memories,) = g.with_states(shapes, lambda states: g.scan(body, states, rows), DOUBLE)
    with g.within("features"):
        own, x = Array(g, memories, sizes), Array(g)
        if p.combinations and labels is not None:
            number = g.cast(labels, DOUBLE) @ encoder.place_values.numpy()[:, np.newaxis]
            own.write(p.starts["combination"], 1, number)
        f = SimpleNamespace(p=p, known=known.packed().numpy(), strengths=known.strengths().numpy())
        add_text(g, write_features, f, View(own), View(x), 0, 0)
        features = g.unsqueeze(g.cast(x.all(), FLOAT), 1)
    return Encoded(features, features, frames, g("Equal", (elapsed + 1) % encoder.steps, 0))


def _adapt(g: Graph, memory: View, sample: Number, n: int, p: Predictors) -> Number:
    """`sound.kernel.adapt`; all stages at once, since each depends only on lower ones."""
    own, lattice, start = memory.array, p.lattices[n], p.lattice_starts[n]
    M = lattice.order
    k, b, num, den = (own.read(start + part * M, M) for part in range(4))
    error = sample.symbol - own.read(start + 4 * M, 1)
    f = sample.symbol - g("CumSum", k * b, 1, exclusive=1)
    num = num * lattice.forgetting + f * b * 2.0
    den = den * lattice.forgetting + (f * f + b * b + 2 * QUANTISATION)
    b = g.concat([sample.symbol, (b - k * f)[:, : M - 1]], 1)
    k = num / den * INSIDE
    for part, value in enumerate((k, b, num, den)):
        own.write(start + part * M, M, value)
    own.write(start + 4 * M, 1, g("Clip", g.sum(k * b, 1), -FULL, FULL - 1))
    return Number(error, DOUBLE)


def _find_grid(g: Graph, memory: View, sample: Number, p: Predictors) -> None:
    """`sound.kernel.find_grid`, without operators on bits, which ONNX lacks."""
    grid, seen = (memory.array.read(p.starts[name], 1) for name in ("grid", "seen"))
    powers = 2.0 ** np.arange(16)
    divides = g("Equal", g("Floor", sample.symbol / powers) * powers, sample.symbol)
    lowest = g("ReduceMax", g("Where", divides, powers, 1.0), axes=[1])
    found = g("Where", g("Equal", seen, 0.0), lowest, g("Min", grid, lowest))
    silent, more = g("Equal", sample.symbol, 0.0), g("Min", seen + 1.0, float(MAX_SEEN))
    memory.array.write(p.starts["grid"], 1, g("Where", silent, grid, found))
    memory.array.write(p.starts["seen"], 1, g("Where", silent, seen, more))


def _find_pitch(g: Graph, memory: View, line: View, p: Predictors) -> None:
    """`sound.kernel.find_pitch`, all lags at once."""
    own, pitch, size = memory.array, p.pitch, p.lines[p.pitch_line]
    values = own.read(line.start, size)
    newest = values[:, -1:]
    energy = own.read(p.starts["energy"], 1) * pitch.forgetting + newest * newest + 1.0
    back = np.arange(pitch.shortest, pitch.longest + 1) * pitch.step
    ago = g("Gather", values, size - 1 - back, axis=1)
    acf = own.read(p.starts["acf"], pitch.lags) * pitch.forgetting + newest * ago
    peak = g("ReduceMax", acf, axes=[1])
    best = g.cast(g("ArgMax", acf, axis=1), DOUBLE) + float(pitch.shortest)
    lag = g("Where", peak > energy * MIN_PEAK, best, float(pitch.shortest))
    peak = g("Max", peak / energy, MIN_PEAK)
    for name, value in {"energy": energy, "lag": lag, "peak": peak, "acf": acf}.items():
        own.write(p.starts[name], p.sizes[name], value)


ENCODERS: Mapping[type, Callable[..., Encoded]] = {
    WindowEncoder: window,
    NoteEncoder: notes,
    SoundEncoder: sound,
}
