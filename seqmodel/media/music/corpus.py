"""Music files to pieces of a dataset."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.media.definitions import Work
from seqmodel.media.input import read_whole
from seqmodel.media.music.contents import Contents, Timing, left_out, semitones_to_c
from seqmodel.media.music.frames import (
    PianoRollFrames,
    PlacedNotes,
    Score,
    SourcesGrid,
    Tally,
    has_onsets,
    pack,
    place,
    sounding,
)
from seqmodel.media.music.grid import DRUM_CHANNEL, MIDI_SUFFIXES, ROLL_SUFFIXES, Grid
from seqmodel.media.music.midi import begins_like_midi, read_score
from seqmodel.media.music.published import STATED, RollFile, read_published
from seqmodel.media.words import plural


class MidiPiece(NamedTuple):
    """What was read from a MIDI file."""

    frames: NDArray[np.uint8]
    """(T, 88), or (T, 176) with onsets."""
    content: str
    """`Work.content`."""
    transposed: int
    """Semitones by which it was moved to C."""
    score: Score
    placed: PlacedNotes


class MusicCorpus:
    """MIDI files and published rolls, on one grid: the one given, or that of the first source.

    Raises:
        SeqmodelError: from `works`, if no grid is given and another source has a different one.
    """

    def __init__(self, settings: PianoRollFrames | SourcesGrid, *_: object) -> None:
        self._given = isinstance(settings, PianoRollFrames)
        self._midi = settings if isinstance(settings, PianoRollFrames) else settings.frame
        self.frame = self._midi
        self._first: Path | None = None
        """The source whose grid is taken."""
        self._assumed: list[Path] = []
        self._overruled: list[str] = []
        self._tally = Tally()
        self._timing = Timing(self._midi.grid, drums=self._midi.drums)
        self._contents = Contents()

    @property
    def facts(self) -> Mapping[str, Any]:
        """What became of the notes of MIDI; how the grid of rolls was found, if unsure."""
        facts: dict[str, Any] = {}
        if self._tally.read:
            contents = self._contents.to_json()
            facts["notes"] = self._tally._asdict()
            facts["timing"], facts["contents"] = self._timing.to_json(), contents
            facts["not_kept"] = left_out(contents, self.frame)
        remarks = [*self._overruled]
        if self._assumed:
            many = len(self._assumed) > 1
            which = f"{plural(len(self._assumed), 'file')}, such as {self._assumed[0]}, do"
            remarks.append(
                f"{which if many else f'{self._assumed[0]} does'} not state the grid: "
                f"{self.frame.grid} assumed; --steps-per-beat says otherwise"
            )
        return {**facts, "grid_remarks": remarks} if remarks else facts

    def works(self, path: Path) -> Iterator[Work]:
        """The one piece of a MIDI file, or all pieces of a file of rolls."""
        if path.suffix.lower() not in ROLL_SUFFIXES:
            piece = load_midi(path, self._midi)
            self._agree(path, self._midi.grid)
            self._tally = Tally(*map(add, self._tally, piece.placed.tally(piece.frames)))
            self._timing.add(piece.score)
            self._contents.add(piece.score)
            frames, content, transposed, score, _ = piece
            yield _work(str(path), frames, content, transposed=transposed, repairs=score.remarks)
            return
        if self.frame.transpose_to_c:
            raise SourceError("is a roll, which cannot be transposed to C; only MIDI files can")
        file = read_published(path)
        if self.frame.onsets and not all(map(has_onsets, chain(*file.splits.values()))):
            raise SourceError(
                "does not say which notes are struck again, as MIDI files do, and .npy of 0 (off), "
                "1 (struck) and 2 (held)"
            )
        self._agree(path, file.grid, file)
        for split, rolls in file.splits.items():
            for k, roll in enumerate(rolls):
                # A roll has no finer grid behind it: it is its own content.
                content = _sha256(pack(roll))
                frames = roll if self.frame.onsets else sounding(roll)
                name, voices = f"{path}#{split or 'piece'}/{k}", file.voices[split][k]
                yield _work(name, frames, content, split=split or None, voices=voices)

    def _agree(self, path: Path, grid: Grid, rolls: RollFile | None = None) -> None:
        """Take the grid of the first source, and only that."""
        if self._given:
            if rolls and rolls.origin and grid != self.frame.grid:
                name = "" if rolls.origin == STATED else f" ({rolls.origin})"
                self._overruled.append(f"{path} has {grid}{name}, read as {self.frame.grid}")
            return
        if self._first is None:
            # The published rolls lack notes shorter than a frame, so MIDI is read likewise.
            known = rolls is not None and rolls.origin not in ("", STATED)
            self._midi = replace(self._midi, short_notes=self._midi.short_notes and not known)
            self._first, self.frame = path, replace(self._midi, grid=grid)
        if grid != self.frame.grid:
            raise SeqmodelError(
                f"{self._first} has {self.frame.grid} and {path} has {grid}: choose a grid for all "
                "with --steps-per-beat, or prepare them separately"
            )
        if rolls and not rolls.origin:
            self._assumed.append(path)


def _work(
    source: str, frames: NDArray[np.uint8], content: str, *, transposed: int = 0,
    repairs: Sequence[str] = (), split: str | None = None,
    voices: NDArray[np.int8] | None = None,
) -> Work:  # fmt: skip
    packed = pack(frames)
    pieces, facts = [(source, len(packed))], {"transposed": transposed}
    return Work(
        source, content, _sha256(packed), split, pieces,
        lambda begin, end: [packed[begin:end]], facts,
        {} if voices is None else {"voices": voices.tolist()}, repairs,
    )  # fmt: skip


def load_midi(path: Path, frame: PianoRollFrames, *, onsets: bool | None = None) -> MidiPiece:
    """Read one MIDI file, with onsets or without, by default as `frame` has them.

    SourceError says why it cannot be used.
    """
    data = read_whole(path)
    suffix = path.suffix.lower()
    if suffix and suffix not in MIDI_SUFFIXES and not begins_like_midi(data):
        raise SourceError(f"is neither MIDI nor another supported format ({suffix})")
    score = read_score(data, restrike=frame.restrike)
    transposed = semitones_to_c(score) if frame.transpose_to_c else 0
    placed = place(
        score, frame.grid, drums=frame.drums, transpose=transposed, short_notes=frame.short_notes
    )
    frames = placed.frames(onsets=frame.onsets if onsets is None else onsets)
    # The rule for restruck notes is an option, so the content is always read by the default rule.
    content = score if frame.restrike == "close" else read_score(data)
    return MidiPiece(frames, content_of(content), transposed, score, placed)


def load_roll(path: Path) -> tuple[NDArray[np.uint8], Grid | None]:
    """Read the frames of a .npy file, (T, 88), or (T, 176) where it states onsets; its grid, if
    stated.

    SourceError says why it cannot be used.
    """
    file = read_published(path)
    (roll,) = file.splits[""]
    return roll, file.grid if file.origin else None


def content_of(score: Score) -> str:
    """SHA-256 of a score's notes and their times in beats, whatever the file's ticks per beat.

    The order of notes, their tracks and channels, and the tempo do not matter, except that notes
    on the drum channel are distinguished from others.
    """
    drums = score.channel == DRUM_CHANNEL
    notes = np.stack([score.on_tick, score.off_tick, score.pitch + 128 * drums.astype(np.int64)])
    unit = math.gcd(score.ticks_per_unit, int(np.gcd.reduce(notes[:2].ravel())))
    notes[:2] //= unit
    notes = notes[:, np.lexsort(notes[::-1])]  # np.unique along an axis is several times slower
    distinct = np.append(True, (notes[:, 1:] != notes[:, :-1]).any(axis=0))[: notes.shape[1]]
    digest = hashlib.sha256(f"{score.ticks_per_unit // unit} {score.smpte}".encode())
    digest.update(notes[:, distinct].astype("<i8").tobytes())
    return digest.hexdigest()


def _sha256(packed: NDArray[np.uint8]) -> str:
    return hashlib.sha256(packed.tobytes()).hexdigest()
