"""Outputs over samples: mixtures of the next ones, in [-1, 1), and the samples drawn from them."""

import math
from collections.abc import Callable, Mapping

from seqmodel.export.onnx.graph import FLOAT, INT64, Graph, Symbol, Value
from seqmodel.export.onnx.reading import (
    COLDEST,
    Reading,
    Telling,
    Told,
    ending,
    linear,
    unless_given,
)
from seqmodel.media.audio import mu_law
from seqmodel.outputs.categorical import CategoricalOutput
from seqmodel.outputs.gaussian import GaussianMixtureOutput
from seqmodel.outputs.logistic import SampleLogisticOutput
from seqmodel.outputs.samples import (
    LEAST_FINE,
    LEVEL_STEP,
    LOWEST,
    SampleBlocksOutput,
    SampleWiseOutput,
)

_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def _gaussian(g: Graph, output: GaussianMixtureOutput, reading: Reading) -> Told:
    """Blocks from a mixture of diagonal Gaussians."""
    F, K = output.frame_size, output.components
    columns = linear(g, output.linear, g.squeeze(reading.h, 1))
    first, means, log_scales = g.split(g.reshape(columns, 0, 2 * F + 1, K), [1, F, F], 1)
    logits, scales = g.squeeze(first, 1), g("Exp", log_scales) + output.floor
    chosen = g.unsqueeze(_chosen(g, logits, reading.uniforms[:, :1], reading), 1)
    mean, scale = (g.squeeze(_of(g, values, chosen), 2) for values in (means, scales))
    noise = _normal(g, reading.uniforms[:, 1:]) * reading.temperature
    drawn = _nearest(g, _raw(output, mean + scale * noise), LEVEL_STEP)
    return {
        "drawn": Telling(unless_given(g, drawn, reading.given), [F]),
        "logits": Telling(logits, [K]),
        "means": Telling(_raw(output, means), [F, K]),
        "scales": Telling(scales * output.deviation, [F, K]),
    }


def _sample_logistic(g: Graph, output: SampleLogisticOutput, reading: Reading) -> Told:
    """Single samples around an anchor, the last numbers of h, on a grid with some certainty."""
    K, temperature, h = output.components, reading.temperature, g.squeeze(reading.h, 1)
    logits, offsets, log_scales = g.split(linear(g, output.linear, h), [K, K, K], 1)
    certainty, spacing, anchor, level = g.split(h[:, -4:], [1, 1, 1, 1], 1)
    means, scales = offsets * level, g("Exp", log_scales) * level + output.floor
    fine = g("Max", 1.0 - certainty, LEAST_FINE)
    fine = g("Where", g("Greater", spacing, LEVEL_STEP), fine, 1.0)

    choice, noise, rounding = (reading.uniforms[:, k : k + 1] for k in range(3))
    chosen = _chosen(g, logits, choice, reading)
    noise = _logistic_noise(g, noise) * temperature
    deviation = _of(g, means, chosen) + _of(g, scales, chosen) * noise
    at_one, now = (_mean_size(g, logits, means, scales, t) for t in (1.0, temperature))
    coldest = g("LessOrEqual", temperature, COLDEST)
    deviation = deviation * g("Where", coldest, 1.0, at_one / now)
    single = g("Or", g("Less", rounding, fine), coldest)
    drawn = _nearest(g, anchor + deviation, g("Where", single, LEVEL_STEP, spacing))
    return {
        "drawn": Telling(unless_given(g, drawn, reading.given), [1]),
        "logits": Telling(logits, [K]),
        "means": Telling(means + anchor, [K]),
        "scales": Telling(scales, [K]),
        "spacing": Telling(spacing, [1]),
        "fine_share": Telling(fine, [1]),
        **_sample_end(g, output, h, reading),
    }


