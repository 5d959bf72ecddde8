"""The nats of a frame's notes from their logits, as instructions."""

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
        logit, x = (Vector(e, e.load(e.offset(place, j), lanes)) for place in (logits, frame))
        if bias is not None:
            logit = logit + Vector(e, e.load(e.offset(bias, j), lanes))
        # -log p of a note is that of its absence at the negated logit. Computed this way, confident
        # predictions lose no precision.
        sign = 1.0 - x * 2.0
        nats, probability = (logit * sign).softplus()
        if slopes is not None:
            e.store((sign * probability).value, e.offset(slopes, j), lanes)
        return nats

    whole = e.builder.and_(count, e.int(-e.lanes))  # notes in full vectors
    total = [e.zero()]
    with e.carrying(0, whole, e.lanes, total) as (j, inside):
        inside[0] = (Vector(e, inside[0]) + notes(j, None)).value
    with e.carrying(whole, count, e.lanes, total) as (j, inside):
        lanes = e.first_lanes(e.builder.sub(count, j))
        inside[0] = (Vector(e, inside[0]) + notes(j, lanes).masked(lanes)).value
    return e.sum(total[0])
