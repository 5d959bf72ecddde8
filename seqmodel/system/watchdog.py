"""A process that reports a frozen one, which cannot do so itself, and which torchrun misses.

Run as a script, so that it imports next to nothing.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

POLL = 1.0
"""Seconds between checks."""


@contextmanager
def watched(patience: int, message: str) -> Iterator[None]:
    """Within the block, this process is killed once it has been frozen for `patience` seconds.

    The line `message` is then printed on its stderr. Linux only; no effect elsewhere.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    command = [sys.executable, "-IS", __file__, str(os.getpid()), str(patience), message]
    # In its own session, so that whatever freezes or stops this process's group spares it. It ends
    # when its stdin closes, however this process ends.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    ):
        yield


def _watch(pid: int, patience: int, message: str) -> None:
    if sys.platform == "win32":
        return
    # Checks are counted, not time, in which everything might have stood still.
    stat, frozen = Path(f"/proc/{pid}/stat"), 0
    while not select.select([sys.stdin], [], [], POLL)[0]:
        frozen = frozen + 1 if stat.read_text("utf-8").rpartition(")")[2].split()[0] == "T" else 0
        if frozen * POLL > patience:
            print(f"seqmodel: {message}", file=sys.stderr)
            os.kill(pid, signal.SIGKILL)
            return


if __name__ == "__main__":
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended between two checks
        _watch(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
