"""The bundled samples: their files, datasets prepared on first use, and runs trained on them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from seqmodel.data.dataset import MANIFEST, open_dataset
from seqmodel.data.prepare import prepare
from seqmodel.data.sources import find_sources
from seqmodel.errors import SeqmodelError
from seqmodel.files import locked
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.registry import medium_of

FRAMES = PianoRollFrames(Grid.of_beats(4))
"""The frames of the music without onsets."""
FRAMES_WITH_ONSETS = replace(FRAMES, onsets=True)
"""The frames that commands use if no dataset is given."""

Sample = Literal["music", "rolls", "speech"]
"""`rolls` is the music without onsets, as earlier versions prepared it for their runs."""
PREPARED: Mapping[Sample, str] = {
    "music": "sample-music", "rolls": "sample-data", "speech": "sample-speech",
}  # fmt: skip
"""The folder of each sample's dataset, named by runs on it."""
PRETRAINED: Mapping[str, Sample] = {"music": "music", "audio": "speech"}
"""The sample that each medium's bundled run was trained on."""


def sample_sources(sample: Sample = "music") -> Path:
    """The folder of a sample's files (MIDI, or speech at 8 kHz), split by folders."""
    return _bundled("music" if sample == "rolls" else sample, "a dataset")


def pretrained_run(medium: str) -> Path:
    """The bundled run of a medium, a zip; sample_data/README.md describes how it was made."""
    return _bundled(f"pretrained/{PRETRAINED[medium]}.zip", "a run")


def _bundled(path: str, instead: str) -> Path:
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "sample_data", package.parent / "sample_data"):
        if (folder / path).exists():
            return folder / path
    raise SeqmodelError(
        f"this installation has no sample_data/{path} in or next to {package}; name {instead}"
    )


def sample_dataset(runs: Path, sample: Sample = "music") -> Path:
    """A sample as a dataset in the folder `runs`, prepared on first use or if outdated."""
    path = runs / PREPARED[sample]
    if not _is_prepared(path):
        with locked(path, wait=True):
            if not _is_prepared(path):  # another process was faster
                files = find_sources([str(sample_sources(sample))])
                settings = files.medium.settings({"onsets": False} if sample == "rolls" else {})
                prepare(files, path, settings, force=path.exists())
    return path


def _is_prepared(path: Path) -> bool:
    if not (path / MANIFEST).is_file():
        return False
    dataset = open_dataset(path)
    return medium_of(dataset.frame).outdated(dataset.manifest) is None
