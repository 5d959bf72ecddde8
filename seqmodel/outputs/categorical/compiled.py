"""The softmax, compiled: the score, from rows of h to nats in one pass, and the draw."""

import math
from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.emit import INT, Emitter
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import pack
from seqmodel.kernels.run.calls import Slot
from seqmodel.kernels.run.signature import Array, packed
from seqmodel.media.audio.mu_law import SAMPLES
from seqmodel.outputs.linear_score import likelihood, linear_nats
from seqmodel.outputs.protocol import DrawSetting
from seqmodel.outputs.samples.draw import AudioDraw, SamplesWriter, draw_signature
from seqmodel.outputs.samples.sample_wise import SampleWiseOutput


def categorical_nats(h: Tensor, weight: Tensor, bias: Tensor, levels: Tensor) -> Tensor:
    """h (..., H), weight (N, H), bias (N,), levels (...) from 0 to N - 1 -> nats (...)."""
    return linear_nats(_SCORE, h, weight, bias, levels=levels.reshape(-1))


def _write_score(e: Emitter, f: dict[str, Any], start: Any, rows: Any) -> None:
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


_SCORE = likelihood("categorical", (), (Array("levels", ("rows",), torch.int64),), _write_score)
_DRAW = draw_signature(
    "categorical_draw",
    (),
    (
        packed("weight", "H", "K"),
        Array("bias", ("K",)),
        Array("logits", ("K",)),
        Array("samples", ("K",)),  # of the levels
    ),
)


def categorical_draw(output: SampleWiseOutput, setting: DrawSetting) -> AudioDraw:
    """The draw of a sample from h (H,) or (1, H), which leaves it in x (1,)."""
    fields: dict[str, int | Tensor | Slot] = {
        "weight": pack(output.linear.weight), "bias": output.linear.bias.double(),
        "logits": setting.arena.take(output.components),
        "samples": torch.from_numpy(SAMPLES).double(),
    }  # fmt: skip
    return AudioDraw(output, setting, _DRAW, fields, _write_draw)


def _write_draw(frame: SamplesWriter) -> None:
    e, f = frame.e, frame.field
    frame.affine(f["h"], f["H"], f["weight"], f["bias"], f["logits"], f["K"])
    level = frame.choose("logits", 0)
    frame.put(0, frame.broadcast("samples", level), e.first_lanes(e.int(1)))
