"""The softmax's compiled score: from rows of h to nats in one pass."""

import math
from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.emit import INT, Emitter
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import matmul
from seqmodel.kernels.run.signature import Array, Signature, packed
from seqmodel.outputs.linear_score import BlockKernel, LinearNats


class CategoricalNats(LinearNats):
    """h (..., H), weight (N, H), bias (N,), levels (...) from 0 to N - 1 -> nats (...)."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, levels: Tensor) -> Tensor:
        """The nats; saves their gradient with respect to the logits."""
        return CategoricalNats.score(ctx, _FORWARD, h, weight, bias, levels=levels.reshape(-1))


def _write_forward(e: Emitter, f: dict[str, Any], start: Any, rows: Any) -> None:
    H, N = f["H"], f["N"]
    h = e.offset(f["h"], e.mul(start, H))
    matmul(e, h, H, f["weight"], e.offset(f["slope"], e.mul(start, N)), N, rows, H, N, False)
    with e.loop(start, e.add(start, rows)) as r:
        _write_row(e, f, r)


def _write_row(e: Emitter, f: dict[str, Any], r: Any) -> None:
    """Nats from a row's logits, which their slopes overwrite: the softmax, less 1 at the level."""
    b, N, lowest = e.builder, f["N"], e.constant(-math.inf)
    logits = e.offset(f["slope"], e.mul(r, N))
    level = b.load(b.gep(f["levels"], [r], source_etype=INT), typ=INT)
    peak = [lowest]
    with e.carrying(0, N, e.lanes, peak) as (k, inside):
        lanes = e.first_lanes(b.sub(N, k))
        logit = _load(e, logits, k, lanes) + _load(e, f["bias"], k, lanes)
        e.store(logit.value, e.offset(logits, k), lanes)
        known = Vector(e, b.select(lanes.mask, logit.value, lowest))
        inside[0] = Vector(e, inside[0]).maximum(known).value
    highest = Vector(e, peak[0]).over_lanes(Vector.maximum)
    found = Vector(e, e.broadcast(e.offset(logits, level)))
    total = [e.zero()]
    with e.carrying(0, N, e.lanes, total) as (k, inside):
        lanes = e.first_lanes(b.sub(N, k))
        weight = (_load(e, logits, k, lanes) - highest).exp()
        e.store(weight.value, e.offset(logits, k), lanes)
        inside[0] = (Vector(e, inside[0]) + weight.masked(lanes)).value
    whole = Vector(e, total[0]).over_lanes(Vector.__add__)

    def share(k: Any, lanes: Any) -> None:
        e.store((_load(e, logits, k, lanes) / whole).value, e.offset(logits, k), lanes)

    e.columns(N, share)
    one = e.first_lanes(e.int(1))
    slope = Vector(e, e.broadcast(e.offset(logits, level))) - 1.0
    e.store(slope.value, e.offset(logits, level), one)
    e.store((highest + whole.log() - found).value, e.offset(f["nats"], r), one)


def _load(e: Emitter, address: Any, k: Any, lanes: Any) -> Vector:
    return Vector(e, e.load(e.offset(address, k), lanes))


_FORWARD = BlockKernel(
    Signature(
        "categorical_forward",
        ("rows", "H", "N"),
        (
            Array("h", ("rows", "H")),
            packed("weight", "H", "N"),
            Array("bias", ("N",)),
            Array("levels", ("rows",), torch.int64),
            Array("slope", ("rows", "N")),
            Array("nats", ("rows",)),
        ),
    ),
    _write_forward,
)