def _categorical(g: Graph, output: CategoricalOutput, reading: Reading) -> Told:
    """Single samples of 256 mu-law levels."""
    h = g.squeeze(reading.h, 1)
    logits = linear(g, output.linear, h)
    drawn = _of(g, mu_law.SAMPLES, _chosen(g, logits, reading.uniforms[:, :1], reading))
    return {
        "drawn": Telling(unless_given(g, drawn, reading.given), [1]),
        "logits": Telling(logits, [mu_law.LEVELS]),
        **_sample_end(g, output, h, reading),
    }


def _sample_end(g: Graph, output: SampleWiseOutput, h: Symbol, reading: Reading) -> Told:
    return {} if output.ending is None else ending(g, linear(g, output.ending, h), reading)


def _raw(output: SampleBlocksOutput, z: Symbol) -> Symbol:
    return z * output.deviation + output.mean


def _chosen(g: Graph, logits: Symbol, uniforms: Symbol, reading: Reading) -> Symbol:
    """1 for the component (rows, K) that the uniforms (rows, 1) choose, as in `samples.choose`."""
    cumulative = g("CumSum", g("Softmax", logits / reading.temperature, axis=1), 1)
    beyond = g("Greater", cumulative / cumulative[:, -1:], uniforms)
    # Of those beyond the uniform, the first.
    return g.cast(g("Equal", g("CumSum", g.cast(beyond, INT64), 1), 1), FLOAT)


def _of(g: Graph, values: Value, chosen: Symbol) -> Symbol:
    """The values (..., K) of the chosen component: (..., 1)."""
    return g.sum(chosen * values, -1)


def _nearest(g: Graph, samples: Symbol, spacing: Symbol | float) -> Symbol:
    """As `samples.nearest_level`."""
    level = g("Max", g("Round", samples / spacing) * spacing, LOWEST * LEVEL_STEP)
    highest = g("Sub", 1.0, spacing)
    return g("Where", g("GreaterOrEqual", level, 1.0), highest, level)


def _mean_size(
    g: Graph, logits: Symbol, means: Symbol, scales: Symbol, temperature: Symbol | float
) -> Symbol:
    """As `logistic.mean_size`: (rows, 1)."""
    scales, sizes = scales * temperature, g("Abs", means)
    sizes = sizes + g("Softplus", -sizes / scales) * scales * 2.0
    return _of(g, sizes, g("Softmax", logits / temperature, axis=1))


def _inside(g: Graph, uniforms: Symbol) -> Symbol:
    """Uniforms of which neither u nor 1 - u is 0."""
    return g("Clip", uniforms, 2.0**-54, 1 - 2.0**-24)


def _logistic_noise(g: Graph, uniforms: Symbol) -> Symbol:
    """log(u) - log(1 - u)."""
    u = _inside(g, uniforms)
    return g("Log", u) - g("Log", 1.0 - u)


def _normal(g: Graph, uniforms: Symbol) -> Symbol:
    """The inverse of the normal's cumulative distribution, to a few units of float32.

    sqrt(2) x p(w) with x = 2 u - 1 and w = -log(1 - x^2), p a polynomial: Giles 2010,
    "Approximating the erfinv function", table 5. ONNX has no inverse of Erf.
    """
    u = _inside(g, uniforms)
    w = -g("Log", u * (1.0 - u) * 4.0)
    parts = []
    for place, coefficients in ((w - 2.5, _CENTRAL), (g("Sqrt", w) - 3.0, _TAIL)):
        p: Symbol = place * coefficients[0] + coefficients[1]
        for coefficient in coefficients[2:]:
            p = p * place + coefficient
        parts.append(p)
    return g("Where", g("Less", w, 5.0), *parts) * (u * 2.0 - 1.0) * math.sqrt(2)


OUTPUTS: Mapping[type, Callable[..., Told]] = {
    GaussianMixtureOutput: _gaussian,
    SampleLogisticOutput: _sample_logistic,
    CategoricalOutput: _categorical,
}
