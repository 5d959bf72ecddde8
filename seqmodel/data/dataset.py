"""The prepared dataset: a folder with a readable manifest and shards read piece by piece.

    manifest.json   format, medium, frame definition, splits, what was skipped and why
    train.npy       the whole split, piece after piece, in rows as specified by the frame definition
    train.jsonl     one line per piece: its source, content hash and number of frames

A dataset contains nothing pickled and does not depend on when or where it was made. At most one
piece is held in memory. Shards are not memory-mapped: if a mapped file is cut short, a bus error
kills the process before it can save anything.
"""

import hashlib
import json
import math
import os
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Self, overload

import numpy as np
from numpy.typing import NDArray

from seqmodel import plain
from seqmodel.errors import SeqmodelError, SourceError, reason
from seqmodel.files import FolderFormat, disk_errors, open_input, read_bytes
from seqmodel.media.definitions import SPLITS, FrameDefinition, Piece
from seqmodel.media.input import read_header
from seqmodel.media.labels import LABELS, KnownLabels, label_ids, labels_of
from seqmodel.media.registry import definition_from_json, medium_of
from seqmodel.plain import Fields
from seqmodel.system.files import read_at

# ---- shard ---------------------------------------------------------------------------------------


class LostError(SeqmodelError):
    """A dataset that could be opened has since gone or changed."""


def damaged(path: Path, how: str) -> str:
    """The message for a dataset, or a file of it, that `prepare` did not write like this."""
    return f"{path} is damaged: {how}; run `seqmodel prepare` again"


