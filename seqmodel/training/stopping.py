"""Stopping on request: a signal sets a flag, and the run saves itself at the next update."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from seqmodel.errors import SeqmodelError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptError(SeqmodelError):
    """A signal stopped the work, which is saved; the exit status is 128 + the signal's number."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_status = 128 + number


class StopRequest:
    """The signal that asked to stop, if one did."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.at_once: str | None = None
        """Set while there is nothing to save, as before the first update, which may have to be
        compiled: a signal then stops the work immediately, with this message."""

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Record the signal; a second one ends the process at once, as by default.

        Not so SIGHUP, of which the end of a terminal sends several.

        InterruptError if the work can stop `at_once`.
        """
        self.signal = number
        signal.signal(number, signal.SIG_IGN if number == signal.SIGHUP else signal.SIG_DFL)
        if self.at_once is not None:
            raise InterruptError(self.at_once, number)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Yield a request that signals set; previous handlers are restored afterwards.

    SIGINT and SIGTERM do, and SIGHUP unless it is ignored, as after nohup. Outside the main thread,
    where Python allows no handlers, the request is never set.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    handled = [number for number in SIGNALS if number != signal.SIGHUP or not ignored]
    former = {number: signal.signal(number, request.handle) for number in handled}
    try:
        yield request
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
