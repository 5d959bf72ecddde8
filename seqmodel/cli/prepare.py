"""`seqmodel prepare`: from media files to a prepared dataset."""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from seqmodel.cli.common import Verbosity, message, print_json, show, split_lines
from seqmodel.cli.options import Force, Json, Quiet, options_of, with_media_options
from seqmodel.cli.progress import counter
from seqmodel.errors import UsageError
from seqmodel.files import locked
from seqmodel.media.definitions import Medium
from seqmodel.media.input import rejection
from seqmodel.media.labels import KnownLabels, labels_text, unknown_values
from seqmodel.media.registry import MEDIA, definition_from_json
from seqmodel.media.words import plural

if TYPE_CHECKING:
    from seqmodel.data.sources import SourceFile

FILES = ", ".join(medium.file_kinds for medium in MEDIA.values())
# How many skipped files, and files with remarks, are listed; the manifest lists all of them.
LISTED_FILES = 5
MANY_FILES = 1000
"""From this many on, an interrupted `prepare` advises a cache."""


@with_media_options(attrgetter("prepare_options"))
def prepare(
    sources: list[str] = typer.Argument(
        ..., metavar="SOURCE", help=f"{FILES}; folders, globs, or - for paths on stdin."
    ),
    out: Path = typer.Option(..., "--out", "-o", metavar="FOLDER", help="The dataset's folder."),
    *,
    strict: bool = typer.Option(
        False, "--strict", help="Fail at the first file that cannot be used."
    ),
    null: bool = typer.Option(
        False, "-0", "--null", help="Paths on stdin are NUL-terminated, as from find -print0."
    ),
    split_by: Literal["piece", "time"] | None = typer.Option(
        None,
        "--split-by",
        help="Pieces outside folders named after splits: put each whole into one split, or cut "
        "each in time, 80% to train, then 10% each to valid and test.  [default: piece; time if "
        "there are fewer than 10 and a split would be empty]",
        show_default=False,
    ),
    labels: str | None = typer.Option(
        None,
        metavar="PATTERN",
        help="Labels of each piece, for models to be conditioned on: a pattern of file names such "
        "as '{digit}_{speaker}_*', or of paths; folder, for the names of folders; or a .csv file "
        "of paths and labels.",
    ),
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **media_options: Any,
) -> None:
    """Turn media files into a dataset.

    Folders named train, valid and test determine the splits; all other pieces are split 80/10/10
    by a hash of their content, or in time if there are few. Files that cannot be used are skipped,
    and the reason is printed.
    """
    from seqmodel.data.prepare import prepare as prepare_dataset
    from seqmodel.data.sources import find_sources, with_labels

    if null and "-" not in sources:
        raise UsageError("-0 needs -, for paths on stdin")
    names = [name for source in sources for name in (_stdin(null) if source == "-" else [source])]
    inputs = find_sources(names)
    if labels is not None:
        inputs = replace(inputs, files=with_labels(inputs.files, labels))
    medium, first = inputs.medium, inputs.files[0].path
    options = options_of(
        medium, media_options, attrgetter("prepare_options"), f"{first} is {medium.name}"
    )
    settings, cache = medium.settings(options), options.get("cache")
    try:
        with locked(out), counter("reading", "comparing the splits") as progress:
            manifest = prepare_dataset(
                inputs, out, settings, force=force, strict=strict, split_by=split_by, cache=cache,
                progress=progress,
            )  # fmt: skip
    except (KeyboardInterrupt, SystemExit):  # the latter by a signal
        if cache:
            message(f"run the same command to resume: {cache} has what was read")
        elif "cache" in options and len(inputs.files) >= MANY_FILES:
            message("with --cache FOLDER, prepare resumes where it was interrupted")
        raise
    if as_json:
        print_json(manifest)
    elif not Verbosity.quiet:
        show(*_summary(out, manifest))
    unused = {skip["source"] for skip in manifest["skipped"]}
    used = [file for file in inputs.files if str(file.path) not in unused]
    unsplit = [str(file.path) for file in used if file.split is None]
    for line in (
        *source_remarks(medium, manifest),
        *medium.prepare_advice(manifest, options),
        *_split_remarks(medium, manifest, unsplit),
        *_label_remarks(used, manifest),
    ):
        message(line)


