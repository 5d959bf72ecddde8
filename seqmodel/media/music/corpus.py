"""Music files to pieces of a dataset."""

import hashlib
import math
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import add
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SeqmodelError, SourceError, UsageError
from seqmodel.media.definitions import Work
from seqmodel.media.input import read_whole
from seqmodel.media.marks import MARKS, MAX_LEVELS, MAX_NUMBER, Levels
from seqmodel.media.music.contents import (
    PULSE_SHARE,
    Contents,
    Timing,
    not_kept,
    semitones_to_c,
)
from seqmodel.media.music.frames import (
    ON_TIME,
    TIMING_PER_FRAME,
    PianoRollFrames,
    has_onsets,
    is_kit,
    marks_in,
    pack,
    packed_chord_ages,
    sounding,
    struck,
)
from seqmodel.media.music.grid import (
    HIGHEST_PITCH,
    KIT,
    LOWEST_PITCH,
    MAX_TEMPO,
    MIDI_SUFFIXES,
    MIN_TEMPO,
    NOTES,
    ROLL_SUFFIXES,
    STEPS_PER_BEAT,
    Grid,
    Restrike,
)
from seqmodel.media.music.kit import PART_KEYS
from seqmodel.media.music.metre import MAX_SIGNATURES, Metre, Metres, infer_metre
from seqmodel.media.music.midi import Score, begins_like_midi, read_score
from seqmodel.media.music.parts import (
    DRUMS,
    OTHER,
    commonest_tracks,
    named_parts,
    parts_called,
    parts_of_notes,
    with_drums,
)
from seqmodel.media.music.placing import (
    ON_GRID,
    PlacedNotes,
    Tally,
    frames_in_beats,
    lag_of,
    place,
)
from seqmodel.media.music.published import STATED, Roll, RollFile, read_published
from seqmodel.media.words import by_count, listed, plural


@dataclass(frozen=True)
class SourceSettings:
    """Settings of `prepare`: frames of MIDI files, and what of them the sources decide.

    "grid": it is theirs, and must agree; "onsets", "pedal": there are none if any are rolls;
    "tracks": the parts are their commonest.
    """

    frame: PianoRollFrames
    from_sources: frozenset[str] = frozenset()


class MidiPiece(NamedTuple):
    """What was read from a MIDI file."""

    frames: NDArray[np.uint8]
    """(T, 88), (T, 176) with onsets, more with marks, or (T, 47) of a kit."""
    content_hash: str
    """`Work.content_hash`."""
    transposed: int
    """Semitones by which it was moved to C."""
    placed: PlacedNotes
    parts: tuple[NDArray[np.uint8], Counter[tuple[int, int]]]
    """`parts_of_notes`."""


class PreparedPiece(NamedTuple):
    """What one piece becomes, known without any other: rows as stored, and the rest of `Work`.

    `programs` are its notes by part and program; `last_part` is the last one that any note is of.
    """

    rows: NDArray[np.uint8]
    content_hash: str
    frames_hash: str
    facts: dict[str, Any]
    repairs: list[str]
    metres: Metres
    tally: Tally = Tally()
    contents: Contents | None = None
    programs: Mapping[tuple[int, int], int] = MappingProxyType({})
    last_part: int = 0


MARK_OPTIONS = "parts", "tracks", "velocity", "timing"
"""The options of `prepare` that keep marks."""

PITCHED_OPTIONS = {
    "transpose_to_c": "drums have no tonic",
    "onsets": "every hit is an onset",
    **dict.fromkeys(MARK_OPTIONS, "hits are stored without parts, velocity or timing"),
    "restrike": "hits have no length",
    "short_notes": "hits have no length",
    "pedal": "hits have no length",
}
"""The options of `prepare` that mean nothing for a kit, and why."""


