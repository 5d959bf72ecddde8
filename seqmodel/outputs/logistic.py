"""16-bit samples from mixtures of discretised logistics, around a prediction or in blocks.

Two specifications in plain PyTorch: samples around an adaptive prediction, and blocks, sample by
sample; then the compiled one-pass score and the draw of the first. In the score each lane is a
sample: components are few, and would fill a vector less well.
"""

import math
from math import exp, log
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from seqmodel.config import Config
from seqmodel.data.dataset import Split
from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.code.language import independent, side_by_side
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.run.signature import Array
from seqmodel.media.definitions import FrameDefinition
from seqmodel.outputs.draws import SamplesDraw, by_rows, choose, put, weigh
from seqmodel.outputs.linear_score import likelihood, linear_nats
from seqmodel.outputs.mixtures import WORK, Mixture, log_and_inverse
from seqmodel.outputs.protocol import DrawSetting
from seqmodel.outputs.samples import (
    HIGHEST,
    LEVEL_STEP,
    LEVELS,
    LOWEST,
    MIN_FINE,
    MIN_UNIFORM,
    UNIFORM,
    SampleBlocksOutput,
    SampleWiseOutput,
    windows,
)

WIDTH = 64
"""M, the hidden width per sample of a block."""
NARROWEST = 1e-30
"""The least step in units of the scale: (1 - exp(-w)) / w rounds to 1 long before w underflows."""
_START = -1.0, 0.2
"""The range of log scales to start from; chosen on speech, whose best single one is -0.3."""


Logistics = tuple[Tensor, Tensor, Tensor]
"""Logits, means and log scales of logistics over a sample, in any units: (..., K) each."""


