"""What MIDI files hold besides notes on a grid: their timing, key and contents, summed up."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import Score
from seqmodel.media.music.parts import parts_of
from seqmodel.media.music.placing import ON_GRID, Tally, in_frames, lag_of
from seqmodel.media.words import plural, some

# ---- tonic ---------------------------------------------------------------------------------------

# The share of a piece's time taken by each pitch, in semitones above the tonic:
# J. Albrecht and D. Shanahan, "The Use of Large Corpora to Train a New Type of Key-Finding
# Algorithm", Music Perception 31(1), 2013, table 1.
MAJOR = (0.238, 0.006, 0.111, 0.006, 0.137, 0.094, 0.016, 0.214, 0.009, 0.080, 0.008, 0.081)
MINOR = (0.220, 0.006, 0.104, 0.123, 0.019, 0.103, 0.012, 0.214, 0.062, 0.022, 0.061, 0.052)


def semitones_to_c(score: Score) -> int:
    """The transposition, from -5 to 6 semitones, that moves the estimated tonic to C.

    Drums are ignored, and so are key signatures, which many files lack or have wrong.
    """
    pitched = ~score.of_drums
    duration = (score.off_tick - score.on_tick)[pitched]
    return up_or_down(-tonic_of(score.pitch[pitched], duration))


def up_or_down(semitones: int) -> int:
    """A transposition to the same pitch class, from -5 to 6."""
    return (semitones + 5) % 12 - 5


def tonic_of(pitches: NDArray[np.integer], duration: NDArray[Any]) -> int:
    """The estimated tonic, 0 for C to 11 for B, of notes (N,) of some duration in any unit.

    It is that of the major or minor key whose profile correlates best with the time that each pitch
    class sounds, so a piece in A minor goes to C minor; 0 if they favour no key.
    """
    time = np.bincount(pitches % 12, duration, 12)
    # Rows 0 to 11: the time of each degree above the tonics C to B.
    degrees = np.stack([np.roll(time, -tonic) for tonic in range(12)])
    # Products with profiles of mean 0 and norm 1 are correlations, up to a factor that is the same
    # for every key.
    centred = [np.array(profile) - np.mean(profile) for profile in (MAJOR, MINOR)]
    correlations = [degrees @ (profile / np.linalg.norm(profile)) for profile in centred]
    return int(np.maximum(*correlations).argmax()) if np.ptp(time) else 0


# ---- timing --------------------------------------------------------------------------------------

SIXTEENTHS, TRIPLETS = Grid.of_beats(4), Grid.of_beats(12)
BEAT_GRIDS = (SIXTEENTHS, Grid.of_beats(8), TRIPLETS, Grid.of_beats(24))
TIME_GRIDS = tuple(map(Grid.of_seconds, (0.6, 0.25, 0.15, 0.125, 0.1, 0.05, 0.025)))
"""The grids that may be suggested, the coarsest first. Whatever lies on the first of `BEAT_GRIDS`
lies on them all, and whatever lies on any of `TIME_GRIDS` lies on the last."""
FREE_GRIDS = TIME_GRIDS[-2:]
"""Those that move nothing far, for music that lies on no grid."""

ROUNDED = 1 / 4
"""So does one that is at most half a tick from a step, and this far."""
NEAR_SECONDS = 0.03
"""Seconds that an onset off the grid may be moved: players together are as far apart (Rasch 1979).
"""
FITTING_SHARE = 0.98
"""The share of onsets that lie on, or near, a grid that fits."""
DISTINCT_SHARE = 0.99
"""The share of onsets that share no frame there with an earlier one of their part and pitch."""
PULSE_SHARE = 0.5
"""The share of onsets on a grid from which on the music has that pulse at all."""
NOTABLE_SHARE = 0.005


class Timing:
    """Counts of where notes begin, over any number of pieces, of those that `frame` has."""

    def __init__(self, frame: PianoRollFrames, sums: Any) -> None:
        """Counts, and seconds, are added to the Counter `sums`."""
        self._frame, self._grid, self.sums = frame, frame.grid, sums

    def add(self, score: Score) -> None:
        """Count the notes of a piece."""
        chosen: Any = in_frames(score, self._frame)
        on, off = score.on_tick[chosen], score.off_tick[chosen]
        notes, beat, steps = len(on), score.ticks_per_unit, self._grid.steps_per_beat
        self.sums["notes"] += notes
        # By grid; those that cannot fit a piece are not counted in it.
        for grid in FREE_GRIDS:
            self.sums["near", grid] += notes
        if steps:
            length, step = (off - on) * steps, float(beat)
        else:
            length = score.seconds_at(off) - score.seconds_at(on)
            step = self._grid.seconds_per_frame(1.0)
        if not self._frame.kit:
            self.sums["short"] += int(np.count_nonzero((length > 0) & (length < step)))
        if steps and 4 % steps == 0 and not (on * steps % beat).any():
            # Most scores, quickly: they are on all grids of beats, each a multiple of this one.
            for grid in {self._grid, *BEAT_GRIDS}:
                self.sums["on", grid] += notes
                self.sums["near", grid] += notes
            return
        part = (score.track << 11 | score.channel.astype(np.int64) << 7 | score.pitch)[chosen]
        order: Any = np.lexsort((on, part)) if self._frame.kit else slice(None)  # they are in order
        on, part = on[order], part[order]
        in_beats = np.maximum(on - lag_of(on, beat), 0)
        beats = score.tempo[np.searchsorted(score.tempo_tick, in_beats, side="right") - 1] / 1e6
        repeats = (part[1:] == part[:-1]) & (on[1:] > on[:-1])
        counted = dict[Grid, int]()

        def count(*grids: Grid) -> bool:
            """Whether on one of them lies at least half."""
            for grid in grids:
                if grid not in counted:
                    at = in_beats if grid.steps_per_beat else on
                    counted[grid] = self._count(score, at, beats, repeats, grid)
            return max(counted[grid] for grid in grids) >= PULSE_SHARE * notes

        count(self._grid)
        if not score.smpte and count(SIXTEENTHS, TRIPLETS):
            count(*BEAT_GRIDS)
        elif count(FREE_GRIDS[-1]):
            count(*TIME_GRIDS)
        else:
            count(*FREE_GRIDS)

    def _count(
        self, score: Score, on: NDArray[np.int64], beats: Any, repeats: Any, grid: Grid
    ) -> int:
        """How many onsets (N,), in `beats` of so many seconds, lie on a grid.

        `repeats` (N - 1,): which repeat the note before.
        """
        place, tolerance = score.frame_positions(on, grid), ON_GRID
        if steps := grid.steps_per_beat:
            tolerance = max(ON_GRID, min(steps / (2 * score.ticks_per_unit), ROUNDED))
            step = beats / steps
        else:
            step = np.array(grid.seconds_per_frame(1.0))
        frame = np.floor(place + 0.5)
        away = np.abs(place - frame)
        on_grid = away <= tolerance + 1e-9
        away *= step
        exact = int(np.count_nonzero(on_grid))
        self.sums["on", grid] += exact
        self.sums["merged", grid] += int(np.count_nonzero(repeats & (frame[1:] == frame[:-1])))
        if grid not in FREE_GRIDS:
            self.sums["near", grid] += int(np.count_nonzero(on_grid | (away <= NEAR_SECONDS)))
        if grid == self._grid:
            self.sums["seconds off"] += float(away[~on_grid].sum())
        if grid == TRIPLETS:
            self.sums["triplets"] += int(np.count_nonzero(on_grid & (frame % 3 > 0)))
        return exact

    def to_json(self) -> dict[str, Any]:
        suggestion, sums = self.suggestion(), self.sums
        off = sums["notes"] - sums["on", self._grid]
        return {
            "onsets": sums["notes"],
            "on_grid": self._share(sums["on", self._grid]),
            "off_by_ms": round(1000 * sums["seconds off"] / off) if off else 0,
            "triplets": self._share(sums["triplets"]) if self._pulse else 0.0,
            "shorter_than_a_step": self._share(sums["short"]),
            **({} if suggestion is None else {"suggestion": suggestion.option}),
        }

    def suggestion(self) -> Grid | None:
        """The coarsest grid on which nearly all onsets lie; None if the present one will do.

        If there is none, and too many would be moved far on the present grid, the coarsest that
        moves few: of beats if there is a pulse, otherwise in seconds.
        """
        exact = (self._grid, *BEAT_GRIDS) if self._pulse else (self._grid, *BEAT_GRIDS, *TIME_GRIDS)
        near = (self._grid, *(BEAT_GRIDS if self._pulse else FREE_GRIDS))
        fitting = [grid for grid in exact if self._fits("on", grid)]
        fitting += [grid for grid in near if self._fits("near", grid)]
        return fitting[0] if fitting and fitting[0] != self._grid else None

    def _fits(self, where: str, grid: Grid) -> bool:
        """Whether enough onsets are "on" or "near" it, and have a frame of their own."""
        notes, found, merged = (
            self.sums[key] for key in ("notes", (where, grid), ("merged", grid))
        )
        return bool(found >= FITTING_SHARE * notes and notes - merged >= DISTINCT_SHARE * notes)

    @property
    def _pulse(self) -> bool:
        on_beats = max(self.sums["on", grid] for grid in BEAT_GRIDS)
        return bool(on_beats >= PULSE_SHARE * self.sums["notes"])

    def _share(self, count: int) -> float:
        return round(count / max(self.sums["notes"], 1), 4)


def timing_text(values: Mapping[str, Any], grid: Grid | str) -> str:
    """`Timing.to_json` in words."""
    odd = {"shorter_than_a_step": "of notes are shorter than a step", "triplets": "are triplets"}
    oddities = [
        f"{values[name]:.1%} {what}" for name, what in odd.items() if values[name] > NOTABLE_SHARE
    ]
    text = f"{values['on_grid']:.1%} of onsets lie on the grid ({grid}), the others "
    text = "; ".join([f"{text}{values['off_by_ms']} ms off on average", *oddities])
    if "suggestion" not in values:
        return text
    free = values["suggestion"].startswith("--step-seconds") and "beat" in str(grid)
    return f"{text}; {'onsets ignore the beat, ' * free}try {values['suggestion']}"


# ---- contents ------------------------------------------------------------------------------------


class Contents:
    """Counts over any number of pieces, kept as `frame` says: of a kit, only drums' velocities."""

    def __init__(self, frame: PianoRollFrames) -> None:
        self.sums: Any = Counter()
        self.timing = Timing(frame, self.sums)
        self._kit = frame.kit
        self._ranges: dict[str, tuple[float, float]] = {}
        self._pieces = {kind: Counter[str]() for kind in ("meters", "keys", "programs")}
        self._parts = 0

    def add(self, score: Score) -> None:
        """Count what a piece holds."""
        self.timing.add(score)
        has_length = (score.off_tick > score.on_tick) & (not self._kit)
        velocities = score.velocity[score.of_drums | has_length]
        if len(velocities):
            self._widen("velocities", int(velocities.min()), int(velocities.max()))
        if not score.smpte:
            slowest, fastest = int(score.tempo.max()), int(score.tempo.min())
            self._widen("tempo_range_bpm", round(60e6 / slowest, 2), round(60e6 / fastest, 2))
        parts = parts_of(score)
        self._parts = max(self._parts, len(parts))
        for kind, names in (
            ("meters", [f"{beats}/{of}" for _, beats, of in score.meters]),
            ("keys", score.keys),
            ("programs", [str(program) for part in parts for program in part["programs"]]),
        ):
            self._pieces[kind].update(dict.fromkeys(names, 1))
        self.sums["tempo_changes"] += len(score.tempo) - 1
        self.sums["drum_notes"] += int(np.count_nonzero(score.of_drums))
        self.sums["pedal"] += score.pedal
        ticks = score.on_tick, score.off_tick, score.silent_tick
        begin, end, silent = (
            float(score.seconds_at(each[~score.of_drums]).sum()) for each in ticks
        )
        # Seconds that all notes but drums sound, and those that the pedal adds.
        self.sums["sound"] += silent - begin
        self.sums["held"] += silent - end

    def update(self, other: "Contents") -> None:
        """Count what another has counted."""
        self.sums.update(other.sums)
        for name, ends in other._ranges.items():
            self._widen(name, *ends)
        for kind, pieces in other._pieces.items():
            self._pieces[kind].update(pieces)
        self._parts = max(self._parts, other._parts)

    def to_json(self) -> dict[str, Any]:
        """Ranges, numbers of pieces by time signature, key signature and program, and totals.

        "parts" is the most in a piece, "pedal" how often it is pressed and "pedal_share" what it
        adds of the time that notes sound.
        """
        sums = self.sums
        share = {"pedal_share": round(sums["held"] / (sums["sound"] or 1), 4)}
        return {
            **{name: list(ends) for name, ends in self._ranges.items()},
            **{kind: dict(pieces.most_common()) for kind, pieces in self._pieces.items()},
            "parts": self._parts,
            **{name: sums[name] for name in ("tempo_changes", "drum_notes", "pedal")},
            **(share if sums["pedal"] else {}),
        }

    def _widen(self, name: str, low: float, high: float) -> None:
        before = self._ranges.get(name, (low, high))
        self._ranges[name] = min(before[0], low), max(before[1], high)


