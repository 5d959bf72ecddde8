"""Signals, of which some systems lack most, and the streams that they go with."""

import errno
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPT, TERMINATE = signal.SIGINT, signal.SIGTERM
HANGUP: int | None = getattr(signal, "SIGHUP", getattr(signal, "SIGBREAK", None))
"""The end of a terminal, of which several may come; None where nothing tells of it."""
BROKEN_PIPE = 13
"""SIGPIPE's number wherever there is one; a status says by it that a reader has gone."""

ENCODING: str | None = "utf-8" if sys.platform == "win32" else None
"""Of text in pipes and files, where the system's own lacks most characters."""

Handler = Callable[[int, FrameType | None], object]


def unless_ignored(*numbers: int | None) -> list[int]:
    """Those of the signals that are there, and that the caller has not ignored, as nohup does."""
    there = [number for number in numbers if number is not None]
    return [number for number in there if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def handled(handler: Handler, *numbers: int) -> Iterator[None]:
    """Within the block, of the main thread, a handler gets these signals; then the former ones."""
    former = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in former.items():
            signal.signal(number, before)


def let_go(number: int) -> None:
    """The next such signal ends the process, unless it is `HANGUP`, which is ignored."""
    signal.signal(number, signal.SIG_IGN if number == HANGUP else signal.SIG_DFL)


def name_of(number: int) -> str:
    """Such as SIGKILL, also of a signal that only another system has."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def reader_gone(error: OSError) -> bool:
    """Whether a write failed since nobody reads any more, for which Windows has another number."""
    gone = isinstance(error, BrokenPipeError)
    return gone or (sys.platform == "win32" and error.errno == errno.EINVAL)
