"""Signals that arrive at an inconvenient moment."""

import io
import signal
import time

import numpy as np
import pytest
import soundfile

from seqmodel.system.signals import TERMINATE, handled


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


@pytest.mark.parametrize("interrupted", [Interrupted, write_sound])
def test_a_signal_in_a_destructor_or_a_callback_is_handled_after_it(interrupted):
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
