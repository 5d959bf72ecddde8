"""Media files scored at once: prepared as a run's data were, all pieces as one split."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from seqmodel.data.dataset import Dataset, open_dataset
from seqmodel.data.prepare import prepare
from seqmodel.data.sources import find_sources
from seqmodel.errors import SeqmodelError
from seqmodel.files import called
from seqmodel.media.definitions import Progress
from seqmodel.runs.folder import Run

ONLY = "test"
"""The split that holds all pieces."""


@contextmanager
def prepared_like(run: Run, path: Path, progress: Progress) -> Iterator[Dataset]:
    """Yield a dataset of the media files at `path`, in the run's frames; it is removed afterwards.

    SeqmodelError if no file can be used, or they are of another medium than the run's.
    """
    sources = find_sources([str(path)])
    if sources.medium.name != run.frame.medium:
        raise SeqmodelError(
            f"{path} is {sources.medium.name}, but {run.folder} was trained on "
            f"{run.frame.medium}: name another run or other files"
        )
    settings = sources.medium.settings_like(run.frame)
    with TemporaryDirectory(prefix="seqmodel-") as folder:
        out = Path(folder) / "data"
        with called(out, Path(folder).parent):
            prepare(sources, out, settings, only=ONLY, progress=progress)
        yield open_dataset(out)
