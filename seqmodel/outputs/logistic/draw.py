"""The discretised logistics' compiled draw."""

from typing import Any

from torch import Tensor, nn

from seqmodel.kernels.code.jit import Library, compiled_once
from seqmodel.kernels.code.vectors import ACTIVATIONS, Vector
from seqmodel.kernels.linear.packing import pack
from seqmodel.kernels.run.calls import Arena, Slot
from seqmodel.kernels.run.signature import Array, packed
from seqmodel.outputs.samples.blocks import SampleBlocksOutput
from seqmodel.outputs.samples.draw import AudioDraw, SamplesWriter, compile_draw, draw_signature

_SIGNATURE = draw_signature(
    "logistic_draw",
    ("H", "M"),
    (
        Array("h", ("H",)),
        packed("weight", "H", "F * M"),  # B
        Array("bias", ("F * M",)),  # a, for each sample
        Array("states", ("F", "M")),  # B h + a, to which each sample adds its A p
        packed("window", "C", "M"),  # A
        packed("mixture", "M", "3 * K"),  # V
        Array("mixture_bias", ("3 * K",)),
        Array("outputs", ("3 * K",)),
        Array("predictor", ("C",)),  # l + r d
        Array("residual", ("1",)),  # r
    ),
)


def logistic_draw(
    output: SampleBlocksOutput, window: nn.Linear, mixture: nn.Linear, predictor: Tensor,
    residual: Tensor, h: Slot, x: Slot, arena: Arena, chunk: int, temperature: float,
) -> AudioDraw:  # fmt: skip
    """The draw from h (H,), for a unit that reads x (C,); the `predictor` (C,) is l + r d."""
    weight, width = output.linear.weight, window.out_features
    fields: dict[str, int | Tensor | Slot] = {
        "H": h.shape[0], "M": width, "h": h, "weight": pack(weight),
        "bias": window.bias.double().repeat(output.frame_size),
        "states": arena.take(output.frame_size, width),
        "window": pack(window.weight), "mixture": pack(mixture.weight),
        "mixture_bias": mixture.bias.double(), "outputs": arena.take(3 * output.components),
        "predictor": predictor, "residual": residual.double().reshape(1),
    }  # fmt: skip
    library = _library(weight.element_size(), width)
    return AudioDraw(output, x, arena, chunk, temperature, library, _SIGNATURE, fields)


@compiled_once
def _library(stored: int, width: int) -> Library:
    return compile_draw(_SIGNATURE, stored, lambda frame: _write(frame, width))


def _write(frame: SamplesWriter, width: int) -> None:
    e, f = frame.e, frame.field
    F, C, K, M, outputs = f["F"], f["C"], f["K"], e.int(width), f["outputs"]
    frame.affine(f["h"], f["H"], f["weight"], f["bias"], f["states"], e.mul(F, M))
    with e.loop(0, F) as j:
        state = e.offset(f["states"], e.mul(j, M))
        frame.add_product(frame.before(j), C, f["window"], state, M)

        def bend(i: Any, lanes: Any, state: Any = state) -> None:
            place = e.offset(state, i)
            e.store(ACTIVATIONS["tanh"](Vector(e, e.load(place, lanes))).value, place, lanes)

        e.columns(M, bend)
        frame.affine(state, M, f["mixture"], f["mixture_bias"], outputs, e.mul(K, 3))
        put_sample(frame, j, _predicted(frame, j), frame.broadcast("residual", 0))


def put_sample(
    frame: SamplesWriter,
    j: Any,
    predicted: Vector,
    unit: Vector,
    *,
    factor: Vector | None = None,
    spacing: Vector | None = None,
) -> None:
    """Draw sample j around a prediction: the field `outputs` holds logits, offsets, log scales.

    The latter two are in units of `unit`; the deviation from the prediction is multiplied by
    `factor`; for `spacing` see `SamplesWriter.put`.
    """
    e, K = frame.e, frame.field["K"]
    component = frame.choose("outputs", j)
    offset, log_scale = (
        frame.broadcast("outputs", e.add(start, component)) for start in (K, e.mul(K, 2))
    )
    scale = log_scale.exp() * unit + frame.constant("floor")
    one = e.first_lanes(e.int(1))
    deviation = offset * unit + scale * frame.noise(j, one)
    frame.put(j, predicted + (deviation * factor if factor else deviation), one, spacing)


def _predicted(frame: SamplesWriter, j: Any) -> Vector:
    """(l + r d) . p_j in all lanes."""
    e = frame.e
    total = [e.zero()]
    with e.carrying(0, frame.field["C"], e.lanes, total) as (i, inside):
        lanes = e.first_lanes(e.builder.sub(frame.field["C"], i))
        p = e.load(e.offset(frame.before(j), i), lanes)
        inside[0] = e.multiply_add(p, frame.load("predictor", i, lanes).value, inside[0])
    return Vector(e, total[0]).over_lanes(Vector.__add__)
