"""What `seqmodel bench` shows while it measures: a line on stderr for each row, once measured.

Nothing is drawn during a measurement: a moving bar would take time from what is being timed.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from seqmodel.cli.common import Counter, message

Row = dict[str, Any]
Measured = Callable[[str, Row], None]


@contextmanager
def shown(*, quiet: bool) -> Iterator[tuple[Counter, Measured]]:
    """Yield two callbacks: one for the number of cases done and their total, one for each row."""
    on_terminal = not quiet and sys.stderr.isatty()
    place = ""

    def erase() -> None:
        if on_terminal:
            typer.echo("\r\x1b[K", err=True, nl=False)

    def progress(done: int, total: int) -> None:
        nonlocal place
        place = f"{done + 1:>{len(str(total))}}/{total}"
        if on_terminal:
            typer.echo(f"measuring {place}", err=True, nl=False)

    def measured(part: str, row: Row) -> None:
        erase()
        message(f"{place}  {part}: {LINES[part](row)}", quiet=quiet)

    try:
        yield progress, measured
    finally:
        erase()


def _machine(row: Row) -> str:
    return f"sgemm of 1024, {row['sgemm_gflops']:.0f} GFLOP/s at best"


def _units(row: Row) -> str:
    where = "" if row["device"] == "cpu" else f" ({row['device']})"
    return (
        f"{row['size']}, {row['unit']} of {row['hidden']}{where}  "
        f"step {row['timings']['ours']['ms']:.2f} ms{_beside(row)}"
    )


def _piano_rolls(row: Row) -> str:
    step = row["timings"]["ours"]["ms"]
    return f"{row['unit']} of {row['hidden']}  step {step:.2f} ms{_beside(row)}"


def _training(row: Row) -> str:
    return f"{row['unit']} of {row['hidden']}  {row['frames_per_second']:,.0f} frames/s"


def _sampling(row: Row) -> str:
    speed = row["frames_per_second"]["ours"]
    return f"{row['unit']} of {row['hidden']}  {speed:,.0f} frames/s{_beside(row)}"


def _tied(row: Row) -> str:
    step = f"  step {row['step']['ours']['ms']:.2f} ms{_beside(row)}" if "step" in row else ""
    speed = row["frames_per_second"]["ours"]
    return f"{row['unit']} of {row['hidden']}, {row['note_hidden']}{step}  {speed:,.0f} frames/s"


def _beside(row: Row) -> str:
    ratio = row["over_torch_nn"]
    return "" if ratio is None else f", torch.nn {ratio:.2f}x"


LINES: dict[str, Callable[[Row], str]] = {
    "machine": _machine,
    "units": _units,
    "piano-rolls": _piano_rolls,
    "training": _training,
    "sampling": _sampling,
    "tied": _tied,
}
