"""The media files that the names on the command line refer to."""

import csv
import errno
import glob
import io
import os
import re
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from seqmodel.data.dataset import DATASET_FOLDER
from seqmodel.errors import SeqmodelError, UsageError, reason
from seqmodel.files import SYSTEM_FILES, read_bytes
from seqmodel.media.definitions import SPLIT_NAMES, Medium
from seqmodel.media.input import CONVERTERS, rejection
from seqmodel.media.labels import Labels
from seqmodel.media.registry import MEDIA, medium_of_file
from seqmodel.media.words import plural

SPLIT_FOLDERS = {**SPLIT_NAMES, "eval": "valid"}
"""Folder names in lower case -> the split of the files in them. If another folder is valid and none
is test, as with train, dev and eval, the files in eval are test."""
MAX_VALUES = 1000
"""The most values a label may have."""


@dataclass(frozen=True)
class SourceFile:
    """A file to read, and the split that its folder names."""

    path: Path
    split: str | None
    labels: Labels = field(default_factory=dict, compare=False)

    @property
    def medium(self) -> Medium:
        """The medium indicated by its name."""
        return medium_of_file(self.path)


class Skipped(NamedTuple):
    """A file or folder that is not read, and why."""

    source: str
    reason: str


@dataclass(frozen=True)
class Sources:
    """The files that a dataset is made of."""

    medium: Medium
    files: list[SourceFile]
    skipped: list[Skipped]
    """Folders that cannot be entered, files that must be converted first, and strays such as a
    labels.npy among recordings: a minority of files with a suffix of another medium that is
    ambiguous (`Medium.loose_suffixes`)."""


def find_sources(names: Iterable[str]) -> Sources:
    """The media files named by files, folders (searched recursively, following links) and globs.

    Each is listed once for each split that names or links put it in, those of a folder by name.
    Files named individually are placed by their folders only if these name more than one split:
    `train/a.wav` alone says nothing. SeqmodelError if a name matches nothing, or media are mixed.
    """
    found: dict[Path, str | None] = {}
    named_files: set[Path] = set()
    skipped: list[Skipped] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            paths = _media_in(path, skipped)
        else:
            matches = [path]
            if not path.exists():
                matches = [Path(match) for match in sorted(glob.glob(name, recursive=True))]
            if not matches:
                raise SeqmodelError(f"{name}: no such file or folder")
            matches = [match for match in matches if not match.is_dir()]
            paths = {match: _split_folder(match.parent) for match in matches}
            named_files.update(match for match in matches if match not in found)
        if not paths:
            kinds = ", ".join(medium.file_kinds for medium in MEDIA.values())
            why = "".join(f"; {one.source}: {one.reason}" for one in skipped[-1:])
            raise SeqmodelError(f"{name}: contains no file that can be read ({kinds}){why}")
        for file, folder in paths.items():
            found.setdefault(file, folder)
    folders = set(found.values()) - {None, "eval"}
    splits: dict[str | None, str] = dict(SPLIT_FOLDERS.items())
    if {splits[folder] for folder in folders} - {"train"} == {"valid"}:
        splits["eval"] = "test"
    placed = {path: splits.get(folder) for path, folder in found.items()}
    if len(set(placed.values()) - {None}) == 1:
        placed |= dict.fromkeys(named_files)
    return _single_medium(_deduplicated([SourceFile(*each) for each in placed.items()]), skipped)


def _deduplicated(sources: Collection[SourceFile]) -> list[SourceFile]:
    """Each file under its first name, in each split that folders put it in."""
    by_file: dict[str, dict[str | None, SourceFile]] = {}
    for source in sorted(sources, key=lambda source: source.split is None):
        same = by_file.setdefault(os.path.realpath(source.path), {})
        if source.split or not same:
            same.setdefault(source.split, source)
    chosen = {source.path for same in by_file.values() for source in same.values()}
    return [source for source in sources if source.path in chosen]


