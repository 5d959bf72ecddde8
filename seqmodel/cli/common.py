"""Shared by the commands: common options, progress on stderr, results on stdout."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from seqmodel.cli.completion import DEVICES, one_of
from seqmodel.errors import UsageError
from seqmodel.media.words import clock, plural, printable

__all__ = ["clock", "plural", "printable"]  # for the commands

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only results and errors.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing target.")]
Device = Annotated[
    str,
    typer.Option(
        help="Where to compute: auto, cpu or cuda; auto takes a GPU where it should be faster.",
        autocompletion=one_of(DEVICES),
    ),
]

Counter = Callable[[int, int], None]


def print_json(values: Mapping[str, Any]) -> None:
    """Print a result for machines."""
    typer.echo(json.dumps(values, indent=2, allow_nan=False))


def show(*lines: str) -> None:
    """Print a result for people, line by line.

    File names and file contents may hold anything: characters that would move the cursor or change
    the terminal are escaped, and so are bytes that are not valid text.
    """
    typer.echo("\n".join(map(printable, lines)))


def message(text: str, *, quiet: bool = False) -> None:
    """Print one line that is not a result."""
    if not quiet:
        typer.echo(printable(text), err=True)


def check_temperature(temperature: float) -> None:
    """UsageError unless it is a number; the option has checked that it is not negative."""
    if not math.isfinite(temperature):
        raise UsageError(f"--temperature must be finite, not {temperature}")


def split_lines(
    splits: Mapping[str, Mapping[str, int]], more: Mapping[str, str] | None = None
) -> list[str]:
    """What each split of a dataset holds, one line each; `more` gives the last column."""
    rows = []
    for name, counts in splits.items():
        if counts["pieces"]:
            pieces, frames = plural(counts["pieces"], "piece"), plural(counts["frames"], "frame")
            row = [name, pieces, frames, f"longest {counts['longest']:,}"]
            if more is not None:
                row.append(more[name])
            rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + f"{row[0]:5}"
        + "".join(f"  {cell:>{w}}" for cell, w in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]


@contextmanager
def counter(what: str, *, quiet: bool) -> Iterator[Counter]:
    """Yield a function of (done, total) that moves a progress bar if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from seqmodel.cli.bars import Bars

    with Bars() as bars:
        number = bars.add_task(what, total=None, news=())

        def count(done: int, total: int) -> None:
            (task,) = bars.tasks
            left = [f"{clock(task.time_remaining)} left"] if task.time_remaining else []
            bars.update(number, completed=done, total=total, news=[f"{done:,}/{total:,}", *left])

        yield count
