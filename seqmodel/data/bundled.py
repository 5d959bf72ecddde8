"""The bundled samples: where their files lie, and their datasets, prepared on first use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from seqmodel.data.dataset import MANIFEST
from seqmodel.data.prepare import prepare
from seqmodel.errors import SeqmodelError
from seqmodel.media.definitions import AudioSettings, PianoRollFrames
from seqmodel.media.music.grid import Grid

FRAMES = PianoRollFrames(Grid.of_beats(4))
"""Of the music."""

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
    raise SeqmodelError(
        f"this installation carries no sample_data beside {package}; name a dataset"
    )


def sample_dataset(runs: Path, sample: Sample = "music") -> Path:
    """A sample as a prepared dataset in the folder `runs`, made there on first use."""
    path = runs / PREPARED[sample]
    if not (path / MANIFEST).is_file():
        frame = AudioSettings() if sample == "speech" else FRAMES
        try:
            prepare([str(sample_sources(sample))], path, frame)
        except SeqmodelError:
            if not (path / MANIFEST).is_file():  # else another process was quicker
                raise
    return path
