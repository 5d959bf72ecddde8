"""The Gaussian mixture's score, compiled: from h to nats in one pass, and back in one pass.

The plain path reads and writes all means and scales two dozen times. Here a row's components, which
are adjacent in memory, fill the vectors, and a block of rows stays in the L1 cache.
"""

import math
from typing import Any

from torch import Tensor

from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import matmul
from seqmodel.kernels.run.signature import NEW, Array, Signature, packed, per_thread
from seqmodel.outputs import linear_score
from seqmodel.outputs.linear_score import BlockKernel, LinearNats, rows_of
from seqmodel.outputs.samples.mixture import MixtureParameters, log_and_inverse


class GaussianMixtureNats(LinearNats):
    """h (..., H), weight (N, H), bias (N,), standardised z (..., F), the floor -> nats (...)."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, z: Tensor, floor: float
    ) -> Tensor:
        """The nats; saves their gradient with respect to the layer's outputs."""
        z, F = rows_of(z), z.shape[-1]
        return GaussianMixtureNats.score(
            ctx, _FORWARD, h, weight, bias, F=F, K=weight.shape[0] // (2 * F + 1), z=z,
            floor=h.new_tensor([floor]), energies=NEW, threads=linear_score.threads_for(z.shape[0]),
        )  # fmt: skip


def _write_forward(e: Emitter, f: dict[str, Any], start: Any, rows: Any) -> None:
    H, N = f["H"], f["N"]
    h = e.offset(f["h"], e.mul(start, H))
    matmul(e, h, H, f["weight"], e.offset(f["slope"], e.mul(start, N)), N, rows, H, N, False)
    with e.loop(start, e.add(start, rows)) as r:
        _write_row(e, f, r)


def _write_row(e: Emitter, f: dict[str, Any], r: Any) -> None:
    F, K = f["F"], f["K"]
    parameters = MixtureParameters(
        e, e.offset(f["slope"], e.mul(r, f["N"])), f["bias"], e.add(F, F, 1), K,
        e.offset(f["energies"], e.mul(f["thread"], e.padded(K))),
    )  # fmt: skip

    def energy(k: Any, lanes: Any) -> Vector:
        """-log N_k(z), summed over the samples."""
        floor, total = Vector(e, e.broadcast(f["floor"])), [e.zero()]
        with e.carrying(0, F, 1, total) as (j, inside):
            of_mean, of_scale = e.add(j, 1), e.add(j, 1, F)
            log_scale = parameters.get(of_scale, k, lanes)
            scale = log_scale.exp()
            log_sigma, inverse = log_and_inverse(scale, log_scale, floor)
            z = Vector(e, e.broadcast(e.offset(f["z"], e.mul(r, F), j)))
            error = (z - parameters.get(of_mean, k, lanes)) * inverse
            square = error * error
            nats = square * 0.5 + (log_sigma + math.log(2 * math.pi) / 2)
            inside[0] = (Vector(e, inside[0]) + nats).value
            parameters.put(error * inverse * -1.0, of_mean, k, lanes)
            parameters.put((1.0 - square) * (scale * inverse), of_scale, k, lanes)
        return Vector(e, total[0])

    nats = parameters.nats(energy)
    e.store(nats.value, e.offset(f["nats"], r), e.first_lanes(e.int(1)))


_FORWARD = BlockKernel(
    Signature(
        "gaussian_forward",
        ("rows", "H", "N", "F", "K"),
        (
            Array("h", ("rows", "H")),
            packed("weight", "H", "N"),
            Array("bias", ("(2 * F + 1) * K",)),
            Array("z", ("rows", "F")),
            Array("floor", ("1",)),
            per_thread("energies", "K"),
            Array("slope", ("rows", "N")),
            Array("nats", ("rows",)),
        ),
    ),
    _write_forward,
)
