"""Signals that arrive at an inconvenient moment."""

import io
import signal
import sys
import threading
import time
from contextlib import suppress
from types import ModuleType
from unittest.mock import Mock

import numpy as np
import pytest
import soundfile

from seqmodel.system.processes import start
from seqmodel.system.signals import TERMINATE, handled, reset
from seqmodel.training.stopping import stop_on_signals


class Interrupted:
    """Is sent a signal while it is freed, as llvmlite's objects may be."""

    def __del__(self):
        signal.raise_signal(TERMINATE)
        self.freed = True  # where the handler is called


class InterruptedFile(io.BytesIO):
    """Is sent a signal while soundfile writes its first bytes, in a callback."""

    def write(self, data):
        if not self.getvalue():
            signal.raise_signal(TERMINATE)
        return super().write(data)


def write_sound():
    soundfile.write(InterruptedFile(), np.zeros(8), 8000, format="WAV")


def load_torch():
    """Is sent a signal while torch is loaded, whose C++ drops exceptions."""
    with suppress(BaseException):
        exec("signal.raise_signal(signal.SIGTERM); 0", {"__name__": "torch.x", "signal": signal})


@pytest.mark.parametrize("interrupted", [Interrupted, write_sound, load_torch])
def test_a_signal_in_a_destructor_a_callback_or_torch_is_handled_after_it(interrupted):
    """Guards against "Exception ignored in", a Ctrl-C without effect, and sound cut short."""

    def stop(number, frame):
        raise InterruptedError(number)

    @handled(stop, TERMINATE)
    def work():
        interrupted()
        time.sleep(30)

    begin = time.monotonic()
    with pytest.raises(InterruptedError, match=str(TERMINATE)):
        work()
    assert time.monotonic() - begin < 25  # the signal interrupted the pause


def test_a_signal_sent_twice_at_once_is_one():
    """`timeout` signals a process, then its group: the second one ended it before it had saved."""
    handler, main = Mock(), threading.get_ident()
    with handled(handler, TERMINATE):
        threading.Timer(0.03, signal.pthread_kill, (main, TERMINATE)).start()
        signal.raise_signal(TERMINATE)
        time.sleep(0.1)
        handler.assert_called_once()
        signal.raise_signal(TERMINATE)
    assert handler.call_count == 2


def test_a_signal_during_an_import_is_handled(monkeypatch):
    """Which fails where it imports what is only half loaded."""
    monkeypatch.setitem(sys.modules, "multiprocessing", ModuleType("multiprocessing"))
    with handled(Mock(), TERMINATE):
        reset(TERMINATE)
        assert signal.getsignal(TERMINATE) is signal.SIG_DFL


def end_twice(pipe):
    with stop_on_signals() as stop:
        signal.raise_signal(TERMINATE)
        signal.raise_signal(TERMINATE)
    pipe.send(stop.signal)


def test_a_process_of_compare_asked_twice_to_end_saves():
    """By `timeout`, then by the command."""
    process, pipe = start(end_twice)
    assert pipe.recv() == TERMINATE
    process.join()
