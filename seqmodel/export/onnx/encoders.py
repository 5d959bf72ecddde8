"""Encoders of frames: what the unit reads of the last numbers, or of the past seen from each note.

Each takes the frames heard (rows, F), and keeps what it remembers of earlier ones in states, all of
them zero before the first frame.
"""

from typing import NamedTuple

import numpy as np

from seqmodel.export.onnx.graph import FLOAT, INT64, Graph, Symbol
from seqmodel.model.echo import LONGEST, REACH_BACK, STEPS
from seqmodel.model.encoder import WindowEncoder
from seqmodel.model.note_inputs import PITCH, REACH, WINDOW, absolute_pitch
from seqmodel.model.notes import NoteEncoder

HEARD = "heard"
"""The state that counts frames, or samples, so far."""
WORD = 24
"""Numbers of a remembered frame that fit in a float, one bit each."""


class Encoded(NamedTuple):
    """What is told for each of the rows, which follow the frames heard."""

    x: Symbol
    """(rows, R, I), for the unit."""
    beside: Symbol | None
    """(rows, R, E), for the output, beside h."""
    past: Symbol
    """(rows, C), the numbers before each frame."""
    last: Symbol | None = None
    """(rows,), whether the row is its frame's last, if a frame has several."""


def window(g: Graph, encoder: WindowEncoder, frames: Symbol, frame_size: int) -> Encoded:
    """The last C numbers, standardised."""
    C, past = encoder.input_size, frames
    if frame_size != C:
        line = g.concat([g.state("past", [C]), g.reshape(frames, -1)], 0)
        starts = g("CumSum", g.repeated(np.array(frame_size), frames), 0)
        past = g("Gather", line, g.unsqueeze(starts, 1) + np.arange(C))
        g.keep("past", line[-C:], [C])
    x = past
    if (encoder.mean, encoder.deviation) != (0, 1):
        x = (past - encoder.mean) / encoder.deviation
    return Encoded(g.unsqueeze(x, 1), None, past)


def notes(g: Graph, encoder: NoteEncoder, frames: Symbol, frame_size: int) -> Encoded:
    """The past as each note sees it, as `model.note_inputs`."""
    D = encoder.rows
    sounding, note = frames[:, :D], np.arange(D)[:, np.newaxis]
    classes = sounding @ (note % REACH == np.arange(REACH)).astype(float)
    parts = [
        _around(g, sounding, D),
        g("Gather", classes, (note + np.arange(REACH)) % REACH, axis=1),
        g.repeated(g.unsqueeze(g.sum(sounding, 1) / float(REACH), 1), frames, D, 1),
        g.repeated(absolute_pitch(D).numpy(), frames, D, PITCH),
    ]
    if encoder.onsets:
        parts.append(_around(g, frames[:, D:], D))
    beside = list[Symbol]()
    if encoder.clock or encoder.echo:
        heard = g.state(HEARD, [], INT64)
        after = heard + g.squeeze(g.count(frames), 0)
        g.keep(HEARD, after, [], INT64)
        if encoder.echo:
            with g.within("echo"):
                beside.append(_echo(g, frames, frame_size, heard, D))
        if encoder.clock:
            table, period = encoder.clock.table().float().numpy(), encoder.clock.period
            elapsed = g("Range", heard, after, 1)
            place = g("Min", elapsed, elapsed % period + (len(table) - period))
            row = g("Gather", g.constant(table, "clock"), place)
            beside.append(g.repeated(g.unsqueeze(row, 1), frames, D, encoder.clock.size))
    x = g.concat([*parts, *beside], 2)
    return Encoded(x, g.concat(beside, 2) if beside else None, frames)


def _around(g: Graph, line: Symbol, D: int) -> Symbol:
    """The notes around each of `line` (rows, D): (rows, D, WINDOW)."""
    padded = g("Pad", line, np.array([0, REACH, 0, REACH]))
    return g("Gather", padded, np.arange(D)[:, np.newaxis] + np.arange(WINDOW), axis=1)


def _echo(g: Graph, frames: Symbol, F: int, heard: Symbol, D: int) -> Symbol:
    """What followed the last time the piece was as it is now, for each note (rows, D, E).

    As `model.echo`, with frames packed into whole numbers below 2^24, which floats hold exactly.
    """
    words, places = -(-F // WORD), np.arange(REACH_BACK)
    bits = np.zeros((F, words))
    bits[np.arange(F), np.arange(F) // WORD] = 2.0 ** (np.arange(F) % WORD)

    def body(old: list[Symbol], rows: list[Symbol]) -> tuple[list[Symbol], list[Symbol]]:
        (heard, runs, memory), word = old, rows[0] @ bits
        here = g("Equal", heard % REACH_BACK, places)
        equal = g("Equal", g.sum(g("Abs", memory - word), 1, keep=False), 0.0)
        known = g("And", g("Less", places, heard), g("Not", here))
        longer = g("Min", g.concat([runs[-1:], runs[:-1]], 0) + 1.0, float(LONGEST))
        runs = g("Where", g("And", equal, known), longer, 0.0)
        memory = g("Where", g.unsqueeze(here, 1), word, memory)
        # Of the longest runs, the latest.
        age = g.cast((heard - places) % REACH_BACK, FLOAT)
        best = g("ArgMax", runs * float(REACH_BACK) - age, axis=0, keepdims=0)
        followed = g("Gather", memory, (best + 1) % REACH_BACK)
        return [heard + 1, runs, memory], [followed, g("Gather", runs, best)]

    shapes = {"echo.runs": [REACH_BACK], "echo.frames": [REACH_BACK, words]}
    states = [g.state(name, shape) for name, shape in shapes.items()]
    (_, *after), (word, length) = g.scan(body, [heard, *states], [frames])
    for (name, shape), value in zip(shapes.items(), after, strict=True):
        g.keep(name, value, shape)
    # Bit k of a word is 1 if it, halved k times and rounded down, is odd.
    halved = g("Floor", g.unsqueeze(word, 2) / 2.0 ** np.arange(WORD))
    followed = g.cast(g.reshape(g.cast(halved, INT64) % 2, 0, words * WORD), FLOAT)
    known = g.cast(g("GreaterOrEqual", g.unsqueeze(length, 1, 2), np.array(STEPS, float)), FLOAT)
    told = [g.repeated(known, frames, D, len(STEPS))]
    for start in range(0, F, D):
        told.append(g.unsqueeze(followed[:, start : start + D], 2) * known)
    return g.concat(told, 2)
