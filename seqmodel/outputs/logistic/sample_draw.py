"""The compiled draw of single samples."""

from torch import Tensor

from seqmodel.kernels.code.jit import Library, compiled_once
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.packing import pack
from seqmodel.kernels.run.calls import Arena, Slot
from seqmodel.kernels.run.signature import Array, packed
from seqmodel.outputs.logistic.draw import put_sample
from seqmodel.outputs.samples.blocks import LEAST_FINE, STEP, SampleBlocksOutput
from seqmodel.outputs.samples.draw import AudioDraw, SamplesWriter, compile_draw, draw_signature

_SIGNATURE = draw_signature(
    "sample_logistic_draw",
    ("H",),
    (
        Array("h", ("H",)),
        packed("weight", "H", "3 * K"),
        Array("bias", ("3 * K",)),
        Array("outputs", ("3 * K",)),
    ),
)


def sample_draw(
    output: SampleBlocksOutput, h: Slot, x: Slot, arena: Arena, chunk: int, temperature: float
) -> AudioDraw:
    """The draw of a sample from h (H,) or (1, H), which leaves it in x (1,)."""
    weight, columns = output.linear.weight, 3 * output.components
    fields: dict[str, int | Tensor | Slot] = {
        "H": h.shape[-1], "h": h.reshaped(h.shape[-1]), "weight": pack(weight),
        "bias": output.linear.bias.double(), "outputs": arena.take(columns),
    }  # fmt: skip
    library = _library(weight.element_size(), temperature == 0)
    return AudioDraw(output, x, arena, chunk, temperature, library, _SIGNATURE, fields)


@compiled_once
def _library(stored: int, at_zero: bool) -> Library:
    return compile_draw(_SIGNATURE, stored, lambda frame: _write(frame, at_zero))


def _write(frame: SamplesWriter, at_zero: bool) -> None:
    e, f = frame.e, frame.field
    frame.affine(f["h"], f["H"], f["weight"], f["bias"], f["outputs"], e.mul(f["K"], 3))
    certainty, spacing, anchor, level = (
        frame.broadcast("h", e.add(f["H"], i)) for i in (-4, -3, -2, -1)
    )
    choice = frame.choice(1)  # by which the sample is drawn from single levels, or from the grid
    fine = (1.0 - certainty).where("<", LEAST_FINE, LEAST_FINE) - choice
    spacing = spacing.replaced(fine, ">", 0.0, STEP).where("<", STEP, STEP)
    factor = None
    if not at_zero:
        one = Vector(e, e.constant(1.0))
        usual, tempered = (
            _mean_size(frame, level, at) for at in (one, frame.constant("temperature"))
        )
        factor = usual / tempered
    put_sample(frame, 0, anchor, level, factor=factor, spacing=spacing)


def _mean_size(frame: SamplesWriter, level: Vector, temperature: Vector) -> Vector:
    """See `probability.mean_size`; in all lanes."""
    e, K = frame.e, frame.field["K"]
    top = frame.highest("outputs")
    sums = [e.zero(), e.zero()]
    with e.carrying(0, K, e.lanes, sums) as (k, inside):
        lanes = e.first_lanes(e.builder.sub(K, k))
        logit, offset, log_scale = (
            frame.load("outputs", e.add(e.mul(K, row), k), lanes) for row in range(3)
        )
        scale = (log_scale.exp() * level + frame.constant("floor")) * temperature
        mean = offset * level
        size = mean.maximum(mean * -1.0)
        size = size + scale * 2.0 * (size * -1.0 / scale).softplus()[0]
        weight = ((logit - top) / temperature).exp().masked(lanes)
        for n, term in enumerate((weight, weight * size)):
            inside[n] = (Vector(e, inside[n]) + term).value
    total, weighted = (Vector(e, value).over_lanes(Vector.__add__) for value in sums)
    return weighted / total
