"""Sources to a prepared dataset, one piece at a time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqmodel.data.dataset import DATASET_FOLDER, DatasetWriter
from seqmodel.data.sources import Source, find_sources, of_one_medium
from seqmodel.data.splits import Tally
from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.files import new_folder
from seqmodel.media.definitions import Corpus, Progress, Settings


def prepare(
    names: Sequence[str],
    out: Path,
    settings: Settings,
    *,
    force: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the dataset `out` from the sources `names` and return its manifest.

    A file that cannot be used is skipped and explained in the manifest; with `strict` it is an
    error. `progress` is called with the number of files read and of all files.

    Raises:
        SeqmodelError: if no file can be used, the sources are not of the medium of `settings`, or
            the target cannot be written; then nothing is.
    """
    DATASET_FOLDER.check_target(out, force=force)
    medium, sources, strays = of_one_medium(find_sources(names))
    if medium is not settings.medium:
        raise SeqmodelError(f"{sources[0].path} is {medium.name}, not {settings.medium.name}")
    skipped = [
        {"source": str(stray.path), "reason": f"is not {medium.name}, as the others are"}
        for stray in strays
    ]
    if strict and skipped:
        raise SeqmodelError("{source}: {reason}".format(**skipped[0]))
    tally = Tally()
    with new_folder(out, DATASET_FOLDER, force=force) as folder:
        corpus = settings.corpus([source.path for source in sources], folder)
        with DatasetWriter(folder, corpus.frame) as writer:
            for k, source in enumerate(sources):
                try:
                    _add(source, corpus, writer, tally)
                except SourceError as error:
                    if strict or len(sources) == 1:
                        raise SeqmodelError(f"{source.path}: {error}") from error
                    skipped.append({"source": str(source.path), "reason": str(error)})
                if progress is not None:
                    progress(k + 1, len(sources))
            if not tally.by_piece:
                first = skipped[0]
                raise SeqmodelError(
                    f"none of the {len(sources)} files can be used; the first, {first['source']}: "
                    f"{first['reason']}"
                )
            facts = {**corpus.facts, **tally.to_json(), "skipped": skipped}
            return writer.finish(corpus.frame, facts)


def _add(source: Source, corpus: Corpus, writer: DatasetWriter, tally: Tally) -> None:
    """Write all works of a file; SourceError says why it cannot be used."""
    for work in corpus.works(source.path):
        folder = work.split or source.split
        split = tally.place(work, folder)
        for piece, blocks in work.pieces:
            tally.count(piece.source, piece.sha256, split, by_folder=folder is not None)
            writer.add(split, blocks, piece)
        tally.record_repairs(work.source, work.repairs)
        if split == "train":
            work.when_in_train()
