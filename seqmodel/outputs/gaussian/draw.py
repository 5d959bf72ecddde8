"""The Gaussian mixture's compiled draw."""

from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.emit import PANEL
from seqmodel.kernels.linear.packing import pack
from seqmodel.kernels.run.calls import Arena, Slot
from seqmodel.kernels.run.signature import STORED, Array, packed
from seqmodel.outputs.samples.blocks import SampleBlocksOutput
from seqmodel.outputs.samples.draw import AudioDraw, SamplesWriter, compile_draw, draw_signature

_SIGNATURE = draw_signature(
    "gaussian_draw",
    ("H",),
    (
        Array("h", ("H",)),
        packed("logit_weight", "H", "K"),
        Array("logit_bias", ("K",)),
        Array("logits", ("K",)),
        # A component's rows of means and log scales, packed.
        Array("weight", ("K", *packed("", "H", "2 * F").shape), STORED),
        Array("bias", ("K", "2 * F")),
        Array("parameters", ("2 * F",)),  # the chosen component's means, then its log scales
    ),
)


def gaussian_draw(
    output: SampleBlocksOutput, h: Slot, x: Slot, arena: Arena, chunk: int, temperature: float
) -> AudioDraw:
    """The draw from h (H,), for a unit that reads x (C,).

    The component is chosen first, so that only its means and scales are computed.
    """
    K, (H,), columns = output.components, h.shape, 2 * output.frame_size
    weight = output.linear.weight.view(columns + 1, K, H)
    bias = output.linear.bias.double().view(columns + 1, K)
    panels = torch.stack([pack(rows) for rows in weight[1:].unbind(1)])
    fields: dict[str, int | Tensor | Slot] = {
        "H": H, "h": h, "logit_weight": pack(weight[0]), "logit_bias": bias[0].contiguous(),
        "logits": arena.take(K), "weight": panels, "bias": bias[1:].t().contiguous(),
        "parameters": arena.take(columns),
    }  # fmt: skip
    library = compile_draw(_SIGNATURE, weight.element_size(), _write)
    return AudioDraw(output, x, arena, chunk, temperature, library, _SIGNATURE, fields)


def _write(frame: SamplesWriter) -> None:
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
