"""Sources to a prepared dataset, one piece at a time."""

import glob
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.dataset import MANIFEST, DatasetWriter, FrameDefinition, Piece, pack
from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.files import new_folder, refuse_existing

MIDI_SUFFIXES = {".mid", ".midi", ".kar", ".rmi"}
ROLL_SUFFIXES = {".mat", ".pickle", ".pkl", ".npz", ".npy"}
SPLIT_FOLDERS = {"train": "train", "valid": "valid", "validation": "valid", "test": "test"}


@dataclass(frozen=True)
class Source:
    """A file to read, and the split that its folder names."""

    path: Path
    split: str | None


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


def find_sources(names: Iterable[str]) -> list[Source]:
    """The media files that files, folders (searched through and through) and globs stand for.

    Each file comes once, a folder's in the order of their names. SeqmodelError where a name stands
    for nothing.
    """
    found: dict[Path, Source] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            sources = [Source(file, _folder_split(file, path)) for file in _media_in(path)]
        elif path.exists():
            sources = [Source(path, _folder_split(path, path.parent))]
        else:
            matches = sorted(glob.glob(name, recursive=True))
            if not matches:
                raise SeqmodelError(f"{name}: no such file or folder")
            files = [Path(match) for match in matches if not Path(match).is_dir()]
            sources = [Source(file, _folder_split(file, file.parent)) for file in files]
        if not sources:
            kinds = " ".join(sorted(MIDI_SUFFIXES | ROLL_SUFFIXES))
            raise SeqmodelError(f"{name}: no file that could be read in it ({kinds})")
        for source in sources:
            found.setdefault(source.path, source)
    return list(found.values())


def _media_in(folder: Path) -> list[Path]:
    suffixes = MIDI_SUFFIXES | ROLL_SUFFIXES
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in suffixes)


def _folder_split(file: Path, top: Path) -> str | None:
    """The split named by the nearest folder above `file`, `top` being the last looked at."""
    for folder in file.parents:
        if folder.name.lower() in SPLIT_FOLDERS:
            return SPLIT_FOLDERS[folder.name.lower()]
        if folder == top:
            return None
    return None


def hash_split(digest: str) -> str:
    """The split of a piece whose folder names none: 80, 10 and 10 percent, by its content alone."""
    share = int(digest[:8], 16) / 16**8
    return "train" if share < 0.8 else "valid" if share < 0.9 else "test"


def load_pieces(source: Source, frame: FrameDefinition) -> Iterator[LoadedPiece]:
    """Read the pieces of one file; SourceError tells why it cannot be used."""
    try:
        if source.path.suffix.lower() in ROLL_SUFFIXES:
            yield from _load_published(source, frame)
        else:
            yield load_midi(source, frame)
    except OSError as error:
        raise SourceError((error.strerror or str(error)).lower()) from error


def load_midi(source: Source, frame: FrameDefinition) -> LoadedPiece:
    """Read one MIDI file; SourceError tells why it cannot be used."""
    from seqmodel.frames.midi import read_score
    from seqmodel.frames.pianoroll import piano_roll
    from seqmodel.frames.tonic import semitones_to_c

    score = read_score(source.path.read_bytes(), restrike=frame.restrike)
    transposed = semitones_to_c(score) if frame.transpose_to_c else 0
    roll = piano_roll(score, frame.grid, drums=frame.drums, transpose=transposed)
    return LoadedPiece(roll, str(source.path), source.split, transposed, score.remarks)


def _load_published(source: Source, frame: FrameDefinition) -> Iterator[LoadedPiece]:
    from seqmodel.frames.published import read_published

    if frame.transpose_to_c:
        raise SourceError("--transpose-to-c needs MIDI files; published rolls are used as they are")
    for split, rolls in read_published(source.path).items():
        for k, roll in enumerate(rolls):
            place = f"{source.path}#{split or 'piece'}/{k}"
            yield LoadedPiece(roll, place, split or source.split, 0, ())


def prepare(
    names: Sequence[str],
    out: Path,
    frame: FrameDefinition,
    *,
    force: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the dataset `out` from the sources `names` and return its manifest.

    A file that cannot be used is skipped and explained in the manifest, or with `strict` ends the
    work. SeqmodelError where nothing can be used, or the target cannot be written; then nothing is.
    """
    refuse_existing(out, force=force)
    sources = find_sources(names)
    skipped: list[dict[str, str]] = []
    tally = _Tally()
    with new_folder(out, force=force, mark=MANIFEST) as folder, DatasetWriter(folder) as writer:
        for k, source in enumerate(sources):
            try:
                for piece in load_pieces(source, frame):
                    packed = pack(piece.roll)
                    digest = hashlib.sha256(packed.tobytes()).hexdigest()
                    split = tally.place(piece, digest)
                    line = Piece(piece.source, digest, len(packed), piece.transposed)
                    writer.add(split, packed, line)
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
        return writer.finish(frame, {**tally.to_json(), "skipped": skipped})


@dataclass
class _Tally:
    """Places each piece in a split and counts what the manifest tells of that."""

    split_of: dict[str, str] = field(default_factory=dict)
    """Content hash -> the split that first had it."""
    by_folder: int = 0
    by_hash: int = 0
    repeated: int = 0
    straddling: list[str] = field(default_factory=list)
    repaired: list[dict[str, Any]] = field(default_factory=list)

    def place(self, piece: LoadedPiece, digest: str) -> str:
        """The split for a piece of this content: its folder's, its twin's, else its hash's."""
        split = piece.split or self.split_of.get(digest) or hash_split(digest)
        self.by_folder += piece.split is not None
        self.by_hash += piece.split is None
        if digest in self.split_of:
            self.repeated += 1
            if self.split_of[digest] != split:
                self.straddling.append(piece.source)
        self.split_of.setdefault(digest, split)
        if piece.repairs:
            self.repaired.append({"source": piece.source, "repairs": list(piece.repairs)})
        return split

    def to_json(self) -> dict[str, Any]:
        """What the manifest says of splits, repeats and repairs."""
        return {
            "split_by": {"folder": self.by_folder, "content_hash": self.by_hash},
            "repeated_pieces": self.repeated,
            "also_in_another_split": self.straddling,
            "repaired": self.repaired,
        }
