"""Signals, most of which some systems lack, and related behaviour of streams."""

import errno
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

INTERRUPT, TERMINATE = signal.SIGINT, signal.SIGTERM
HANGUP: int | None = getattr(signal, "SIGHUP", getattr(signal, "SIGBREAK", None))
"""The end of a terminal, which can send several; None if the system has no such signal."""
BROKEN_PIPE = 13
"""SIGPIPE's number on all systems that have it; an exit status of a reader that has gone."""

ENCODING: str | None = "utf-8" if sys.platform == "win32" else None
"""The encoding of text in pipes and files if the system's own lacks most characters."""

AGAIN = 0.1
"""Seconds within which more signals are the same: `timeout` sends one to a process, then one to its
group."""

Handler = Callable[[int, FrameType | None], object]


def unless_ignored(*numbers: int | None) -> list[int]:
    """The signals that exist and that the caller has not ignored, as nohup does."""
    existing = [number for number in numbers if number is not None]
    return [number for number in existing if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def handled(handler: Handler, *numbers: int) -> Iterator[None]:
    """Handle these signals within a block of the main thread; restore the old handlers after.

    A handler that raises is not called within a destructor, such as llvmlite's, or where libsndfile
    calls back to read or write, but once that has ended: there Python would print the exception and
    go on, with sound cut short. Nor while torch is loading, which would drop it or abort. Signals
    less than `AGAIN` after another are dropped.
    """
    waiting = False

    def where_it_can_raise(number: int, frame: FrameType | None) -> None:
        nonlocal waiting
        if waiting:
            return
        if any(_swallows(caller) for caller, _ in traceback.walk_stack(frame)):
            if sys.platform == "win32":
                again = partial(signal.raise_signal, number)
            else:  # which also interrupts what this thread, the main one, waits for
                again = partial(signal.pthread_kill, threading.get_ident(), number)
            threading.Timer(0.01, again).start()
        else:
            waiting = True
            time.sleep(AGAIN)
            waiting = False
            handler(number, frame)

    previous = {number: signal.signal(number, where_it_can_raise) for number in numbers}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def _swallows(frame: FrameType) -> bool:
    """Whether what called this frame may not pass on an exception."""
    name, module = frame.f_code.co_name, str(frame.f_globals.get("__name__"))
    loads_torch = name == "<module>" and module.partition(".")[0] == "torch"
    return loads_torch or name == "__del__" or name.startswith("vio_")


def reset(number: int) -> None:
    """Let the next such signal end the process, unless it is `HANGUP`, which is ignored.

    A process of `compare` ignores all: it may get one from `timeout`, then one from its parent.
    """
    # Not imported here: the signal may have come while it was half loaded.
    parent = getattr(sys.modules.get("multiprocessing.process"), "parent_process", lambda: None)()
    ignored = number == HANGUP or parent is not None
    signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)


def name_of(number: int) -> str:
    """A signal's name, such as SIGKILL, even if only other systems have it."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def is_broken_pipe(error: OSError) -> bool:
    """Whether a write failed because the reader has gone, for which Windows has another number."""
    gone = isinstance(error, BrokenPipeError)
    return gone or (sys.platform == "win32" and error.errno == errno.EINVAL)
