"""Preparing a dataset from sources, one piece at a time, each assigned to a split."""

import re
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from seqmodel.data.cache import CachedRead, open_cache
from seqmodel.data.dataset import (
    DATASET_FOLDER,
    Dataset,
    DatasetWriter,
    open_dataset,
    write_manifest,
)
from seqmodel.data.sources import SourceFile, Sources
from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.files import new_folder, renamed_in_errors
from seqmodel.media.definitions import (
    SPLITS,
    Corpus,
    FrameDefinition,
    Medium,
    Piece,
    Work,
)
from seqmodel.media.labels import LABELS, natsorted
from seqmodel.media.samples import Progress, no_progress
from seqmodel.system.machine import cores
from seqmodel.system.processes import start

# ---- splits --------------------------------------------------------------------------------------

HASH_RULE = "source content"
"""What is hashed to choose a split. Older manifests have no rule: they hashed the prepared frames,
so another grid could give another split."""

TIME_RULE = "time: the first 80% of each piece, then 10%, then 10%, with gaps of 1%"
"""The rule if works are cut by time."""

SplitBy = Literal["piece", "time"]
PlacedBy = Literal["folder", "content_hash", "time"]
"""What placed a piece in its split."""

MIN_WORKS_TO_MOVE = 10
"""With at least this many works, a split left empty by the hash gets one; fewer are cut by time."""


def hash_split(digest: str) -> str:
    """The split of a work that no folder places: 80, 10 and 10 percent, by its content."""
    share = _share(digest)
    return "train" if share < 0.8 else "valid" if share < 0.9 else "test"


def _share(digest: str) -> float:
    return int(digest[:8], 16) / 16**8


class Part(NamedTuple):
    """Frames of a work that go to one split."""

    split: str
    begin: int
    end: int


