"""Code generation for outputs over notes: the nats of a frame, and their slopes."""

import math
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
    frame, past = e.offset(f["frames"], row), e.offset(f["past"], row)
    onsets = b.icmp_unsigned("!=", f["past"], POINTER(None))
    notes = b.select(onsets, b.lshr(D, e.int(1)), D)

    def load(place: Any, j: Any, lanes: Lanes | None) -> Vector:
        return Vector(e, e.load(e.offset(place, j), lanes))

    def nats_and_slope(j: Any, lanes: Lanes | None) -> tuple[Vector, Vector]:
        """The nats of the numbers from j on, and their slopes with respect to the logits."""
        logit, x = load(logits, j, lanes), load(frame, j, lanes)
        if bias is not None:
            logit = logit + load(bias, j, lanes)
        # -log p of a sounding note is that of a silent one at the negated logit. Computed this way,
        # confident predictions lose no precision.
        sign = 1.0 - x * 2.0
        nats, probability = (logit * sign).softplus()
        return nats, sign * probability

    def kept(nats: Vector, slope: Vector, j: Any, lanes: Lanes | None) -> Any:
        if slopes is not None:
            e.store(slope.value, e.offset(slopes, j), lanes)
        return (nats.masked(lanes) if lanes else nats).value

    def sounds(j: Any, lanes: Lanes | None) -> Any:
        return kept(*nats_and_slope(j, lanes), j, lanes)

    def strikes(note: Any, lanes: Lanes | None) -> Any:
        """Of the bits that say which notes are struck; they follow the notes in a frame.

        See `NotesOutput.onset_nats`: bits that are not free cost nothing and have no slope; an
        impossible frame costs infinity.
        """
        j = e.add(notes, note)
        nats, slope = nats_and_slope(j, lanes)
        sounding, struck = load(frame, note, lanes), load(frame, j, lanes)
        free, wrong = sounding * load(past, note, lanes), struck - sounding
        cost = Vector(e, e.zero()).replaced(wrong * wrong, ">", 0.5, math.inf)
        nats, slope = nats.replaced(free, "<", 0.5, cost), slope.replaced(free, "<", 0.5, 0.0)
        return kept(nats, slope, j, lanes)

    total = [e.summed(notes, sounds)]
    with e.when(onsets, total) as inside:
        inside[0] = b.fadd(inside[0], e.summed(notes, strikes))
    return total[0]
