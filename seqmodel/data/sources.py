"""The media files that the names on the command line refer to."""

import glob
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from seqmodel.errors import SeqmodelError
from seqmodel.media.definitions import Medium
from seqmodel.media.registry import MEDIA, medium_of_file

SPLIT_FOLDERS = {"train": "train", "valid": "valid", "validation": "valid", "test": "test"}


@dataclass(frozen=True)
class SourceFile:
    """A file to read, and the split that its folder names."""

    path: Path
    split: str | None

    @property
    def medium(self) -> Medium:
        """The medium that its name indicates."""
        return medium_of_file(self.path)


@dataclass(frozen=True)
class Sources:
    """What a dataset is made of."""

    medium: Medium
    files: list[SourceFile]
    strays: list[SourceFile]
    """Files such as a labels.npy among recordings, left out: they have a suffix of another medium,
    but an ambiguous one (`Medium.loose_suffixes`), and are in the minority."""


def find_sources(names: Iterable[str]) -> Sources:
    """The media files named by files, folders (searched recursively) and globs.

    Each file is listed once, those of a folder sorted by name. Files that are named themselves, not
    found in a folder, are placed by their folders only if these name more than one split: that of
    `train/a.wav` alone says nothing.

    Raises:
        SeqmodelError: if a name matches nothing, or the files are of more than one medium.
    """
    named: dict[Path, SourceFile] = {}
    found: dict[Path, SourceFile] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            sources = [SourceFile(file, _folder_split(file, path)) for file in _media_in(path)]
        else:
            files = [path] if path.exists() else _matches(name)
            sources = [SourceFile(file, _folder_split(file, file.parent)) for file in files]
            named = {source.path: source for source in sources} | named
        if not sources:
            kinds = ", ".join(medium.file_kinds for medium in MEDIA.values())
            raise SeqmodelError(f"{name}: contains no file that can be read ({kinds})")
        for source in sources:
            found.setdefault(source.path, source)
    if len({source.split for source in found.values()} - {None}) == 1:
        found |= {path: SourceFile(path, None) for path in named if found[path] is named[path]}
    return _of_one_medium(list(found.values()))


def _matches(pattern: str) -> list[Path]:
    matches = sorted(glob.glob(pattern, recursive=True))
    if not matches:
        raise SeqmodelError(f"{pattern}: no such file or folder")
    return [Path(match) for match in matches if not Path(match).is_dir()]


def _of_one_medium(sources: list[SourceFile]) -> Sources:
    sure = [one for one in sources if one.path.suffix.lower() not in one.medium.loose_suffixes]
    media = {source.medium.name: source.medium for source in sure}
    if len(media) == 1:
        (medium,) = media.values()
        strays = [source for source in sources if source.medium is not medium]
        if len(strays) < len(sure):
            return Sources(medium, [one for one in sources if one.medium is medium], strays)
    first = sources[0]
    for source in sources:
        if source.medium is not first.medium:
            a, b = sorted((first, source), key=lambda one: one.medium.name)
            raise SeqmodelError(
                f"a dataset holds either {a.medium.name} or {b.medium.name}, not both: {a.path} is "
                f"{a.medium.name}, {b.path} is {b.medium.name}; prepare them separately"
            )
    return Sources(first.medium, sources, [])


def _media_in(folder: Path) -> list[Path]:
    suffixes = frozenset().union(*(medium.suffixes for medium in MEDIA.values()))
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in suffixes)


def _folder_split(file: Path, top: Path) -> str | None:
    """The split named by the nearest folder above `file`, no higher than `top`."""
    for folder in file.parents:
        if folder.name.lower() in SPLIT_FOLDERS:
            return SPLIT_FOLDERS[folder.name.lower()]
        if folder == top:
            return None
    return None
