"""Shared by the commands: results on stdout, messages and progress on stderr."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from seqmodel.errors import SeqmodelError
from seqmodel.media.words import aligned, plural, printable

if TYPE_CHECKING:
    from seqmodel.data.dataset import Dataset

Result = TypeVar("Result")


class Verbosity:
    """Output settings of the running command."""

    quiet = False
    """Whether --quiet was given: print only results and errors."""


def be_quiet(value: bool) -> None:
    """Record --quiet."""
    Verbosity.quiet = value


def print_json(values: Mapping[str, Any]) -> None:
    """Print a result as JSON."""
    typer.echo(json.dumps(values, indent=2, allow_nan=False))


def show(*lines: str) -> None:
    """Print a result for people, line by line, with terminal control characters escaped."""
    typer.echo("\n".join(map(printable, lines)))


def message(text: str) -> None:
    """Print a line that is not a result to stderr, unless it is empty or --quiet is given."""
    if text and not Verbosity.quiet:
        typer.echo(printable(text), err=True)


def paper_remark(preset: str | None, dataset: "Dataset") -> str:
    """A remark if the paper's preset is to train on what the paper did not; else ""."""
    if preset != "paper" or not dataset.frame.onsets:
        return ""
    where = from_here(dataset.folder)
    return f"{where} has onsets, unlike the paper's music: prepare it with --no-onsets"


def from_here(path: Path) -> Path:
    """A path as a user would type it: relative if it is below the working directory."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def split_lines(
    splits: Mapping[str, Mapping[str, int]], extra_column: Mapping[str, str] | None
) -> list[str]:
    """The contents of each split of a dataset, one line each, with a column for `extra_column`."""
    rows = []
    for name, counts in splits.items():
        if counts["pieces"]:
            pieces, frames = plural(counts["pieces"], "piece"), plural(counts["frames"], "frame")
            extra = [] if extra_column is None else [extra_column[name]]
            rows.append([name, pieces, frames, *extra, f"longest {counts['longest']:,}"])
    return [f"  {line}" for line in aligned(rows)]


def blaming(
    path: Path, values: Mapping[str, Any], use: Callable[[Mapping[str, Any]], Result]
) -> Result:
    """`use(values)`, for settings read from the file `path`.

    Errors name the file, unless they also occur without it: a setting may be wrong only in
    combination with others.
    """
    try:
        return use(values)
    except SeqmodelError as error:
        if not values:
            raise
        try:
            use({})
        except SeqmodelError as without:
            if str(without) == str(error):
                raise error from None
        raise SeqmodelError(f"{path}: {error}") from error
