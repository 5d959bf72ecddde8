"""A frozen process is noticed and killed, by one that never outlives it."""

import signal
import subprocess
import sys
import time

import pytest
from calling import PATIENCE, children, gone, waited

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it takes /proc")

WORK = """
import sys
from seqmodel.system import watchdog

with watchdog.watched(int(sys.argv[1]), "process 0 was frozen"):
    print("working", flush=True)
    sys.stdin.readline()
print("done")
"""


@pytest.fixture
def work():
    """Starts a process that is watched until it reads a line; its patience in seconds."""
    started = []

    def start(patience):
        process = subprocess.Popen(
            [sys.executable, "-c", WORK, str(patience)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout.readline() == "working\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_frozen_process_is_killed_with_one_line(work):
    process = work(1)
    process.send_signal(signal.SIGSTOP)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (-9, "", "seqmodel: process 0 was frozen\n")


def test_one_that_goes_on_in_time_is_let_be(work):
    process = work(20)
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.5)  # seen at least once
    process.send_signal(signal.SIGCONT)
    (watchdog,) = children(process.pid)
    assert process.communicate("\n", timeout=PATIENCE) == ("done\n", "")
    assert process.returncode == 0
    assert gone(watchdog)


def test_it_ends_with_a_process_that_is_killed(work):
    process = work(60)
    (watchdog,) = children(process.pid)
    process.kill()
    assert process.communicate(timeout=PATIENCE) == ("", "")  # stderr is the watchdog's, too
    waited(lambda: gone(watchdog))