def parts_in_time(frames: int, context: int) -> list[Part]:
    """Cut a work of `frames` frames by time: the last tenth is test, the one before it valid.

    Between parts a hundredth, but at least the `context`, is left out; if too short, all is train.
    """
    gap = max(frames // 100, context)
    valid, test = frames * 8 // 10, frames * 9 // 10
    if test - valid <= gap:
        return [Part("train", 0, frames)]
    return [
        Part("train", 0, valid),
        Part("valid", valid + gap, test),
        Part("test", test + gap, frames),
    ]


@dataclass
class Placer:
    """Assigns each work to a split, counts its pieces and keeps a record of repairs."""

    by_time: bool = False
    """Whether works that no folder places are cut by time."""
    moves: Mapping[str, str] = field(default_factory=dict)
    """`Work.content_hash` -> a split other than the one its hash gives, so that none is empty."""
    hashed: dict[str, str] = field(default_factory=dict)
    """`Work.content_hash` -> the split its hash gives, for each work not placed otherwise."""

    by_work: dict[str, str] = field(default_factory=dict)
    """`Work.content_hash`, and `Work.frames_hash` -> the split that first had it."""
    by_piece: dict[str, str] = field(default_factory=dict)
    """A piece's hash -> the split that first had it."""
    placed: Counter[str] = field(default_factory=Counter)
    """How many pieces were placed by a folder, their content's hash or time."""
    labels: dict[str, set[str]] = field(default_factory=dict)
    """The values of each label in train."""
    moved: list[dict[str, str]] = field(default_factory=list)
    repeated: int = 0
    straddling: list[str] = field(default_factory=list)
    repaired: list[dict[str, Any]] = field(default_factory=list)

    def place(self, work: Work, folder: str | None) -> str:
        """The split of a work: its folder's, an equal work's, or by its hash."""
        split = folder or self.by_work.get(work.content_hash) or self.by_work.get(work.frames_hash)
        if split is None:
            split = self.hashed[work.content_hash] = hash_split(work.content_hash)
            if work.content_hash in self.moves:
                split = self.moves[work.content_hash]
                self.moved.append({"source": work.source, "to": split})
        self.by_work.setdefault(work.content_hash, split)
        self.by_work.setdefault(work.frames_hash, split)
        return split

    def leaves_split_empty(self) -> bool:
        """Whether all works were placed by their hash, and that leaves a split empty."""
        return not self.placed["folder"] and not set(SPLITS) <= set(self.hashed.values())

    def count(self, piece: Piece, split: str, by: PlacedBy) -> None:
        """Count a piece that went to `split`, because of its folder, its time or its content."""
        self.placed[by] += 1
        if piece.sha256 in self.by_piece:
            self.repeated += 1
            if self.by_piece[piece.sha256] != split:
                self.straddling.append(piece.source)
        self.by_piece.setdefault(piece.sha256, split)

    def to_json(self) -> dict[str, Any]:
        return {
            "split_by": {by: self.placed[by] for by in get_args(PlacedBy)[: 2 + self.by_time]},
            "split_rule": TIME_RULE if self.by_time else HASH_RULE,
            **({"moved": self.moved} if self.moved else {}),
            "repeated_pieces": self.repeated,
            "also_in_another_split": self.straddling,
            "repaired": self.repaired,
        }


def _moves(hashed: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield works to move, by content, each with the empty split that it goes to.

    Each comes from the split with the most works: the lowest hash for train, otherwise the highest.
    """
    works = {split: [c for c in hashed if hashed[c] == split] for split in SPLITS}
    for empty in SPLITS:
        largest = max(works.values(), key=len)
        if not works[empty] and len(largest) > 1:
            content = (min if empty == "train" else max)(largest, key=_share)
            largest.remove(content)
            works[empty].append(content)
            yield content, empty


# ---- files read in order: one after the other or, if there are many, by several processes --------

SECONDS_ALONE = 1.0
"""Seconds of reading before other processes help: about as long as they take to start."""
MIN_FILES = 64
"""Up to this many files are not worth it."""

Read = Callable[[Path], Any]


def read_all(read: Read, paths: Sequence[Path], processes: int) -> Generator[Any, None, None]:
    """What `read` returns for each path, or its SourceError, in order; both must be picklable."""
    spent = 0.0
    for k, path in enumerate(paths):
        if processes > 1 and len(paths) - k > MIN_FILES and spent > SECONDS_ALONE:
            yield from _read_parallel(read, paths[k:], processes)
            return
        began = time.monotonic()
        outcome = _outcome(read, path)
        spent += time.monotonic() - began
        yield outcome


def _read_parallel(read: Read, paths: Sequence[Path], processes: int) -> Generator[Any, None, None]:
    """Each process reads every n-th path, running ahead until its pipe is full."""
    members = list[tuple[Any, Any]]()
    try:
        for k, path in enumerate(paths):
            try:
                for other in () if members else range(processes):
                    members.append(start(_read_and_send, read, paths[other::processes]))
                outcome = members[k % processes][1].recv()
            except (EOFError, OSError) as error:  # even in the middle of what it sends
                raise SeqmodelError(f"the process that read {path} was killed") from error
            if isinstance(outcome, Exception) and not isinstance(outcome, SourceError):
                raise outcome
            yield outcome
    finally:
        for _, pipe in members:
            pipe.close()
        for process, _ in members:
            process.join()


def _read_and_send(read: Read, paths: Sequence[Path], pipe: Any) -> None:
    with suppress(BrokenPipeError):  # nobody reads them any longer
        for path in paths:
            try:
                outcome = _outcome(read, path)
            except Exception as error:  # raised by the receiver
                outcome = error
            pipe.send(outcome)


def _outcome(read: Read, path: Path) -> Any:
    try:
        return read(path)
    except SourceError as error:
        return error


# ---- prepare -------------------------------------------------------------------------------------


def prepare(
    sources: Sources,
    out: Path,
    settings: Any,
    *,
    force: bool = False,
    strict: bool = False,
    split_by: SplitBy | None = None,
    only: str | None = None,
    cache: Path | None = None,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Write the dataset `out` from `sources`, as `settings` of their medium say; its manifest.

    A file that cannot be used is skipped, with the reason listed there; with `strict` it is an
    error. A work that no folder places is placed by the hash of its content; if that leaves a split
    empty, everything is read again and works are moved to it or, if there are few, cut by time.
    `split_by` forces whole pieces or cuts; `only` is one split for all, for a run with `settings`.
    What is read of files is taken from, and kept in, the folder `cache`; see `data.cache`.

    SeqmodelError if no file can be used or the target cannot be written; nothing is written then.
    """
    medium, files = sources.medium, sources.files
    left_out = [one._asdict() for one in sources.skipped]
    if strict and left_out:
        raise SeqmodelError("{source}: {reason}".format(**left_out[0]))
    DATASET_FOLDER.check_target(out, force=force)
    if cache:
        if out.resolve() in (cache.resolve(), *cache.resolve().parents):
            raise SeqmodelError(
                f"--cache {cache} is or lies in the dataset {out}; choose another path"
            )
        open_cache(cache)
    with new_folder(out, DATASET_FOLDER, force=force) as folder:

        def write(placer: Placer) -> dict[str, Any]:
            skipped: list[dict[str, str]] = []
            paths = [source.path for source in files]
            corpus = medium.corpus(settings, paths, folder)
            read_file = CachedRead(cache, corpus) if cache and corpus.read_by else corpus.read
            outcomes = read_all(read_file, paths, cores())
            with DatasetWriter(folder, corpus.frame) as writer, closing(outcomes):
                for k, (source, read) in enumerate(zip(files, outcomes, strict=True)):
                    try:
                        _add(source, read, corpus, writer, placer, only)
                    except SourceError as error:
                        reason = error.for_run if only else str(error)
                        if strict or len(files) == 1:
                            raise SeqmodelError(f"{source.path}: {reason}") from error
                        skipped.append({"source": source.path.as_posix(), "reason": reason})
                    progress(k + 1, len(files))
                if not placer.by_piece:
                    kinds = [re.sub(r"\d", "", one["reason"]) for one in skipped]
                    usual = kinds.index(Counter(kinds).most_common(1)[0][0])
                    raise SeqmodelError(
                        f"none of the {len(files)} files can be used; for example, "
                        "{source}: {reason}".format(**skipped[usual])
                    )
                facts = {**corpus.facts, **placer.to_json(), "skipped": skipped + left_out}
                known = {name: natsorted(values) for name, values in placer.labels.items()}
                frame: Any = corpus.frame
                return writer.finish(replace(frame, known_labels=known) if known else frame, facts)

        placer = Placer(by_time=split_by == "time")
        manifest = write(placer)
        if not placer.by_time and placer.leaves_split_empty():
            few = split_by is None and len(placer.hashed) < MIN_WORKS_TO_MOVE
            second = Placer(by_time=True) if few else Placer(moves=dict(_moves(placer.hashed)))
            manifest = write(second)
        if copies := _copies(medium, folder, manifest):
            manifest["copies"] = copies
            write_manifest(folder, manifest)
        return manifest


@contextmanager
def prepared_like(
    frame: FrameDefinition, sources: Sources, progress: Progress
) -> Iterator[Dataset]:
    """Yield a temporary dataset of files of the frames' medium, in such frames, as one split."""
    settings = sources.medium.settings_like(frame)
    with TemporaryDirectory(prefix="seqmodel-") as folder:
        out = Path(folder) / "data"
        with renamed_in_errors(out, Path(folder).parent):
            prepare(sources, out, settings, only="test", progress=progress)
        yield open_dataset(out)


def _copies(medium: Medium, folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """What train shares with enough of each other split; closes the files that it opens."""
    dataset = Dataset(folder, manifest)
    others = [name for name in dataset.splits if name != "train"]
    if len(others) == len(dataset.splits):
        return {}
    return medium.copies({name: dataset[name].subsample() for name in others}, dataset["train"])


def _add(
    source: SourceFile, read: Any, corpus: Corpus, writer: DatasetWriter, placer: Placer,
    only: str | None,
) -> None:  # fmt: skip
    """Write what was `read` from a file; SourceError if it cannot be used."""
    if isinstance(read, SourceError):
        raise read
    for work in corpus.works(source.path, read):
        frame, folder = writer.frame, only or work.split or source.split
        whole = folder is not None or not placer.by_time
        if whole:
            parts = [Part(placer.place(work, folder), 0, work.frames)]
        else:
            parts = parts_in_time(work.frames, -(-frame.context // frame.frame_size))
        start = 0  # of the piece, in the work
        for name, frames in work.pieces:
            for part in parts:
                begin, end = max(part.begin, start), min(part.end, start + frames)
                if begin >= end:
                    continue
                excerpt = "" if whole else f"#frames/{begin - start}-{end - start}"
                rows = _rows(work, Part(part.split, begin, end), frame, cut=begin > start)
                facts = frame.facts_from(work.facts, begin - start, end - start)
                if source.labels:
                    facts = {**facts, LABELS: source.labels}
                for label, value in source.labels.items() if part.split == "train" else ():
                    placer.labels.setdefault(label, set()).add(value)
                piece = writer.add(part.split, name + excerpt, rows, facts)
                placer.count(
                    piece, part.split, "folder" if folder else "content_hash" if whole else "time"
                )
            start += frames
        if work.repairs:
            placer.repaired.append({"source": work.source, "repairs": list(work.repairs)})


def _rows(work: Work, part: Part, frame: FrameDefinition, *, cut: bool) -> Iterator[NDArray[Any]]:
    """The stored rows of a part of a piece, in blocks; `cut` if it begins within the piece."""
    size = frame.rows_per_frame
    for k, rows in enumerate(work.rows(part.begin, part.end)):
        first = cut and k == 0
        stored = np.concatenate([frame.cut(rows[:size]), rows[size:]]) if first else rows
        if part.split == "train":
            work.on_train_rows(stored)
        yield stored
