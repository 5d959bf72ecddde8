"""The Gaussian mixture's compiled draw."""

from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.jit import Library, compiled_once
from seqmodel.kernels.linear.packing import pack
from seqmodel.kernels.run.calls import Own, Room
from seqmodel.outputs.gaussian.specification import GaussianMixtureOutput
from seqmodel.outputs.shared.audio_draw import AudioDraw, Frame, compile_draw
from seqmodel.outputs.shared.levels import above_zero

_SIZES = ("H", "stride")
_ADDRESSES = (
    "h",  # (H,)
    "logit_weight",  # packed
    "logit_bias", "logits",  # (K,)
    "weight",  # (K, stride): a component's rows of means and log scales, packed
    "bias",  # (K, 2F)
    "parameters",  # (2F,): the chosen component's means, then its log scales
)  # fmt: skip


def gaussian_draw(
    output: GaussianMixtureOutput, h: Own, x: Own, room: Room, chunk: int, temperature: float
) -> AudioDraw:
    """The draw from h (H,), for a unit that reads x (C,).

    A component is chosen by its logits before anything else is computed: the means and scales of
    the others are not needed.
    """
    K, (H,), columns = output.components, h.shape, 2 * output.frame_size
    weight = output.linear.weight.view(columns + 1, K, H)
    bias = output.linear.bias.double().view(columns + 1, K)
    packed = torch.stack([pack(rows.t()) for rows in weight[1:].unbind(1)])
    fields: dict[str, int | Tensor | Own] = {
        "H": H, "stride": packed.stride(0),
        "h": h, "logit_weight": pack(weight[0].t()), "logit_bias": bias[0].contiguous(),
        "logits": room.take(K), "weight": packed, "bias": bias[1:].t().contiguous(),
        "parameters": room.take(columns),
    }  # fmt: skip
    library = _library(weight.element_size())
    return AudioDraw(output, x, room, chunk, temperature, library, fields, _split)


def _split(uniforms: Tensor) -> tuple[Tensor, Tensor]:
    return uniforms[:, :1], torch.special.ndtri(above_zero(uniforms[:, 1:]))


@compiled_once
def _library(stored: int) -> Library:
    return compile_draw(_SIZES, _ADDRESSES, stored, _write)


def _write(frame: Frame) -> None:
    e, f = frame.e, frame.field
    h, H, F = f["h"], f["H"], f["F"]
    frame.affine(h, H, f["logit_weight"], f["logit_bias"], f["logits"], f["K"])
    component = frame.choose("logits", 0)
    columns = e.mul(F, 2)
    weight = frame.of_weights.offset(f["weight"], e.mul(component, f["stride"]))
    bias = e.offset(f["bias"], e.mul(component, columns))
    frame.affine(h, H, weight, bias, f["parameters"], columns)

    def put(j: Any, lanes: Any) -> None:
        mean = frame.load("parameters", j, lanes)
        sigma = frame.load("parameters", e.add(F, j), lanes).exp() + frame.constant("floor")
        frame.put(j, mean + sigma * frame.noise(j, lanes), lanes)

    e.columns(F, put)
