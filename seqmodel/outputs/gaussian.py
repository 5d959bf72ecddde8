"""Blocks of samples from a mixture of diagonal Gaussians: specification, compiled score and draw.

The plain score reads and writes all means and scales two dozen times. In the compiled score a row's
components, adjacent in memory, fill the vectors, and a block of rows stays in the L1 cache.
"""

import math
from math import exp
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqmodel.data.dataset import Split
from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.code.instructions import of_vectors
from seqmodel.kernels.code.language import independent, side_by_side
from seqmodel.kernels.code.vectors import Vector, polynomial
from seqmodel.kernels.linear.matmul import pack
from seqmodel.kernels.run.calls import Value
from seqmodel.kernels.run.signature import Array
from seqmodel.outputs.draws import SamplesDraw, affine, by_rows, choose, put
from seqmodel.outputs.linear_score import likelihood, linear_nats, rows_of
from seqmodel.outputs.mixtures import WORK, Mixture, log_and_inverse
from seqmodel.outputs.protocol import DrawSetting, Sums, Window
from seqmodel.outputs.samples import (
    LABELS,
    LEVEL_STEP,
    MIN_UNIFORM,
    SampleBlocksOutput,
    windows,
)

# Standardised. Narrower, the first random steps of the means would cost too much.
_NARROWEST_START = 0.1


