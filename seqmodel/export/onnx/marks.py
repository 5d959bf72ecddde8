"""Marks of the notes struck in a frame, by the texts of `model.marks_kernel`."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from seqmodel.export.onnx.graph import BOOL, DOUBLE, FLOAT, INT64, ROWS, Graph, Step, Symbol
from seqmodel.export.onnx.outputs import choose, linear
from seqmodel.export.onnx.texts import Array, Number, View, add_text
from seqmodel.model.marks import MarkOutput, Marks
from seqmodel.model.marks_kernel import (
    HELD,
    TO_DRAW,
    UNKNOWN,
    add_level,
    begin_frame,
    end_frame,
    tables,
    write_strike,
)


def add_marks(g: Graph, marks: Marks, h: Symbol, drawn: Symbol, temperature: Symbol) -> None:
    """The inputs and outputs of each mark, from h (rows, R, H) and the drawn frames (rows, 2 D)."""
    earlier = list[Symbol]()
    for name, mark in marks.outputs().items():
        D = mark.notes
        with g.within(name):
            given = g.input(f"given.{name}", [ROWS, D])
            uniforms = g.input(f"uniforms.{name}", [ROWS, D])
            rows = [h, uniforms, _before_drawing(g, mark, given, drawn), *earlier]
            frame = partial(_frame, g, mark, temperature)
            levels, logits = g.with_states(
                {name: [1, mark.memory_size]}, partial(g.scan, frame, rows=rows), DOUBLE
            )
            earlier.append(levels)
            number = g(
                "Gather", mark.levels.numbers().astype(np.float32), g("Max", levels[:, :D], 0)
            )
            g.output(f"drawn.{name}", g("Where", given > 0.0, given, number), ROWS, D)
            g.output(f"logits.{name}", logits, ROWS, D, len(mark.levels))


def _before_drawing(g: Graph, mark: MarkOutput, given: Symbol, drawn: Symbol) -> Symbol:
    """`MarkOutput.levels_of` for given numbers, (rows, D + 1); the last one is of no note."""
    edges = np.array([0, *mark.levels.edges], float)
    known = g.sum(g.cast(g.unsqueeze(given, 2) > edges, INT64), 2, keep=False)
    known = g("Where", known > 0, known, g("Where", g("IsNaN", given), TO_DRAW, UNKNOWN))
    resting = g("Where", drawn[:, : mark.notes] > 0.0, HELD, 0)
    levels = g("Where", drawn[:, mark.notes :] > 0.0, known, resting)
    return g("Pad", levels, np.array([0, 0, 0, 1]))


def _frame(
    g: Graph, mark: MarkOutput, temperature: Symbol, memory: Symbol, h: Symbol, uniforms: Symbol,
    levels: Symbol, *earlier: Symbol,
) -> Step:  # fmt: skip
    """The levels (D + 1,) of a frame, all drawn, and the logits (D, L) of struck notes.

    `earlier` are levels of earlier marks. Strikes follow one another, lowest first; the last is of
    no note, since onnxruntime has no scan of 0 steps.
    """
    D, L = mark.notes, len(mark.levels)
    arrays = {name: table.ravel() for name, table in tables(mark.levels, D).items()}
    f, pitch = SimpleNamespace(**arrays, **mark.sizes), mark.pitch.numpy()

    def memory_of(memory: Symbol) -> View:
        return View(Array(g, memory, [f.M]))

    def levels_of(levels: Symbol) -> View:
        return View(Array(g, levels, [D + 1], INT64))

    def strike(memory: Symbol, levels: Symbol, place: Symbol) -> Step:
        kept, features, at = memory_of(memory), Array(g), g.reshape(place, 1, 1)
        note, n = place % D, Number(at % D, INT64)
        level, *own = (g("GatherElements", each, at, axis=1) for each in (levels, *earlier))
        part: Any = 0
        if mark.part_mark is not None:
            part = Number(own[[*mark.earlier].index(mark.part_mark)], INT64)
        add_text(g, write_strike, f, View(features), kept, levels_of(levels), n, part)
        seen = g.cast(features.all(), FLOAT)
        read = [g("Gather", h, note if mark.rows > 1 else 0), g("Gather", pitch, note)]
        read = [g.unsqueeze(each, 0) for each in read]
        for each, count in zip(own, mark.earlier.values(), strict=True):
            read.append(g.cast(g("Equal", each, 1 + np.arange(count)), FLOAT))
        hidden = g("Tanh", linear(g, mark.hidden, g.concat([*read, seen], 1)))
        logits = linear(g, mark.out, g.concat([hidden, seen], 1))
        uniform = g.reshape(g("Gather", uniforms, note), 1, 1)
        chosen = g("ArgMax", choose(g, logits, uniform, temperature), axis=1) + 1
        level = g("Where", g("Equal", level, TO_DRAW), chosen, level)
        new, known = Number(level, INT64), Number(level > 0, BOOL)
        add_text(g, add_level, f, kept, new, n, part, where=known)
        levels = g("ScatterElements", levels, at, level, axis=1)
        return [kept.array.all(), levels], [g.squeeze(logits, 0)]

    kept, levels = memory_of(memory), g.unsqueeze(levels, 0)
    earlier = tuple(g.unsqueeze(each, 0) for each in earlier)
    add_text(g, begin_frame, f, levels_of(levels), kept)
    read = (levels > 0) | g("Equal", levels, TO_DRAW) | (np.arange(D + 1) == D)[np.newaxis]
    strikes = g("Compress", np.arange(D + 1), g.squeeze(read, 0))
    (memory, levels), (logits,) = g.scan(strike, [kept.array.all(), levels], [strikes])
    kept = memory_of(memory)
    add_text(g, end_frame, f, kept)
    logits = g("ScatterND", np.zeros((D + 1, L)), g.unsqueeze(strikes, 1), logits)
    return [kept.array.all()], [g.squeeze(levels, 0), logits[:D]]
