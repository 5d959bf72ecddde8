"""A note's inputs from the notes below it in its own frame, as texts of `kernels.code.language`.

For note n, input k of the first 12 is note n - 12 + k, input k of the next 12 counts the sounding
notes below n of that note's pitch class, then comes the number of all sounding notes below n,
divided by 12; with `onsets`, whether note n - 12 + k is struck.

`work` keeps the notes so far after 12 zeros; their counts per pitch class, twice in a row, so that
those from any class on are contiguous; their count in all; with `onsets` the struck notes so far,
also after 12 zeros.
"""

from typing import Any

from seqmodel.kernels.code.language import clear, copy

REACH = 12
"""Notes just below that a note sees individually; also the number of pitch classes."""
WORK = 4 * REACH + 1
"""The size of `work` beyond 2 D."""


def below_size(*, onsets: bool) -> int:
    """How many inputs each note gets."""
    return (3 if onsets else 2) * REACH + 1


def begin_below(work: Any, D: Any) -> None:
    """Before the lowest note."""
    clear(work, 2 * D + WORK)


def read_below(work: Any, D: Any, n: Any, to: Any, onsets: bool) -> None:
    """Write the inputs of note `n`."""
    copy(work[n:], to, REACH)
    copy(work[D + REACH + n % REACH :], to[REACH:], REACH)
    to[2 * REACH] = work[D + 3 * REACH] / REACH
    if onsets:
        copy(work[D + 3 * REACH + 1 + n :], to[2 * REACH + 1 :], REACH)


def add_below(work: Any, D: Any, n: Any, note: Any) -> None:
    """Add note `n`: whether it sounds, 0 or 1."""
    classes = work[D + REACH :]
    work[n + REACH] = note
    classes[n % REACH] += note
    classes[n % REACH + REACH] += note
    work[D + 3 * REACH] += note


def add_struck(work: Any, D: Any, n: Any, struck: Any) -> None:
    """Add whether note `n` is struck, 0 or 1."""
    work[D + 4 * REACH + 1 + n] = struck
