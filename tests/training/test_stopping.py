"""Signals: the first asks to stop, a second ends the process; old handlers are restored."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from seqmodel.training.stopping import stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_recorded_and_a_second_one_would_end_the_process(number):
    """Whoever presses Ctrl-C twice does not want to wait. Errors leave handlers as they were."""
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert stop.signal is None
        os.kill(os.getpid(), number)
        assert stop.signal == number
        assert signal.getsignal(number) is signal.SIG_DFL
    assert signal.getsignal(number) is before
    with pytest.raises(ZeroDivisionError), stop_on_signals():
        raise ZeroDivisionError
    assert signal.getsignal(number) is before


def test_the_end_of_a_terminal_stops_once_and_never_if_ignored():
    """It sends several signals, of which the second would end the process before it has saved."""
    before = signal.getsignal(signal.SIGHUP)
    with stop_on_signals() as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
        assert stop.signal == signal.SIGHUP
    assert signal.getsignal(signal.SIGHUP) is before
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.signal is None
    assert signal.signal(signal.SIGHUP, before) is signal.SIG_IGN


def test_other_threads_can_train_too():
    """Python allows handlers in the main thread only; a notebook's worker must not crash."""
    seen = []

    def work():
        with stop_on_signals() as stop:
            seen.append(stop.signal)

    with ThreadPoolExecutor(1) as team:
        team.submit(work).result()
    assert seen == [None]