class Shard:
    """A .npy opened once for reading; `shard[a:b]` reads its rows a to b.

    ValueError if it is not a .npy of numbers as long as its header states; OSError if unreadable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_input(path) as file:
            self.shape, fortran_order, self.dtype, self._offset, _ = header = read_header(file)
            if fortran_order or self.dtype.hasobject or not self.shape:
                raise ValueError("not an array of rows")
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self._row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        self._status = os.fstat(self._descriptor)
        self._mtime = self._status.st_mtime_ns
        if self._status.st_size != self._offset + header.nbytes:
            raise ValueError("longer or shorter than it says")

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """The rows of a slice without a step; LostError if they can no longer be read."""
        start, stop, _ = rows.indices(self.shape[0])
        count = max(0, stop - start)
        unread, offset, parts = count * self._row_bytes, self._offset + start * self._row_bytes, []
        while unread:
            try:
                parts.append(read_at(self._descriptor, unread, offset))
            except OSError as error:
                raise self._lost(f"cannot be read ({reason(error)})") from error
            if not parts[-1]:
                raise self._lost("has been cut short")
            unread, offset = unread - len(parts[-1]), offset + len(parts[-1])
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        return np.frombuffer(data, self.dtype).reshape(count, *self.shape[1:])

    def changed(self) -> bool:
        """Whether the file was written to since the last call; LostError if it was replaced."""
        try:
            now = self.path.stat()
        except OSError as error:
            raise self._lost("has gone") from error
        if not os.path.samestat(now, self._status):
            raise self._lost("has been replaced")
        if now.st_size != self._status.st_size:
            raise self._lost("has been cut short or added to")
        before, self._mtime = self._mtime, now.st_mtime_ns
        return now.st_mtime_ns != before

    def _lost(self, how: str) -> LostError:
        return LostError(f"{self.path} {how} since it was opened")


# ---- dataset -------------------------------------------------------------------------------------

FORMAT = "seqmodel-dataset"
VERSION = 1
MANIFEST = "manifest.json"

HASH_FRAMES = 2**15
STATISTICS_FRAMES = 2**20
"""Frames of music from which to estimate statistics; 50 million would take half an hour."""


class DatasetWriter:
    """Writes a dataset into an empty folder piece by piece; a context manager."""

    def __init__(self, folder: Path, frame: FrameDefinition) -> None:
        self._folder = folder
        self.frame = frame
        self._shards: dict[str, tuple[BinaryIO, BinaryIO]] = {}
        self._counts = {split: {"pieces": 0, "frames": 0, "longest": 0} for split in SPLITS}

    def __enter__(self) -> Self:
        with ExitStack() as files:  # closes all if one fails
            for split in SPLITS:
                frames = files.enter_context((self._folder / f"{split}.npy").open("wb"))
                index = files.enter_context((self._folder / f"{split}.jsonl").open("wb"))
                self._shards[split] = frames, index
                self._write_header(frames, 0)
            self._files = files.pop_all()
        return self

    def add(
        self,
        split: str,
        source: str,
        blocks: Iterable[NDArray[Any]],
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> Piece:
        """Append a piece, given as its stored rows in blocks of whole frames; return its line."""
        (rows_file, index), counts = self._shards[split], self._counts[split]
        digest, written = hashlib.sha256(), 0
        for rows in blocks:
            digest.update(self.frame.canonical(rows))
            rows_file.write(rows.tobytes())
            written += len(rows)
        frames = written // self.frame.rows_per_frame
        piece = Piece(source, digest.hexdigest(), frames, facts)
        index.write(_json_bytes(piece.to_json()))
        counts["pieces"] += 1
        counts["frames"] += frames
        counts["longest"] = max(counts["longest"], frames)
        return piece

    def finish(self, frame: FrameDefinition, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest, which completes the dataset; `frame` now has train's statistics."""
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "media": frame.medium,
            "frame": frame.to_json(),
            "splits": self._counts,
            **facts,
        }
        write_manifest(self._folder, manifest)
        return manifest

    def __exit__(self, _: object, error: object, *__: object) -> None:
        with self._files:
            for split, (frames, _index) in self._shards.items() if error is None else ():
                frames.seek(0)
                self._write_header(frames, self._counts[split]["frames"])

    def _write_header(self, file: BinaryIO, frames: int) -> None:
        # NumPy pads the header so that the first dimension can grow: it can be rewritten in place.
        shape = (frames * self.frame.rows_per_frame, *self.frame.row_shape)
        descr = np.lib.format.dtype_to_descr(self.frame.row_dtype)
        header = {"shape": shape, "fortran_order": False, "descr": descr}
        np.lib.format.write_array_header_1_0(file, header)


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write or replace the manifest, which describes the dataset as a whole."""
    (folder / MANIFEST).write_bytes(_json_bytes(manifest, indent=2))


@dataclass(frozen=True)
class Split:
    """The pieces of one split; `split[i]` reads the frames (T, F) of piece i from disk.

    `split[0:3]` and `split[[0, 5]]` are splits of those pieces. Frames of music are uint8 zeros and
    ones, those of audio float32 samples in [-1, 1). LostError if a piece no longer matches its
    hash: each is checked when first read and after its shard has been written to.
    """

    name: str
    frame: FrameDefinition
    pieces: Sequence[Piece] = field(repr=False)
    _rows: Shard | NDArray[Any] = field(repr=False)
    _starts: NDArray[np.int64] = field(repr=False)
    """The first row of each piece."""
    _checked: set[int] = field(default_factory=set, repr=False)
    """Pieces found to match their hashes."""

    @classmethod
    def of(
        cls, name: str, frame: FrameDefinition, pieces: Sequence[Piece], rows: Shard | NDArray[Any]
    ) -> "Split":
        """The split of `pieces`, which `rows` holds one after another."""
        lengths = np.array([0, *(piece.frames for piece in pieces)], np.int64)
        return cls(name, frame, pieces, rows, np.cumsum(lengths)[:-1] * frame.rows_per_frame)

    @cached_property
    def sources(self) -> list[str]:
        return [piece.source for piece in self.pieces]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return np.array([piece.frames for piece in self.pieces], np.int64)

    def __len__(self) -> int:
        return len(self.pieces)

    @overload
    def __getitem__(self, index: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice | list[int]) -> Self: ...
    def __getitem__(self, index: int | slice | list[int]) -> "NDArray[Any] | Self":
        if not isinstance(index, slice | list):
            return self.frame.decode(self.read_rows(index))
        pieces = [self.pieces[k] for k in np.arange(len(self))[index].tolist()]
        return replace(self, pieces=pieces, _starts=self._starts[index], _checked=set())

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[i] for i in range(len(self)))

    def facts(self, index: int) -> Mapping[str, Any]:
        return self.pieces[index].facts

    def row_count(self, index: int) -> int:
        """The number of rows of a piece, T * rows_per_frame."""
        return self.pieces[index].frames * self.frame.rows_per_frame

    def read_rows(self, index: int, begin: int = 0, end: int | None = None) -> NDArray[Any]:
        """The rows `begin` to `end` of piece `index` as stored, (rows, *row_shape)."""
        start = int(self._starts[index])  # raises IndexError, which also ends a for loop
        if isinstance(self._rows, Shard):
            if self._rows.changed():
                self._checked.clear()
            if index not in self._checked:
                self.check(index)
        rows = self.row_count(index)
        stop = rows if end is None else min(end, rows)
        return self._rows[start + min(begin, rows) : start + stop]

    def check(self, index: int) -> None:
        """Check that piece `index` is as prepared; LostError if not. See `Piece.sha256`."""
        assert isinstance(self._rows, Shard)
        digest, start, rows = hashlib.sha256(), int(self._starts[index]), self.row_count(index)
        step = HASH_FRAMES * self.frame.rows_per_frame
        for row in range(start, start + rows, step):
            digest.update(self.frame.canonical(self._rows[row : min(row + step, start + rows)]))
        if digest.hexdigest() != self.pieces[index].sha256:
            how = f"{self.sources[index]} in {self.name} no longer matches its hash"
            raise LostError(damaged(self._rows.path.parent, how))
        self._checked.add(index)

    def metres(self, indices: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64] | None:
        """(B, G) the `FrameDefinition.metres` of pieces, if they have any; LostError if damaged."""
        metres = list[NDArray[np.int64]]()
        for piece in map(self.pieces.__getitem__, np.asarray(indices).tolist()):
            try:
                row = self.frame.metres(piece.facts)
            except ValueError as error:
                assert isinstance(self._rows, Shard)
                index = self._rows.path.with_suffix(".jsonl")
                raise LostError(damaged(index, f"{piece.source}: {error}")) from error
            if row is None:
                return None
            metres.append(row)
        return np.stack(metres)

    def labels(
        self, known: KnownLabels, indices: Sequence[int] | NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """(B, L) the labels of pieces (default: all), as `labels.label_ids` among the known."""
        chosen = range(len(self)) if indices is None else np.asarray(indices).tolist()
        ids = [label_ids(known, labels_of(self.facts(k))) for k in chosen]
        return np.array(ids, np.int64).reshape(len(ids), len(known))

    def evenly_spaced(self, count: int) -> Self:
        """The split of at most `count` of its pieces, evenly spaced."""
        count = min(len(self), count)
        return self[[k * len(self) // count for k in range(count)]]

    def subsample(self, frames: int = STATISTICS_FRAMES) -> Self:
        """All pieces; of music with more frames, evenly spaced pieces with at least this many."""
        if self.frames <= frames or self.frame.values != "binary":
            return self
        count = -(-len(self) * frames // self.frames)
        while (found := self.evenly_spaced(count)).frames < frames:  # most of these are short
            count *= 2
        return found

    def beginnings(self, pieces: int, frames: int) -> "Split":
        """In memory: beginnings of at most `pieces` evenly spaced pieces, about `frames` in all."""
        chosen = self.evenly_spaced(pieces)
        longest = -(-frames // len(chosen))
        parts = [
            replace(piece, sha256="", frames=min(piece.frames, longest)) for piece in chosen.pieces
        ]
        end = longest * self.frame.rows_per_frame
        rows = np.concatenate([chosen.read_rows(k, end=end) for k in range(len(chosen))])
        return Split.of(self.name, self.frame, parts, rows)

    @cached_property
    def frames(self) -> int:
        return int(self.lengths.sum())

    @cached_property
    def fingerprint(self) -> str | None:
        """A hash of all frames in order and of their definition; None if held in memory."""
        if not isinstance(self._rows, Shard):
            return None
        hashes = [piece.sha256 for piece in self.pieces]
        return hashlib.sha256(
            "".join([json.dumps(self.frame.to_json()), *hashes]).encode()
        ).hexdigest()

    def totals(self) -> NDArray[np.int64]:
        """(F,) the sum of each of a frame's binary values over all frames, piece by piece."""
        totals = np.zeros(self.frame.frame_size, np.int64)
        for frames in self:
            totals += frames.sum(axis=0, dtype=np.int64)
        return totals


