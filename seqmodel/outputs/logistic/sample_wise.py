"""16-bit samples from a mixture of discretised logistics around an adaptive prediction."""

import math
from typing import Self

import torch
from torch import Tensor, nn

from seqmodel.config import Config
from seqmodel.kernels import device
from seqmodel.media.definitions import FrameDefinition
from seqmodel.outputs.ends import EndFigures
from seqmodel.outputs.logistic.probability import (
    Mixture,
    drawn_from,
    level_log_probability,
    logistic_noise,
    mean_size,
    mixed,
)
from seqmodel.outputs.protocol import CompiledDraw, DrawSetting, Together
from seqmodel.outputs.samples.blocks import LEAST_FINE, STEP, LevelFigures, nearest_level
from seqmodel.outputs.samples.sample_wise import SampleWiseOutput

_START = -1.0, 0.2
"""Between these log scales training starts; chosen on speech, whose best single one is -0.3."""


class SampleLogisticOutput(SampleWiseOutput):
    """P(x_n | x_<n) of each sample, over the 16-bit levels, from one linear layer on row n of h.

    The row holds the unit's h and the encoder's features of the past, the last four of which are: a
    certainty c, a grid's spacing g, an anchor a, which predicts the sample, and a level l > 0, the
    size of its recent errors; g, a and l in units of raw samples. With a row r:

        logits, offsets, log scales = V r + v
        mean_k = a + l offset_k
        scale_k = floor + l exp(log scale_k)

    A level's probability is that of the step around it, with tails, a floor and a uniform share as
    in `specification.DiscretisedLogisticOutput`. V starts near 0: training starts from the anchor,
    with scales spread around its level.

    Recordings once kept with fewer bits hold multiples of a coarser grid g only. Where g is more
    than one step, a share c of each component's probability is thus that of the steps of width g
    around the multiples of g; see `fine_share`.

    These four are data: no gradient goes to them except through V. Parameters are the layer's
    outputs, then the four: (..., 3 K + 4).
    """

    discrete = True

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition, h_size: int) -> Self:
        """See `Output.build`."""
        return cls(h_size, frame.frame_size, config.components, end=config.end)

    def make_layers(self, hidden_size: int) -> None:
        """See `SampleBlocksOutput.make_layers`."""
        self.floor = STEP / 10
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
        of_level = level_log_probability(mixture, error, raw, STEP) + fine.log()
        spacing = spacing.clamp(min=STEP).unsqueeze(-1)
        of_grid = level_log_probability(mixture, error, raw, spacing, 1 - spacing)
        on_grid = (raw / spacing.squeeze(-1)).frac() == 0
        of_grid = of_grid.masked_fill(~on_grid.unsqueeze(-1), -math.inf) + (1 - fine).log()
        return self.of_frames(-mixed(mixture[0], torch.logaddexp(of_level, of_grid)))

    def score(self, h: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """`nats(forward(h), frames, past)`: h (T S, B, H), frames (T, B, S) -> (T, B)."""
        if not self._compiles(h, frames):
            return self.nats(self(h), frames, past)
        from seqmodel.outputs.logistic.compiled import sample_nats  # loads the compiler

        return self.of_frames(sample_nats(self, h, self.of_steps(frames)))

    def weighted_score(self, h: Tensor, frames: Tensor, past: Tensor, weights: Tensor) -> Tensor:
        """See `SampleWiseOutput.weighted_score`."""
        if not self._compiles(h, frames):
            return super().weighted_score(h, frames, past, weights)
        from seqmodel.outputs.logistic.compiled import sample_nats  # loads the compiler

        of_samples = weights.repeat_interleave(self.steps, 0)
        return sample_nats(self, h, self.of_steps(frames), of_samples)

    def _compiles(self, h: Tensor, frames: Tensor) -> bool:
        """Whether compiled code can score these."""
        given = h, *self.linear.parameters(), frames
        return bool(h.numel()) and device.unsupported_reason(given) is None

    def draw(
        self, parameters: Tensor, past: Tensor, uniforms: Tensor, temperature: float
    ) -> Tensor:
        """Draw a raw sample (B, 1), a 16-bit level, from parameters (B, 3 K + 4).

        The first of a row's `uniforms` (B, 3 or more), float64 in [0, 1), chooses the component:
        the first whose cumulative weight exceeds it. With u the second, the sample is
        mean + temperature scale (log(u) - log(1 - u)); u = 0 is taken as 2^-54. It is rounded to
        the nearest level if the third is below `fine_share`, else to the nearest multiple of the
        grid's spacing. The logits are divided by `temperature`; at 0 the sample is the level
        nearest to the likeliest component's mean.

        At other temperatures the deviation from the anchor is multiplied by what its mean size
        would be at 1 over what it is. Otherwise the level, which the model hears in turn, would
        fall or rise from sample to sample: into silence below 1, up to full scale above.
        """
        mixture, certainty, spacing, anchor = self._mixture(parameters.double())
        choices, noise = self.split(uniforms)
        deviation = drawn_from(mixture, choices[..., :1], noise, temperature).squeeze(-1)
        if temperature > 0:
            deviation = deviation * (mean_size(mixture, 1.0) / mean_size(mixture, temperature))
        fine = (choices[..., 1] < fine_share(certainty, spacing)) | (temperature == 0)
        sample = nearest_level(anchor + deviation, spacing.masked_fill(fine, STEP))
        return sample.unsqueeze(-1).to(parameters.dtype)

    def split(self, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """See `SampleBlocksOutput.split`."""
        return uniforms[..., :3:2], logistic_noise(uniforms[..., 1:2])

    def compiled_draw(self, setting: DrawSetting) -> CompiledDraw:
        """See `Output.compiled_draw`."""
        from seqmodel.outputs.logistic.compiled import sample_draw  # loads the compiler

        return sample_draw(self, setting)

    def figures(self) -> Together:
        """Nats and bits per sample; the nats of ends, if any."""
        return Together(LevelFigures(self.steps), EndFigures(self))

    def _mixture(self, parameters: Tensor) -> tuple[Mixture, Tensor, Tensor, Tensor]:
        """The mixtures of samples less their anchors; certainties, spacings and anchors (...)."""
        certainty, spacing, anchor, level = parameters[..., -4:].unbind(-1)
        logits, offsets, log_scales = parameters[..., :-4].chunk(3, -1)
        level = level.unsqueeze(-1)
        floor = log_scales.new_tensor(self.floor).log()
        scales = torch.logaddexp(log_scales + level.log(), floor)
        return (logits, level * offsets, scales), certainty, spacing, anchor


def fine_share(certainty: Tensor, spacing: Tensor) -> Tensor:
    """The weight of single levels beside a grid: 1 - c, but at least LEAST_FINE; 1 without one."""
    return torch.where(spacing > STEP, (1 - certainty).clamp(min=LEAST_FINE), 1.0)
