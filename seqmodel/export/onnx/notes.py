"""Outputs over notes: the logits of a frame's numbers, and the frame drawn by them.

Where numbers depend on each other, the logit of each is given those before it in the same frame,
which are drawn, or given, one after another in a scan.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from seqmodel.export.onnx.graph import FLOAT, Graph, Symbol
from seqmodel.export.onnx.reading import Reading, Telling, Told, ending, linear, unless_given
from seqmodel.export.onnx.units import array, over_time
from seqmodel.outputs.bernoulli.specification import BernoulliOutput, TiedBernoulliOutput
from seqmodel.outputs.nade.specification import NadeOutput
from seqmodel.outputs.note_unit.specification import NoteUnitOutput
from seqmodel.outputs.notes.below import REACH
from seqmodel.outputs.notes.output import NotesOutput
from seqmodel.outputs.notes.tied import TiedOutput

_Step = tuple[Sequence[Symbol], Sequence[Symbol]]


def _bernoulli(g: Graph, output: BernoulliOutput, reading: Reading) -> Told:
    """Numbers that are independent given the past."""
    columns = linear(g, output.linear, g.squeeze(reading.h, 1))
    frame = _at_once(g, output, columns[:, : output.frame_size], reading)
    return frame | _frame_end(g, output, columns, reading)


def _tied_bernoulli(g: Graph, output: TiedBernoulliOutput, reading: Reading) -> Told:
    """The same, from a row of h for each note."""
    by_number = g("Transpose", linear(g, output.linear, reading.h), perm=[0, 2, 1])
    logits = g.reshape(by_number, 0, output.frame_size)
    return _at_once(g, output, logits, reading) | _tied_end(g, output, reading)


def _nade(g: Graph, output: NadeOutput, reading: Reading) -> Told:
    """Numbers one after another, each given those before it: the notes, and then their strikes."""
    F, D, temperature = output.frame_size, output.notes, reading.temperature
    columns = linear(g, output.linear, g.squeeze(reading.h, 1))
    numbers, weights = (columns, reading.given, reading.uniforms), (output.U, output.V)

    def body(old: list[Symbol], rows: list[Symbol]) -> _Step:
        (a,), (b_v, given, uniform, U, V, *strike) = old, rows
        logit = b_v + g("Sigmoid", a) @ U
        drawn = _drawn(g, logit, given, uniform, temperature, *strike)
        return [a + g.unsqueeze(drawn, 1) * V], [logit, drawn]

    def chain(start: int, a: Symbol, *strike: Symbol) -> tuple[list[Symbol], list[Symbol]]:
        rows = [value[:, start : start + D] for value in numbers]
        rows += [g.constant(array(weight)[start : start + D], "weight") for weight in weights]
        axes = [1, 1, 1, 0, 0, 1, 1]
        rows += strike
        return g.scan(body, [a], rows, row_axes=axes[: len(rows)], told_axis=1)

    (a,), told = chain(0, columns[:, F : F + output.width])
    if output.onsets:
        _, strikes = chain(D, a, told[1], reading.past[:, :D])
        told = [g.concat(pair, 1) for pair in zip(told, strikes, strict=True)]
    return _frame(output, *told) | _frame_end(g, output, columns, reading)


def _note_unit(g: Graph, output: NoteUnitOutput, reading: Reading) -> Told:
    """Notes from low to high: a unit runs along pitch."""
    F, D, layers = output.frame_size, output.notes, output.layers()
    halves, temperature = F // D, reading.temperature
    sizes = [layer.hidden_size for layer in layers for _ in layer.spec.state]

    def body(old: list[Symbol], rows: list[Symbol]) -> _Step:
        state, classes, below = old[: len(sizes)], old[len(sizes)], old[len(sizes) + 1 :]
        h, given, uniforms, *held = rows
        x = g.concat([h, below[0], classes, g.sum(classes, 1) / float(REACH), *below[1:]], 1)
        new = list[Symbol]()
        for k, layer in enumerate(layers):
            own = state[len(new) : len(new) + len(layer.spec.state)]
            with g.within(f"unit.{k}"):
                _, after = over_time(g, layer, g.unsqueeze(x, 0), own)
            new += after
            x = after[0]
        logits, drawn = linear(g, output.linear, x), list[Symbol]()
        for k in range(halves):
            number = [value[:, k : k + 1] for value in (logits, given, uniforms)]
            strike = [*drawn, *held] if k else []
            drawn.append(_drawn(g, *number, temperature, *strike))
        # Both windows move on by a note, and with them the classes, which count from the note.
        newest = [classes[:, :1] + drawn[0], *drawn]
        for line, last in zip([classes, *below], newest, strict=True):
            new.append(g.concat([line[:, 1:], last], 1))
        return new, [logits, g.concat(drawn, 1)]

    with g.within("note_unit"):
        states = [g.repeated(0.0, reading.h, size) for size in sizes + [REACH] * (1 + halves)]
        numbers = (reading.given, reading.uniforms[:, :F])
        rows = [reading.h, *(g.reshape(value, 0, halves, D) for value in numbers)]
        if output.onsets:
            rows.append(g.unsqueeze(reading.past[:, :D], 1))
        axes = [1, 2, 2, 2]
        _, told = g.scan(body, states, rows, row_axes=axes[: len(rows)], told_axis=2)
        told = [g.reshape(value, 0, F) for value in told]
    return _frame(output, *told) | _tied_end(g, output, reading)


def _drawn(
    g: Graph, logits: Symbol, given: Symbol, uniforms: Symbol, temperature: Symbol, *strike: Symbol
) -> Symbol:
    """Numbers that are 1 where a uniform is below their probability, unless they are given.

    Of strikes: which notes sound, and which did before. Where one did not, it is struck.
    """
    drawn = g.cast(g("Less", uniforms, g("Sigmoid", logits / temperature)), FLOAT)
    if strike:
        sounding, held = strike
        drawn = sounding * g("Max", drawn, 1.0 - held)
    return unless_given(g, drawn, given)


def _at_once(g: Graph, output: NotesOutput, logits: Symbol, reading: Reading) -> Told:
    """The frame drawn from logits (rows, F) that do not depend on it."""
    D, drawn = output.notes, list[Symbol]()
    for start in range(0, output.frame_size, D):
        numbers = (logits, reading.given, reading.uniforms)
        half = [value[:, start : start + D] for value in numbers]
        strike = [*drawn, reading.past[:, :D]] if start else []
        drawn.append(_drawn(g, *half, reading.temperature, *strike))
    return _frame(output, logits, g.concat(drawn, 1))


def _frame(output: NotesOutput, logits: Symbol, drawn: Symbol) -> Told:
    shape = [output.frame_size]
    return {"drawn": Telling(drawn, shape), "logits": Telling(logits, shape)}


def _frame_end(g: Graph, output: NotesOutput, columns: Symbol, reading: Reading) -> Told:
    return ending(g, columns[:, -1:], reading) if output.end else {}


def _tied_end(g: Graph, output: TiedOutput, reading: Reading) -> Told:
    """From the log of the notes' mean odds."""
    if output.ending is None:
        return {}
    odds = g("ReduceLogSumExp", linear(g, output.ending, reading.h), axes=[1], keepdims=0)
    return ending(g, odds - math.log(output.notes), reading)


OUTPUTS: Mapping[type, Callable[..., Told]] = {
    BernoulliOutput: _bernoulli,
    TiedBernoulliOutput: _tied_bernoulli,
    NadeOutput: _nade,
    NoteUnitOutput: _note_unit,
}
