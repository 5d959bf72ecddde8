"""Code generation for outputs over notes: the nats of a frame, and their slopes."""

import math
from collections.abc import Callable
from typing import Any

from seqmodel.kernels.code.emit import POINTER, Emitter, Lanes
from seqmodel.kernels.code.vectors import Vector


def write_frame_nats(
    e: Emitter,
    f: dict[str, Any],
    r: Any,
    D: Any,
    logits: Any,
    *,
    bias: Any = None,
    slopes: Any = None,
) -> Any:
    """The nats of row `r` of the fields `frames` and, with onsets, `past`, given its D logits.

    `bias` is the address of biases to add to the logits; the nats' slopes go to `slopes`, which may
    be the logits' address.
    """
    b, row = e.builder, e.mul(r, D)
    frame, places = e.offset(f["frames"], row), {"bias": bias, "slopes": slopes}
    onsets = b.icmp_unsigned("!=", f["past"], POINTER(None))
    notes = b.select(onsets, b.lshr(D, e.int(1)), D)
    nats = [_write_nats(e, notes, logits, frame, **places)]
    with e.when(onsets, nats) as more:
        past = e.offset(f["past"], row)
        more[0] = b.fadd(more[0], _write_struck_nats(e, notes, logits, frame, past, **places))
    return nats[0]


def _write_nats(e: Emitter, count: Any, logits: Any, frame: Any, *, bias: Any, slopes: Any) -> Any:
    """The sum of the nats of `count` notes, zeros and ones at `frame`."""

    def notes(j: Any, lanes: Lanes | None) -> Vector:
        nats, slope = _nats_and_slope(e, logits, frame, bias, j, lanes)
        if slopes is not None:
            e.store(slope.value, e.offset(slopes, j), lanes)
        return nats

    return _sum(e, count, notes)


def _write_struck_nats(
    e: Emitter, count: Any, logits: Any, frame: Any, past: Any, *, bias: Any, slopes: Any
) -> Any:
    """The same for the bits that say which of `count` notes are struck.

    The bits follow the notes in a frame, as their logits do. Each address is of the frame's first
    number, `past` of the previous frame's. See `notes.struck_nats`: bits that are not free cost
    nothing and have no slope; an impossible frame costs infinity.
    """

    def strikes(note: Any, lanes: Lanes | None) -> Vector:
        j = e.add(count, note)
        nats, slope = _nats_and_slope(e, logits, frame, bias, j, lanes)
        sounding, struck, sounded = (
            Vector(e, e.load(e.offset(place, k), lanes))
            for place, k in ((frame, note), (frame, j), (past, note))
        )
        free, wrong = sounding * sounded, struck - sounding
        cost = Vector(e, e.zero()).replaced(wrong * wrong, ">", 0.5, math.inf)
        if slopes is not None:
            e.store(slope.replaced(free, "<", 0.5, 0.0).value, e.offset(slopes, j), lanes)
        return nats.replaced(free, "<", 0.5, cost)

    return _sum(e, count, strikes)


def _nats_and_slope(
    e: Emitter, logits: Any, frame: Any, bias: Any, j: Any, lanes: Lanes | None
) -> tuple[Vector, Vector]:
    """The nats of the numbers from j on, and their slopes with respect to the logits."""
    logit, x = (Vector(e, e.load(e.offset(place, j), lanes)) for place in (logits, frame))
    if bias is not None:
        logit = logit + Vector(e, e.load(e.offset(bias, j), lanes))
    # -log p of a sounding note is that of a silent one at the negated logit. Computed this way,
    # confident predictions lose no precision.
    sign = 1.0 - x * 2.0
    nats, probability = (logit * sign).softplus()
    return nats, sign * probability


def _sum(e: Emitter, count: Any, notes: Callable[[Any, Lanes | None], Vector]) -> Any:
    """The sum of `notes` over `count` notes, a vector at a time."""
    whole = e.builder.and_(count, e.int(-e.lanes))  # notes in full vectors
    total = [e.zero()]
    with e.carrying(0, whole, e.lanes, total) as (j, inside):
        inside[0] = (Vector(e, inside[0]) + notes(j, None)).value
    with e.carrying(whole, count, e.lanes, total) as (j, inside):
        lanes = e.first_lanes(e.builder.sub(count, j))
        inside[0] = (Vector(e, inside[0]) + notes(j, lanes).masked(lanes)).value
    return e.sum(total[0])
