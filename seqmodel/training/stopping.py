"""Stopping on request: a signal sets a flag, and the run saves its state at the next update."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from seqmodel.errors import SeqmodelError
from seqmodel.system.signals import HANGUP, INTERRUPT, TERMINATE, handled, reset, unless_ignored


class InterruptError(SeqmodelError):
    """A signal stopped the work, which was saved; the exit status is 128 + the signal's number."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_status = 128 + number


class StopRequest:
    """The signal that requested a stop, if any."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.immediate_message: str | None = None
        """Set while there is nothing to save, such as before the first update, which may need to
        compile: a signal then stops the work immediately, with this message."""

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Record the signal; InterruptError if the work can stop `immediate_message`.

        A second one ends the process, as by default, except a hangup: terminals send several.
        """
        self.signal = number
        reset(number)
        if self.immediate_message is not None:
            raise InterruptError(self.immediate_message, number)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Yield a request that is set by Ctrl-C, SIGTERM and a hangup, unless ignored as by nohup.

    It is never set outside the main thread, where Python allows no handlers.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    with handled(request.handle, INTERRUPT, TERMINATE, *unless_ignored(HANGUP)):
        yield request