def _stdin(null: bool) -> list[str]:
    """The paths on stdin, one per line or NUL-terminated."""
    names = sys.stdin.read().split("\0") if null else [line.rstrip("\n") for line in sys.stdin]
    names = [name for name in names if name]
    if null and names and names[-1].endswith("\n"):
        raise UsageError("stdin has lines: leave out -0, which is for find -print0")
    if any("\0" in name for name in names):
        raise UsageError(
            "stdin has NUL bytes: use -0 for paths from find -print0; to prepare a file, name it"
        )
    if not names:
        how = "NUL-terminated" if null else "one per line"
        raise UsageError(f"there are no paths on stdin, which - reads, {how}")
    return names


def _summary(out: Path, manifest: dict[str, Any]) -> list[str]:
    frame = definition_from_json(manifest["media"], manifest["frame"])
    splits = manifest["splits"]
    durations = {name: frame.duration(counts["frames"]) or "" for name, counts in splits.items()}
    return [
        f"{out}: {frame}",
        *split_lines(splits, durations if any(durations.values()) else None),
        *label_lines(frame.known_labels),
        *MEDIA[manifest["media"]].summary_lines(manifest),
    ]


def label_lines(known: KnownLabels) -> list[str]:
    """The labels of a dataset or a run, if there are any."""
    return [f"  labels: {labels_text(known)}"] if known else []


def _label_remarks(files: Sequence["SourceFile"], manifest: Mapping[str, Any]) -> list[str]:
    """Remarks on labels missing from files, and on values missing from train."""
    values_by_label = defaultdict[str, list[str]](list)
    for name, value in (label for file in files for label in file.labels.items()):
        values_by_label[name].append(value)
    lines = [
        f"{without:,} of {plural(len(files), 'file')} {'has' if without == 1 else 'have'} no {name}"
        for name, values in values_by_label.items()
        if (without := len(files) - len(values))
    ]
    frame = definition_from_json(manifest["media"], manifest["frame"])
    if unknown := unknown_values(values_by_label, frame.known_labels):
        lines.append(f"values not in train, which count as none: {labels_text(unknown)}")
    return lines


def _split_remarks(medium: Medium, manifest: dict[str, Any], unsplit: list[str]) -> list[str]:
    """Remarks on the splits; `unsplit` are files in no folder named after one."""
    lines = list[str]()
    if straddling := manifest["also_in_another_split"]:
        many = len(straddling) > 1
        lines.append(
            f"{plural(len(straddling), 'piece')} appear{'s' * (not many)} in two splits, such as "
            f"{straddling[0]}; figures on those splits are a little too good"
        )
    counts = manifest["split_by"]
    if counts["folder"] and counts["content_hash"] and unsplit:
        lines.append(
            f"{plural(counts['folder'], 'piece')} split by folders named train, valid or test; the "
            f"other {counts['content_hash']:,}, such as {unsplit[0]}, by a hash of their content"
        )
    if counts.get("time"):
        lines.append(
            "split in time: the first 80% of each recording or piece to train, then 10% to valid "
            "and 10% to test, with gaps; to choose, put files into folders named train, valid and "
            "test"
        )
    else:
        lines += [
            f"moved to {move['to']}, which would be empty: {move['source']}"
            for move in manifest.get("moved", [])
        ]
    splits = manifest["splits"]
    if empty := [split for split in ("train", "valid") if not splits[split]["pieces"]]:
        lines.append(f"no piece is in {' or '.join(empty)}: {medium.split_advice(manifest)}")
    return lines


def source_remarks(medium: Medium, manifest: Mapping[str, Any]) -> list[str]:
    """Remarks on what was skipped, repaired or assumed."""
    skipped: dict[str, list[str]] = {"file": []}
    for skip in manifest["skipped"]:
        path = Path(skip["source"])
        kind = f"{path.suffix.lower()} file" if rejection(path) else "file"
        skipped.setdefault(kind, []).append(f"{path}: {skip['reason']}")
    remarks = [
        f"{entry['source']}: {'; '.join(entry['repairs'])}" for entry in manifest["repaired"]
    ]
    return [
        *_listed("skipped", skipped.pop("file")),
        *(
            f"skipped {plural(len(lines), kind)}, such as {lines[0]}"
            for kind, lines in skipped.items()
        ),
        *_listed("remarks on", remarks),
        *medium.prepare_remarks(manifest),
    ]


def _listed(what: str, lines: Sequence[str]) -> list[str]:
    """A heading and the first few lines; nothing if there are none."""
    if not lines:
        return []
    more = [f"  ... and {len(lines) - LISTED_FILES} more; --json lists all"]
    return [
        f"{what} {plural(len(lines), 'file')}:",
        *(f"  {line}" for line in lines[:LISTED_FILES]),
        *more[: len(lines) > LISTED_FILES],
    ]
