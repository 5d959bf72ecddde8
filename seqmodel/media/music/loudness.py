"""How loud the notes of sampled pieces are, beside those of the data."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.definitions import Pieces
from seqmodel.media.distributions import Row
from seqmodel.media.levels import Levels
from seqmodel.media.music.frames import PianoRollFrames, struck, velocities_in
from seqmodel.media.music.metre import COMMON_TIME, Units

ROWS: tuple[Row, ...] = (
    ("velocity", "velocity", "10.4f"),
    ("  spread", "velocity_spread", "10.4f"),
    ("  spread within a piece", "velocity_spread_of_piece", "10.4f"),
)


def played(pieces: "Sequence[NDArray[Any]] | Pieces") -> Iterable[NDArray[np.uint8]]:
    """Pieces (T, F + D) that hold velocities; none, if these do not."""
    if isinstance(pieces, Sequence):
        return [piece for piece in pieces if velocities_in(piece).size]
    if pieces.frame.velocity is None:
        return []
    return (pieces.frame.played(pieces.stored(k)) for k in range(len(pieces)))


def loudness(
    pieces: Iterable[NDArray[np.uint8]], frame: PianoRollFrames
) -> tuple[dict[str, float], Counter[int]]:
    """Figures of pieces (T, 264) by name, and notes by train's levels; empty where none is known.

    On a grid of beats there are the accents too: by how much the mean velocity on each beat of the
    commonest bar of train differs from that of all notes, bars being counted from the first frame.
    """
    units = Units.of(frame.metre or COMMON_TIME, frame.grid)
    found, places, apart = list[NDArray[np.int64]](), list[NDArray[np.int64]](), list[float]()
    for piece in pieces:
        loud = velocities_in(piece) * struck(piece)
        at, _ = np.nonzero(loud)
        if len(at):
            found.append(loud[loud > 0].astype(np.int64))
            places.append(at * units.frame % units.bar)
            apart.append(float(found[-1].std()))
    if not found:
        return {}, Counter()
    velocity, place = np.concatenate(found), np.concatenate(places)
    figures = {
        "velocity": float(velocity.mean()),
        "velocity_spread": float(velocity.std()),
        "velocity_spread_of_piece": float(np.mean(apart)),
    }
    if frame.grid.steps_per_beat:
        for beat in range(units.bar // units.beat):
            there = velocity[place == beat * units.beat]
            if len(there):
                figures[f"accent_{beat + 1}"] = float(there.mean() - velocity.mean())
    levels = frame.velocity or Levels()
    return figures, Counter(np.searchsorted(levels.edges, velocity).tolist())


def accent_rows(names: Iterable[str]) -> tuple[Row, ...]:
    """The rows of the accents among the names of figures."""
    beats = [name.removeprefix("accent_") for name in names if name.startswith("accent_")]
    return tuple((f"  on beat {beat}, more", f"accent_{beat}", "10.4f") for beat in beats)
