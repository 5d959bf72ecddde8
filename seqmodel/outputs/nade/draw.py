"""The NADE's compiled draw."""

import math
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from seqmodel.kernels.code.emit import vector_lanes
from seqmodel.kernels.code.vectors import ACTIVATIONS, Vector
from seqmodel.kernels.run.calls import Slot
from seqmodel.kernels.run.signature import Array
from seqmodel.outputs.notes.draw import (
    BYTE,
    ITEMSIZE,
    NotesDraw,
    NotesWriter,
    draw_signature,
)
from seqmodel.outputs.notes.linear import LinearNotesOutput
from seqmodel.outputs.protocol import DrawSetting

_SIGNATURE = draw_signature(
    "nade_draw",
    ("K", "P"),  # P is K padded to whole vectors
    (
        Array("V", ("D", "P")),
        Array("U", ("D", "P")),
        Array("a", ("P",)),
        Array("state", ("P",)),  # of the hidden units
        Array("limits", ("D",)),  # a number is one where its logit times the factor exceeds it
        Array("past", ("D",), optional=True),  # with onsets: a copy of the previous frame
    ),
)


def nade_draw(output: LinearNotesOutput, V: Tensor, U: Tensor, setting: DrawSetting) -> NotesDraw:
    """The draw of a frame from h (H,), the hidden units having weights V and U (F, K)."""
    K, V, U, arena = V.shape[1], _padded(V), _padded(U), setting.arena
    P = V.shape[1]
    own: dict[str, int | Tensor | Slot | None] = {
        "K": K, "P": P, "V": V, "U": U,
        "a": arena.take(P), "state": arena.take(P), "limits": arena.take(output.frame_size),
        "past": arena.take(output.frame_size) if output.onsets else None,
    }  # fmt: skip
    return NotesDraw(output, setting, _SIGNATURE, own, _write)


def _padded(matrix: Tensor) -> Tensor:
    """A matrix in float64, each row zero-padded to whole vectors."""
    return F.pad(matrix.detach().double(), (0, -matrix.shape[1] % vector_lanes(ITEMSIZE)))


def _write(frame: NotesWriter, at_zero: bool, onsets: bool) -> None:
    e, b, f = frame.e, frame.e.builder, frame.field
    D, P = f["D"], f["P"]

    def limit(j: Any, lanes: Any) -> None:
        """u < s(logit) where logit > log(u / (1 - u)). The log of 0 comes out as -709."""
        u = frame.uniforms(j)
        limits = u.log() - (1.0 - u).log()
        if frame.fills:
            limits = limits.replaced(u, "<", 0.0, -math.inf).replaced(u, ">", 1.0, math.inf)
        e.store(e.zero() if at_zero else limits.value, e.offset(f["limits"], j), lanes)

    def activate(a: Vector, k: Any) -> None:
        e.store(a.value, e.offset(f["a"], k))
        e.store(ACTIVATIONS["sigmoid"](a).value, e.offset(f["state"], k))

    e.columns(D, limit)
    e.columns(f["K"], lambda k, lanes: activate(frame.output(e.add(D, k), lanes), k))
    factor = b.load(f["factor"], typ=e.real)
    if onsets:
        e.copy(f["x"], f["past"], D)
    with e.loop(0, D) as d:
        of_note, dot = e.mul(d, P), [e.zero()]
        with e.carrying(0, P, e.lanes, dot) as (k, total):
            weight = e.load(e.offset(f["U"], of_note, k))
            total[0] = e.multiply_add(weight, e.load(e.offset(f["state"], k)), total[0])
        product, bias, limits = (
            b.load(e.offset(f[name], d), typ=e.real) for name in ("product", "bias", "limits")
        )
        logit = b.fadd(e.sum(dot[0]), b.fadd(product, bias))
        scaled = b.fmul(logit, factor)
        frame.tell(Vector(e, e.splat(scaled, e.vector)), d, e.first_lanes(e.int(1)))
        one = b.fcmp_ordered(">", scaled, limits)
        if onsets:
            one = _as_it_must_be(frame, d, one)
        b.store(b.uitofp(one, e.real), e.offset(f["x"], d))
        b.store(b.zext(one, BYTE), b.gep(frame.bytes, [d], source_etype=BYTE), align=1)
        with b.if_then(one), e.loop(0, P, e.lanes) as k:
            a, step = e.load(e.offset(f["a"], k)), e.load(e.offset(f["V"], of_note, k))
            activate(Vector(e, a) + Vector(e, step), k)


def _as_it_must_be(frame: NotesWriter, d: Any, drawn: Any) -> Any:
    """Number d of a frame with onsets: as drawn, unless it is a strike that is not free."""
    e, b, f = frame.e, frame.e.builder, frame.field
    notes, one = b.lshr(f["D"], e.int(1)), [drawn]
    with e.when(b.icmp_signed(">=", d, notes), one) as strike:
        note = b.sub(d, notes)
        now, before = (
            b.fcmp_ordered(">", b.load(e.offset(f[name], note), typ=e.real), e.real(0.0))
            for name in ("x", "past")
        )
        strike[0] = b.and_(now, b.or_(drawn, b.not_(before)))
    return one[0]
