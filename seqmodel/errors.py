"""The errors shown to users, each with a one-line message and an exit status."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from errno import EDQUOT, EFBIG, ENOSPC

NO_THREAD = "start new thread"
"""How Python reports that a thread's stack has no memory, or that there are too many."""
OUT_OF_MEMORY = "bad_alloc", "allocate memory", "Cannot allocate", "to map segment", NO_THREAD
"""How libraries report that memory has run out, in errors of any type."""


class SeqmodelError(Exception):
    """Something in the data, a config, a checkpoint or the disk is wrong.

    The message is one line: what is wrong, in which file or option, and what to do.
    """

    exit_status = 1
    shown: tuple[str, ...] = ()
    """Lines to show below the message, such as the place in a text."""


class UsageError(SeqmodelError):
    """The command was called wrongly: mutually exclusive options, a value out of range."""

    exit_status = 2


@contextmanager
def advising(again: str) -> Iterator[None]:
    """If an error in the block is due to a full disk, add how to continue: `again`."""
    try:
        yield
    except SeqmodelError as error:
        if getattr(error.__cause__, "errno", None) not in (ENOSPC, EDQUOT, EFBIG):
            raise
        raise SeqmodelError(f"{error}; once there is room, {again}") from error


def lacks_memory(error: BaseException | None) -> bool:
    """Whether an error, or its cause, says that memory ran out."""
    while error is not None:
        text = str(error)
        if isinstance(error, MemoryError) or any(words in text for words in OUT_OF_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of an error about a name that is not among `names`: the most similar one, if any."""
    known = {other.lower(): other for other in names}
    near = get_close_matches(name.lower(), known, 1)
    return "".join(f"; did you mean {known[other]}?" for other in near)


def reason(error: OSError) -> str:
    """The system's reason for an error, for the end of a message."""
    return error.strerror.lower() if error.strerror else str(error)


class SourceError(SeqmodelError):
    """A media file cannot be used and is skipped; the message states why, without its name."""

    def __init__(self, reason: str, option: str = "") -> None:
        """`option` is the option of `prepare` that would help, such as "a lower --rate"."""
        super().__init__(f"{reason}; use {option}" if option else reason)
        self.for_run = reason + f"; use a run of data prepared with {option}" * bool(option)
        """The message if files are read like a run's data, which no option can change."""