class SampleLogisticOutput(SampleWiseOutput):
    """P(x_n | x_<n) of each sample, over the 16-bit levels, from one linear layer on row n of h.

    The row holds the unit's h and the encoder's features of the past. The last four features are a
    certainty c, a grid's spacing g, an anchor a, which predicts the sample, and a level l > 0, the
    size of its recent errors; g, a and l are in units of raw samples. With a row r:

        logits, offsets, log scales = V r + v
        mean_k = a + l offset_k
        scale_k = floor + l exp(log scale_k)

    A level's probability is that of the step around it, with tails, a floor and a uniform share as
    in `DiscretisedLogisticOutput`. V starts near 0: training starts from the anchor, with scales
    spread around its level.

    Recordings once stored with fewer bits hold only multiples of a coarser grid g. If g is more
    than one step, a share c of each component's probability is thus that of the steps of width g
    around the multiples of g; see `fine_share`.

    These four are data: no gradient goes to them except through V. Parameters are the layer's
    outputs, then the four: (..., 3 K + 4).
    """

    discrete = True

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition, h_size: int) -> Self:
        return cls(h_size, frame.frame_size, config.components, end=config.end)

    def make_layers(self, hidden_size: int) -> None:
        self.floor = LEVEL_STEP / 10
        self.uniforms_per_frame = 3
        self.linear = nn.Linear(hidden_size, 3 * self.components)
        with torch.no_grad():
            self.linear.weight.mul_(0.1)
            logits, offsets, log_scales = self.linear.bias.view(3, self.components)
            logits.zero_()
            offsets.zero_()
            lowest, highest = _START
            ranks = (torch.arange(self.components) + 0.5) / self.components
            log_scales.copy_(lowest + (highest - lowest) * ranks)

    def forward(self, h: Tensor) -> Tensor:
        """The parameters (..., 3 K + 4) of samples from rows of h (..., H)."""
        return torch.cat([self.linear(h), h[..., -4:].detach()], -1)

    def nats(self, parameters: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """-log P (T, B) of raw `frames` (T, B, S), from parameters (T S, B, 3 K + 4)."""
        mixture, certainty, spacing, anchor = self._mixture(parameters)
        raw = self.of_steps(frames)
        error, fine = raw - anchor, fine_share(certainty, spacing).unsqueeze(-1)
        of_level = level_log_probability(mixture, error, raw, LEVEL_STEP) + fine.log()
        spacing = spacing.clamp(min=LEVEL_STEP).unsqueeze(-1)
        of_grid = level_log_probability(mixture, error, raw, spacing, 1 - spacing)
        on_grid = (raw / spacing.squeeze(-1)).frac() == 0
        of_grid = of_grid.masked_fill(~on_grid.unsqueeze(-1), -math.inf) + (1 - fine).log()
        nats = -mixed(mixture[0], torch.logaddexp(of_level, of_grid))
        return self.of_frames(nats, frames)

    def compiled_nats(
        self, h: Tensor, frames: Tensor, past: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        samples = self.of_steps(frames).reshape(-1).contiguous()
        return linear_nats(
            _SCORE, weights, h, *self.linear.parameters(), steps=self.steps, K=self.components,
            samples=samples, floor=h.new_tensor([self.floor]),
        )  # fmt: skip

    def draw(
        self, parameters: Tensor, past: Tensor, uniforms: Tensor, temperature: float
    ) -> Tensor:
        """Draw a raw sample (B, 1), a 16-bit level, from parameters (B, 3 K + 4).

        The first of a row's `uniforms` (B, 3 or more), float64 in [0, 1), chooses the component,
        see `draws.choose`. With u the second, the sample is mean + temperature scale (log(u) -
        log(1 - u)); u = 0 is replaced by 2^-54. It is rounded to the nearest level if the third is
        below `fine_share` or `temperature` is 0, else to the nearest multiple of the spacing.

        At other temperatures the deviation from the anchor is rescaled to its mean size at 1.
        Otherwise the level, which the model reads back, would fall or rise from sample to sample:
        into silence below 1, up to full scale above.
        """
        return by_rows(self, draw_sample, parameters, uniforms, temperature)

    def compiled_draw(self, setting: DrawSetting) -> SamplesDraw:
        return SamplesDraw(self, setting, draw_sample, self.linear.weight, self.linear.bias)

    def _mixture(self, parameters: Tensor) -> tuple[Logistics, Tensor, Tensor, Tensor]:
        """The mixtures of samples less their anchors; certainties, spacings and anchors (...)."""
        certainty, spacing, anchor, level = parameters[..., -4:].unbind(-1)
        logits, offsets, log_scales = parameters[..., :-4].chunk(3, -1)
        level = level.unsqueeze(-1)
        floor = log_scales.new_tensor(self.floor).log()
        scales = torch.logaddexp(log_scales + level.log(), floor)
        return (logits, level * offsets, scales), certainty, spacing, anchor


class DiscretisedLogisticOutput(SampleBlocksOutput):
    """P(x_t | x_<t) = prod_j P(x_tj | h_t, the C samples before it), over the 16-bit levels.

    A level's probability is that of the step around it under a mixture of K logistics, the lowest
    and highest levels including the tails (Salimans et al. 2017, PixelCNN++, equation 2): scores
    are probabilities, not densities. Samples between levels are scored by the step around them. A
    share of UNIFORM is spread evenly over all levels, so no sample costs more than 39 nats, however
    sure the mixture was of another. Draws leave it out: it would show in one sample of 10^12.

    Within the block a small network, shared by all positions j, reads the samples just before
    sample j, which h_t cannot know yet (the sample-level tier of Mehri et al. 2017, SampleRNN).
    With p_j the C standardised samples before sample j and M = WIDTH:

        u_j = tanh(B_j h + A p_j + a)
        logits, offsets, log scales = V u_j + v
        mean_k = (l + r d) . p_j + r offset_k
        scale_k = floor + r exp(log scale_k)

    l is the linear predictor of the training data and r the deviation of its residual, both
    constant. The learned d and offsets are in units of r and start near 0, so that no optimizer
    step throws the prediction far off. The floor is a tenth of a 16-bit step: a logistic that
    narrow is already certain of its level.

    Parameters are B h, (..., F, M).
    """

    discrete = True
    predictor: Tensor
    residual: Tensor

    def make_layers(self, hidden_size: int) -> None:
        self.step = LEVEL_STEP / self.deviation  # in standardised units, like the floor
        self.floor = self.step / 10
        self.uniforms_per_frame = 2 * self.frame_size
        self.linear = nn.Linear(hidden_size, self.frame_size * WIDTH, bias=False)  # B
        self.window = nn.Linear(self.context, WIDTH)  # A, a
        self.mixture = nn.Linear(WIDTH, 3 * self.components)  # V, v
        self.correction = nn.Parameter(torch.zeros(self.context))  # d
        self.register_buffer("predictor", torch.zeros(self.context))  # l
        self.register_buffer("residual", torch.ones(()))  # r
        with torch.no_grad():  # so that v decides where training starts
            self.mixture.weight.mul_(0.1)

    def start_at(self, train: Split) -> None:
        found = windows(train, self.context)
        # Each sample of a block in turn: the first alone misleads if a period is a whole block.
        rows = np.arange(len(found))
        at = (rows % self.frame_size)[:, np.newaxis] + np.arange(self.context + 1)
        chosen = found[rows[:, np.newaxis], at]
        self.start_at_data(chosen[:, :-1], chosen[:, -1])

    def start_at_data(self, before: NDArray[np.floating], targets: NDArray[np.floating]) -> None:
        """Start from a linear prediction of raw `targets` (N,) from the samples `before` (N, C).

        The predictor is the least-squares one; the ridge is the variance of rounding to 16 bits.
        The components get equal weights, zero offsets, and as scales the residual's absolute values
        at evenly spaced ranks.
        """
        z = (before.astype(np.float64) - self.mean) / self.deviation
        target = (targets.astype(np.float64) - self.mean) / self.deviation
        ridge = len(z) * self.step**2 / 12 * np.eye(self.context)
        predictor = np.linalg.solve(z.T @ z + ridge, z.T @ target)
        error = np.sort(np.abs(target - z @ predictor))
        residual = max(math.sqrt(np.mean(error**2)), self.step)
        ranks = (np.arange(self.components) + 0.5) * len(error) / self.components
        scales = np.maximum(error[ranks.astype(int)] - self.floor, self.floor)
        with torch.no_grad():
            self.predictor.copy_(torch.from_numpy(predictor))
            self.residual.fill_(residual)
            self.correction.zero_()
            logits, offsets, log_scales = self.mixture.bias.view(3, self.components)
            logits.zero_()
            offsets.zero_()
            log_scales.copy_(torch.from_numpy(np.log(scales / residual)))

    def forward(self, h: Tensor) -> Tensor:
        """B h (..., F, M) from h (..., H)."""
        return self.linear(h).unflatten(-1, (self.frame_size, WIDTH))

    def nats(self, parameters: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """-log P (...) of raw blocks `frames` (..., F), given the raw `past` (..., C)."""
        return self.sample_nats(parameters, frames, past).sum(-1)

    def sample_nats(self, parameters: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """-log P (..., F) of each sample, given h, the past and the block's samples before it."""
        mixture = self._mixture(parameters, self._windows(frames, past))
        samples = self.standardised(frames), frames
        return -mixed(mixture[0], level_log_probability(mixture, *samples, self.step))

    def draw(
        self, parameters: Tensor, past: Tensor, uniforms: Tensor, temperature: float
    ) -> Tensor:
        """Draw raw blocks (B, F) of 16-bit levels after `past` (B, C), sample by sample.

        Sample j uses two of a row's `uniforms` (B, 2F), float64 in [0, 1). Number 2j chooses the
        component, see `draws.choose`. With u, number 2j + 1, the sample is mean + temperature scale
        (log(u) - log(1 - u)), rounded to the nearest level; u = 0 is replaced by 2^-54.
        """
        window, frame = self.standardised(past.to(parameters.dtype)), []
        for j in range(self.frame_size):
            mixture = self._mixture(parameters[..., j, :], window)
            u = uniforms[..., 2 * j : 2 * j + 2]
            sample = by_rows(self, draw_logistic, torch.cat(mixture, -1), u, temperature)[..., :1]
            window = torch.cat([window[..., 1:], self.standardised(sample)], -1)
            frame.append(sample)
        return torch.cat(frame, -1)

    def _windows(self, frames: Tensor, past: Tensor) -> Tensor:
        """The C samples before each sample of the block, standardised: (..., F, C), a view."""
        known = self.standardised(torch.cat([past, frames[..., :-1]], -1))
        return known.unfold(-1, self.context, 1)

    def _mixture(self, states: Tensor, p: Tensor) -> Logistics:
        """The mixtures of samples, from B_j h (..., M) and their standardised windows (..., C)."""
        outputs = self.mixture(torch.tanh(states + self.window(p)))
        logits, offsets, log_scales = outputs.unflatten(-1, (3, self.components)).unbind(-2)
        floor = log_scales.new_tensor(math.log(self.floor))
        linear = p @ (self.predictor + self.residual * self.correction)
        means = linear.unsqueeze(-1) + self.residual * offsets
        return logits, means, torch.logaddexp(log_scales + self.residual.log(), floor)


def fine_share(certainty: Tensor, spacing: Tensor) -> Tensor:
    """The weight of single levels beside a grid: 1 - c, but at least MIN_FINE; 1 without one."""
    return torch.where(spacing > LEVEL_STEP, (1 - certainty).clamp(min=MIN_FINE), 1.0)


def level_log_probability(
    mixture: Logistics,
    sample: Tensor,
    raw: Tensor,
    step: float | Tensor,
    highest: float | Tensor = HIGHEST * LEVEL_STEP,
) -> Tensor:
    """log P (..., K) of samples (...), in the mixture's units and raw, under each component.

    Levels are `step` of these units apart.

    With s the sigmoid, and a and b = a + w the step's ends in units of the scale: s(b) - s(a) =
    s(b) s(-a) (1 - exp(-w)), whose logarithm is free of cancellation. At the lowest level s(a)
    counts as 0; at the highest, raw `highest`, s(b) counts as 1.
    """
    _, means, log_scales = mixture
    error, raw = sample.unsqueeze(-1) - means, raw.unsqueeze(-1)
    inverse = torch.exp(-log_scales)
    below_upper = functional.logsigmoid((error + step / 2) * inverse)
    above_lower = functional.logsigmoid((step / 2 - error) * inverse)
    log_width = (
        torch.as_tensor(step, dtype=log_scales.dtype, device=log_scales.device).log() - log_scales
    )
    width = log_width.exp().clamp(min=NARROWEST)
    within = log_width + torch.log(-torch.expm1(-width) / width)
    inside = torch.where(raw >= highest, above_lower, below_upper + above_lower + within)
    return torch.where(raw <= LOWEST * LEVEL_STEP, below_upper, inside)


def mixed(logits: Tensor, log_p: Tensor) -> Tensor:
    """log P (...) from that under each component (..., K), including the uniform share."""
    found = torch.logsumexp(torch.log_softmax(logits, -1) + log_p, -1)
    uniform = found.new_tensor(math.log(UNIFORM / LEVELS))
    return torch.logaddexp(found + math.log1p(-UNIFORM), uniform)


def _with_uniform(nats: Vector) -> tuple[Vector, Vector]:
    """The nats of mixtures with a uniform share for all levels, and the factor on their slopes."""
    e = nats.e
    nats, most = nats + -math.log1p(-UNIFORM), -math.log(UNIFORM / LEVELS)
    # Elsewhere the uniform share is below the last digit, and the mixture has all the slope.
    counts = most - (e.precision.mantissa + 2) * math.log(2)
    soft, share = (nats * -1.0 + most).softplus()
    found = nats.where(">", counts, soft * -1.0 + most)
    return found, share.replaced(nats, "<=", counts, 1.0)


def any_of(e: Emitter, bits: Any) -> Any:
    """Whether any lane's bit is set."""
    together = ir.IntType(e.lanes)
    return e.builder.icmp_unsigned("!=", e.builder.bitcast(bits, together), together(0))


def _level(
    step: Vector, log_step: Vector, raw: Vector, error: Vector, inverse: Vector, log_scale: Vector
) -> tuple[Vector, Vector, Vector]:
    """-log P of a level, and its slopes with respect to the mean and the log of the scale.

    Levels are a `step` apart; the `error` is in units of the scale, `inverse` is one over it.
    """
    above_highest = raw - (1.0 - step)

    def but_highest(value: Vector) -> Vector:
        """`value`, or 0 at the highest level."""
        return value.replaced(above_highest, ">=", 0.0, 0.0)

    def but_lowest(value: Vector) -> Vector:
        """`value`, or 0 at the lowest level."""
        return value.replaced(raw, "<=", LOWEST * LEVEL_STEP, 0.0)

    half = step * 0.5 * inverse
    below, below_slope = map(but_highest, ((error + half) * -1.0).softplus())  # -log s(b)
    above, above_slope = map(but_lowest, (error - half).softplus())  # -log s(-a)
    width = (step * inverse).where("<", NARROWEST, NARROWEST)
    power, rest = (width * -1.0).exp_parts()
    less_one = power * rest + (power - 1.0)  # exp(-w) - 1, exact near zero
    ratio = less_one * -1.0 / width
    within = but_highest(but_lowest(log_step - log_scale + ratio.log()))
    within_slope = but_highest(but_lowest((less_one + 1.0) / ratio))
    by_scale = (
        error * (below_slope - above_slope) + half * (below_slope + above_slope) + within_slope
    )
    return below + above - within, below_slope - above_slope, by_scale


def _write_score(e: Emitter, f: dict[str, Any], r: Any, count: Any) -> None:
    """The nats of as many samples from row r on as there are lanes, or of `count`."""
    H, floor = f["H"], Vector(e, e.broadcast(f["floor"]))
    mixture = Mixture(e, f, r, e.int(3), count)
    end, lanes = e.offset(f["h"], e.mul(e.add(r, 1), H)), e.first_lanes(count)
    certainty, spacing, anchor, level = (
        Vector(e, e.gather(e.offset(end, i), H, count)) for i in (-4, -3, -2, -1)
    )
    raw = Vector(e, e.load(e.offset(f["samples"], r), lanes))
    grid, error, log_level = _grid(e, certainty, spacing, raw), raw - anchor, level.log()

    def energy(k: Any, lanes: Any) -> tuple[Vector, ...]:
        """-log of a component's probability of the samples' levels, and its slopes."""
        offset, log_scale = (mixture.parameter(row, k, lanes) for row in (1, 2))
        log_scale = log_scale + log_level
        scale = log_scale.exp()
        log_total, inverse = log_and_inverse(scale, log_scale, floor)
        scaled = (error - level * offset) * inverse
        nats, by_error, by_scale = _component(grid, raw, scaled, inverse, log_total)
        return nats, by_error * inverse * level, by_scale * (scale * inverse)

    nats = mixture.nats(energy, _with_uniform)
    e.store(nats.value, e.offset(f["nats"], r), lanes)


class _Grid(NamedTuple):
    """A coarser grid that samples may be on."""

    spacing: Vector
    log_spacing: Vector
    holds: Any
    """Bits: whether there is a grid and the sample is on it."""
    cost: Vector
    """-log of the grid's weight."""
    fine_cost: Vector
    """-log of the weight of all levels, see `fine_share`."""


def _component(grid: _Grid, *level: Vector) -> tuple[Vector, Vector, Vector]:
    """The nats of levels and their slopes, which may be on a grid."""
    e = grid.spacing.e
    step, log_step = (Vector(e, e.constant(n)) for n in (LEVEL_STEP, math.log(LEVEL_STEP)))
    nats, *slopes = _level(step, log_step, *level)
    fine = nats + grid.fine_cost, *slopes
    found = [part.value for part in fine]
    with e.when(any_of(e, grid.holds), found) as inside:
        other = _level(grid.spacing, grid.log_spacing, *level)
        gain, share = (fine[0] - other[0] - grid.cost).softplus()
        both = (
            fine[0] - gain,
            *(a + (b - a) * share for a, b in zip(fine[1:], other[1:], strict=True)),
        )
        inside[:] = [
            e.builder.select(grid.holds, new.value, old)
            for new, old in zip(both, inside, strict=True)
        ]
    return Vector(e, found[0]), Vector(e, found[1]), Vector(e, found[2])


def _grid(e: Emitter, certainty: Vector, spacing: Vector, raw: Vector) -> _Grid:
    """The grid of the samples; without one nothing is computed."""
    b = e.builder
    exists = b.fcmp_ordered(">", spacing.value, e.constant(LEVEL_STEP))
    none = [e.zero(), e.zero(), e.zero(), ir.Constant(exists.type, None)]
    with e.when(any_of(e, exists), none) as found:
        fine = (1.0 - certainty).where("<", MIN_FINE, MIN_FINE)
        fine = fine.replaced(spacing, "<=", LEVEL_STEP, 1.0)
        nearest = Vector(e, e.rounded((raw / spacing).value)) * spacing
        holds = b.and_(exists, b.fcmp_ordered("==", nearest.value, raw.value))
        logs = spacing.log(), (1.0 - fine).log() * -1.0, fine.log() * -1.0
        found[:] = *(value.value for value in logs), holds
    log_spacing, cost, fine_cost, holds = none
    return _Grid(spacing, Vector(e, log_spacing), holds, Vector(e, cost), Vector(e, fine_cost))


_SCORE = likelihood(
    "sample_logistic",
    ("K",),
    (Array("samples", ("rows",)), Array("floor", ("1",))),
    _write_score,
    work=WORK,
    in_lanes=True,
)


# Texts of `kernels.code.language`: the draws of both.


def draw_sample(f: Any) -> None:
    """See `SampleLogisticOutput.draw`."""
    features = f.h[f.H - 4 :]
    spacing = features[1]
    level = features[3]
    fine = max(1.0 - features[0], MIN_FINE) if spacing > LEVEL_STEP else 1.0
    is_fine = f.at_zero or f.uniforms[2] < fine
    temperature = 1.0 if f.at_zero else f.temperature[0]
    factor = mean_size(f, level, 1.0) / mean_size(f, level, temperature)
    component = choose(f)
    offset = f.parameters[f.K + component]
    scale = exp(f.parameters[2 * f.K + component]) * level + f.floor[0]
    deviation = (offset * level + scale * logistic_noise(f)) * factor
    put(f, 0, features[2] + deviation, LEVEL_STEP if is_fine else spacing)


def draw_logistic(f: Any) -> None:
    """A sample of logistics with these logits, means and log scales."""
    component = choose(f)
    scale = exp(f.parameters[2 * f.K + component])
    put(f, 0, f.parameters[f.K + component] + scale * logistic_noise(f), LEVEL_STEP)


def logistic_noise(f: Any) -> Any:
    """By uniform 1, for a scale of 1."""
    u = max(f.uniforms[1], MIN_UNIFORM)
    return (log(u) - log(1.0 - u)) * f.temperature[0]


def mean_size(f: Any, level: Any, temperature: Any) -> Any:
    """E|x| of a sample's deviation x from the anchor, as drawn at a temperature above 0.

    |m| + 2 s log(1 + exp(-|m| / s)) for a logistic of mean m and scale s.
    """
    weigh(f, temperature)
    for k in independent(0, f.K, f.lanes):
        mean = side_by_side(f.parameters[f.K + k :])[0] * level
        scale = exp(side_by_side(f.parameters[2 * f.K + k :])[0]) * level + f.floor[0]
        size = max(mean, -mean)
        scale = scale * temperature
        size = size + 2.0 * scale * log(1.0 + exp(-size / scale))
        side_by_side(f.sizes[k:])[0] = size
    total = 0.0
    weighted = 0.0
    for k in independent(f.K):
        total += f.weights[k]
        weighted += f.weights[k] * f.sizes[k]
    return weighted / total
