"""The bundled samples: where their files are, and their datasets, prepared on first use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from seqmodel.data.dataset import MANIFEST
from seqmodel.data.prepare import prepare
from seqmodel.data.sources import find_sources
from seqmodel.errors import SeqmodelError
from seqmodel.locks import locked
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid

FRAMES = PianoRollFrames(Grid.of_beats(4))
"""The frames of the music, which commands use if no dataset is given."""

Sample = Literal["music", "speech"]
PREPARED: Mapping[Sample, str] = {"music": "sample-data", "speech": "sample-speech"}
"""The folder of each sample's dataset."""


def sample_sources(sample: Sample = "music") -> Path:
    """The folder of a sample's files: in the installed package, or in the repository.

    The music is MIDI, the speech mono at 8 kHz; both are split by folders.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "sample_data" / sample, package.parent / "sample_data" / sample):
        if folder.is_dir():
            return folder
    raise SeqmodelError(f"this installation has no sample_data next to {package}; name a dataset")


def sample_dataset(runs: Path, sample: Sample = "music") -> Path:
    """A sample as a prepared dataset in the folder `runs`, made there on first use."""
    path = runs / PREPARED[sample]
    if not (path / MANIFEST).is_file():
        with locked(path, wait=True):
            if not (path / MANIFEST).is_file():  # another process was faster
                files = find_sources([str(sample_sources(sample))])
                prepare(files, path, files.medium.settings({}))
    return path