def _single_medium(found: Collection[SourceFile], skipped: list[Skipped]) -> Sources:
    sources = [source for source in found if rejection(source.path) is None]
    converted = {source.path.with_suffix("") for source in sources}
    unread = [s for s in found if rejection(s.path) and s.path.with_suffix("") not in converted]
    if not sources:
        more = f", the first of {len(unread):,} such files" if len(unread) > 1 else ""
        raise SeqmodelError(f"{unread[0].path}{more}: {rejection(unread[0].path)}")
    certain = [one for one in sources if one.path.suffix.lower() not in one.medium.loose_suffixes]
    medium = (certain or sources)[0].medium
    files = [one for one in sources if one.medium is medium]
    others = [one for one in sources if one.medium is not medium]
    if others and (len(others) >= len(certain) or set(others) & set(certain)):
        a, b = sorted((files[0], others[0]), key=lambda one: one.medium.name)
        raise SeqmodelError(
            f"a dataset holds either {a.medium.name} or {b.medium.name}, not both: {a.path} is "
            f"{a.medium.name}, {b.path} is {b.medium.name}; prepare them separately"
        )
    why = f"is not {medium.name}, unlike the other files"
    strays = [Skipped(one.path.as_posix(), why) for one in others]
    for one in unread:  # files that convert to another medium would be strays too
        ours = CONVERTERS[one.path.suffix.lower()][1] in medium.suffixes
        strays.append(Skipped(one.path.as_posix(), (rejection(one.path) if ours else None) or why))
    return Sources(medium, files, [*strays, *skipped])


def _media_in(top: Path, skipped: list[Skipped]) -> dict[Path, str | None]:
    """The media files in a folder and below, sorted -> the nearest folder that names a split.

    Links are followed, except back up. Datasets, and what cannot be entered, are `skipped`.
    """
    suffixes = CONVERTERS.keys() | frozenset().union(
        *(medium.suffixes - medium.named_suffixes for medium in MEDIA.values())
    )
    found: dict[Path, str | None] = {}
    entered: set[tuple[str | None, tuple[int, int]]] = set()
    outside = frozenset((s.st_dev, s.st_ino) for s in map(os.stat, top.resolve().parents))
    pending: list[tuple[Path, str | None, frozenset[tuple[int, int]]]] = [(top, None, outside)]
    while pending:
        path, split, ancestors = pending.pop()
        if path.suffix.lower() in suffixes and not SYSTEM_FILES.fullmatch(path.name):
            found[path] = split
        try:
            status = path.stat()
            if not stat.S_ISDIR(status.st_mode):
                continue
            inode, split = (status.st_dev, status.st_ino), _split_folder(path, split)
            if inode in ancestors:
                raise OSError(errno.ELOOP, "is a link to a folder that it is in")
            if DATASET_FOLDER.is_marked(path):
                raise OSError(errno.EINVAL, "is a prepared dataset")
            children = [] if (split, inode) in entered else sorted(path.iterdir(), reverse=True)
        except OSError as error:
            if path not in found:  # otherwise it is reported when it is read
                skipped.append(Skipped(path.as_posix(), reason(error)))
            continue
        entered.add((split, inode))
        pending += [(child, split, ancestors | {inode}) for child in children]
    return dict(sorted(found.items()))


def _split_folder(folder: Path, outer: str | None = None) -> str | None:
    """A folder's name in lower case if it names a split, otherwise that of one around it."""
    name = folder.name.lower()
    return name if name in SPLIT_FOLDERS else outer


# ---- labels --------------------------------------------------------------------------------------


def with_labels(files: Iterable[SourceFile], spec: str) -> list[SourceFile]:
    """The files with the labels that `spec`, the option --labels, gives each.

    It is "folder", a CSV file, or a pattern of names without suffix such as "{digit}_{speaker}_*",
    with "/" also of the folders before them. UsageError if it fits no file, or a label has only one
    value or too many; SeqmodelError for a CSV file that cannot be used.
    """
    files = list(files)
    if spec == "folder":
        named = {file.path: _folder_label(file.path) for file in files}
    elif spec.lower().endswith(".csv"):
        named = _csv_labels(Path(spec), [file.path for file in files])
    else:
        pattern, parts = _compiled(spec), spec.count("/") + 1
        ends = {f.path: "/".join(_absolute(f.path.with_suffix("")).parts[-parts:]) for f in files}
        found = {path: pattern.fullmatch(end) for path, end in ends.items()}
        named = {path: match.groupdict() for path, match in found.items() if match}
    if not any(named.values()):
        raise UsageError(f"--labels {spec} matches none of {plural(len(files), 'file')}")
    names = dict.fromkeys(name for labels in named.values() for name in labels)
    for name in names:
        values = {labels[name] for labels in named.values() if name in labels}
        if len(values) == 1:
            only = f"no file has a {name} other than {values.pop()}"
            raise UsageError(f"--labels {spec}: {only}; a label needs two values")
        if len(values) > MAX_VALUES:
            raise UsageError(
                f"--labels {spec}: {name} has {len(values):,} values, above {MAX_VALUES:,}: a gru "
                f"of 128 would have {3 * 128 * len(values):,} parameters for them; leave it out"
            )
    return [replace(file, labels=named.get(file.path, {})) for file in files]


