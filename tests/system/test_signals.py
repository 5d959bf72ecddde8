"""Signals that arrive at an inconvenient moment."""

import signal
import time

import pytest

from seqmodel.system.signals import TERMINATE, handled


class Interrupted:
    """Is sent a signal while it is freed, as llvmlite's objects may be."""

    def __del__(self):
        signal.raise_signal(TERMINATE)
        self.freed = True  # where the handler is called


def test_a_signal_in_a_destructor_is_handled_after_it():
    """Guards against "Exception ignored in", and a Ctrl-C without effect."""

    def stop(number, frame):
        raise InterruptedError(number)

    @handled(stop, TERMINATE)
    def work():
        Interrupted()
        time.sleep(30)

    begin = time.monotonic()
    with pytest.raises(InterruptedError, match=str(TERMINATE)):
        work()
    assert time.monotonic() - begin < 25  # the signal interrupted the pause
