"""What the commands share: options of one meaning, progress on stderr, results on stdout."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but results and errors.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what stands at the target.")]
Device = Annotated[
    str,
    typer.Option(
        help="Where to compute: auto, cpu or cuda; auto takes a GPU only where it is faster."
    ),
]

Counter = Callable[[int, int], None]


def print_json(values: Mapping[str, Any]) -> None:
    """Print a result for machines."""
    typer.echo(json.dumps(values, indent=2))


def message(text: str, *, quiet: bool = False) -> None:
    """Say one line that is not a result."""
    if not quiet:
        typer.echo(printable(text), err=True)


def printable(text: str) -> str:
    """The text with line breaks and other control characters, as in odd file names, escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def split_lines(
    splits: Mapping[str, Mapping[str, int]], more: Mapping[str, str] | None = None
) -> list[str]:
    """What each split of a dataset holds, one line each, in columns; `more` is the last."""
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


def how_to_split(manifest: Mapping[str, Any]) -> str | None:
    """What to do where clips, all from one recording or a few, left a split without a piece."""
    if manifest.get("clip_seconds") is None:
        return None
    return (
        "all clips of a recording stay in one split, so cut it into several files, put these into "
        "folders named train, valid and test, and prepare the three folders together"
    )


def seconds(manifest: Mapping[str, Any]) -> dict[str, str]:
    """How long each split of an audio dataset sounds, by its manifest."""
    per_frame = manifest["frame"]["frame_size"] / manifest["frame"]["rate"]
    splits = manifest["splits"].items()
    return {name: f"{counts['frames'] * per_frame:,.1f} s" for name, counts in splits}


@contextmanager
def counter(what: str, *, quiet: bool) -> Iterator[Counter]:
    """Yield a function of (done, total) that moves a bar, where stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def plural(count: int, thing: str) -> str:
    """1 piece, 2 pieces, 1,000 pieces."""
    return f"{count:,} {thing}{'s' * (count != 1)}"


def clock(seconds: float) -> str:
    """Seconds as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