class Dataset:
    """A prepared dataset, opened for reading; `dataset["valid"]` is a `Split`."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.frame = definition_from_json(manifest["media"], manifest["frame"])
        self._indexes: dict[str, list[Piece]] = {}

    @property
    def splits(self) -> list[str]:
        return [name for name, counts in self.manifest["splits"].items() if counts["pieces"]]

    def fingerprint(self) -> str:
        """A hash of all pieces' frames in order, wherever they were prepared from."""
        digest = hashlib.sha256(self.frame.fingerprint)
        for name in self.splits:
            digest.update(name.encode())
            for piece in self._pieces(name):
                digest.update(piece.sha256.encode())
        return digest.hexdigest()

    def facts_hash(self) -> str:
        """A hash of all pieces' metres and labels in order, which `fingerprint` leaves out."""
        digest = hashlib.sha256()
        for name in self.splits:
            split = self[name]
            for k in range(len(split)):
                metres = split.metres([k])
                digest.update(b"" if metres is None else metres.tobytes())
                if LABELS in (facts := split.facts(k)):
                    digest.update(json.dumps(facts[LABELS], sort_keys=True).encode())
        return digest.hexdigest()

    def check_trainable(self) -> None:
        """SeqmodelError unless it has pieces in train and valid that can be read."""
        for split in ("train", "valid"):
            if split not in self.splits:
                raise SeqmodelError(
                    f"{self.folder} has no pieces in {split}, which training needs: "
                    f"{medium_of(self.frame).split_advice(self.manifest)}; then prepare it again"
                )
            self[split]

    def check_content(self) -> None:
        """Check every piece against its hash, and its facts; SeqmodelError if any has changed."""
        for name in self.splits:
            split = self[name]
            for k in range(len(split)):
                split.check(k)
                split.metres([k])

    def __getitem__(self, name: str) -> Split:
        """Open a split; SeqmodelError if it does not exist or its files are damaged."""
        if name not in self.splits:
            available = ", ".join(self.splits) or "none"
            raise SeqmodelError(
                f"{self.folder} has no pieces in split {name!r} (available: {available})"
            )
        counts = self.manifest["splits"][name]
        pieces, shard = self._pieces(name), self.folder / f"{name}.npy"
        try:
            with disk_errors("read", shard):
                rows = Shard(shard)
        except ValueError as error:
            raise SeqmodelError(damaged(self.folder, f"{name} cannot be read")) from error
        frames = [piece.frames for piece in pieces]
        actual = {"pieces": len(pieces), "frames": sum(frames), "longest": max(frames, default=0)}
        if (
            counts != counts | actual
            or rows.shape != (sum(frames) * self.frame.rows_per_frame, *self.frame.row_shape)
            or rows.dtype != self.frame.row_dtype
        ):
            raise SeqmodelError(damaged(self.folder, f"{name} does not match its index"))
        return Split.of(name, self.frame, pieces, rows)

    def _pieces(self, name: str) -> list[Piece]:
        if name in self._indexes:
            return self._indexes[name]
        index = f"{name}.jsonl"
        pieces = []
        for number, line in enumerate(read_bytes(self.folder / index).splitlines(), 1):
            try:
                pieces.append(Piece.from_json(plain.parse(line)))
            except ValueError as error:
                how = f"{index}, line {number}: {error}"
                raise SeqmodelError(damaged(self.folder, how)) from error
        self._indexes[name] = pieces
        return pieces


