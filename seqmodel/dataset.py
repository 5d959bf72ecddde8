"""The prepared dataset: a folder with a readable manifest and shards read by memory map.

    manifest.json   format, media, frame definition, splits, what was skipped and why
    train.npy       all frames of the split, piece after piece: (frames, 11) bytes, 88 notes as bits
    train.jsonl     one line per piece: its source, content hash and number of frames

Nothing in it is pickled, nothing depends on when or where it was made, and neither writing nor
reading holds more than one piece in memory beside the index.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.files import disk_error, read_bytes
from seqmodel.frames.grid import NOTES, Grid

if TYPE_CHECKING:
    from seqmodel.frames.midi import Restrike

FORMAT = "seqmodel-dataset"
VERSION = 1
MANIFEST = "manifest.json"
SPLITS = ("train", "valid", "test")
BYTES_PER_FRAME = (NOTES + 7) // 8


@dataclass(frozen=True)
class FrameDefinition:
    """What a frame of the dataset is, so that new files can be read, and samples written, alike."""

    grid: Grid
    restrike: "Restrike" = "close"
    drums: bool = False
    transpose_to_c: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain values for the manifest."""
        return {
            "notes": NOTES,
            "grid": self.grid.to_json(),
            "restrike": self.restrike,
            "drums": self.drums,
            "transpose_to_c": self.transpose_to_c,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "FrameDefinition":
        """The inverse of `to_json`."""
        return cls(
            Grid.from_json(values["grid"]),
            values["restrike"],
            values["drums"],
            values["transpose_to_c"],
        )


@dataclass(frozen=True)
class Piece:
    """One line of a split's index."""

    source: str
    """The file as the user named it, with "#split/index" behind it for one of many in a file."""
    sha256: str
    """Of the piece's packed frames: two pieces with one hash are the same music."""
    frames: int
    transposed: int = 0
    """Semitones by which the piece was moved, its tonic to C."""


class DatasetWriter:
    """Writes a dataset into an empty folder piece by piece; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shards: dict[str, tuple[BinaryIO, BinaryIO]] = {}
        self._counts = {split: {"pieces": 0, "frames": 0, "longest": 0} for split in SPLITS}

    def __enter__(self) -> Self:
        for split in SPLITS:
            frames = (self._folder / f"{split}.npy").open("wb")
            _write_header(frames, 0)
            self._shards[split] = (frames, (self._folder / f"{split}.jsonl").open("wb"))
        return self

    def add(self, split: str, packed: NDArray[np.uint8], piece: Piece) -> None:
        """Append a piece's packed frames (T, 11) and its line in the index."""
        frames, index = self._shards[split]
        frames.write(packed.tobytes())
        index.write(_json_bytes(piece.__dict__))
        counts = self._counts[split]
        counts["pieces"] += 1
        counts["frames"] += piece.frames
        counts["longest"] = max(counts["longest"], piece.frames)

    def finish(self, frame: FrameDefinition, more: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest, which ends the dataset; returns it."""
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "media": "music",
            "frame": frame.to_json(),
            "splits": self._counts,
            **more,
        }
        (self._folder / MANIFEST).write_bytes(_json_bytes(manifest, indent=2))
        return manifest

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with ExitStack() as closing:  # each file is closed, whatever the others' fate
            for split, (frames, index) in self._shards.items():
                closing.callback(index.close)
                closing.callback(frames.close)
                if error is None:
                    frames.seek(0)
                    _write_header(frames, self._counts[split]["frames"])


def pack(roll: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(T, 88) zeros and ones as (T, 11) bytes, the lowest note in the highest bit."""
    return np.packbits(roll, axis=1)


def unpack(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The inverse of `pack`."""
    return np.unpackbits(packed, axis=1, count=NOTES)


@dataclass(frozen=True)
class Split:
    """The pieces of one split; `split[i]` reads piece i from the disk as (T, 88) zeros and ones."""

    name: str
    sources: list[str]
    lengths: NDArray[np.int64] = field(repr=False)
    _packed: NDArray[np.uint8] = field(repr=False)
    _starts: NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        start = self._starts[index]  # raises IndexError, which also ends a for loop
        return unpack(self._packed[start : start + self.lengths[index]])

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return (self[i] for i in range(len(self)))

    @property
    def frames(self) -> int:
        """The number of frames of all pieces."""
        return int(self.lengths.sum())

    def note_counts(self) -> NDArray[np.int64]:
        """(88,) how often each note sounds, counted piece by piece."""
        counts = np.zeros(NOTES, np.int64)
        for roll in self:
            counts += roll.sum(axis=0, dtype=np.int64)
        return counts


class Dataset:
    """A prepared dataset, opened for reading; `dataset["valid"]` is a `Split`."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.frame = FrameDefinition.from_json(manifest["frame"])

    @property
    def splits(self) -> list[str]:
        """The splits that hold pieces."""
        return [name for name, counts in self.manifest["splits"].items() if counts["pieces"]]

    def fingerprint(self) -> str:
        """A hash of every piece's content in its order, wherever it was prepared from."""
        digest = hashlib.sha256()
        for name in self.splits:
            digest.update(name.encode())
            for line in read_bytes(self.folder / f"{name}.jsonl").splitlines():
                digest.update(json.loads(line)["sha256"].encode())
        return digest.hexdigest()

    def __getitem__(self, name: str) -> Split:
        """Open a split; SeqmodelError where there is none of that name or its files are damaged."""
        if name not in self.splits:
            there = ", ".join(self.splits) or "none"
            raise SeqmodelError(
                f"{self.folder} has no pieces in a split {name!r} (it has: {there})"
            )
        counts = self.manifest["splits"][name]
        shard = self.folder / f"{name}.npy"
        try:
            lines = read_bytes(self.folder / f"{name}.jsonl").splitlines()
            pieces = [Piece(**json.loads(line)) for line in lines]
            packed = np.load(shard, mmap_mode="r", allow_pickle=False)
        except SeqmodelError:
            raise
        except OSError as error:
            raise disk_error(shard, "read", error) from error
        except Exception as error:  # a damaged header makes NumPy raise nearly anything
            raise self._damaged(f"{name} cannot be read") from error
        lengths = np.array([piece.frames for piece in pieces], np.int64)
        if (
            len(pieces) != counts["pieces"]
            or packed.shape != (lengths.sum(), BYTES_PER_FRAME)
            or packed.dtype != np.uint8
            or not packed.flags.c_contiguous
            or packed.offset + packed.nbytes != shard.stat().st_size
        ):
            raise self._damaged(f"{name} does not hold what its index says")
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
        return Split(name, [piece.source for piece in pieces], lengths, packed, starts)

    def _damaged(self, how: str) -> SeqmodelError:
        return SeqmodelError(f"{self.folder} is damaged: {how}; run `seqmodel prepare` again")


def open_dataset(path: str | Path) -> Dataset:
    """Open the prepared dataset in the folder `path`.

    SeqmodelError where there is none, or one of a version that this seqmodel cannot read.
    """
    folder = Path(path)
    file = folder / MANIFEST
    if not file.is_file():
        raise SeqmodelError(
            f"{folder} is not a prepared dataset (no {MANIFEST}); "
            "make one with `seqmodel prepare SOURCE --out DATA`"
        )
    try:
        manifest = json.loads(read_bytes(file))
        if manifest["format"] != FORMAT or manifest["version"] != VERSION:
            raise SeqmodelError(
                f"{file} is {manifest['format']} version {manifest['version']}; this seqmodel "
                f"reads {FORMAT} version {VERSION}: run `seqmodel prepare` again"
            )
        dataset = Dataset(folder, manifest)
        dataset.splits  # noqa: B018  an error now where it cannot be told
    except (ValueError, KeyError, TypeError, AttributeError, SourceError) as error:
        raise SeqmodelError(f"{file} is damaged; run `seqmodel prepare` again") from error
    return dataset


def _json_bytes(values: Mapping[str, Any], indent: int | None = None) -> bytes:
    """One JSON text, readable; a file name that is no UTF-8 keeps its odd bytes as escapes."""
    text = json.dumps(values, indent=indent, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def _write_header(file: BinaryIO, frames: int) -> None:
    # NumPy leaves room in the header for the first dimension to grow, so it can be written again.
    np.lib.format.write_array_header_1_0(
        file, {"shape": (frames, BYTES_PER_FRAME), "fortran_order": False, "descr": "|u1"}
    )
