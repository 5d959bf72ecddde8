"""Numbers and texts in human-readable form."""

from collections.abc import Collection, Sequence


def plural(count: float, thing: str) -> str:
    """1 piece, 2 pieces, 1,000 pieces."""
    return f"{count:,} {thing}{'s' * (count != 1)}"


def epochs_text(count: float) -> str:
    """Such as 12, or 2.0125 within an epoch."""
    return f"{count:.5g}" if count < 10_000 else f"{count:.0f}"


def listed(names: Sequence[str]) -> str:
    """Names as "a, b and c"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def some(names: Collection[str], most: int = 3) -> str:
    """All of a few names, or the first of many: "a, b, c and 4 more"."""
    rest = [f"{len(names) - most:,} more"] if len(names) > most else []
    return listed([*[*names][:most], *rest])


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


def printable(text: str) -> str:
    """The text with control characters escaped, such as line breaks in file names."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