def _absolute(path: Path) -> Path:
    """The path without "..", which is not a folder's name; links keep their names."""
    return Path(os.path.normpath(path.absolute()))


def _folder_label(path: Path) -> dict[str, str]:
    """The name of the nearest folder that does not name a split."""
    names = (parent.name for parent in _absolute(path).parents)
    folder = next((name for name in names if name.lower() not in SPLIT_FOLDERS), "")
    return {"folder": folder} if folder else {}


def _compiled(pattern: str) -> re.Pattern[str]:
    """{name} matches a label's value and * anything, both within one name of the path."""
    parts = re.split(r"(\*|\{.*?\})", pattern)
    names = re.findall(r"\{(.*?)\}", pattern)
    if not names:
        raise UsageError(
            f"--labels {pattern}: give a pattern of names such as '{{digit}}_{{speaker}}_*', "
            "folder, or a .csv file"
        )
    for name in names:
        if not name.isidentifier() or names.count(name) > 1:
            why = "appears twice" if name.isidentifier() else "is not a name: use letters"
            raise UsageError(f"--labels {pattern}: {{{name}}} {why}")
    of_part = {"*": "[^/]*", **{f"{{{name}}}": f"(?P<{name}>[^/]+?)" for name in names}}
    return re.compile("".join(of_part.get(part, re.escape(part)) for part in parts))


def _csv_labels(file: Path, paths: Collection[Path]) -> dict[Path, dict[str, str]]:
    """The labels of the files that rows name, from the CSV file's folder or the working one."""
    try:
        text = io.StringIO(read_bytes(file).decode("utf-8-sig"), newline="").readlines()
        # Spreadsheets write semicolons where 1,5 is a number.
        separator = "," if "," in next(filter(str.strip, text), "") else ";"
        cells_of = csv.reader(text, delimiter=separator, skipinitialspace=True)
        header, *rows = [row for row in cells_of if any(row)] or [[]]
    except (ValueError, csv.Error) as error:
        raise SeqmodelError(f"{file} is not a CSV file in UTF-8: {error}") from error
    names = [name for name in header if name != "path"]
    if not names or len({*header}) != len(names) + 1 or not all(map(str.isidentifier, names)):
        raise SeqmodelError(
            f"{file}: its first line must be path and names of labels, such as path,digit,speaker, "
            f"not {','.join(header)!r:.60}"
        )
    by_path = {path.resolve(): path for path in paths}
    found, unknown = dict[Path, dict[str, str]](), list[str]()
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        name = cells.pop("path", "")
        if len(row) > len(header):
            raise SeqmodelError(
                f"{file}: the row of {name} has {plural(len(row), 'cell')}, but the first line "
                f"{len(header)}: quote what holds separators"
            )
        try:
            places = [(folder / name).resolve() for folder in (file.parent, Path())]
            exists = any(place.is_file() for place in places)
        except (OSError, ValueError):  # too long, or with a zero byte
            exists = False
        if not exists:
            unknown.append(name)
            continue
        path = next((by_path[place] for place in places if place in by_path), None)
        if path in found:
            raise SeqmodelError(f"{file} has two rows for {path}: leave one out")
        if path is not None:
            found[path] = {name: value for name, value in cells.items() if value}
    if unknown:
        raise SeqmodelError(
            f"{file}: no file for {len(unknown):,} of {plural(len(rows), 'row')}, such as "
            f"{unknown[0]}: paths begin where {file.name} is, or in the working folder"
        )
    return found
