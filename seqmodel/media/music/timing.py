"""How far the onsets of notes lie from the grid, and which grid would fit them better."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.formats import DRUM_CHANNEL
from seqmodel.media.music.grid import Grid

if TYPE_CHECKING:
    from seqmodel.media.music.midi import Score

SIXTEENTHS, TRIPLETS = Grid.of_beats(4), Grid.of_beats(12)
BEATS = (SIXTEENTHS, Grid.of_beats(8), TRIPLETS, Grid.of_beats(24))
SECONDS = tuple(map(Grid.of_seconds, (0.6, 0.25, 0.15, 0.125, 0.1, 0.05, 0.025)))
"""The grids that may be suggested, the coarsest first. Whatever lies on the first of `BEATS` lies
on them all, and whatever lies on any of `SECONDS` lies on the last."""
FREE = SECONDS[-2:]
"""Those that move nothing far, for music that lies on no grid."""

ON_GRID = 1 / 12
"""An onset this far from a step, in steps, lies on the grid: one of six does by chance."""
ROUNDED = 1 / 4
"""So does one that is at most half a tick from a step, and this far."""
NEAR = 0.03
"""Seconds that an onset off the grid may be moved: players together are as far apart (Rasch 1979).
"""
NEARLY_ALL = 0.98
"""The share of onsets that lie on, or near, a grid that fits."""
APART = 0.99
"""The share of onsets that share no frame there with an earlier one of their part and pitch."""
HALF = 0.5
"""The share of onsets on a grid from which on the music has that pulse at all."""
WORTH_SAYING = 0.005


class _Onsets(NamedTuple):
    """Where the notes of a piece begin: part after part, pitch after pitch, then in time."""

    ticks: NDArray[np.int64]
    seconds: NDArray[np.float64]
    beat: int
    """Ticks in a beat."""
    beat_seconds: NDArray[np.float64]
    """The length of a beat at each onset."""
    again: NDArray[np.bool_]
    """(N - 1,), which but the first are later ones of the part and pitch of the one before."""

    @classmethod
    def of(cls, score: "Score", heard: NDArray[np.bool_]) -> "_Onsets":
        """The onsets of some of the notes (N,)."""
        on = score.on_tick[heard]
        part = (score.track << 11 | score.channel.astype(np.int64) << 7 | score.pitch)[heard]
        order = np.lexsort((on, part))
        on, part = on[order], part[order]
        again = (part[1:] == part[:-1]) & (on[1:] > on[:-1])
        at = np.searchsorted(score.tempo_tick, on, side="right") - 1
        return cls(on, score.seconds_at(on), score.ticks_per_unit, score.tempo[at] / 1e6, again)


class Timing:
    """Counts of where notes begin, over any number of pieces, which are kept on `grid`.

    Every note counts, also of unisons; `drums` says whether those of channel 10 do.
    """

    def __init__(self, grid: Grid, *, drums: bool) -> None:
        self._grid, self._drums = grid, drums
        self.notes = self._triplets = self._short = 0
        self._seconds_off = 0.0
        # By grid; those that cannot fit a piece are not counted in it.
        self._on, self._near, self._merged = Counter[Grid](), Counter[Grid](), Counter[Grid]()

    def add(self, score: "Score") -> None:
        """Count the notes of a piece."""
        heard = self._drums | (score.channel != DRUM_CHANNEL)
        on, off = score.on_tick[heard], score.off_tick[heard]
        notes, beat, steps = len(on), score.ticks_per_unit, self._grid.steps_per_beat
        self.notes += notes
        for grid in FREE:
            self._near[grid] += notes
        if steps:
            length, step = (off - on) * steps, float(beat)
        else:
            length = score.seconds_at(off) - score.seconds_at(on)
            step = self._grid.seconds_per_frame(1.0)
        self._short += int(np.count_nonzero((length > 0) & (length < step)))
        if steps and 4 % steps == 0 and not (on * steps % beat).any():
            # Most scores, quickly: they are on all grids of beats, each a multiple of this one.
            for grid in {self._grid, *BEATS}:
                self._on[grid] += notes
                self._near[grid] += notes
            return
        onsets = _Onsets.of(score, heard)
        counted = {self._grid: self._count(onsets, self._grid)}

        def count(*grids: Grid) -> bool:
            """Whether on one of them lies at least half."""
            for grid in grids:
                if grid not in counted:
                    counted[grid] = self._count(onsets, grid)
            return max((counted[grid] for grid in grids), default=0) >= HALF * notes

        if not score.smpte and count(SIXTEENTHS, TRIPLETS):
            count(*BEATS)
        elif count(FREE[-1]):
            count(*SECONDS)
        else:
            count(*FREE)

    def _count(self, onsets: "_Onsets", grid: Grid) -> int:
        """Count onsets on a grid; returns how many lie on it."""
        steps = grid.steps_per_beat
        if steps is None:
            step: Any = grid.seconds_per_frame(1.0)
            place, tolerance = onsets.seconds / step, ON_GRID
        else:
            step = onsets.beat_seconds / steps
            place = onsets.ticks * steps / onsets.beat
            tolerance = max(ON_GRID, min(steps / (2 * onsets.beat), ROUNDED))
        frame = np.floor(place + 0.5)
        away = np.abs(place - frame)
        on_grid = away <= tolerance + 1e-9
        away *= step
        count = int(np.count_nonzero(on_grid))
        self._on[grid] += count
        self._merged[grid] += int(np.count_nonzero(onsets.again & (frame[1:] == frame[:-1])))
        if grid not in FREE:
            self._near[grid] += int(np.count_nonzero(on_grid | (away <= NEAR)))
        if grid == self._grid:
            self._seconds_off += float(away[~on_grid].sum())
        if grid == TRIPLETS:
            self._triplets += int(np.count_nonzero(on_grid & (frame % 3 > 0)))
        return count

    def to_json(self) -> dict[str, Any]:
        """Shares of the onsets, and "suggestion" if another grid would fit better."""
        suggestion = self.suggestion()
        off = self.notes - self._on[self._grid]
        return {
            "onsets": self.notes,
            "on_grid": self._share(self._on[self._grid]),
            "off_by_ms": round(1000 * self._seconds_off / off) if off else 0,
            "triplets": self._share(self._triplets) if self._pulse else 0.0,
            "shorter_than_a_step": self._share(self._short),
            **({} if suggestion is None else {"suggestion": suggestion.option}),
        }

    def suggestion(self) -> Grid | None:
        """The coarsest grid on which nearly all onsets lie; None if the present one will do.

        If there is none, and too many would be moved far on the present grid, the coarsest that
        moves few: of beats if there is a pulse, otherwise in seconds.
        """
        exact = (self._grid, *BEATS) if self._pulse else (self._grid, *BEATS, *SECONDS)
        near = (self._grid, *(BEATS if self._pulse else FREE))
        fitting = [grid for grid in exact if self._fits(self._on, grid)]
        fitting += [grid for grid in near if self._fits(self._near, grid)]
        return fitting[0] if fitting and fitting[0] != self._grid else None

    def _fits(self, counts: Counter[Grid], grid: Grid) -> bool:
        """Whether the counts of onsets say so, and enough of them have a frame of their own."""
        apart = self.notes - self._merged[grid]
        return counts[grid] >= NEARLY_ALL * self.notes and apart >= APART * self.notes

    @property
    def _pulse(self) -> bool:
        return max(self._on[grid] for grid in BEATS) >= HALF * self.notes

    def _share(self, count: int) -> float:
        return round(count / max(self.notes, 1), 4)


def timing_text(values: Mapping[str, Any], grid: Grid | str) -> str:
    """`Timing.to_json` in words."""
    odd = {"triplets": "are triplets", "shorter_than_a_step": "of notes are shorter than a step"}
    told = [
        f"{values[name]:.1%} {what}" for name, what in odd.items() if values[name] > WORTH_SAYING
    ]
    text = f"{values['on_grid']:.1%} of onsets lie on the grid ({grid}), the others "
    text = "; ".join([f"{text}{values['off_by_ms']} ms off on average", *told])
    return f"{text}: try {values['suggestion']}" if "suggestion" in values else text
