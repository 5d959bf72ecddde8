"""Outputs: their inputs, the distribution of the next frame, and a draw from it.

If the numbers of a frame of notes depend on each other, each logit depends on the numbers before it
in the frame, which are drawn, or given, one after another in a scan. Samples are in [-1, 1).
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from seqmodel.export.onnx.graph import BOOL, DOUBLE, FLOAT, INT64, ROWS, Graph, Step, Symbol
from seqmodel.export.onnx.texts import Array, Number, View, add_text
from seqmodel.export.onnx.units import array, over_time
from seqmodel.media.audio.mu_law import SAMPLES
from seqmodel.outputs import draws
from seqmodel.outputs.bernoulli import BernoulliOutput, TiedBernoulliOutput
from seqmodel.outputs.categorical import CategoricalOutput, draw_level
from seqmodel.outputs.first_change import HIDDEN, POOLED, FirstChange
from seqmodel.outputs.gaussian import GaussianMixtureOutput, draw_block, normal_quantile
from seqmodel.outputs.logistic import SampleLogisticOutput, draw_sample
from seqmodel.outputs.nade import NadeOutput
from seqmodel.outputs.note_unit import NoteUnitOutput
from seqmodel.outputs.notes import OCTAVE, NotesOutput
from seqmodel.outputs.notes_tied import JOINING, TiedOutput
from seqmodel.outputs.samples import LEVEL_STEP, MIN_FINE, SampleBlocksOutput

COLDEST = 1e-6
"""Lower temperatures count as this: the most likely value is drawn."""


class Reading(NamedTuple):
    """An output's inputs for each row."""

    h: Symbol
    """(rows, R, H + E)"""
    past: Symbol
    """(rows, C), the numbers before the frame."""
    given: Symbol
    """(rows, F), the frame's known numbers; nan for those to be drawn."""
    uniforms: Symbol
    """(rows, U), for the draw."""
    temperature: Symbol
    """(), at least `COLDEST`."""
    last: Symbol | None
    """(rows,), whether the row is its frame's last, if a frame has several."""


def linear(g: Graph, layer: nn.Linear, x: Symbol) -> Symbol:
    """A layer's outputs from x (..., H)."""
    product = x @ g.constant(array(layer.weight).T, "weight")
    return product if layer.bias is None else product + array(layer.bias)


def unless_given(g: Graph, drawn: Symbol, given: Symbol) -> Symbol:
    """The drawn numbers, replaced by those that are given."""
    return g("Where", g("IsNaN", given), drawn, given)


def add_end_results(g: Graph, logits: Symbol, reading: Reading) -> None:
    """Whether the piece ends with a frame, from logits (rows, 1) and the last uniform."""
    logits = g.reshape(logits, -1)
    ended = g.reshape(reading.uniforms[:, -1:], -1) < g("Sigmoid", logits)
    if reading.last is not None:
        ended = ended & reading.last
    g.output("end_logits", logits, ROWS)
    g.output("ended", ended, ROWS, kind=BOOL)


# ---- over notes


def _bernoulli(g: Graph, output: BernoulliOutput, reading: Reading) -> None:
    """Numbers that are independent given the past."""
    columns = linear(g, output.linear, g.squeeze(reading.h, 1))
    _at_once(g, output, columns[:, : output.frame_size], reading)
    _frame_end(g, output, columns, reading)


def _tied_bernoulli(g: Graph, output: TiedBernoulliOutput, reading: Reading) -> None:
    """Like `_bernoulli`, from a row of h for each note."""
    by_number = g("Transpose", linear(g, output.linear, reading.h), perm=[0, 2, 1])
    _at_once(g, output, g.reshape(by_number, 0, output.frame_size), reading)
    _tied_end(g, output, reading)


