"""Blocks of 16-bit samples, one sample at a time, each from a mixture of discretised logistics."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqmodel.data.dataset import Split
from seqmodel.outputs.logistic import Logistics, drawn_from, level_log_probability, mixed
from seqmodel.outputs.samples import (
    LEVEL_STEP,
    SampleBlocksOutput,
    nearest_level,
    windows,
)

WIDTH = 64  # M, the hidden width per sample


class DiscretisedLogisticOutput(SampleBlocksOutput):
    """P(x_t | x_<t) = prod_j P(x_tj | h_t, the C samples before it), over the 16-bit levels.

    A level's probability is that of the step around it under a mixture of K logistics, the lowest
    and highest levels including the tails (Salimans et al. 2017, PixelCNN++, equation 2): scores
    are probabilities, not densities. Samples between levels are scored by the step around them.
    A share of UNIFORM goes to all levels alike, so that no sample costs more than 39 nats, however
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
        """Start from the linear prediction of the training data."""
        found = windows(train, self.context)
        # Each sample of a block in turn: its first alone misleads if a period is a whole block.
        rows = np.arange(len(found))
        at = (rows % self.frame_size)[:, np.newaxis] + np.arange(self.context + 1)
        chosen = found[rows[:, np.newaxis], at]
        self.start_at_data(chosen[:, :-1], chosen[:, -1])

    def start_at_data(self, before: NDArray[np.floating], targets: NDArray[np.floating]) -> None:
        """Start from a linear prediction of raw `targets` (N,) from the samples `before` (N, C).

        The predictor is the least-squares one; the ridge is the variance of rounding to 16 bits.
        The components get equal weights, zero offsets, and as scales the residual's absolute value
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
        parameters: Tensor = self.linear(h).unflatten(-1, (self.frame_size, WIDTH))
        return parameters

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

        Sample j takes two of a row's `uniforms` (B, 2F), float64 in [0, 1): number 2j chooses the
        component, the first whose cumulative weight exceeds it; with u, number 2j + 1, the
        sample is mean + temperature scale (log(u) - log(1 - u)), rounded to the nearest level;
        u = 0 is taken as 2^-54. The logits are divided by `temperature`; at 0 the sample is the
        likeliest component's mean.
        """
        window, frame = self.standardised(past.to(parameters.dtype)), []
        for j in range(self.frame_size):
            mixture = self._mixture(parameters[..., j, :], window)
            u = uniforms[..., 2 * j], uniforms[..., 2 * j + 1]
            z = drawn_from(mixture, *u, temperature).unsqueeze(-1)
            sample = nearest_level(self.mean + self.deviation * z).to(parameters.dtype)
            window = torch.cat([window[..., 1:], self.standardised(sample)], -1)
            frame.append(sample)
        return torch.cat(frame, -1)

    def _windows(self, frames: Tensor, past: Tensor) -> Tensor:
        """The C samples before each sample of the block, standardised: (..., F, C), a view."""
        known = self.standardised(torch.cat([past, frames[..., :-1]], -1))
        return known.unfold(-1, self.context, 1)

    def _linear(self, p: Tensor) -> Tensor:
        """The linear prediction (...) from standardised windows (..., C)."""
        return p @ (self.predictor + self.residual * self.correction)

    def _mixture(self, states: Tensor, p: Tensor) -> Logistics:
        """The mixtures of samples, from B_j h (..., M) and their standardised windows (..., C)."""
        outputs = self.mixture(torch.tanh(states + self.window(p)))
        logits, offsets, log_scales = outputs.unflatten(-1, (3, self.components)).unbind(-2)
        floor = log_scales.new_tensor(math.log(self.floor))
        means = self._linear(p).unsqueeze(-1) + self.residual * offsets
        return logits, means, torch.logaddexp(log_scales + self.residual.log(), floor)
