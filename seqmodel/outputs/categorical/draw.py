"""The softmax's compiled draw."""

import torch
from torch import Tensor

from seqmodel.kernels.code.jit import Library, compiled_once
from seqmodel.kernels.linear.packing import pack
from seqmodel.kernels.run.calls import Arena, Slot
from seqmodel.kernels.run.signature import Array, packed
from seqmodel.media.audio.mu_law import SAMPLES
from seqmodel.outputs.samples.draw import AudioDraw, SamplesWriter, compile_draw, draw_signature
from seqmodel.outputs.samples.sample_wise import SampleWiseOutput

_SIGNATURE = draw_signature(
    "categorical_draw",
    ("H",),
    (
        Array("h", ("H",)),
        packed("weight", "H", "K"),
        Array("bias", ("K",)),
        Array("logits", ("K",)),
        Array("samples", ("K",)),  # of the levels
    ),
)


def categorical_draw(
    output: SampleWiseOutput, h: Slot, x: Slot, arena: Arena, chunk: int, temperature: float
) -> AudioDraw:
    """The draw of a sample from h (H,) or (1, H), which leaves it in x (1,)."""
    weight = output.linear.weight
    fields: dict[str, int | Tensor | Slot] = {
        "H": h.shape[-1], "h": h.reshaped(h.shape[-1]), "weight": pack(weight),
        "bias": output.linear.bias.double(), "logits": arena.take(output.components),
        "samples": torch.from_numpy(SAMPLES).double(),
    }  # fmt: skip
    library = _library(weight.element_size())
    return AudioDraw(output, x, arena, chunk, temperature, library, _SIGNATURE, fields)


@compiled_once
def _library(stored: int) -> Library:
    return compile_draw(_SIGNATURE, stored, _write)


def _write(frame: SamplesWriter) -> None:
    e, f = frame.e, frame.field
    frame.affine(f["h"], f["H"], f["weight"], f["bias"], f["logits"], f["K"])
    level = frame.choose("logits", 0)
    frame.put(0, frame.broadcast("samples", level), e.first_lanes(e.int(1)))
