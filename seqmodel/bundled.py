"""The bundled sample: where its MIDI files lie, and its dataset, prepared on first use."""

from pathlib import Path

from seqmodel.dataset import MANIFEST
from seqmodel.errors import SeqmodelError
from seqmodel.frames.definitions import PianoRollFrames
from seqmodel.frames.grid import Grid
from seqmodel.prepare import prepare

STEPS_PER_BEAT = 4
PREPARED = "sample-data"


def sample_music() -> Path:
    """The folder of the sample's MIDI files: in the installed package, or in the repository."""
    package = Path(__file__).resolve().parent
    for folder in (package / "sample_data" / "music", package.parent / "sample_data" / "music"):
        if folder.is_dir():
            return folder
    raise SeqmodelError(
        f"this installation carries no sample_data beside {package}; name a dataset"
    )


def sample_dataset(runs: Path) -> Path:
    """The sample as a prepared dataset in the folder `runs`, made there on first use."""
    path = runs / PREPARED
    if not (path / MANIFEST).is_file():
        try:
            prepare([str(sample_music())], path, PianoRollFrames(Grid.of_beats(STEPS_PER_BEAT)))
        except SeqmodelError:
            if not (path / MANIFEST).is_file():  # else another process was quicker
                raise
    return path
