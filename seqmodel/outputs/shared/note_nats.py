"""The nats of a frame's notes from their logits, as instructions."""

import math
from collections.abc import Callable
from typing import Any

from seqmodel.kernels.code.emit import Emitter, Lanes
from seqmodel.kernels.code.vectors import Vector


def write_nats(
    e: Emitter, count: Any, logits: Any, frame: Any, *, bias: Any = None, slopes: Any = None
) -> Any:
    """The sum of the nats of `count` notes, zeros and ones at `frame`, given the logits' address.

    `bias` is the address of what is added to the logits; their slopes go to `slopes`, which may be
    where the logits are.
    """

    def notes(j: Any, lanes: Lanes | None) -> Vector:
        nats, slope = _nats_and_slope(e, logits, frame, bias, j, lanes)
        if slopes is not None:
            e.store(slope.value, e.offset(slopes, j), lanes)
        return nats

    return _sum(e, count, notes)


def write_struck_nats(
    e: Emitter,
    count: Any,
    logits: Any,
    frame: Any,
    past: Any,
    *,
    bias: Any = None,
    slopes: Any = None,
) -> Any:
    """As `write_nats`, of the bits that say which of `count` notes are struck.

    They follow the notes in a frame, as their logits do. All addresses are those of the frame's
    first number, `past` that of the frame before. See `onsets.struck_nats`: bits that are not free
    cost nothing and have no slope; a frame that cannot be costs infinity.
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
    """The nats of the numbers from j on, and their slopes by the logits."""
    logit, x = (Vector(e, e.load(e.offset(place, j), lanes)) for place in (logits, frame))
    if bias is not None:
        logit = logit + Vector(e, e.load(e.offset(bias, j), lanes))
    # -log p of a note is that of its absence at the negated logit. Computed this way, confident
    # predictions lose no precision.
    sign = 1.0 - x * 2.0
    nats, probability = (logit * sign).softplus()
    return nats, sign * probability


def _sum(e: Emitter, count: Any, notes: Callable[[Any, Lanes | None], Vector]) -> Any:
    """The sum of what `notes` gives for vectors of `count` notes."""
    whole = e.builder.and_(count, e.int(-e.lanes))  # notes in full vectors
    total = [e.zero()]
    with e.carrying(0, whole, e.lanes, total) as (j, inside):
        inside[0] = (Vector(e, inside[0]) + notes(j, None)).value
    with e.carrying(whole, count, e.lanes, total) as (j, inside):
        lanes = e.first_lanes(e.builder.sub(count, j))
        inside[0] = (Vector(e, inside[0]) + notes(j, lanes).masked(lanes)).value
    return e.sum(total[0])
