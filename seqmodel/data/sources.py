"""The media files that the names on the command line stand for."""

import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqmodel.errors import SeqmodelError
from seqmodel.media.audio import reader as audio
from seqmodel.media.definitions import Media

MIDI_SUFFIXES = {".mid", ".midi", ".kar", ".rmi"}
ROLL_SUFFIXES = {".mat", ".pickle", ".pkl", ".npz", ".npy"}
SUFFIXES = MIDI_SUFFIXES | ROLL_SUFFIXES | audio.SUFFIXES
SPLIT_FOLDERS = {"train": "train", "valid": "valid", "validation": "valid", "test": "test"}


@dataclass(frozen=True)
class Source:
    """A file to read, and the split that its folder names."""

    path: Path
    split: str | None

    @property
    def media(self) -> Media:
        """What its name says it holds; a name that says nothing stands for MIDI."""
        return "audio" if self.path.suffix.lower() in audio.SUFFIXES else "music"


def find_sources(names: Iterable[str]) -> list[Source]:
    """The media files that files, folders (searched through and through) and globs stand for.

    Each file comes once, a folder's in the order of their names. SeqmodelError where a name stands
    for nothing.
    """
    found: dict[Path, Source] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            sources = [Source(file, _folder_split(file, path)) for file in _media_in(path)]
        elif path.exists():
            sources = [Source(path, _folder_split(path, path.parent))]
        else:
            matches = sorted(glob.glob(name, recursive=True))
            if not matches:
                raise SeqmodelError(f"{name}: no such file or folder")
            files = [Path(match) for match in matches if not Path(match).is_dir()]
            sources = [Source(file, _folder_split(file, file.parent)) for file in files]
        if not sources:
            kinds = " ".join(sorted(MIDI_SUFFIXES | ROLL_SUFFIXES))
            raise SeqmodelError(
                f"{name}: no file that could be read in it ({kinds}; audio such as .wav .flac .mp3)"
            )
        for source in sources:
            found.setdefault(source.path, source)
    return list(found.values())


def the_media(sources: Sequence[Source]) -> Media:
    """What all `sources` hold; SeqmodelError, naming one file of each, where they differ."""
    first = sources[0]
    for source in sources:
        if source.media != first.media:
            pair = sorted((first, source), key=lambda one: one.media)
            raise SeqmodelError(
                f"a dataset is of audio or of music, not both: {pair[0].path} is audio, "
                f"{pair[1].path} is music; prepare them apart"
            )
    return first.media


def _media_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)


def _folder_split(file: Path, top: Path) -> str | None:
    """The split named by the nearest folder above `file`, `top` being the last looked at."""
    for folder in file.parents:
        if folder.name.lower() in SPLIT_FOLDERS:
            return SPLIT_FOLDERS[folder.name.lower()]
        if folder == top:
            return None
    return None
