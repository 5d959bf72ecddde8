"""Blocks of samples from a mixture of diagonal Gaussians."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqmodel.data.dataset import Split
from seqmodel.kernels import device
from seqmodel.outputs.protocol import CompiledDraw, DrawSetting, Figures, Sums, Window
from seqmodel.outputs.samples.blocks import (
    STEP,
    SampleBlocksOutput,
    above_zero,
    choose,
    nearest_level,
    windows,
)

# Standardised. If it were narrower, the first random steps of the means would cost too much.
_NARROWEST_START = 0.1


class GaussianMixtureOutput(SampleBlocksOutput):
    """p(z_t | x_<t) = sum_k w_tk prod_f N(z_tf; mu_tfk, sigma_tfk), from one linear layer on h_t.

    The output of the speech models of Chung et al. (2014, section 4.1), after Graves (2013,
    section 4.1). z = (x - mean) / deviation is a standardised block of F samples, and the nats are
    of its density: add F log(deviation) for the density of raw samples in [-1, 1).

    sigma = floor + exp(log scale), the floor being one 16-bit step, 1 / (32768 deviation): digital
    silence, repeated exactly, would otherwise drive sigma to 0 and the density to infinity. Unlike
    a clamp, this floor lets the gradient through.

    Parameters are (..., 2F + 1, K): the mixture's logits, F rows of means, F of log scales.
    """

    discrete = False

    def make_layers(self, hidden_size: int) -> None:
        """See `SampleBlocksOutput.make_layers`."""
        self.floor = STEP / self.deviation
        self.uniforms_per_frame = 1 + self.frame_size
        self.linear = nn.Linear(hidden_size, (2 * self.frame_size + 1) * self.components)
        with torch.no_grad():  # so that the biases decide where training starts
            self.linear.weight.mul_(0.1)

    def start_at(self, train: Split) -> None:
        """Start from blocks of the training data."""
        self.start_at_data(windows(train, 0))

    def start_at_data(self, blocks: NDArray[np.floating]) -> None:
        """Set the biases from raw blocks (N, F) of the training data.

        The means become K of the blocks, at evenly spaced ranks of their norm, taken as
        negative where the block's mean is; each sigma becomes the root mean square distance, per
        sample, of the blocks nearest to its mean; the weights become equal.
        """
        z = (blocks.astype(np.float64) - self.mean) / self.deviation
        order = np.argsort(np.copysign(np.linalg.norm(z, axis=1), z.mean(1)), kind="stable")
        ranks = (np.arange(self.components) + 0.5) * len(z) / self.components
        means = z[order[ranks.astype(int)]]
        squares = np.stack([((z - mean) ** 2).mean(1) for mean in means])
        nearest = squares.argmin(0)
        count = np.bincount(nearest, minlength=self.components)
        total = np.bincount(nearest, squares.min(0), minlength=self.components)
        scales = np.maximum(np.sqrt(total / np.maximum(count, 1)), _NARROWEST_START)
        with torch.no_grad():
            logits, of_means, log_scales = self._parts(self._rows(self.linear.bias))
            logits.zero_()
            of_means.copy_(torch.from_numpy(means.T))
            log_scales.copy_(torch.from_numpy(np.log(scales)))

    def forward(self, h: Tensor) -> Tensor:
        """The parameters (..., 2F + 1, K) from h (..., H)."""
        return self._rows(self.linear(h))

    def nats(self, parameters: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """-log p (...) of standardised blocks, given raw as `frames` (..., F); `past` is unused."""
        return -self._joint(parameters, frames).logsumexp(-1)

    def score(self, h: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """`nats(forward(h), frames, past)`: h (T, B, H), frames (T, B, F) -> (T, B)."""
        weight, bias = self.linear.weight, self.linear.bias
        if not h.numel() or device.unsupported_reason((h, weight, bias, frames)) is not None:
            return self.nats(self(h), frames, past)
        from seqmodel.outputs.gaussian.compiled import gaussian_nats  # loads the compiler

        return gaussian_nats(h, weight, bias, self.standardised(frames), self.floor)

    def floor_share(self, parameters: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """The share (...) of a block's samples that the floor decides: exp(log scale) < floor.

        Looks at the component with the highest responsibility for the block. Where the share is
        high, the nats measure the floor and not the model.
        """
        likeliest = self._joint(parameters, frames).argmax(-1)
        log_scales = _of_component(self._parts(parameters)[2], likeliest)
        return (log_scales < math.log(self.floor)).to(parameters.dtype).mean(-1)

    def draw(
        self, parameters: Tensor, past: Tensor, uniforms: Tensor, temperature: float
    ) -> Tensor:
        """Draw raw blocks (B, F), rounded to 16-bit levels; `past` (B, C) is unused.

        The first of a row's `uniforms` (B, F + 1), float64 in [0, 1), chooses the component: the
        first whose cumulative weight exceeds it. Each other u gives a sample of the block,
        mu + temperature sigma n, where n = ndtri(u), the inverse CDF of the standard normal; u = 0
        is taken as 2^-54. The logits are divided by `temperature`; at 0 the block is the likeliest
        component's mean.
        """
        logits, means, log_scales = self._parts(parameters.double())
        choices, noise = self.split(uniforms)
        component = choose(logits, choices.squeeze(-1), temperature)
        sigma = self._log_sigmas(_of_component(log_scales, component)).exp()
        z = _of_component(means, component) + temperature * sigma * noise
        return nearest_level(self.mean + self.deviation * z).to(parameters.dtype)

    def split(self, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """See `SampleBlocksOutput.split`."""
        return uniforms[..., :1], torch.special.ndtri(above_zero(uniforms[..., 1:]))

    def compiled_draw(self, setting: DrawSetting) -> CompiledDraw:
        """See `Output.compiled_draw`."""
        from seqmodel.outputs.gaussian.compiled import gaussian_draw  # loads the compiler

        return gaussian_draw(self, setting)

    def figures(self) -> "DensityFigures":
        """Nats per sample, and the share of samples at the floor."""
        return DensityFigures(self)

    def _rows(self, outputs: Tensor) -> Tensor:
        return outputs.view(*outputs.shape[:-1], 2 * self.frame_size + 1, self.components)

    def _parts(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (..., K), means (..., F, K) and log scales (..., F, K), as views."""
        F = self.frame_size
        return parameters[..., 0, :], parameters[..., 1 : F + 1, :], parameters[..., F + 1 :, :]

    def _log_sigmas(self, log_scales: Tensor) -> Tensor:
        """log(floor + exp(log scale)), finite at any log scale."""
        return torch.logaddexp(log_scales, log_scales.new_tensor(math.log(self.floor)))

    def _joint(self, parameters: Tensor, frames: Tensor) -> Tensor:
        """log w_k + log N_k(z) of each component: (..., K)."""
        logits, means, log_scales = self._parts(parameters)
        log_sigmas = self._log_sigmas(log_scales)
        z = self.standardised(frames)
        errors = (z.unsqueeze(-1) - means) * torch.exp(-log_sigmas)
        terms = errors.square() / 2 + log_sigmas + math.log(2 * math.pi) / 2
        return torch.log_softmax(logits, -1) - terms.sum(-2)


def _of_component(values: Tensor, component: Tensor) -> Tensor:
    """Values (..., F, K) of the given component (...) alone: (..., F)."""
    return torch.take_along_dim(values, component[..., None, None], -1).squeeze(-1)


class DensityFigures(Figures):
    """Nats per sample, and the share of samples whose density is decided by the scale's floor."""

    def __init__(self, output: GaussianMixtureOutput) -> None:
        self._output = output

    def sums(self, window: Window) -> Sums:
        """See `Figures`."""
        share = self._output.floor_share(self._output(window.h), window.frames, window.past)
        return {"at_floor": float(share.double()[window.inside].sum())}

    def values(self, sums: Sums, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """The figures by name."""
        return {
            "nats_per_sample": nats / (frames * self._output.frame_size),
            "floor_share": sums["at_floor"] / frames,
        }

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        """See `Figures`; with what the densities refer to."""
        return [
            f"nats per sample          {figures['nats_per_sample']:9.4f}",
            f"samples at the floor     {figures['floor_share']:9.4f}",
            f"  densities of (sample - {self._output.mean:.3g}) / {self._output.deviation:.3g}; "
            f"add {math.log(self._output.deviation):.4f} nats",
            "  per sample for those of samples in [-1, 1)",
        ]