def settings(options: Mapping[str, Any]) -> SourceSettings:
    """`Medium.settings`; grid, onsets and pedal that no option states are the sources'."""
    grid, onsets, pedal = Grid.of_options(options), options.get("onsets"), options.get("pedal")
    kit = options.get("drums") == "only"
    if kit:
        for name, why in PITCHED_OPTIONS.items():
            if options.get(name):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} cannot be combined with --drums only: {why}")
    mark_options = [name for name in MARK_OPTIONS if options.get(name)]
    if mark_options and onsets is False:
        raise UsageError(f"--{mark_options[0]} needs onsets: leave out --no-onsets")
    if {"parts", "tracks"} <= {*mark_options}:
        raise UsageError("--parts and --tracks exclude each other")
    names = named_parts(options["parts"]) if "parts" in mark_options else (OTHER,)
    marks = {"part": Levels.of_names(names)} if {"parts", "tracks"} & {*mark_options} else {}
    marks |= {name: Levels() for name in MARKS if name in mark_options}
    restrike: Restrike = options.get("restrike") or "close"
    # Notes are discarded to get the published rolls, which drop short ones as well.
    short_notes = options.get("short_notes") or ("keep" if restrike == "close" else "drop")
    # The pedal is for those that tell a note struck again from one that it holds.
    strikes = onsets is not False and not kit
    frame = PianoRollFrames(
        grid or Grid.of_beats(STEPS_PER_BEAT),
        restrike,
        options.get("drums") in ("keep", "only"),
        bool(options.get("transpose_to_c")),
        strikes,
        short_notes == "keep",
        kit,
        pedal == "extend" or (pedal is None and strikes and restrike == "close"),
        marks=marks,
    )
    derived = {
        "grid": grid is None,
        "onsets": onsets is None and not marks,
        "pedal": pedal is None and not marks,
        "tracks": "tracks" in mark_options,
    }
    return SourceSettings(frame, frozenset(name for name, flag in derived.items() if flag))


