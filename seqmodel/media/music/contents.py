"""What MIDI files hold besides notes on a grid, summed up, and what of it a dataset leaves out."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodel.media.music.formats import DRUM_CHANNEL
from seqmodel.media.words import listed, plural

if TYPE_CHECKING:
    from seqmodel.media.music.frames import PianoRollFrames
    from seqmodel.media.music.midi import Score

NAMED = 3
"""How many time or key signatures are named."""


class Contents:
    """Counts over any number of pieces, of a size that grows only with their variety."""

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[float, float]] = {}
        self._pieces = {kind: Counter[str]() for kind in ("meters", "keys", "programs")}
        self._totals = Counter[str]()
        self._parts = 0

    def add(self, score: "Score") -> None:
        """Count what a piece holds."""
        velocities = score.velocity[score.off_tick > score.on_tick]
        if len(velocities):
            self._widen("velocities", int(velocities.min()), int(velocities.max()))
        if not score.smpte:
            slowest, fastest = int(score.tempo.max()), int(score.tempo.min())
            self._widen("tempo_range_bpm", round(60e6 / slowest, 2), round(60e6 / fastest, 2))
        parts = parts_of(score)
        self._parts = max(self._parts, len(parts))
        for kind, names in (
            ("meters", [f"{beats}/{of}" for beats, of in score.meters]),
            ("keys", score.keys),
            ("programs", [str(program) for part in parts for program in part["programs"]]),
        ):
            for name in dict.fromkeys(names):
                self._pieces[kind][name] += 1
        self._totals["tempo_changes"] += len(score.tempo) - 1
        self._totals["drum_notes"] += int(np.count_nonzero(score.channel == DRUM_CHANNEL))
        self._totals["pedal"] += score.pedal

    def to_json(self) -> dict[str, Any]:
        """Ranges, numbers of pieces by time signature, key signature and program, and totals.

        "parts" is the largest number of parts in a piece, "pedal" how often it is pressed.
        """
        return {
            **{name: list(ends) for name, ends in self._ranges.items()},
            **{kind: dict(pieces.most_common()) for kind, pieces in self._pieces.items()},
            "parts": self._parts,
            **self._totals,
        }

    def _widen(self, name: str, low: float, high: float) -> None:
        before = self._ranges.get(name, (low, high))
        self._ranges[name] = min(before[0], low), max(before[1], high)


def parts_of(score: "Score") -> list[dict[str, Any]]:
    """The parts of a file that have notes, each a channel of a track, in order.

    Tracks, channels and programs count from 1. A part has the programs of its channel in its track
    or, if there are none, in all tracks, or else program 1; drums have none.
    """
    of_part: dict[tuple[int, ...], list[int]] = {}
    for track, channel, program in score.programs:
        for where in ((track, channel), (channel,)):
            of_part.setdefault(where, []).append(program + 1)
    found = []
    notes = np.bincount(score.track << 4 | score.channel)
    for number in np.flatnonzero(notes).tolist():
        track, channel = number >> 4, number & 15
        programs = of_part.get((track, channel)) or of_part.get((channel,)) or [1]
        found.append(
            {
                "track": track + 1,
                "name": score.track_names[track].strip(),
                "channel": channel + 1,
                "programs": [] if channel == DRUM_CHANNEL else list(dict.fromkeys(programs)),
                "notes": int(notes[number]),
            }
        )
    return found


def left_out(contents: Mapping[str, Any], frame: "PianoRollFrames") -> list[str]:
    """What a dataset of such frames does not keep of `Contents.to_json`, a phrase each."""
    lost = []
    quietest, loudest = contents.get("velocities", (0, 0))
    if quietest < loudest:
        lost.append(f"velocities ({quietest} to {loudest})")
    slowest, fastest = contents.get("tempo_range_bpm", (0, 0))
    if frame.grid.steps_per_beat and slowest < fastest:
        changes = contents["tempo_changes"]
        which = f"{plural(changes, 'tempo change')}" if changes else "tempos"
        lost.append(f"{which} ({slowest:g} to {fastest:g} bpm)")
    if contents["meters"] and list(contents["meters"]) != ["4/4"]:
        lost.append(f"time signatures ({_some(contents['meters'])})")
    if contents["keys"]:
        lost.append(f"key signatures ({_some(contents['keys'])})")
    if contents["parts"] > 1:
        lost.append(f"parts (up to {contents['parts']} in a piece)")
    if list(contents["programs"]) not in ([], ["1"]):
        lost.append(f"instruments ({plural(len(contents['programs']), 'program')})")
    if contents["pedal"]:
        lost.append(f"pedal (pressed {plural(contents['pedal'], 'time')})")
    if contents["drum_notes"] and not frame.drums:
        lost.append(f"drums ({plural(contents['drum_notes'], 'note')}; --drums keep)")
    return lost


def _some(pieces: Mapping[str, int]) -> str:
    names = list(pieces)
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return listed([*names[:NAMED], *more])