def open_dataset(path: str | Path) -> Dataset:
    """Open the dataset in a folder; SeqmodelError if missing, damaged or of another version."""
    folder = Path(path)
    file = folder / MANIFEST
    if not file.is_file():
        missing = "a file" if folder.exists() else "no such folder"
        lacks = f"no {MANIFEST}" if folder.is_dir() else missing
        raise SeqmodelError(
            f"{folder} is not a prepared dataset ({lacks}); "
            "make one with `seqmodel prepare SOURCE --out DATA`"
        )
    try:
        values = plain.parse(read_bytes(file))
        manifest = Fields.of(values)
        form, version = manifest.text("format"), manifest.values.get("version")
        if (form, version) != (FORMAT, VERSION):
            raise SeqmodelError(
                f"{file} is {form} version {version!r:.20}; this seqmodel reads {FORMAT} version "
                f"{VERSION}: run `seqmodel prepare` again"
            )
        _check_manifest(manifest)
        return Dataset(folder, values)
    except (ValueError, SourceError) as error:
        raise SeqmodelError(damaged(file, str(error))) from error


def _check_manifest(manifest: Fields) -> None:
    """ValueError if a field that is read later is not as `DatasetWriter.finish` writes it."""
    manifest.text("media"), manifest.fields("frame")
    splits = manifest.fields("splits")
    for name in splits.values:
        if name not in SPLITS:  # a name is also part of a path
            raise ValueError(f"splits has {name!r}, not one of {', '.join(SPLITS)}")
        counts = splits.fields(name)
        pieces = counts.integer("pieces")
        counts.integer("frames", least=pieces), counts.integer("longest", least=min(pieces, 1))
    for skipped in manifest.objects("skipped"):
        skipped.text("source"), skipped.text("reason")


def _is_dataset(folder: Path) -> bool:
    try:
        return Fields.of(plain.parse(read_bytes(folder / MANIFEST))).text("format") == FORMAT
    except (SeqmodelError, ValueError):
        return False


DATASET_FOLDER = FolderFormat(
    "prepared dataset",
    _is_dataset,
    re.compile(rf"{re.escape(MANIFEST)}|({'|'.join(SPLITS)})\.(npy|jsonl)"),
)
"""The files that `prepare --force` may replace."""


def _json_bytes(values: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Readable JSON; bytes of a file name that are not UTF-8 are written as escapes."""
    text = json.dumps(values, indent=indent, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace")