class MusicCorpus:
    """MIDI files and published rolls, on one grid: the one given, or that of the first source.

    `works` raises SeqmodelError if none is given and sources have different ones.
    """

    read_types = (
        PreparedPiece, Metres, Tally, Contents, Timing, Counter, PianoRollFrames, Grid, Levels
    )  # fmt: skip

    def __init__(
        self, settings: PianoRollFrames | SourceSettings, paths: Sequence[Path] = (), *_: object
    ) -> None:
        self._for_run = isinstance(settings, PianoRollFrames)
        if isinstance(settings, PianoRollFrames):
            settings = SourceSettings(settings)
        self._from_sources, self._midi = settings.from_sources, settings.frame
        self._name_parts(paths)
        self._only_midi = not any(path.suffix.lower() in ROLL_SUFFIXES for path in paths)
        if not self._only_midi:
            onsets = self._midi.onsets and "onsets" not in self._from_sources
            pedal = self._midi.pedal and "pedal" not in self._from_sources
            self._midi = replace(self._midi, onsets=onsets, pedal=pedal)
        self._frame = self._midi
        self._grid_source: Path | None = None  # the source whose grid is taken
        self._assumed: list[Path] = []
        self._overruled: list[str] = []
        self._tally = Tally()
        self._contents = Contents(self._midi)
        self._metres = Metres()
        # Of train: frames by time signature, tempos in order, strikes by mark and number and by
        # part and key, notes by part and program.
        self._train_metres, self._train_tempos = Counter[Metre](), list[float]()
        self._longest_chord = 0
        self._marks = {name: np.zeros(MAX_NUMBER + 1, np.int64) for name in self._midi.marks}
        self._keys = np.zeros((MAX_LEVELS + 1, HIGHEST_PITCH + 1), np.int64)
        self._programs = Counter[tuple[int, int]]()
        self._last_part = 0  # that any note belongs to

    def _name_parts(self, paths: Sequence[Path]) -> None:
        """Name the parts of a new dataset; `_asked_parts` are there whether they have notes or not.

        Drums that are kept have one, and rows of their own.
        """
        names = self._midi.part_names
        self._asked_parts = len(names)
        if self._for_run or not names:
            return
        parts = parts_called(names)
        if "tracks" in self._from_sources:
            parts = commonest_tracks(_scores(paths), drums=self._midi.drums)
        self._asked_parts = len(parts) - 1
        if self._midi.drums:
            parts = with_drums(parts)
            programs = tuple(part.program for part in parts)
            self._midi = replace(self._midi, drum_table=PART_KEYS, programs=programs)
        levels = Levels.of_names([part.name for part in parts])
        self._midi = replace(self._midi, marks={**self._midi.marks, "part": levels})

    @property
    def frame(self) -> PianoRollFrames:
        """With what train has; the pedal is that of all works: whether it lengthens any note."""
        frame, marks = self._frame, dict[str, Levels]()
        for name, counts in self._marks.items():
            levels = frame.marks[name]
            if levels.names:
                kept = levels.names[: max(self._asked_parts, self._last_part)]
                if kept and frame.which_drums[len(kept) - 1 : len(kept)] == (True,):
                    kept = levels.names  # notes of no part are of the last, which thus is no drums
                marks[name] = Levels.of_names(kept or levels.names)
            else:
                marks[name] = Levels.of(counts) if counts.any() else levels
        metres, tempos = [*by_count(self._train_metres)], self._train_tempos
        parts = len(marks["part"].names) if "part" in marks else 0
        known = frame.programs[:parts] or [0] * parts  # drums, or 0
        commonest = tuple(each or self._program(part) for part, each in enumerate(known, 1))
        hits = self._keys[[k for k, program in enumerate(commonest, 1) if program == DRUMS]].sum(0)
        drum_keys = {key: int(hits[key]) for key in np.flatnonzero(hits).tolist()}
        return replace(
            frame,
            metre=metres[0] if metres else frame.metre,
            tempo=tempos[(len(tempos) - 1) // 2] if tempos else frame.tempo,
            longest_chord=self._longest_chord or frame.longest_chord,
            marks=marks,
            programs=frame.programs if self._for_run else commonest,
            drum_keys=frame.drum_keys if self._for_run else drum_keys,
            pedal=self._tally.lengthened > 0,
        )

    def _program(self, part: int) -> int:
        """The program that most notes of a part have."""
        programs = self._programs.items()
        played = {key[1]: n for key, n in programs if key[0] == part and key[1] != DRUMS}
        return next(iter(by_count(played)), 0)

    @property
    def facts(self) -> Mapping[str, Any]:
        """What became of the notes of MIDI; how the grid of rolls was found, if unsure."""
        facts: dict[str, Any] = {}
        if self._tally.read:
            contents = self._contents.to_json()
            contents |= {name: by_count(contents[name]) for name in ("meters", "keys", "programs")}
            facts["notes"] = self._tally.to_json()
            facts["timing"], facts["contents"] = self._contents.timing.to_json(), contents
            facts["not_kept"] = not_kept(contents, self.frame)
        if parts := self.frame.parts:
            notes = self._marks["part"][1:].tolist()
            facts["parts"] = {part.name: n for part, n in zip(parts, notes, strict=False)}
        remarks = [*self._overruled]
        if self._assumed:
            several = len(self._assumed) > 1
            files = f"{plural(len(self._assumed), 'file')}, such as {self._assumed[0]}, do"
            remarks.append(
                f"{files if several else f'{self._assumed[0]} does'} not state the grid: "
                f"{self.frame.grid} assumed; --steps-per-beat sets another"
            )
        if self._frame.grid.steps_per_beat:
            facts["metre"] = self._metres.to_json()
        return {**facts, "grid_remarks": remarks} if remarks else facts

    @property
    def read_by(self) -> str | None:
        return repr(self._midi) if self._only_midi else None

    def read(self, path: Path) -> PreparedPiece | None:
        """See `Corpus`; None where there are rolls, whose grid MIDI files may have to take."""
        return self._read(path) if self._only_midi else None

    def _read(self, path: Path) -> PreparedPiece:
        piece, contents = load_midi(path, self._midi), Contents(self._midi)
        placed, (parts, programs) = piece.placed, piece.parts
        contents.add(placed.score)
        return self._prepare(
            piece.frames, piece.content_hash, {"transposed": piece.transposed}, placed.score,
            tally=placed.tally(piece.frames, parts), contents=contents, programs=programs,
            last_part=int(parts[placed.chosen].max(initial=0)),
        )  # fmt: skip

    def works(self, path: Path, read: Any = None) -> Iterator[Work]:
        """The one piece of a MIDI file, or all pieces of a file of rolls."""
        if path.suffix.lower() not in ROLL_SUFFIXES:
            prepared: PreparedPiece = self._read(path) if read is None else read
            self._check_grid(path, self._midi.grid)
            yield self._work(path.as_posix(), prepared)
            return
        if self.frame.transpose_to_c:
            raise SourceError("is a roll, which cannot be transposed to C; only MIDI files can")
        file = read_published(path)
        for roll in (roll for rolls in file.pieces.values() for roll in rolls):
            self._check_roll(roll)
        self._check_grid(path, file.grid, file)
        for split, rolls in file.pieces.items():
            for k, roll in enumerate(rolls):
                source, last_part = f"{path}#{split or 'piece'}/{k}", 0
                frames, facts = roll.frames, dict[str, Any](transposed=0)
                if roll.pitches is not None:
                    facts["voices"] = roll.pitches.tolist()
                    if names := self._midi.part_names:
                        frames = roll.with_parts(names)
                        last_part = int(marks_in(frames)["part"].max(initial=0))
                frames = frames if self._midi.onsets else sounding(frames)
                # A roll has no finer grid behind it: it is its own content.
                content_hash = _sha256(pack(roll.frames))
                prepared = self._prepare(frames, content_hash, facts, last_part=last_part)
                yield self._work(source, prepared, split or None)

    def _check_roll(self, roll: Roll) -> None:
        """SourceError unless a piece of a file of rolls says what the frames need."""
        frame, voices = self._midi, roll.pitches is not None
        _check_rows(roll.frames, frame)
        unknown = [name for name in frame.marks if name != "part" or not voices]
        if unknown and not self._for_run:
            raise SourceError(f"does not state the {listed(unknown)} of each note, unlike MIDI")
        if "part" in frame.marks and voices:
            if "tracks" in self._from_sources:
                raise SourceError("has voices without names", "--parts with a name for each")
        elif frame.onsets and not has_onsets(roll.frames):
            raise SourceError(
                "does not state which notes are struck again, unlike MIDI and .npy files of 0 "
                "(off), 1 (struck) and 2 (held)"
            )

    def _prepare(
        self, frames: NDArray[np.uint8], content_hash: str, facts: dict[str, Any],
        score: Score | None = None, **counts: Any,
    ) -> PreparedPiece:  # fmt: skip
        grid, rows, metres = self._frame.grid, self._frame.encode(frames), Metres()
        repairs = [*score.remarks] if score else []
        if grid.steps_per_beat:
            stated = stated_metre(score, grid) if score else []
            found = metres.of(stated, _onsets(frames, score, grid), grid)
            facts["metre"] = [list(each) for each in found[:MAX_SIGNATURES]]
            if len(found) > MAX_SIGNATURES:
                what = f"{len(found):,} time signatures, of which the first "
                repairs.append(f"{what}{MAX_SIGNATURES} are kept")
            if score:
                facts["tempo"] = round(min(max(score.median_tempo, MIN_TEMPO), MAX_TEMPO), 2)
        return PreparedPiece(rows, content_hash, _sha256(rows), facts, repairs, metres, **counts)

    def _work(self, source: str, prepared: PreparedPiece, split: str | None = None) -> Work:
        """Count what was found, and make a work of it."""
        rows, facts = prepared.rows, prepared.facts
        self._metres.update(prepared.metres, source)
        self._tally = Tally(*map(add, self._tally, prepared.tally))
        self._last_part = max(self._last_part, prepared.last_part)
        if prepared.contents:
            self._contents.update(prepared.contents)

        def in_train(rows: NDArray[np.uint8]) -> None:  # called once: train has its beginning
            ages = packed_chord_ages(self._frame.packed(rows))
            self._longest_chord = max(self._longest_chord, int(ages.max(initial=0)))
            marks = self._frame.marks_of(rows)
            strikes = np.nonzero(struck(self._frame.decode(rows))) if marks else ()
            for name, numbers in marks.items():
                of_strikes = numbers[strikes]
                self._marks[name] += np.bincount(of_strikes, minlength=MAX_NUMBER + 1)
            if "part" in marks:
                np.add.at(self._keys, (marks["part"][strikes], LOWEST_PITCH + strikes[1]), 1)
            self._programs.update(prepared.programs)
            if "tempo" in facts:
                insort(self._train_tempos, facts["tempo"])
            changes = [*facts.get("metre", []), [len(rows)]]
            for (frame, beats, of), (end, *_) in pairwise(changes):
                self._train_metres[beats, of] += max(0, min(end, len(rows)) - frame)

        return Work(
            source, prepared.content_hash, prepared.frames_hash, split, [(source, len(rows))],
            lambda begin, end: [rows[begin:end]], facts, prepared.repairs, in_train,
        )  # fmt: skip

    def _check_grid(self, path: Path, grid: Grid, rolls: RollFile | None = None) -> None:
        if "grid" not in self._from_sources:
            if rolls and rolls.origin and grid != self.frame.grid:
                name = "" if rolls.origin == STATED else f" ({rolls.origin})"
                self._overruled.append(f"{path} has {grid}{name}, read as {self.frame.grid}")
            return
        if self._grid_source is None:
            # The published rolls lack notes shorter than a frame, so MIDI is read likewise.
            known = rolls is not None and rolls.origin not in ("", STATED)
            self._midi = replace(self._midi, short_notes=self._midi.short_notes and not known)
            self._grid_source, self._frame = path, replace(self._midi, grid=grid)
        if grid != self._frame.grid:
            raise SeqmodelError(
                f"{self._grid_source} has {self.frame.grid} and {path} has {grid}: choose a grid "
                "for all with --steps-per-beat, or prepare them separately"
            )
        if rolls and not rolls.origin:
            self._assumed.append(path)


def load_midi(path: Path, frame: PianoRollFrames, *, detect_drums: bool = False) -> MidiPiece:
    """Read one MIDI file in such frames.

    With `detect_drums` a file that has nothing but drums is read as a kit's, whatever `frame` says.
    SourceError says why it cannot be used.
    """
    data = read_whole(path)
    suffix = path.suffix.lower()
    if suffix and suffix not in MIDI_SUFFIXES and not begins_like_midi(data):
        raise SourceError(f"is neither MIDI nor another supported format ({suffix})")
    score = read_score(data, restrike=frame.restrike, hits=frame.kit or detect_drums)
    only_drums = len(score.pitch) > 0 and score.of_drums.all()
    kit = frame.kit or bool(detect_drums and only_drums)
    if detect_drums and not kit:
        score = read_score(data, restrike=frame.restrike)
    empty = not (kit or len(score.pitch) or score.end_tick)
    if empty and len(read_score(data, hits=True).pitch):  # drums that nothing ends
        raise SourceError("has no notes but drums", "--drums only")
    transposed = semitones_to_c(score) if frame.transpose_to_c else 0
    shown = replace(frame, kit=True, onsets=False) if kit and not frame.kit else frame
    placed = place(score, shown, transpose=transposed)
    frames = placed.frames(onsets=frame.onsets)
    parts = parts_of_notes(score, frame.part_names, frame.which_drums)
    if frame.marks:
        frames = placed.with_marks(frames, _marks(placed, frame, parts[0]))
    # The rule for restruck notes is an option, so the content is always read by the default rule.
    content = score if frame.restrike == "close" else read_score(data)
    return MidiPiece(frames, content_of(content), transposed, placed, parts)


def _marks(
    placed: PlacedNotes, frame: PianoRollFrames, parts: NDArray[np.uint8]
) -> dict[str, NDArray[np.uint8]]:
    """The marks that `frame` keeps of each of the notes (N,), given the `parts` of the score's."""
    score, chosen = placed.score, placed.chosen
    marks = {"part": parts[chosen], "velocity": score.velocity[chosen]}
    if "timing" in frame.marks:
        exact = score.frame_positions(score.on_tick[chosen] - placed.lag, frame.grid)
        late = np.rint(ON_TIME + TIMING_PER_FRAME * (exact - placed.begin))
        marks["timing"] = late.clip(1, MAX_NUMBER).astype(np.uint8)
    return {name: marks[name] for name in frame.marks}


def _scores(paths: Iterable[Path]) -> Iterator[Score]:
    """Those of files that can be read."""
    for path in paths:
        with suppress(SeqmodelError):
            yield read_score(read_whole(path))


def metre_of(score: Score | None, frames: NDArray[np.uint8], grid: Grid) -> list[tuple[int, Metre]]:
    """(Frame, time signature) as a piece states them, or else the one that its onsets suggest."""
    if score and (stated := stated_metre(score, grid)):
        return stated
    inferred = infer_metre(_onsets(frames, score, grid), grid)
    return [(0, inferred)] if inferred else []


def _onsets(frames: NDArray[np.uint8], score: Score | None, grid: Grid) -> NDArray[np.int64]:
    """How many notes begin in each frame (T,); none where most lie off the grid of beats."""
    # Several times as fast as `sum`; no frame has more than a byte can count.
    onsets = np.einsum("ij->i", struck(frames).view(np.uint8)).astype(np.int64)
    if score is not None and grid.steps_per_beat:
        on = score.on_tick - lag_of(score.on_tick, score.ticks_per_unit)
        place = score.frame_positions(on, grid)
        if np.mean(np.abs(place - np.rint(place)) <= ON_GRID) < PULSE_SHARE:
            onsets[:] = 0
    return onsets


def stated_metre(score: Score, grid: Grid) -> list[tuple[int, Metre]]:
    """(Frame, time signature) of each that a score states; none on a grid of real time."""
    if grid.steps_per_beat is None:
        return []
    return [(frames_in_beats(score, grid, tick), (beats, of)) for tick, beats, of in score.meters]


def load_to_show(path: Path, options: Mapping[str, Any]) -> MidiPiece:
    """Read a MIDI file with onsets to show or play it, on the grid and with the drums asked for."""
    grid, drums = Grid.of_options(options) or Grid.of_beats(STEPS_PER_BEAT), options.get("drums")
    kit = drums == "only"
    shown = PianoRollFrames(grid, drums=drums == "keep", onsets=not kit, kit=kit, pedal=not kit)
    return load_midi(path, shown, detect_drums=drums is None)


def load_roll(
    path: Path, definition: PianoRollFrames | None = None
) -> tuple[NDArray[np.uint8], Grid | None]:
    """Read a .npy: frames (T, 88), (T, 176) where it states onsets, or (T, 47) of a kit; its grid.

    SourceError if it cannot be used, or its rows are not those of `definition`.
    """
    file = read_published(path)
    (roll,) = file.splits[""]
    if definition is not None:
        _check_rows(roll, definition)
    return roll, file.grid if file.origin else None


def _check_rows(frames: NDArray[np.uint8], definition: PianoRollFrames) -> None:
    if is_kit(frames) and not definition.kit:
        raise SourceError(f"holds {len(KIT)} drum sounds, not {NOTES} notes", "--drums only")
    if definition.kit and not is_kit(frames):
        raise SourceError(f"holds {NOTES} notes, not {len(KIT)} drum sounds")


def content_of(score: Score) -> str:
    """SHA-256 of a score's notes and their times in beats, whatever the file's ticks per beat.

    The order of notes, their tracks and channels (but for drums) and the tempo do not matter.
    """
    ticks = np.array([score.on_tick, score.off_tick])
    unit = math.gcd(score.ticks_per_unit, int(np.gcd.reduce(ticks, axis=None)))
    begin, end = ticks // unit
    # Sorted as one number each, of Python's where they are too large for NumPy.
    bits = int(end.max(initial=0)).bit_length()
    if 2 * bits > 63 - 8:
        begin, end = begin.astype(object), end.astype(object)
    notes = np.sort(
        (begin << bits | end) << 8 | score.pitch + 128 * score.of_drums.astype(np.int64)
    )
    notes = notes[np.append(True, notes[1:] != notes[:-1])[: len(notes)]]
    digest = hashlib.sha256(f"{score.ticks_per_unit // unit} {score.smpte}".encode())
    for column in (notes >> 8 + bits, notes >> 8 & (1 << bits) - 1, notes & 255):
        digest.update(column.astype("<i8").tobytes())
    return digest.hexdigest()


def _sha256(packed: NDArray[np.uint8]) -> str:
    return hashlib.sha256(packed.tobytes()).hexdigest()
