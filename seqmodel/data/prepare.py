"""Sources to a prepared dataset, one piece at a time."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.data.dataset import DATASET_FOLDER, DatasetWriter, Piece
from seqmodel.data.sources import ROLL_SUFFIXES, Source, find_sources, the_media
from seqmodel.data.splits import Tally
from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.files import new_folder
from seqmodel.media.audio.recordings import Recordings
from seqmodel.media.definitions import AudioSettings, PianoRollFrames
from seqmodel.media.music.pianoroll import pack


@dataclass(frozen=True)
class LoadedPiece:
    """A piece-roll as read, before it has a place in the dataset."""

    roll: NDArray[np.uint8]
    source: str
    split: str | None
    transposed: int
    repairs: tuple[str, ...]
    """What the reader forgave in the file."""


Progress = Callable[[int, int], None]
"""Called with the number of files read and of all files."""


def load_pieces(source: Source, frame: PianoRollFrames) -> Iterator[LoadedPiece]:
    """Read the pieces of one file; SourceError tells why it cannot be used."""
    try:
        if source.path.suffix.lower() in ROLL_SUFFIXES:
            yield from _load_published(source, frame)
        else:
            yield load_midi(source, frame)
    except OSError as error:
        raise SourceError((error.strerror or str(error)).lower()) from error


def load_midi(source: Source, frame: PianoRollFrames) -> LoadedPiece:
    """Read one MIDI file; SourceError tells why it cannot be used."""
    from seqmodel.media.music.midi import read_score
    from seqmodel.media.music.pianoroll import piano_roll
    from seqmodel.media.music.tonic import semitones_to_c

    score = read_score(source.path.read_bytes(), restrike=frame.restrike)
    transposed = semitones_to_c(score) if frame.transpose_to_c else 0
    roll = piano_roll(score, frame.grid, drums=frame.drums, transpose=transposed)
    return LoadedPiece(roll, str(source.path), source.split, transposed, score.remarks)


def load_roll(path: Path) -> NDArray[np.uint8]:
    """Read the one piano-roll of a .npy file, (T, 88); SourceError tells why it cannot be used."""
    from seqmodel.media.music.published import read_published

    (roll,) = read_published(path)[""]
    return roll


def _load_published(source: Source, frame: PianoRollFrames) -> Iterator[LoadedPiece]:
    from seqmodel.media.music.published import read_published

    if frame.transpose_to_c:
        raise SourceError("--transpose-to-c needs MIDI files; published rolls are used as they are")
    for split, rolls in read_published(source.path).items():
        for k, roll in enumerate(rolls):
            place = f"{source.path}#{split or 'piece'}/{k}"
            yield LoadedPiece(roll, place, split or source.split, 0, ())


class Rolls:
    """The music of a dataset in the making."""

    def __init__(self, frame: PianoRollFrames) -> None:
        self.frame = frame
        self.more: dict[str, Any] = {}

    def add(self, source: Source, writer: DatasetWriter, tally: Tally) -> None:
        """Append the pieces of one file; SourceError tells why it cannot be used."""
        for piece in load_pieces(source, self.frame):
            packed = pack(piece.roll)
            digest = hashlib.sha256(packed.tobytes()).hexdigest()
            split = tally.place(digest, piece.split)
            tally.count(piece.source, digest, split, by_folder=piece.split is not None)
            tally.forgive(piece.source, piece.repairs)
            line = Piece(piece.source, digest, len(packed), piece.transposed)
            writer.add(split, [packed], line)


def prepare(
    names: Sequence[str],
    out: Path,
    frame: PianoRollFrames | AudioSettings,
    *,
    force: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the dataset `out` from the sources `names` and return its manifest.

    A file that cannot be used is skipped and explained in the manifest, or with `strict` ends the
    work. SeqmodelError where nothing can be used, the sources are not of the medium of `frame`, or
    the target cannot be written; then nothing is.
    """
    DATASET_FOLDER.check_target(out, force=force)
    sources = find_sources(names)
    if the_media(sources) != frame.media:
        raise SeqmodelError(f"{sources[0].path} is {sources[0].media}, not {frame.media}")
    skipped: list[dict[str, str]] = []
    tally = Tally()
    with new_folder(out, DATASET_FOLDER, force=force) as folder:
        store = (
            Rolls(frame)
            if isinstance(frame, PianoRollFrames)
            else Recordings(frame, sources, folder)
        )
        with DatasetWriter(folder, store.frame) as writer:
            for k, source in enumerate(sources):
                try:
                    store.add(source, writer, tally)
                except SourceError as error:
                    if strict or len(sources) == 1:
                        raise SeqmodelError(f"{source.path}: {error}") from error
                    skipped.append({"source": str(source.path), "reason": str(error)})
                if progress is not None:
                    progress(k + 1, len(sources))
            if not tally.split_of:
                first = skipped[0]
                raise SeqmodelError(
                    f"none of the {len(sources)} files can be used; the first, {first['source']}: "
                    f"{first['reason']}"
                )
            return writer.finish(store.frame, {**store.more, **tally.to_json(), "skipped": skipped})
