"""Which voice sings which pitch, given the pitches of a frame: what `eval --voices` adds.

A model predicts the set of pitches that sound. Who sings them is predicted here, from the previous
frames and the set alone, so that both costs add up to the exact cost of a frame with voices. The
voices choose in order, the first one first: a pitch or a rest, but never so that a pitch is left
over. The choices made are counted in contexts: on train first, then within each piece.
"""

from collections import Counter
from functools import lru_cache
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SeqmodelError
from seqmodel.media.definitions import Pieces
from seqmodel.media.music.frames import sounding
from seqmodel.media.music.grid import REST
from seqmodel.media.music.published import Roll

PRIOR = 1.0
"""Pseudo-counts, shared equally by all options."""

MAX_LEAP = 3
"""All leaps of this many semitones or more count alike."""

Frame = tuple[int, ...]
"""The pitch of each voice, or `REST`."""


@lru_cache(2**16)
def choices(
    before: Frame, now: Frame
) -> list[tuple[tuple[Any, ...], list[int | None], int | None]]:
    """(Context, options, the choice made) of each voice that has a choice.

    Given are the previous frame and the set of this one. A pitch is named by its position in the
    set, from the top: 0 is the highest below those of all previous voices, -1 the lowest of theirs,
    None a rest.
    """
    pitches = sorted(set(now) - {REST}, reverse=True)
    same = set(pitches) == set(before) - {REST}
    unassigned, sung, made = set(pitches), 0, []
    for voice, (last, pitch) in enumerate(zip(before, now, strict=True)):
        others = len(now) - voice - 1
        options = [option for option in (*pitches, REST) if len(unassigned - {option}) <= others]
        place = {pitch: k - sung for k, pitch in enumerate(pitches)}
        if len(options) > 1:
            spare = others + 1 - len(unassigned)  # voices that can rest or double another
            nearest = min(pitches, key=lambda pitch: abs(pitch - last))
            leap = None if last == REST else (place[nearest], min(abs(nearest - last), MAX_LEAP))
            next_held = place.get(before[voice + 1]) if others else None
            context = (len(now), voice, spare, same, leap, next_held)
            made.append((context, [place.get(one) for one in options], place.get(pitch)))
        unassigned.discard(pitch)
        if pitch != REST:
            sung = max(sung, pitches.index(pitch) + 1)
    return made


def assignment_nats(
    voices: NDArray[np.int8], learned: Counter[Any]
) -> tuple[NDArray[np.float64], Counter[Any]]:
    """-log p(who sings what | the pitches of the frame, all frames before) of a piece (T, voices).

    Takes the counts of each (context, position) `learned`; returns the nats of each frame (T,) and
    the counts of this piece. Over all ways to assign a frame's pitches, each to at least one voice,
    the probabilities sum to 1. Silence precedes a piece.
    """
    nats, piece_counts = np.zeros(len(voices)), Counter[Any]()
    before: Frame = (REST,) * voices.shape[1]
    for t, now in enumerate(map(tuple, voices.tolist())):
        for context, options, chosen in choices(before, now):
            counts = [learned[context, place] + piece_counts[context, place] for place in options]
            count = learned[context, chosen] + piece_counts[context, chosen]
            nats[t] -= log((count + PRIOR / len(options)) / (sum(counts) + PRIOR))
            piece_counts[context, chosen] += 1
        before = now
    return nats, piece_counts


def voices_cost(split: Pieces, train: Pieces) -> tuple[float, int] | None:
    """`Medium.voices`."""
    train_counts, nats, notes = Counter[Any](), 0.0, 0
    if any("voices" not in of.facts(k) for of in (train, split) for k in range(len(of))):
        return None
    for k in range(len(train)):
        train_counts.update(assignment_nats(_voices(train, k), train_counts)[1])
    for k in range(len(split)):
        voices = _voices(split, k)
        nats += float(assignment_nats(voices, train_counts)[0].sum())
        notes += voices.size
    return nats, notes


def _voices(pieces: Pieces, index: int) -> NDArray[np.int8]:
    facts = pieces.facts(index)
    try:
        voices = np.array(facts["voices"], np.int8)
        if np.array_equal(Roll.of_voices(voices).frames, sounding(pieces[index])):
            return voices
    except (ValueError, TypeError, IndexError, OverflowError):
        pass
    raise SeqmodelError(
        f"the voices of piece {index} of {pieces.name} do not sing its notes: the dataset is "
        "damaged; run `seqmodel prepare` again"
    )