def _nade(g: Graph, output: NadeOutput, reading: Reading) -> None:
    """Numbers one after another, each given those before it: the notes, then their strikes."""
    F, D, temperature = output.frame_size, output.notes, reading.temperature
    columns = linear(g, output.linear, g.squeeze(reading.h, 1))
    numbers, weights = (columns, reading.given, reading.uniforms), (output.U, output.V)

    def body(
        a: Symbol, b_v: Symbol, given: Symbol, uniform: Symbol, U: Symbol, V: Symbol,
        *strike: Symbol,
    ) -> Step:  # fmt: skip
        logit = b_v + g("Sigmoid", a) @ U
        drawn = _draw_bernoulli(g, logit, given, uniform, temperature, *strike)
        return [a + g.unsqueeze(drawn, 1) * V], [logit, drawn]

    def chain(start: int, a: Symbol, *strike: Symbol) -> tuple[list[Symbol], list[Symbol]]:
        rows = [value[:, start : start + D] for value in numbers]
        rows += [g.constant(array(weight)[start : start + D], "weight") for weight in weights]
        axes = [1, 1, 1, 0, 0, *(1 for _ in strike)]
        return g.scan(body, [a], [*rows, *strike], row_axes=axes, output_axis=1)

    (a,), results = chain(0, columns[:, F : F + output.width])
    if output.onsets:
        _, strikes = chain(D, a, results[1], reading.past[:, :D])
        results = [g.concat(pair, 1) for pair in zip(results, strikes, strict=True)]
    _frame(g, output, *results)
    _frame_end(g, output, columns, reading)


def _note_unit(g: Graph, output: NoteUnitOutput, reading: Reading) -> None:
    """Notes from low to high: a unit runs along pitch."""
    F, D, layers = output.frame_size, output.notes, output.layers()
    halves, coldest = F // D, reading.temperature <= COLDEST
    sizes = [layer.hidden_size for layer in layers for _ in layer.spec.state]

    def body(onset_count: Symbol, changed: Symbol, *values: Symbol) -> Step:
        state, (classes, *rest) = values[: len(sizes)], values[len(sizes) :]
        below, (h, given, uniforms, before, *first) = rest[:halves], rest[halves:]
        held = 0.0 if output.hits else before
        x = g.concat([h, below[0], classes, g.sum(classes, 1) / float(OCTAVE), *below[1:]], 1)
        new = list[Symbol]()
        for k, layer in enumerate(layers):
            layer_state = state[len(new) : len(new) + len(layer.spec.state)]
            with g.within(f"unit.{k}"):
                after, _ = over_time(g, layer, g.unsqueeze(x, 0), layer_state)
            new += after
            x = after[0]
        logits, drawn = linear(g, output.linear, x), list[Symbol]()
        if first:
            logits = g("Where", changed > 0.0, logits, first[0])
        divided = (onset_count > 0.0) | coldest  # see `NoteUnitOutput.tempered`
        heat = g("Where", divided, reading.temperature, 1.0)
        extra_logit = heat * (1.0 - heat) * JOINING
        for k in range(halves):
            logit, *number = [value[:, k : k + 1] for value in (logits, given, uniforms)]
            logit = logit + (extra_logit if k else extra_logit * (1.0 - held))
            strike = [*drawn, before] if k else []
            drawn.append(_draw_bernoulli(g, logit, *number, heat, *strike))
        onset = drawn[-1] if output.onsets else drawn[0] * (1.0 - held)
        changed = changed + onset + ((1.0 - drawn[0]) * held if first else 0.0)
        # Both windows move on by a note, and with them the classes, which are relative to the note.
        newest = [classes[:, :1] + drawn[0], *drawn]
        for line, last in zip([classes, *below], newest, strict=True):
            new.append(g.concat([line[:, 1:], last], 1))
        return [onset_count + onset, changed, *new], [logits, g.concat(drawn, 1)]

    with g.within("note_unit"):
        widths = [1, 1, *sizes, *[OCTAVE] * (1 + halves)]
        states = [g.repeated(0.0, reading.h, width) for width in widths]
        numbers = (reading.given, reading.uniforms[:, :F])
        rows = [reading.h, *(g.reshape(value, 0, halves, D) for value in numbers)]
        rows.append(g.unsqueeze(reading.past[:, :D], 1))
        if output.first is not None:
            rows.append(_first(g, output.first, reading))
        axes = [1, 2, 2, 2, 1][: len(rows)]
        _, results = g.scan(body, states, rows, row_axes=axes, output_axis=2)
        results = [g.reshape(value, 0, F) for value in results]
    _frame(g, output, *results)
    _tied_end(g, output, reading)


