"""The Gaussian mixture, compiled: the score, from h to nats in one pass, and the draw.

The plain score reads and writes all means and scales two dozen times. Here a row's components,
which are adjacent in memory, fill the vectors, and a block of rows stays in the L1 cache.
"""

import math
from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.emit import PANEL, Emitter
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import pack
from seqmodel.kernels.run.calls import Slot
from seqmodel.kernels.run.signature import NEW, STORED, Array, packed, per_thread
from seqmodel.outputs.linear_score import likelihood, linear_nats, rows_of, threads_for
from seqmodel.outputs.protocol import DrawSetting
from seqmodel.outputs.samples.blocks import SampleBlocksOutput
from seqmodel.outputs.samples.draw import AudioDraw, SamplesWriter, draw_signature
from seqmodel.outputs.samples.mixture import MixtureParameters, log_and_inverse


def gaussian_nats(h: Tensor, weight: Tensor, bias: Tensor, z: Tensor, floor: float) -> Tensor:
    """h (..., H), weight (N, H), bias (N,), standardised z (..., F), the floor -> nats (...)."""
    z, F = rows_of(z), z.shape[-1]
    return linear_nats(
        _SCORE, h, weight, bias, F=F, K=weight.shape[0] // (2 * F + 1), z=z,
        floor=h.new_tensor([floor]), energies=NEW, threads=threads_for(len(z)),
    )  # fmt: skip


def _write_score(e: Emitter, f: dict[str, Any], start: Any, rows: Any) -> None:
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


_SCORE = likelihood(
    "gaussian",
    ("F", "K"),
    (Array("z", ("rows", "F")), Array("floor", ("1",)), per_thread("energies", "K")),
    _write_score,
)
_DRAW = draw_signature(
    "gaussian_draw",
    (),
    (
        packed("logit_weight", "H", "K"),
        Array("logit_bias", ("K",)),
        Array("logits", ("K",)),
        # A component's rows of means and log scales, packed.
        Array("weight", ("K", *packed("", "H", "2 * F").shape), STORED),
        Array("bias", ("K", "2 * F")),
        Array("parameters", ("2 * F",)),  # the chosen component's means, then its log scales
    ),
)


def gaussian_draw(output: SampleBlocksOutput, setting: DrawSetting) -> AudioDraw:
    """The draw from h (H,), for a unit that reads x (C,).

    The component is chosen first, so that only its means and scales are computed.
    """
    K, (H,), columns = output.components, setting.h.shape, 2 * output.frame_size
    weight = output.linear.weight.view(columns + 1, K, H)
    bias = output.linear.bias.double().view(columns + 1, K)
    panels = torch.stack([pack(rows) for rows in weight[1:].unbind(1)])
    fields: dict[str, int | Tensor | Slot] = {
        "logit_weight": pack(weight[0]), "logit_bias": bias[0].contiguous(),
        "logits": setting.arena.take(K), "weight": panels,
        "bias": bias[1:].t().contiguous(), "parameters": setting.arena.take(columns),
    }  # fmt: skip
    return AudioDraw(output, setting, _DRAW, fields, _write_draw)


def _write_draw(frame: SamplesWriter) -> None:
    e, f = frame.e, frame.field
    h, H, F = f["h"], f["H"], f["F"]
    frame.affine(h, H, f["logit_weight"], f["logit_bias"], f["logits"], f["K"])
    component = frame.choose("logits", 0)
    columns = e.mul(F, 2)
    width = PANEL * frame.of_weights.lanes
    panels = e.builder.sdiv(e.add(columns, width - 1), e.int(width))
    weight = frame.of_weights.offset(f["weight"], e.mul(component, panels, H, width))
    bias = e.offset(f["bias"], e.mul(component, columns))
    frame.affine(h, H, weight, bias, f["parameters"], columns)

    def put(j: Any, lanes: Any) -> None:
        mean = frame.load("parameters", j, lanes)
        sigma = frame.load("parameters", e.add(F, j), lanes).exp() + frame.constant("floor")
        frame.put(j, mean + sigma * frame.noise(j, lanes), lanes)

    e.columns(F, put)
