"""Preparing a dataset from sources, one piece at a time."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from seqmodel.data.dataset import DATASET_FOLDER, DatasetWriter
from seqmodel.data.sources import SourceFile, Sources
from seqmodel.data.splits import Part, SplitBy, Tally, parts_in_time
from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.files import new_folder
from seqmodel.media.definitions import Corpus, FrameDefinition, Piece, Progress, Settings, Work


def prepare(
    sources: Sources,
    out: Path,
    settings: Settings,
    *,
    force: bool = False,
    strict: bool = False,
    split_by: SplitBy | None = None,
    only: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the dataset `out` from `sources` and return its manifest.

    A file that cannot be used is skipped and explained in the manifest; with `strict` it is an
    error. If no folder decides a work's split, the hash of its content does; if that leaves a
    split empty, everything is read again and works are moved to it or, if there are few, cut by
    time. `split_by` forces whole pieces or cuts; all go to the split `only`, if given, to be read
    by a run, whose settings these are. `progress` is called with the number of files read and the
    number of files in total.

    Raises:
        SeqmodelError: if no file can be used, the sources are not of the medium of `settings`, or
            the target cannot be written; nothing is written then.
    """
    DATASET_FOLDER.check_target(out, force=force)
    medium, files = sources.medium, sources.files
    if medium.name != settings.medium:
        raise SeqmodelError(f"{files[0].path} is {medium.name}, not {settings.medium}")
    left_out = [one._asdict() for one in sources.skipped]
    if strict and left_out:
        raise SeqmodelError("{source}: {reason}".format(**left_out[0]))
    with new_folder(out, DATASET_FOLDER, force=force) as folder:

        def write(tally: Tally) -> dict[str, Any]:
            skipped: list[dict[str, str]] = []
            corpus = medium.corpus(settings, [source.path for source in files], folder)
            with DatasetWriter(folder, corpus.frame) as writer:
                for k, source in enumerate(files):
                    try:
                        _add(source, corpus, writer, tally, only)
                    except SourceError as error:
                        reason = error.for_run if only else str(error)
                        if strict or len(files) == 1:
                            raise SeqmodelError(f"{source.path}: {reason}") from error
                        skipped.append({"source": str(source.path), "reason": reason})
                    if progress is not None:
                        progress(k + 1, len(files))
                if not tally.by_piece:
                    raise SeqmodelError(
                        f"none of the {len(files)} files can be used; the first, "
                        "{source}: {reason}".format(**skipped[0])
                    )
                facts = {**corpus.facts, **tally.to_json(), "skipped": skipped + left_out}
                return writer.finish(corpus.frame, facts)

        tally = Tally(by_time=split_by == "time")
        manifest = write(tally)
        if not tally.by_time and tally.lacking():
            manifest = write(tally.mended(split_by))
        return manifest


def _add(
    source: SourceFile, corpus: Corpus, writer: DatasetWriter, tally: Tally, only: str | None
) -> None:
    """Write all works of a file; SourceError says why it cannot be used."""
    for work in corpus.works(source.path):
        folder = only or work.split or source.split
        if tally.by_time and folder is None:
            _cut(work, corpus.frame, writer, tally)
        else:
            split = tally.place(work, folder)
            for piece, blocks in work.pieces:
                tally.count(
                    piece.source, piece.sha256, split, "folder" if folder else "content_hash"
                )
                writer.add(split, blocks, piece)
            if split == "train":
                work.when_in_train()
        if work.repairs:
            tally.repaired.append({"source": work.source, "repairs": list(work.repairs)})


def _cut(work: Work, frame: FrameDefinition, writer: DatasetWriter, tally: Tally) -> None:
    """Write a work's parts, each to its own split; its pieces stay separate."""
    size = frame.rows_per_frame
    parts = parts_in_time(work.frames, -(-frame.context // frame.frame_size))
    start = 0  # of the piece, in the work
    for piece, blocks in work.pieces:
        digests: dict[Part, Any] = {}
        row = start * size  # of the block, in the work
        for rows in blocks:
            for part in parts:
                begin, end = max(part.begin * size, row), min(part.end * size, row + len(rows))
                if begin >= end:
                    continue
                taken = rows[begin - row : end - row]
                if part not in digests:
                    digests[part] = hashlib.sha256()
                    if begin > start * size:
                        taken = np.concatenate([frame.cut(taken[:size]), taken[size:]])
                digests[part].update(frame.canonical(taken))
                writer.add_rows(part.split, taken)
                if part.split == "train":
                    work.when_rows_in_train(taken)
            row += len(rows)
        for part, digest in digests.items():
            begin, end = max(part.begin - start, 0), min(part.end - start, piece.frames)
            source, sha256 = f"{piece.source}#frames/{begin}-{end}", digest.hexdigest()
            tally.count(source, sha256, part.split, "time")
            writer.add_line(part.split, Piece(source, sha256, end - begin, piece.facts))
        start += piece.frames
