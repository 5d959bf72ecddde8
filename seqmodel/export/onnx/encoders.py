"""Encoders: the inputs of the unit and the output, computed from the frames read.

Each takes the frames read (rows, F) and keeps its memory of earlier ones in states, which are all
zero before the first frame.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel.export.onnx.graph import DOUBLE, FLOAT, INT64, Graph, Step, Symbol
from seqmodel.model.ages import SILENT, SOUNDING, UNCHANGED
from seqmodel.model.bars import BARS, SIGNATURE, write_position
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
from seqmodel.model.notes import PITCH, WINDOW, NoteEncoder, absolute_pitch
from seqmodel.model.sound import predictors as sounds
from seqmodel.model.sound import steering
from seqmodel.model.sound.encoder import SoundEncoder
from seqmodel.model.sound.predictors import Predictors
from seqmodel.model.sound.steering import TrainingStatistics
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
        g.repeated(absolute_pitch(D).numpy(), frames, D, PITCH),
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
    """The rows' places in the bar, (rows, BARS), by the metre in the state or else train's usual.

    `write_position` itself adds the nodes, given symbols and their functions.
    """

    def known(former: list[Symbol]) -> tuple[list[Symbol], Symbol]:
        metre = g("Where", former[0][3:] > 0, former[0], encoder.bars[:SIGNATURE])
        return [metre], metre

    metre = g.with_states({"metre": [SIGNATURE]}, known, INT64)
    names = {"unrolled": range, "min": partial(g, "Min"), "float": partial(g.cast, kind=FLOAT)}
    write = FunctionType(write_position.__code__, {**write_position.__globals__, **names})
    columns = [elapsed] * BARS
    write(columns, g.split(metre, [1] * SIGNATURE, 0), g.unsqueeze(elapsed, 1), 1)
    return g.concat(columns, 1)


def _ages(g: Graph, encoder: NoteEncoder, frames: Symbol) -> tuple[Symbol, Symbol, Symbol]:
    """How long each note has sounded or been silent, (rows, D, AGES), as in `model.ages`.

    Also for how many frames nothing has changed, now and before the last frame: (rows, 1).
    """
    D = encoder.rows

    def body(age: Symbol, unchanged: Symbol, frame: Symbol) -> Step:
        was_sounding, begins = age > 0.0, age <= 0.0
        if encoder.onsets:
            begins = begins | (frame[D:] > 0.0)
        ends = g("Where", was_sounding, -1.0, age - g.cast(age < 0.0, FLOAT))
        now = g("Where", frame[:D] > 0.0, g("Where", begins, 1.0, age + 1.0), ends)
        changed = g("Equal", now, 1.0) | (g("Equal", now, -1.0) & was_sounding)
        still = g("Equal", g.sum(g.cast(changed, FLOAT), 0), 0.0)
        after = g("Where", still, unchanged, 0.0) + 1.0
        return [now, after], [now, after, unchanged]

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
    features = [g.repeated(known, frames, D, len(STEPS))]
    for start in range(0, F, D):
        features.append(g.unsqueeze(next_frame[:, start : start + D], 2) * known)
    return g.concat(features, 2)


# ---- sound: functions of the parts of its memory


Parts = Mapping[str, Symbol]


def sound(
    g: Graph, encoder: SoundEncoder, frames: Symbol, frame_size: int, labels: Symbol | None
) -> Encoded:
    """What adaptive predictors predict about the next sample; `frames` are samples (rows, 1).

    As in `model.sound`, in float64, for one piece and without noise. All lattices are computed at
    once, as rows with as many stages as the longest: a stage depends only on lower ones. Their
    memory is one state, a vector of parts, from which the features of all samples follow at once.
    """
    p, known, elapsed = encoder.predictors, encoder.steered(), _elapsed(g, frames)
    starts = _start(p, known)
    start, sizes = np.concatenate(list(starts.values())), [part.size for part in starts.values()]

    def parts_of(memory: Symbol, axis: int) -> Parts:
        return dict(zip(starts, g.split(memory, sizes, axis), strict=True))

    def body(memory: Symbol, sample: Symbol, count: Symbol) -> Step:
        before = g("Where", g("Equal", count, 0), start, memory)
        parts = _updated(g, p, parts_of(before, 0), sample)
        after = g.concat([parts[name] for name in starts], 0)
        return [after], [after]

    def course_of(k: Symbol, b: Symbol, slow: Symbol, loud: Symbol) -> list[Symbol]:
        """What labels add to the features, as in `sound.kernel.write_course`; nothing without."""
        if not p.combinations or labels is None:
            return []
        number = g.cast(labels, DOUBLE) @ encoder.place_values.numpy()[:, np.newaxis]
        moment = g.unsqueeze(g.cast(elapsed + 1, DOUBLE) * p.moments_per_sample, 1)
        table = known.courses.flatten(0, 1).numpy()
        M, nodes = table.shape[1] - 1, steering.MOMENTS
        width = _between(g, table, moment, nodes)
        centre = _between(g, table, moment, nodes, (number + 1.0) * float(nodes))
        near = g("Min", g("Max", k, centre[:, :M] - width[:, :M]), centre[:, :M] + width[:, :M])
        course = g.concat([g.sum((near - k) * b, 1) / slow, centre[:, M:] - loud.log()], 1)
        fading = g("Clip", (float(nodes) - moment) / float(steering.FADING), 0.0, 1.0)
        weight = g("Min", number, 1.0) * fading
        return [g("Clip", course, -sounds.CLIP, sounds.CLIP) * weight]

    shapes, rows = {"sound": [len(start)]}, [frames, elapsed]
    (memories,) = g.with_states(shapes, lambda states: g.scan(body, states, rows), DOUBLE)
    with g.within("features"):
        features = _features(g, p, known, parts_of(memories, 1), course_of)
        x = g.unsqueeze(g.cast(features, FLOAT), 1)
    return Encoded(x, x, frames, g("Equal", (elapsed + 1) % encoder.steps, 0))


def _start(p: Predictors, known: TrainingStatistics) -> dict[str, NDArray[np.float64]]:
    """The parts of the memory before the first sample."""
    L, M = len(p.lattices), max(each.order for each in p.lattices)
    initial = p.parts(p.start_memory(known.grid, 1, torch.device("cpu")))
    copied = "grid", "seen", "energy", "lag", "peak", "acf", *p.lines
    return {
        **{name: np.zeros(L * M) for name in ("k", "b", "num")},
        "den": np.full(L * M, sounds.FIRST_SQUARES),
        "predicted": np.zeros(L),
        "levels": np.array([level.start for level in p.levels.values()]),
        **{name: initial[name].numpy().ravel() for name in copied},
    }


def _updated(g: Graph, p: Predictors, parts: Parts, raw: Symbol) -> Parts:
    """The parts after a sample (1,)."""
    pure = g.cast(raw, DOUBLE) * sounds.FULL
    sample = pure + sounds.OFFSET
    errors = sample - parts["predicted"]
    slope = sample - parts[sounds.SAMPLES][-1:]
    first = errors[:1]
    newest = {sounds.SAMPLES: sample, sounds.ERRORS: first, sounds.SLOW_ERRORS: errors[-1:]}
    lines = dict[str, Symbol]()
    for line in p.lines:
        if line == sounds.SMOOTH:
            latest = lines[sounds.ERRORS][-p.pitch.step :]
            newest[line] = g("ReduceMean", latest, axes=[0], keepdims=1)
        lines[line] = g.concat([parts[line][1:], newest[line]], 0)
    sizes = g("Abs", g.concat([first, first, sample, slope, np.array([sounds.OFFSET])], 0))
    followed = g.concat([sizes, sample], 0)
    forgetting = np.array([level.forgetting for level in p.levels.values()])
    return {
        **_updated_lattices(g, p, parts, sample),
        "levels": parts["levels"] * forgetting + followed * (1 - forgetting),
        **_updated_grid(g, parts, pure),
        **_updated_pitch(g, p.pitch, parts, lines[p.pitch_line], p.lines[p.pitch_line]),
        **lines,
    }


def _updated_lattices(g: Graph, p: Predictors, parts: Parts, sample: Symbol) -> Parts:
    orders = np.array([[each.order] for each in p.lattices])
    L, M = len(orders), orders.max()
    k, b, num, den = (g.reshape(parts[name], L, M) for name in ("k", "b", "num", "den"))
    forgetting = np.array([[each.forgetting] for each in p.lattices])
    f = sample - g("CumSum", k * b, 1, exclusive=1)
    num = num * forgetting + f * b * 2.0
    den = den * forgetting + (f * f + b * b + 2 * sounds.QUANTISATION)
    b = g.concat([g("Expand", sample, np.array([L, 1])), (b - k * f)[:, : M - 1]], 1)
    k = num / den * sounds.INSIDE
    following = g.sum(k * b * (np.arange(M) < orders).astype(float), 1, keep=False)
    after = {"k": k, "b": b, "num": num, "den": den}
    parts = {name: g.reshape(value, -1) for name, value in after.items()}
    return parts | {"predicted": _within_full_scale(g, following)}


def _updated_grid(g: Graph, parts: Parts, pure: Symbol) -> Parts:
    former, powers = parts["grid"], 2.0 ** np.arange(16)
    divides = g("Equal", g("Floor", pure / powers) * powers, pure)
    lowest = g("ReduceMax", g("Where", divides, powers, 1.0), axes=[0], keepdims=1)
    first, silent = g("Equal", parts["seen"], 0.0), g("Equal", pure, 0.0)
    grid = g("Where", first, lowest, g("Min", former, lowest))
    seen = g("Min", parts["seen"] + 1.0, float(sounds.MAX_SEEN))
    return {
        "grid": g("Where", silent, former, grid),
        "seen": g("Where", silent, parts["seen"], seen),
    }


def _updated_pitch(g: Graph, pitch: sounds.Pitch, parts: Parts, line: Symbol, size: int) -> Parts:
    newest = line[-1:]
    energy = parts["energy"] * pitch.forgetting + newest * newest + 1.0
    back = np.arange(pitch.shortest, pitch.longest + 1) * pitch.step
    acf = parts["acf"] * pitch.forgetting + newest * g("Gather", line, size - 1 - back)
    peak = g("ReduceMax", acf, axes=[0], keepdims=1)
    best = g.cast(g("ArgMax", acf, axis=0), DOUBLE)
    periodic = peak > energy * sounds.MIN_PEAK
    return {
        "energy": energy,
        "lag": g("Where", periodic, best, 0.0) + float(pitch.shortest),
        "peak": g("Max", peak / energy, sounds.MIN_PEAK),
        "acf": acf,
    }


def _features(
    g: Graph,
    p: Predictors,
    known: TrainingStatistics,
    parts: Parts,
    course_of: Callable[..., list[Symbol]],
) -> Symbol:
    """The features (rows, I) of all samples at once, as in `sound.kernel.write_features`."""
    levels = g.split(parts["levels"], [1] * len(p.levels), 1)
    floors = (level.floor for level in p.levels.values())
    slow, fast, loud, sharp, initial, dc = (
        level + floor for level, floor in zip(levels, floors, strict=True)
    )
    predicted, grid, M = parts["predicted"], parts["grid"], p.reported_coefficients
    anchor, period = predicted[:, :1], parts["lag"] / float(p.pitch.longest)

    def latest(line: str, count: int) -> Symbol:
        last = p.lines[line] - 1
        return g("Gather", parts[line], np.arange(last, last - count, -1), axis=1)

    def clipped_ratio(values: Symbol, level: Symbol) -> Symbol:
        return g("Clip", values / level, -sounds.CLIP, sounds.CLIP)

    def one_period_ago(taps: int) -> Symbol:
        steps = g.cast(parts["lag"], INT64) - np.arange(-taps, taps + 1)
        places = p.lines[p.pitch_line] - steps * p.pitch.step
        return g("GatherElements", parts[p.pitch_line], places, axis=1)

    def steered() -> list[Symbol]:
        """The anchor and its level, moved as in `model.sound.steering`."""
        strength, place = known.strength, loud.log() / math.log(2)
        low, high = g.split(_between(g, known.ranges.numpy(), place), [M, M], 1)
        k, b, peak = parts["k"][:, :M], parts["b"][:, :M], parts["peak"]
        outside = g("Min", g("Max", k, low), high) - k
        beyond = g("Clip", dc, -known.most_dc, known.most_dc) - dc
        pull = (g.sum(outside * b, 1) + beyond) * steering.OUTSIDE
        octaves = period.log() * (steering.AN_OCTAVE / math.log(2)) + (steering.NODES - 1.0)
        voice = _between(g, known.voices.numpy()[:, np.newaxis], octaves)
        pull = pull + peak * (1.0 - peak) * voice * one_period_ago(0)
        softer = g("Pow", g("Min", known.sharpest / sharp, 1.0), strength)
        louder = g("Max", 1.0 - known.loudest / loud, 0.0) * anchor * softer * steering.OUTSIDE
        pull = pull - g("Min", g("Max", louder, -slow), slow)
        push = _between(g, known.pushes.numpy()[:, np.newaxis], place)
        for each in course:
            limit, share = steering.MAX_FOLLOWED, float(known.afforded)
            pull = pull + g("Clip", each[:, :1], -limit, limit) * slow * share
            limit = steering.MAX_LOUDER
            push = push + g("Clip", each[:, 1:] * steering.LOUDER, -limit, limit) * share
        new_anchor = _within_full_scale(g, anchor * softer + pull * strength)
        limited = g("Min", slow, initial + known.roughest)
        return [new_anchor, limited * (push * strength).exp()]

    odds = g("Pow", grid, parts["seen"]) * known.share
    certainty = g("Where", grid > 1.0, odds / (odds + (1 - known.share)), 0.0)
    course = course_of(parts["k"][:, :M], parts["b"][:, :M], slow, loud)
    anchor_and_level = steered() if known.strength else [anchor, slow]
    features = [
        clipped_ratio(latest(sounds.SAMPLES, 16) - anchor, loud),
        clipped_ratio(latest(sounds.ERRORS, 24), slow) / 2.0,
        clipped_ratio(predicted[:, 1:] - anchor, slow),
        clipped_ratio(latest(sounds.SLOW_ERRORS, 8), slow) / 2.0,
        parts["k"][:, :M],
        g.concat([slow, fast, loud], 1).log() / 2.0 - np.array([2.0, 2.0, 3.0]),
        clipped_ratio(one_period_ago(sounds.TAPS), slow) / 2.0, parts["peak"],
        period.log() / math.log(2), *course,
        certainty, g.concat([grid, *anchor_and_level], 1) / sounds.FULL,
    ]  # fmt: skip
    return g.concat(features, 1)


def _between(
    g: Graph, table: NDArray[np.float64], place: Symbol, nodes: int = steering.NODES,
    first: Symbol | float = 0.0,
) -> Symbol:  # fmt: skip
    """Rows (rows, N) interpolated at places (rows, 1) in a table of `nodes` rows.

    If several tables are stacked, this one begins at row `first`.
    """
    place = g("Clip", place, 0.0, nodes - 1.0)
    node = g("Min", g("Floor", place), nodes - 2.0)
    number, stored = g.squeeze(g.cast(node + first, INT64), 1), g.constant(table, "table")
    below, above = (g("Gather", stored, n) for n in (number, number + 1))
    return below + (above - below) * (place - node)


def _within_full_scale(g: Graph, values: Symbol) -> Symbol:
    return g("Clip", values, -sounds.FULL, sounds.FULL - 1)


ENCODERS: Mapping[type, Callable[..., Encoded]] = {
    WindowEncoder: window,
    NoteEncoder: notes,
    SoundEncoder: sound,
}