def _first(g: Graph, first: FirstChange, reading: Reading) -> Symbol:
    """Logits (rows, D, 1 or 2) of notes below which no note has changed."""
    K, D = first.odds.out_features, first.notes
    hidden, pooled, direct = g.split(linear(g, first.own, reading.h), [HIDDEN, POOLED, K], 2)
    mean = g.sum(g("Relu", pooled), 1) / float(D)
    joint = linear(g, first.joint, mean)
    odds = direct + linear(g, first.odds, g("Relu", hidden + joint))
    sounds = odds[:, :, :1]
    if not first.hits:
        held = g.unsqueeze(reading.past[:, :D], 2) > 0.0
        sounds = g("Where", held, odds[:, :, 1:2] * -1.0, sounds)
    return g.concat([sounds, odds[:, :, K - 1 :]], 2) if first.onsets else sounds


def _draw_bernoulli(
    g: Graph, logits: Symbol, given: Symbol, uniforms: Symbol, temperature: Symbol, *strike: Symbol
) -> Symbol:
    """Numbers that are 1 if a uniform is below their probability, unless they are given.

    For strikes, `strike` is which notes sound and which did before; one that did not is struck.
    """
    drawn = g.cast(uniforms < g("Sigmoid", logits / temperature), FLOAT)
    if strike:
        sounding, held = strike
        drawn = sounding * g("Max", drawn, 1.0 - held)
    return unless_given(g, drawn, given)


def _at_once(g: Graph, output: NotesOutput, logits: Symbol, reading: Reading) -> None:
    """The frame drawn from logits (rows, F) that do not depend on it."""
    D, drawn = output.notes, list[Symbol]()
    for start in range(0, output.frame_size, D):
        numbers = (logits, reading.given, reading.uniforms)
        half = [value[:, start : start + D] for value in numbers]
        strike = [*drawn, reading.past[:, :D]] if start else []
        drawn.append(_draw_bernoulli(g, *half, reading.temperature, *strike))
    _frame(g, output, logits, g.concat(drawn, 1))


def _frame(g: Graph, output: NotesOutput, logits: Symbol, drawn: Symbol) -> None:
    g.output("drawn", drawn, ROWS, output.frame_size)
    g.output("logits", logits, ROWS, output.frame_size)


def _frame_end(g: Graph, output: NotesOutput, columns: Symbol, reading: Reading) -> None:
    if output.end:
        add_end_results(g, columns[:, -1:], reading)


def _tied_end(g: Graph, output: TiedOutput, reading: Reading) -> None:
    """The end, from the log of the notes' mean odds."""
    if output.ending is not None:
        read = reading.h[:, :, : output.ending.in_features]
        odds = g("ReduceLogSumExp", linear(g, output.ending, read), axes=[1], keepdims=0)
        add_end_results(g, odds - math.log(output.notes), reading)


# ---- over samples, by the texts of their draws


def _gaussian(g: Graph, output: GaussianMixtureOutput, reading: Reading) -> None:
    """Blocks from a mixture of diagonal Gaussians."""
    F, K = output.frame_size, output.components
    columns = linear(g, output.linear, g.squeeze(reading.h, 1))
    rows = g.reshape(columns, 0, 2 * F + 1, K)

    def own_of(f: SimpleNamespace, component: Number) -> View:
        chosen = g.unsqueeze(g("Equal", component.symbol, np.arange(K)), 1)
        own = g.sum(g.cast(rows[:, 1:], DOUBLE) * g.cast(chosen, DOUBLE), 2, keep=False)
        return View(Array(g, own, [F, F]))

    def noise(u: Number) -> Number:
        return Number(normal_quantile(u.symbol), DOUBLE, u.steps)

    # ONNX has no inverse of Erf.
    instead = {own_of: own_of, normal_quantile: noise}
    own = {"own_of": own_of, "normal_quantile": normal_quantile}
    _samples(g, output, reading, draw_block, columns, instead, **own)
    means, log_scales = rows[:, 1 : F + 1], rows[:, F + 1 :]
    g.output("means", means * output.deviation + output.mean, ROWS, F, K)
    scales = (log_scales.exp() + output.floor) * output.deviation
    g.output("scales", scales, ROWS, F, K)