def not_kept(contents: Mapping[str, Any], frame: PianoRollFrames) -> list[str]:
    """What a dataset of such frames does not keep of `Contents.to_json`, a phrase each.

    With the option that would keep it, which for marks is one that takes only notes with onsets.
    """
    lost = []
    velocity, tracks = ("; --velocity", "; --tracks") if frame.onsets else ("", "")
    quietest, loudest = contents.get("velocities", (0, 0))
    if quietest < loudest and "velocity" not in frame.marks:
        lost.append(f"velocities ({quietest} to {loudest}{velocity})")
    slowest, fastest = contents.get("tempo_range_bpm", (0, 0))
    if frame.grid.steps_per_beat and slowest < fastest:
        changes = contents["tempo_changes"]
        what = plural(changes, "tempo change") if changes else "tempos but their median"
        lost.append(f"{what} ({slowest:g} to {fastest:g} bpm)")
    if not frame.grid.steps_per_beat and list(contents["meters"]) not in ([], ["4/4"]):
        lost.append(f"time signatures ({some(contents['meters'])})")
    if frame.kit:
        return [*lost, *["all notes but drums"] * bool(contents["programs"])]
    if contents["keys"]:
        lost.append(f"key signatures ({some(contents['keys'])})")
    if contents["parts"] > 1 and "part" not in frame.marks:
        lost.append(f"parts (up to {contents['parts']} in a piece{tracks})")
    if "part" not in frame.marks and list(contents["programs"]) not in ([], ["1"]):
        lost.append(f"instruments ({plural(len(contents['programs']), 'program')})")
    if contents["pedal"] and not frame.pedal:
        lost.append(f"pedal (pressed {plural(contents['pedal'], 'time')})")
    if (drums := contents["drum_notes"]) and not frame.drums:
        lost.append(f"drums ({plural(drums, 'note')}; --drums keep)")
    elif drums and "part" not in frame.marks:
        lost.append(f"which notes are drums ({drums:,}{tracks})")
    return lost


def prepare_advice(manifest: Mapping[str, Any], _: Mapping[str, Any]) -> list[str]:
    """`Medium.prepare_advice`: notes that do not show, a better grid, what is not kept."""
    timing, lost = manifest.get("timing", {}), manifest.get("not_kept", [])
    tally, frame = Tally(**manifest.get("notes", {})), PianoRollFrames.from_json(manifest["frame"])
    lines = tally.lines(onsets=frame.onsets, kit=frame.kit)
    if tally.lengthened:
        lines.append(
            f"the sustain pedal lengthens {tally.lengthened:,} of {plural(tally.read, 'note')} "
            f"({manifest['contents']['pedal_share']:.1%} of the sound); --pedal ignore leaves that "
            "out"
        )
    if "suggestion" in timing:
        lines.append(timing_text(timing, frame.grid))
    return [*lines, f"not kept: {', '.join(lost)}"] if lost else lines