class GaussianMixtureOutput(SampleBlocksOutput):
    """p(z_t | x_<t) = sum_k w_tk prod_f N(z_tf; mu_tfk, sigma_tfk), from one linear layer on h_t.

    The output of the speech models of Chung et al. (2014, section 4.1), after Graves (2013, section
    4.1). z = (x - mean) / deviation is a standardised block of F samples, and the nats are of its
    density: add F log(deviation) for the density of raw samples in [-1, 1).

    sigma = floor + exp(log scale), where the floor is one 16-bit step, 1 / (32768 deviation):
    digital silence, repeated exactly, would otherwise drive sigma to 0 and the density to infinity.
    Unlike a clamp, this floor lets the gradient through.

    Parameters are (..., 2F + 1, K): the mixture's logits, F rows of means, F of log scales.
    """

    discrete = False
    labels = LABELS | {"floor_share": "samples at the floor"}

    def make_layers(self, hidden_size: int) -> None:
        self.remarks = (
            f"  densities of (sample - {self.mean:.3g}) / {self.deviation:.3g}; "
            f"add {math.log(self.deviation):.4f} nats",
            "  per sample for those of samples in [-1, 1)",
        )
        self.floor = LEVEL_STEP / self.deviation
        self.uniforms_per_frame = 1 + self.frame_size
        self.linear = nn.Linear(hidden_size, (2 * self.frame_size + 1) * self.components)
        with torch.no_grad():  # so that the biases decide where training starts
            self.linear.weight.mul_(0.1)

    def start_at(self, train: Split) -> None:
        self.start_at_data(windows(train, 0))

    def start_at_data(self, blocks: NDArray[np.floating]) -> None:
        """Set the biases from raw blocks (N, F) of the training data.

        The means become K of the blocks, at evenly spaced ranks of their norm, negated where the
        block's mean is negative; each sigma becomes the root mean square distance, per sample, of
        the blocks nearest to its mean; the weights become equal.
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
            logits, mean_biases, log_scales = self._parts(self._rows(self.linear.bias))
            logits.zero_()
            mean_biases.copy_(torch.from_numpy(means.T))
            log_scales.copy_(torch.from_numpy(np.log(scales)))

    def forward(self, h: Tensor) -> Tensor:
        """The parameters (..., 2F + 1, K) from h (..., H)."""
        return self._rows(self.linear(h))

    def nats(self, parameters: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """-log p (...) of standardised blocks, given raw as `frames` (..., F); `past` is unused."""
        return -self._joint(parameters, frames).logsumexp(-1)

    def compiled_nats(
        self, h: Tensor, frames: Tensor, past: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        z = rows_of(self.standardised(frames))
        return linear_nats(
            _SCORE, weights, h, *self.linear.parameters(), F=self.frame_size, K=self.components,
            z=z, floor=h.new_tensor([self.floor]),
        )  # fmt: skip

    def floor_share(self, parameters: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """The share (...) of a block's samples that the floor decides: exp(log scale) < floor.

        Uses the component with the highest responsibility for the block. If the share is high, the
        nats measure the floor and not the model.
        """
        likeliest = self._joint(parameters, frames).argmax(-1)
        chosen, log_scales = likeliest[..., None, None], self._parts(parameters)[2]
        log_scales = torch.take_along_dim(log_scales, chosen, -1).squeeze(-1)
        return (log_scales < math.log(self.floor)).to(parameters.dtype).mean(-1)

    def draw(
        self, parameters: Tensor, past: Tensor, uniforms: Tensor, temperature: float
    ) -> Tensor:
        """Draw raw blocks (B, F), rounded to 16-bit levels; `past` (B, C) is unused.

        The first of a row's `uniforms` (B, F + 1), float64 in [0, 1), chooses the component, see
        `draws.choose`. Each other u gives a sample of the block, mu + temperature sigma n, where n
        = ndtri(u), the inverse CDF of the standard normal; u = 0 is replaced by 2^-54.
        """
        return by_rows(
            self, draw_block, parameters.flatten(1), uniforms, temperature,
            normal_quantile=NormalDist().inv_cdf,
            own_of=lambda f, component: f.parameters.reshape(-1, f.K)[1:, component],
        )  # fmt: skip

    def compiled_draw(self, setting: DrawSetting) -> SamplesDraw:
        K, columns = self.components, 2 * self.frame_size
        weight = self.linear.weight.view(columns + 1, K, -1)
        bias = self.linear.bias.double().view(columns + 1, K)
        own_weight = torch.stack([pack(rows) for rows in weight[1:].unbind(1)])
        fields: dict[str, Value] = {
            "own_weight": own_weight, "own_size": own_weight[0].numel(),
            "own_bias": bias[1:].t().contiguous(), "own": setting.arena.take(columns),
        }  # fmt: skip
        how = {"own_of": compute_own, "normal_quantile": quantile}
        return SamplesDraw(self, setting, draw_block, weight[0], bias[0], fields, **how)

    def figure_sums(self, window: Window) -> Sums:
        """The shares of samples whose density is decided by the scale's floor."""
        share = self.floor_share(self(window.h), window.frames, window.past)
        return {"at_floor": float(share.double()[window.inside].sum())}

    def figures(self, sums: Sums, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        return {
            "nats_per_sample": nats / (frames * self.frame_size),
            "floor_share": sums["at_floor"] / frames,
        }

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


def _write_score(e: Emitter, f: dict[str, Any], r: Any, _: Any) -> None:
    F = f["F"]
    mixture = Mixture(e, f, r, e.add(F, F, 1))

    def energy(k: Any, lanes: Any) -> tuple[Vector]:
        """-log N_k(z), summed over the samples."""
        floor, total = Vector(e, e.broadcast(f["floor"])), [e.zero()]
        with e.carrying(0, F, 1, total) as (j, inside):
            mean_row, scale_row = e.add(j, 1), e.add(j, 1, F)
            log_scale = mixture.parameter(scale_row, k, lanes)
            scale = log_scale.exp()
            log_sigma, inverse = log_and_inverse(scale, log_scale, floor)
            z = Vector(e, e.broadcast(e.offset(f["z"], e.mul(r, F), j)))
            error = (z - mixture.parameter(mean_row, k, lanes)) * inverse
            square = error * error
            nats = square * 0.5 + (log_sigma + math.log(2 * math.pi) / 2)
            inside[0] = (Vector(e, inside[0]) + nats).value
            mixture.put(error * inverse * -1.0, mean_row, k, lanes)
            mixture.put((1.0 - square) * (scale * inverse), scale_row, k, lanes)
        return (Vector(e, total[0]),)

    e.store(mixture.nats(energy).value, e.offset(f["nats"], r), e.first_lanes(e.int(1)))


_SCORE = likelihood(
    "gaussian", ("F", "K"), (Array("z", ("rows", "F")), Array("floor", ("1",))), _write_score,
    work=WORK,
)  # fmt: skip


def draw_block(f: Any) -> None:
    """A text of `kernels.code.language`: see `GaussianMixtureOutput.draw`."""
    own = f.own_of(f, choose(f))
    for j in independent(0, f.D, f.lanes):
        mean = side_by_side(own[j:])[0]
        sigma = exp(side_by_side(own[f.D + j :])[0]) + f.floor[0]
        u = max(side_by_side(f.uniforms[j + 1 :])[0], MIN_UNIFORM)
        noise = f.normal_quantile(u) * f.temperature[0]
        put(f, j, mean + sigma * noise, LEVEL_STEP)


def compute_own(f: Any, component: Any) -> Any:
    """The means and log scales of a component."""
    columns = 2 * f.D
    weight = f.own_weight[component * f.own_size :]
    affine(f, weight, f.own_bias[component * columns :], f.own, columns)
    return f.own


def normal_quantile(u: Any) -> Any:
    """The inverse CDF of the standard normal, within 1e-14.

    Uses polynomials in the square root of -log(p), where p is the smaller of u and 1 - u.
    """
    root = ((u.where(">", 0.5, 1.0 - u).log() * -1.0).log() * 0.5).exp()
    lower = _lower_normal(root, *_NEAR).replaced(root, ">", _NEAR[1], _lower_normal(root, *_FAR))
    return lower.replaced(u, ">", 0.5, lower * -1.0)


_NEAR, _FAR = (0.83, 2.4, 18), (2.4, 6.2, 22)
"""The interval and the degree of each polynomial."""


def _lower_normal(root: Any, low: float, high: float, degree: int) -> Any:
    middle, half = (low + high) / 2, (high - low) / 2

    def exact(x: NDArray[np.float64]) -> NDArray[np.float64]:
        share = torch.from_numpy(np.exp(-((x + middle) ** 2)))
        return np.asarray(torch.special.ndtri(share))

    return (root - middle).in_powers(polynomial(exact, -half, half, degree))


quantile = of_vectors(normal_quantile)