def _sample_logistic(g: Graph, output: SampleLogisticOutput, reading: Reading) -> None:
    """Single samples around an anchor, the last numbers of h, on a grid with some certainty."""
    K, h = output.components, g.squeeze(reading.h, 1)
    columns = linear(g, output.linear, h)
    _samples(g, output, reading, draw_sample, columns)
    _, offsets, log_scales = g.split(columns, [K, K, K], 1)
    certainty, spacing, anchor, level = g.split(h[:, -4:], [1, 1, 1, 1], 1)
    fine = g("Max", 1.0 - certainty, MIN_FINE)
    g.output("means", offsets * level + anchor, ROWS, K)
    g.output("scales", log_scales.exp() * level + output.floor, ROWS, K)
    g.output("spacing", spacing, ROWS, 1)
    g.output("fine_share", g("Where", spacing > LEVEL_STEP, fine, 1.0), ROWS, 1)


def _categorical(g: Graph, output: CategoricalOutput, reading: Reading) -> None:
    """Single samples of 256 mu-law levels."""
    columns = linear(g, output.linear, g.squeeze(reading.h, 1))
    _samples(g, output, reading, draw_level, columns, samples=SAMPLES.astype(np.float64))


def _samples(
    g: Graph, output: SampleBlocksOutput, reading: Reading, text: Callable[[Any], None],
    parameters: Symbol, instead: Mapping[Any, Any] = MappingProxyType({}), **own: Any,
) -> None:  # fmt: skip
    """Samples drawn by a text below their output, and the logits of the mixture's components."""
    D, K, h, frame = output.frame_size, output.components, g.squeeze(reading.h, 1), Array(g)
    H, N, U = output.linear.in_features, output.linear.out_features, output.uniforms_per_frame
    logits, uniforms = parameters[:, :K], g("Min", reading.uniforms, 1 - 2.0**-24)  # 1 if rounded

    def view(value: Symbol, size: int) -> View:
        return View(Array(g, g.cast(value, DOUBLE), [size]))

    def chosen(f: SimpleNamespace) -> Number:
        choice = choose(g, logits, uniforms[:, :1], reading.temperature)
        return Number(g("ArgMax", choice, axis=1), INT64)

    def weighed(f: SimpleNamespace, temperature: Number | float) -> None:
        heat = temperature.symbol if isinstance(temperature, Number) else temperature
        weights = g("Softmax", f.parameters.array.read(0, K) / heat, axis=1)
        f.weights.array.write(0, K, weights)

    temperature = g.reshape(g.cast(reading.temperature, DOUBLE), 1, 1)
    f = SimpleNamespace(
        D=D, K=K, C=output.context, H=H, h=view(h, H), parameters=view(parameters, N), lanes=1,
        uniforms=view(uniforms, U), temperature=[Number(temperature, DOUBLE)],
        at_zero=Number(temperature <= COLDEST, BOOL), frame=View(frame), line=View(Array(g)),
        weights=View(Array(g)), sizes=View(Array(g)), mean=[output.mean], floor=[output.floor],
        deviation=[output.deviation], **own,
    )  # fmt: skip
    add_text(g, text, f, instead={draws.choose: chosen, draws.weigh: weighed, **instead})
    g.output("drawn", unless_given(g, g.cast(frame.all(), FLOAT), reading.given), ROWS, D)
    g.output("logits", logits, ROWS, K)
    if output.ending is not None:
        add_end_results(g, linear(g, output.ending, h), reading)


def choose(g: Graph, logits: Symbol, uniforms: Symbol, temperature: Symbol) -> Symbol:
    """1 for the component (rows, K) that the uniforms (rows, 1) choose, as in `draws.choose`."""
    cumulative = g("CumSum", g("Softmax", logits / temperature, axis=1), 1)
    beyond = cumulative / cumulative[:, -1:] > uniforms
    # The first component beyond the uniform.
    return g.cast(g("Equal", g("CumSum", g.cast(beyond, INT64), 1), 1), FLOAT)


OUTPUTS: Mapping[type, Callable[..., None]] = {
    BernoulliOutput: _bernoulli,
    TiedBernoulliOutput: _tied_bernoulli,
    NadeOutput: _nade,
    NoteUnitOutput: _note_unit,
    GaussianMixtureOutput: _gaussian,
    SampleLogisticOutput: _sample_logistic,
    CategoricalOutput: _categorical,
}
