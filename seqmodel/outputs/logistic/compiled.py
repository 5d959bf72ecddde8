"""The discretised logistics, compiled: the score, from h to nats in one pass, and the draw.

The score's forward pass takes a block of rows through both layers and back, and leaves the
gradients of each row's nats with respect to both layers' outputs. The backward pass only scales
them and multiplies matrices.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.code.vectors import ACTIVATIONS, Vector
from seqmodel.kernels.linear.matmul import matmul
from seqmodel.kernels.linear.outer import outer
from seqmodel.kernels.linear.packing import pack, packing, panels_of
from seqmodel.kernels.run import memory
from seqmodel.kernels.run.calls import Slot
from seqmodel.kernels.run.signature import NEW, Array, Signature, packed, per_thread
from seqmodel.kernels.run.team import parallel_for
from seqmodel.outputs import linear_score
from seqmodel.outputs.linear_score import BlockKernel, rows_of
from seqmodel.outputs.logistic.nats import WORK, Grid, Mixtures, Units
from seqmodel.outputs.protocol import DrawSetting
from seqmodel.outputs.samples.blocks import HIGHEST, STEP, SampleBlocksOutput
from seqmodel.outputs.samples.draw import AudioDraw, SamplesWriter, draw_signature


class Blocks(NamedTuple):
    """The samples, the past samples that the mixtures read, and the units they compute in."""

    frames: Tensor
    """(..., F), raw."""
    z: Tensor
    """(..., F), standardised."""
    windows: Tensor
    """(rows F, C): the standardised samples before each."""
    residual: float
    step: float
    floor: float


class LogisticNats(torch.autograd.Function):
    """Nats (...) of blocks of F samples, from h (..., H) and each sample's linear prediction.

    Weights: `states` (F M, H), `window` (M, C) and its bias (M,), `mixture` (3 K, M) and its bias.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, linear: Tensor, blocks: Blocks, *weights: Tensor) -> Tensor:
        """The nats; saves their gradients with respect to both layers' outputs."""
        states, window, window_bias, mixture, mixture_bias = weights
        H, F, (M, C), (K3, _) = h.shape[-1], blocks.z.shape[-1], window.shape, mixture.shape
        rows = rows_of(h)
        count, windows = rows.shape[0], blocks.windows.contiguous()
        threads = linear_score.threads_for(count)
        packings = {
            "states": packing(states, transposed=True), "window": packing(window, transposed=True),
            "mixture": packing(mixture, transposed=True), "mixture_back": packing(mixture),
        }  # fmt: skip
        fields = panels_of(packings) | {
            "rows": count, "H": H, "F": F, "M": M, "C": C, "K": K3 // 3, "threads": threads,
            "h": rows, "windows": windows, "linear": rows_of(linear),
            "frames": rows_of(blocks.frames), "z": rows_of(blocks.z),
            "window_bias": window_bias.contiguous(), "mixture_bias": mixture_bias.contiguous(),
            "units": h.new_tensor([
                blocks.residual, math.log(blocks.residual), blocks.floor,
                blocks.step, math.log(blocks.step),
            ]),
            "work": NEW, "hidden": NEW, "outputs": NEW, "inputs": NEW, "nats": NEW,
        }  # fmt: skip
        forward = _FORWARD.job(h.element_size(), fields)
        parallel_for([*packings.values(), forward], threads)
        hidden, outputs, inputs = (forward.made[name] for name in ("hidden", "outputs", "inputs"))
        ctx.save_for_backward(rows, states, windows, hidden, outputs, inputs)
        ctx.residual = blocks.residual
        return forward.made["nats"].sum(1).view(h.shape[:-1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_nats: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of all but the blocks."""
        h, states, windows, hidden, outputs, inputs = ctx.saved_tensors
        (samples, M), rows = hidden.shape, len(inputs)
        d = linear_score.gradients(h, states, inputs, d_nats.reshape(rows))
        d_outputs = (outputs.view(rows, -1) * d_nats.reshape(rows, 1)).view(samples, -1)
        d_window = memory.buffer(h.dtype, M, windows.shape[1])
        d_mixture = memory.buffer(h.dtype, d_outputs.shape[1], M)
        threads = linear_score.threads_for(rows)
        to_window = outer(d.outputs.view(samples, M), windows, d_window, threads)
        to_mixture = outer(d_outputs, hidden, d_mixture, threads)
        parallel_for([*d.jobs, *to_window, *to_mixture], threads)
        # The prediction shifts all means, which the mixture offsets in units of the residual.
        d_linear = d_outputs.view(*d_nats.shape, -1, 3, d_outputs.shape[1] // 3)[..., 1, :].sum(-1)
        return (
            d.h.view(*d_nats.shape, -1), d_linear / ctx.residual, None, d.weight, d_window,
            d.bias.view(-1, M).sum(0), d_mixture, d_outputs.sum(0),
        )  # fmt: skip


def _write_forward(e: Emitter, f: dict[str, Any], start: Any, rows: Any) -> None:
    H, F, M, C, K = (f[name] for name in "HFMCK")
    FM, K3 = e.mul(F, M), e.mul(K, 3)
    first, samples = e.mul(start, F), e.mul(rows, F)

    def at(name: str, columns: Any) -> Any:
        return e.offset(f[name], e.mul(first, columns))

    hidden, outputs, inputs = at("hidden", M), at("outputs", K3), at("inputs", M)
    h = e.offset(f["h"], e.mul(start, H))
    matmul(e, h, H, f["states"], hidden, FM, rows, H, FM, False)
    matmul(e, at("windows", C), C, f["window"], hidden, M, samples, C, M, True)
    with e.loop(0, samples) as n:
        row = e.mul(n, M)

        def activate(m: Any, lanes: Any, row: Any = row) -> None:
            place = e.offset(hidden, row, m)
            bias = Vector(e, e.load(e.offset(f["window_bias"], m), lanes))
            u = ACTIVATIONS["tanh"](Vector(e, e.load(place, lanes)) + bias)
            e.store(u.value, place, lanes)

        e.columns(M, activate)
    matmul(e, hidden, M, f["mixture"], outputs, K3, samples, M, K3, False)
    with e.loop(0, samples, e.lanes) as n:
        _write_samples(e, f, e.add(first, n), e.builder.sub(samples, n))
    matmul(e, outputs, K3, f["mixture_back"], inputs, M, samples, K3, M, False)
    with e.loop(0, samples) as n:
        row = e.mul(n, M)

        def back(m: Any, lanes: Any, row: Any = row) -> None:
            place = e.offset(inputs, row, m)
            u = Vector(e, e.load(e.offset(hidden, row, m), lanes))
            slope = Vector(e, e.load(place, lanes)) * ACTIVATIONS["tanh"].slope(u)
            e.store(slope.value, place, lanes)

        e.columns(M, back)


def _write_samples(e: Emitter, f: dict[str, Any], n: Any, count: Any) -> None:
    """Score samples from n on, as many as there are lanes, or `count` if these are fewer."""
    lanes, K = e.first_lanes(count), f["K"]
    mixtures = Mixtures(
        e, e.offset(f["outputs"], e.mul(n, K, 3)), f["mixture_bias"], K, count,
        e.offset(f["work"], e.mul(f["thread"], e.padded(e.mul(K, 4 * e.lanes)))),
    )  # fmt: skip
    linear, z, raw = (
        Vector(e, e.load(e.offset(f[name], n), lanes)) for name in ("linear", "z", "frames")
    )
    unit, log_unit, floor, step, log_step = (
        Vector(e, e.broadcast(e.offset(f["units"], i))) for i in range(5)
    )
    grid = Grid(step, log_step, Vector(e, e.constant(HIGHEST * STEP)))
    nats = mixtures.nats(z - linear, raw, Units(unit, log_unit, floor), grid)
    e.store(nats.value, e.offset(f["nats"], n), lanes)


_FORWARD = BlockKernel(
    Signature(
        "logistic_forward",
        ("rows", "H", "F", "M", "C", "K"),
        (
            Array("h", ("rows", "H")),
            packed("states", "H", "F * M"),
            packed("window", "C", "M"),
            packed("mixture", "M", "3 * K"),
            packed("mixture_back", "3 * K", "M"),
            Array("window_bias", ("M",)),
            Array("mixture_bias", ("3 * K",)),
            Array("windows", ("rows * F", "C")),
            *(Array(name, ("rows", "F")) for name in ("linear", "frames", "z")),
            Array("units", ("5",)),  # residual, its log, floor, step, its log
            per_thread("work", WORK),
            Array("hidden", ("rows * F", "M")),
            # The gradients of a row's nats with respect to both layers' outputs.
            Array("outputs", ("rows * F", "3 * K")),
            Array("inputs", ("rows", "F * M")),
            Array("nats", ("rows", "F")),
        ),
    ),
    _write_forward,
)
_DRAW = draw_signature(
    "logistic_draw",
    ("M",),
    (
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
    residual: Tensor, setting: DrawSetting,
) -> AudioDraw:  # fmt: skip
    """The draw from h (H,), for a unit that reads x (C,); the `predictor` (C,) is l + r d."""
    width, take = window.out_features, setting.arena.take
    fields: dict[str, int | Tensor | Slot] = {
        "M": width, "weight": pack(output.linear.weight),
        "bias": window.bias.double().repeat(output.frame_size),
        "states": take(output.frame_size, width),
        "window": pack(window.weight), "mixture": pack(mixture.weight),
        "mixture_bias": mixture.bias.double(), "outputs": take(3 * output.components),
        "predictor": predictor, "residual": residual.double().reshape(1),
    }  # fmt: skip
    return AudioDraw(output, setting, _DRAW, fields, _write_draw, width)


def _write_draw(frame: SamplesWriter, width: int) -> None:
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
