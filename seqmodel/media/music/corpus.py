"""Music files to pieces of a dataset."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError
from seqmodel.media.definitions import Piece, Work
from seqmodel.media.input import read_whole
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.midi import Score, read_score
from seqmodel.media.music.midi_format import DRUM_CHANNEL
from seqmodel.media.music.onsets import has_onsets, sounding
from seqmodel.media.music.pianoroll import pack, piano_roll
from seqmodel.media.music.published import read_published
from seqmodel.media.music.suffixes import MIDI_SUFFIXES, ROLL_SUFFIXES
from seqmodel.media.music.tonic import semitones_to_c


@dataclass(frozen=True)
class LoadedPiece:
    """What was read from a file, in frames (T, 88), or (T, 176) with onsets."""

    frames: NDArray[np.uint8]
    content: str
    """`Work.content`."""
    transposed: int
    """Semitones by which it was moved to C."""
    repairs: tuple[str, ...]


class MusicCorpus:
    """MIDI files and published rolls, on one grid."""

    facts: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, frame: PianoRollFrames) -> None:
        self.frame = frame

    def works(self, path: Path) -> Iterator[Work]:
        """The one piece of a MIDI file, or all pieces of a file of rolls."""
        if path.suffix.lower() not in ROLL_SUFFIXES:
            piece = load_midi(path, self.frame)
            yield self._work(str(path), piece)
            return
        if self.frame.transpose_to_c:
            raise SourceError(
                "--transpose-to-c needs MIDI files; published rolls are used as they are"
            )
        for split, rolls in read_published(path).items():
            for k, roll in enumerate(rolls):
                if self.frame.onsets and not has_onsets(roll):
                    raise SourceError(
                        "does not say which notes are struck again; --onsets needs MIDI files, or "
                        ".npy of 0 (off), 1 (struck) and 2 (held)"
                    )
                # A roll has no finer grid behind it: it is its own content.
                content = _sha256(pack(roll))
                frames = roll if self.frame.onsets else sounding(roll)
                piece = LoadedPiece(frames, content, 0, ())
                yield self._work(f"{path}#{split or 'piece'}/{k}", piece, split or None)

    def _work(self, source: str, piece: LoadedPiece, split: str | None = None) -> Work:
        packed = pack(piece.frames)
        digest = _sha256(packed)
        line = Piece(source, digest, len(packed), {"transposed": piece.transposed})
        pieces = [(line, [packed])]
        return Work(source, piece.content, digest, split, pieces, len(packed), piece.repairs)


def load_midi(path: Path, frame: PianoRollFrames) -> LoadedPiece:
    """Read one MIDI file; SourceError says why it cannot be used."""
    data = read_whole(path)
    suffix = path.suffix.lower()
    if suffix and suffix not in MIDI_SUFFIXES and b"MThd" not in data[:64]:
        raise SourceError(
            f"is neither MIDI nor another supported format ({suffix}): convert it, audio to .wav "
            "or .flac"
        )
    score = read_score(data, restrike=frame.restrike)
    transposed = semitones_to_c(score) if frame.transpose_to_c else 0
    frames = piano_roll(
        score, frame.grid, drums=frame.drums, transpose=transposed, onsets=frame.onsets
    )
    # The rule for restruck notes is an option, so the content is always read by the default rule.
    content = score if frame.restrike == "close" else read_score(data)
    return LoadedPiece(frames, content_of(content), transposed, score.remarks)


def load_roll(path: Path) -> NDArray[np.uint8]:
    """Read the frames of a .npy file, (T, 88), or (T, 176) where it states onsets.

    SourceError says why it cannot be used.
    """
    (roll,) = read_published(path)[""]
    return roll


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
