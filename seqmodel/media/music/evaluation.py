"""Figures of music: trivial models, statistics of pieces, and samples compared with the data.

The trivial models, shown next to every figure, are note n-grams: the probability of each note given
its own last k frames. k = 0 is its marginal frequency, k = 1 repeats the previous frame with a
fitted probability of change. A model no better than these has learned little.

With onsets, each still scores only the roll, and `restrike_nats` scores the notes struck again,
equally for all three. `voices_cost` is what `eval --voices` adds.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import log
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SeqmodelError
from seqmodel.media.definitions import Comparison, Measurements, Pieces, PieceSet
from seqmodel.media.marks import MARKS, Levels
from seqmodel.media.music.contents import tonic_of
from seqmodel.media.music.copies import longest_copies
from seqmodel.media.music.frames import (
    PianoRollFrames,
    chord_lengths,
    count_restrikes,
    drums_in,
    hold,
    marks_in,
    note_lengths,
    outer_notes,
    sounding,
    struck,
)
from seqmodel.media.music.grid import LOWEST_PITCH, NOTES, REST
from seqmodel.media.music.kit import SOUNDS
from seqmodel.media.music.metre import COMMON_TIME, Units
from seqmodel.media.music.published import Roll
from seqmodel.media.samples import Row, comparison_lines, total_variation

# ---- baselines -----------------------------------------------------------------------------------

BASELINES: Mapping[str, int] = {"marginal": 0, "repeat": 1, "note_ngram": 8}
"""Name -> k."""

# Pseudo-counts that smooth a frequency towards that of the next shorter context.
PRIOR = 2.0


class NoteNgram:
    """p(x_tk = 1 | x_(t-order)k ... x_(t-1)k), counted on a training split.

    Each (note, context) has its own frequency, smoothed towards that of the context one frame
    shorter, and so on down to one half. Before the first frame there is silence.
    """

    def __init__(self, train: Pieces, order: int) -> None:
        self.order = order
        notes = sounding(train[0]).shape[1]
        on = np.zeros((2**order, notes), np.int64)
        total = np.zeros((2**order, notes), np.int64)
        for roll in map(sounding, train):
            cell = self._contexts(roll) * notes + np.arange(notes)
            total += np.bincount(cell.ravel(), minlength=total.size).reshape(total.shape)
            on += np.bincount(cell[roll == 1], minlength=on.size).reshape(on.shape)
        # Off and on are both counted: 1 - p would round to 0 if a note has always been held.
        counts, probability = np.stack([total - on, on]), np.full((2, 1, notes), 0.5)
        for k in range(order + 1):
            # Contexts of the last k frames: the low k bits, summed over the higher ones.
            count = counts.reshape(2, -1, 2**k, notes).sum(axis=1)
            shorter = np.tile(probability, (1, 2**k // probability.shape[1], 1))
            probability = (count + PRIOR * shorter) / (count.sum(axis=0) + PRIOR)
        self.probability = probability
        """(2, 2^order, D), for off and on; the low bit of the context is the previous frame."""

    def nats(self, roll: NDArray[np.uint8]) -> NDArray[np.float64]:
        """-log p(x_t | x_<t) of each frame of roll (T, D): (T,)."""
        p = self.probability[roll.astype(int), self._contexts(roll), np.arange(roll.shape[1])]
        return -np.log(p).sum(axis=1)

    def _contexts(self, roll: NDArray[np.uint8]) -> NDArray[np.int64]:
        contexts = np.zeros(roll.shape, np.int64)
        for back in range(1, self.order + 1):
            contexts[back:] |= roll[:-back].astype(np.int64) << (back - 1)
        return contexts


def restrike_nats(train: Pieces, split: Pieces) -> float:
    """-log p(struck again | sounding in this frame and in the one before), over a whole split.

    Each note's frequency in `train` is smoothed towards that of all notes, and that towards one
    half. Any other onset follows from the roll and costs nothing.
    """
    restruck, possible = count_restrikes(train)
    overall = (restruck.sum() + PRIOR / 2) / (possible.sum() + PRIOR)
    p = (restruck + PRIOR * overall) / (possible + PRIOR)
    restruck, possible = count_restrikes(split)
    return -float((restruck * np.log(p) + (possible - restruck) * np.log(1 - p)).sum())


def baseline_nats_per_frame(
    train: Pieces, split: Pieces, *_: object, **__: object
) -> dict[str, float]:
    """`Medium.baselines`: music has neither a standardisation nor levels."""
    restrikes = restrike_nats(train, split) if train.frame.onsets else 0.0
    ngrams = {name: NoteNgram(train, order) for name, order in BASELINES.items()}
    return {
        name: (sum(float(ngram.nats(sounding(frames)).sum()) for frames in split) + restrikes)
        / split.frames
        for name, ngram in ngrams.items()
    }


# ---- voices --------------------------------------------------------------------------------------

# A model predicts the set of pitches that sound. Who sings them is predicted here, from the frames
# before and the set alone, so that both costs add up to the exact cost of a frame with voices. The
# voices choose in order, the first one first: a pitch or a rest, but never so that a pitch is left
# over. The choices made are counted in contexts: on train first, then within each piece.

VOICE_PRIOR = 1.0
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
            nats[t] -= log((count + VOICE_PRIOR / len(options)) / (sum(counts) + VOICE_PRIOR))
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


# ---- statistics ----------------------------------------------------------------------------------

DISSONANT = (1, 2, 6, 10, 11)
"""Semitones modulo 12: seconds, the tritone, sevenths."""
DISTRIBUTIONS = ("notes_per_frame", "note_lengths", "intervals", "pitch_classes", "melodic_steps")
"""Per frame; per note, in frames; semitones between any two notes of a frame; 0 (C) to 11 (B), per
note and frame; and semitones up or down from one highest note to the next."""


class _PieceStatistics(Measurements):
    """What is measured of both notes and drums."""

    def __init__(self, pieces: PieceSet) -> None:
        self.pieces = pieces
        """The measured pieces."""
        self.lengths = list[int]()
        """Their lengths in frames."""

    def figures(self) -> dict[str, Any]:
        lengths = self.lengths
        middle = float(np.median(lengths))
        return {"length": middle, "shortest": min(lengths), "longest": max(lengths)}

    def against(self, train: Self) -> dict[str, Any]:
        """See `Measurements`; includes copies, but without marks: see `longest_copies`."""
        shortest, longest = min(train.lengths), max(train.lengths)
        copied = longest_copies((piece[:, : 2 * NOTES] for piece in self.pieces), train.pieces)
        return {
            **super().against(train),
            "length_share": float(np.mean([shortest <= n <= longest for n in self.lengths])),
            "copied_frames": float(copied.mean()),
            "copied_share": float((copied / self.lengths).mean()),
            "most_copied_frames": int(copied.max()),
        }


class Statistics(_PieceStatistics):
    """Distributions over a set of pieces, value -> count, and figures of each piece, in frames.

    Attributes:
        counts: by name, see `DISTRIBUTIONS`.
        longest: the longest note, chord and silence of each piece; 0 if there is none.
        last_chords: of each piece; a chord is sound in which no note begins or ends.
        on_tonic: whether each piece's last chord is on the piece's estimated tonic.
        strikes: by mark, for each piece with any, the frames of strikes that have it, and those.
    """

    def __init__(
        self, pieces: PieceSet, limit: int | None = None, frame: PianoRollFrames | None = None
    ) -> None:
        """Count pieces (T, 88), or (T, 176) with onsets, or more with marks.

        Distributions cover the first `limit` frames of each, because beginnings are sparse. `frame`
        provides bars, and train's levels of marks. Parts that are drums have no pitches.
        """
        super().__init__(pieces)
        of = frame if isinstance(pieces, Sequence) else pieces.frame
        self._parts = of.parts if isinstance(of, PianoRollFrames) else ()
        self._frame, self._marks = frame, frame.marks if frame else {}
        self.counts = {name: Counter[int]() for name in DISTRIBUTIONS}
        self.longest = {kind: list[int]() for kind in ("note", "chord", "silence")}
        self.last_chords, self.on_tonic = list[int](), list[bool]()
        self.strikes = dict[str, list[tuple[NDArray[np.int64], NDArray[np.int64]]]]()
        for frames in _with_marks(pieces):
            self._add(frames, limit)

    def _add(self, frames: NDArray[np.uint8], limit: int | None) -> None:
        marks, roll = marks_in(frames), sounding(frames)
        for name, numbers in marks.items():
            at, key = np.nonzero(numbers * struck(frames))
            if len(at):
                of_mark = self.strikes.setdefault(name, [])
                of_mark.append((at, numbers[at, key].astype(np.int64)))
        # What is drawn has its marks where notes begin.
        apart = bool(marks and self._parts)
        pitched = roll - hold(drums_in(frames, self._parts), frames) if apart else roll
        frames = frames[:, : 2 * NOTES]
        chords = chord_lengths(frames)
        sounds = np.flatnonzero(roll.any(axis=1))
        gaps = np.diff(sounds, prepend=-1, append=len(roll)) - 1
        for kind, lengths in zip(self.longest, (note_lengths(frames), chords, gaps), strict=True):
            self.longest[kind].append(int(lengths.max(initial=0)))
        self.lengths.append(len(frames))
        self.last_chords.append(int(chords[-1]) if len(chords) else 0)
        keys = LOWEST_PITCH + np.arange(NOTES)
        tonic = tonic_of(keys, pitched.sum(axis=0, dtype=np.int64))
        bass = pitched[pitched.any(axis=1)][-1:].argmax(axis=1)
        self.on_tonic.append(bool(((LOWEST_PITCH + bass) % 12 == tonic).any()))
        roll, pitched, counts = roll[:limit], pitched[:limit], self.counts
        counts["note_lengths"].update(note_lengths(frames[:limit]).tolist())
        counts["notes_per_frame"].update(roll.sum(axis=1, dtype=np.int64).tolist())
        counts["melodic_steps"].update(melodic_steps(pitched).tolist())
        # (88, 88), the number of frames in which two notes sound together; exact: far below 2^24.
        together = pitched.T.astype(np.float32) @ pitched.astype(np.float32)
        pairs = [int(np.trace(together, k)) for k in range(NOTES)]
        counts["intervals"].update({k: count for k, count in enumerate(pairs) if k and count})
        time = np.bincount(keys % 12, np.diag(together), 12)
        counts["pitch_classes"].update({k: int(n) for k, n in enumerate(time) if n})

    @property
    def voices(self) -> int:
        """The most common number of notes in a non-silent frame; 0 if all are silent."""
        sounding = {k: n for k, n in self.counts["notes_per_frame"].items() if k}
        return max(sounding, key=lambda k: sounding[k], default=0)

    def overall(self) -> dict[str, int]:
        return {"voices": self.voices}

    def distributions(self) -> dict[str, Counter[Any]]:
        """See `Measurements`; includes the notes of each part, if train has parts."""
        found: dict[str, Counter[Any]] = {**self.counts}
        for mark in self._named_marks():
            levels = self._levels(mark) if mark in self.strikes else []
            found[mark] = Counter(self._marks[mark].names[level] for level in levels)
        return found

    def _named_marks(self) -> list[str]:
        """The marks of train whose levels have names."""
        return [name for name, levels in self._marks.items() if levels.names]

    def figures(self) -> dict[str, Any]:
        steps, frames, intervals, lengths = (
            self.counts[name]
            for name in ("melodic_steps", "notes_per_frame", "intervals", "note_lengths")
        )
        dissonant = sum(n for k, n in intervals.items() if k % 12 in DISSONANT)
        return {
            **super().figures(),
            "last_chord": float(np.median(self.last_chords)),
            "tonic_share": float(np.mean(self.on_tonic)),
            "notes_per_frame": mean(frames),
            "voices_share": frames[self.voices] / frames.total(),
            "note_length": mean(lengths),
            **{f"longest_{kind}": max(longest) for kind, longest in self.longest.items()},
            "dissonance": dissonant / max(intervals.total(), 1),
            "melodic_step": sum(abs(k) * n for k, n in steps.items()) / max(steps.total(), 1),
            **self._mark_figures(),
        }

    def against(self, train: Self) -> dict[str, Any]:
        found = super().against(train)
        both = [name for name in self.strikes if name in train.strikes]
        for name in (name for name in both if name not in found["distances"]):
            ours, theirs = (Counter(of._levels(name)) for of in (self, train))
            found["distances"][name] = total_variation(ours, theirs)
        frames = self.counts["notes_per_frame"]
        found["voices_share"] = frames[train.voices] / frames.total()
        for kind, longest in self.longest.items():
            most = max(train.longest[kind])
            found[f"long_{kind}_share"] = sum(n > most for n in longest) / len(longest)
        return found

    def _numbers(self, mark: str) -> NDArray[np.int64]:
        return np.concatenate([numbers for _, numbers in self.strikes[mark]])

    def _levels(self, mark: str) -> list[int]:
        """The mark's levels in train, if it has the mark."""
        edges = self._marks.get(mark, Levels()).edges
        levels: list[int] = np.searchsorted(edges, self._numbers(mark)).tolist()
        return levels

    def _mark_figures(self) -> dict[str, float]:
        """Figures of known marks without names.

        On a grid of beats these include accents: by how much the mean velocity on each beat of the
        most common bar in train differs from that of all notes, counting bars from the first frame.
        """
        figures, named = dict[str, float](), self._named_marks()
        for name in (name for name in self.strikes if name not in named):
            numbers, strikes = self._numbers(name), self.strikes[name]
            figures[name] = float(numbers.mean())
            figures[f"{name}_spread"] = float(numbers.std())
            figures[f"{name}_spread_of_piece"] = float(np.mean([of.std() for _, of in strikes]))
        if "velocity" in self.strikes and self._frame and self._frame.grid.steps_per_beat:
            velocity = self._numbers("velocity")
            units = Units.of(self._frame.metre or COMMON_TIME, self._frame.grid)
            frames = np.concatenate([at for at, _ in self.strikes["velocity"]])
            place = frames * units.frame % units.bar
            for beat in range(units.bar // units.beat):
                on_beat = velocity[place == beat * units.beat]
                if len(on_beat):
                    figures[f"accent_{beat + 1}"] = float(on_beat.mean() - velocity.mean())
        return figures


def melodic_steps(roll: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The steps in the skyline of a roll (T, 88), in semitones (steps,).

    The skyline is the highest note of each frame (Uitdenbogerd, Zobel 1998); a step is a change of
    it between two consecutive frames that both sound.
    """
    _, highest = outer_notes(roll)
    steps: NDArray[np.int64] = np.diff(highest)
    sounds = roll.max(axis=1) > 0
    return steps[np.flatnonzero((steps != 0) & sounds[1:] & sounds[:-1])]


def mean(counts: Counter[int]) -> float:
    """The mean of all counted values; 0 if there are none."""
    return sum(value * n for value, n in counts.items()) / max(counts.total(), 1)


def _with_marks(pieces: PieceSet) -> Iterable[NDArray[np.uint8]]:
    """Pieces with their marks, if there are any."""
    if isinstance(pieces, Sequence) or not pieces.frame.marks:
        return pieces
    return (pieces.frame.decode_marked(pieces.read_rows(k)) for k in range(len(pieces)))


BEATS_IN_A_BAR = 4


class DrumStatistics(_PieceStatistics):
    """What is measured of drum pieces (T, 47): no lengths of notes, no intervals."""

    def __init__(self, pieces: PieceSet, limit: int | None, frame: PianoRollFrames) -> None:
        super().__init__(pieces)
        self.silent = list[bool]()
        self.hits_per_frame, self.sounds = Counter[int](), Counter[str]()
        self._steps_per_beat = frame.grid.steps_per_beat
        for frames in pieces:
            self.lengths.append(len(frames))
            self.silent.append(not frames.any())
            counted = frames[:limit]
            self.hits_per_frame.update(counted.sum(axis=1, dtype=np.int64).tolist())
            struck = counted.sum(axis=0, dtype=np.int64).tolist()
            named = zip(SOUNDS, struck, strict=True)
            self.sounds.update({sound.name: hits for sound, hits in named if hits})

    def distributions(self) -> dict[str, Counter[Any]]:
        return {"hits_per_frame": self.hits_per_frame, "sounds": self.sounds}

    def figures(self) -> dict[str, Any]:
        """See `Measurements`; hits per bar assume 4/4, on a grid of beats."""
        figures = super().figures()
        figures["hits_per_frame"] = mean(self.hits_per_frame)
        figures["silent_share"] = float(np.mean(self.silent))
        if steps := self._steps_per_beat:
            figures["hits_per_bar"] = figures["hits_per_frame"] * BEATS_IN_A_BAR * steps
        return figures


# ---- comparison ----------------------------------------------------------------------------------

FIGURES: tuple[Row, ...] = (
    ("piece length, frames", "length", "10,g"),
    ("  shortest", "shortest", "10,"),
    ("  longest", "longest", "10,"),
    ("  within training's range", "length_share", "10.4f"),
    ("last chord, frames", "last_chord", "10,g"),
    ("  share on the tonic", "tonic_share", "10.4f"),
    ("notes per frame", "notes_per_frame", "10.4f"),
    ("frames of {voices} notes", "voices_share", "10.4f"),
    ("note length, frames", "note_length", "10.4f"),
    ("  longest", "longest_note", "10,"),
    ("  pieces with a note drone", "long_note_share", "10.4f"),
    ("longest chord, frames", "longest_chord", "10,"),
    ("  pieces with a chord drone", "long_chord_share", "10.4f"),
    ("longest silence, frames", "longest_silence", "10,"),
    ("  pieces with a longer one", "long_silence_share", "10.4f"),
    ("dissonant intervals", "dissonance", "10.4f"),
    ("melodic step, semitones", "melodic_step", "10.4f"),
    ("hits per frame", "hits_per_frame", "10.4f"),
    ("hits per bar of 4/4", "hits_per_bar", "10.4f"),
    ("silent pieces", "silent_share", "10.4f"),
    ("copied in a row, frames", "copied_frames", "10.4f"),
    ("  share of the piece", "copied_share", "10.4f"),
    ("  most, frames", "most_copied_frames", "10,"),
)
"""Those of notes, of drums, and of both: what a set lacks is not shown."""
NAMED = {"part": "notes", "sounds": "hits"}
"""Distributions over names, and what it is that they share out."""


class MusicComparison(Comparison):
    """Distributions cover the first `limit` frames of each piece."""

    def measure(self, pieces: PieceSet, train: Pieces, limit: int | None) -> _PieceStatistics:
        frame = train.frame
        assert isinstance(frame, PianoRollFrames)
        return (DrumStatistics if frame.kit else Statistics)(pieces, limit, frame)

    def lines(self, values: Mapping[str, Any], split: str) -> list[str]:
        train, drawn = values["train"], values["drawn"]
        figures = [
            (label.format(**values), name, form)
            for label, name, form in FIGURES
            if name in train or name in drawn
        ]
        marks = [name for name in MARKS if name in train]
        for name in marks:
            spread = ("  spread", f"{name}_spread", "10.4f")
            of_piece = ("  spread within a piece", f"{name}_spread_of_piece", "10.4f")
            figures += [(name, name, "10.4f"), spread, of_piece]
        beats = [name[7:] for name in train if name.startswith("accent_")]
        figures += [(f"  on beat {beat}, more", f"accent_{beat}", "10.4f") for beat in beats]
        distances = [name for name in train["distributions"] if name not in NAMED]
        for name in (name for name in NAMED if name in train["distributions"]):
            values, rows = _shares(values, name)
            figures += [(f"share of the {NAMED[name]}", "", ""), *rows]
            marks.append(name)
        rows = [(f"  {name.replace('_', ' ')}", name, "10.4f") for name in (*distances, *marks)]
        return comparison_lines(values, split, figures, rows)


def _shares(values: Mapping[str, Any], name: str) -> tuple[dict[str, Any], list[Row]]:
    """The values with a distribution's shares as figures, and their rows, most common first."""
    sets = {each: values[each] for each in ("drawn", "split", "train") if each in values}
    found = {each: of["distributions"][name] for each, of in sets.items()}
    known = dict.fromkeys(value for shares in found.values() for value in shares)
    commonest = sorted(known, key=lambda value: -found["train"].get(value, 0.0))
    columns = {
        each: of | {f"{name} {value}": share for value, share in found[each].items()}
        for each, of in sets.items()
    }
    rows = [(f"  {value}", f"{name} {value}", "10.4f") for value in commonest]
    return {**values, **columns}, rows
