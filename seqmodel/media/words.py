"""Numbers and texts in human-readable form."""

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any


def plural(count: float, thing: str) -> str:
    """1 piece, 2 pieces, 1,000 pieces."""
    return f"{count:,} {thing}{'s' * (count != 1)}"


def epochs_text(count: float) -> str:
    """Such as 12, or 2.0125 or 0.0783 within an epoch."""
    return f"{round(count, 4):.5g}" if count < 10_000 else f"{count:.0f}"


def listed(names: Sequence[str]) -> str:
    """Names as "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def some(names: Collection[str], most: int = 3) -> str:
    """All of a few names, or the first of many: "a, b, c and 4 more"."""
    rest = [f"{len(names) - most:,} more"] if len(names) > most else []
    return listed([*[*names][:most], *rest])


def by_count(counts: Mapping[Any, int]) -> dict[Any, int]:
    """The largest counts first, and equal ones by their names."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def spaced(name: str) -> str:
    """An identifier as words: note ngram for note_ngram."""
    return name.replace("_", " ")


def hms(seconds: float) -> str:
    """Seconds as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def duration_text(seconds: float) -> str:
    """Elapsed time: 4.2 s, 12 min 34 s, 1 h 02 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, its first column aligned left and the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f"{row[0]:{widths[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """The rows as CSV, each ended by a line feed."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def printable(text: str) -> str:
    """The text with control characters escaped, such as line breaks in file names."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
