"""seqmodel in forks of this process: started within milliseconds, killed, limited and measured.

A fork inherits what was imported and compiled, so that a kill hits the work rather than start-up.
"""

import ctypes
import os
import resource
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from seqmodel.cli.main import main

PATIENCE = 120.0
"""Seconds after which a command counts as hanging."""
STREAMS = (".stdout", ".stderr")
"""A fork's own streams, whose names no output has: `calls.c` leaves them alone."""


@dataclass(frozen=True)
class Outcome:
    """How a fork ended."""

    status: int
    """As in a shell: 128 + n after signal n."""
    err: str
    seconds: float

    @property
    def clean(self):
        """Whether it succeeded, or gave the reason in one line."""
        lines = self.err.strip().splitlines()
        said = bool(lines) and lines[-1].startswith("seqmodel: ")
        return "Traceback" not in self.err and (self.status == 0 or said)


def fork(work, folder, *, kill_after=None, memory=None, patience=PATIENCE):
    """Run `work`, which returns an exit status, in a fork that starts in `folder`.

    Args:
        kill_after: seconds after which the fork and all its children get SIGKILL.
        memory: bytes of address space that it may take beyond what it inherits.
        patience: seconds after which it is killed as hanging: its status is then 124.
    """
    streams = [folder / name for name in STREAMS]
    for stream in streams:  # a kill may come before the fork creates them
        stream.touch()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _in_fork(work, folder, streams, memory)
    hung = False
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        passed = time.monotonic() - began
        if ended:
            break
        if kill_after is not None and passed >= kill_after:
            _kill(child)
        elif passed > patience:
            hung = True
            _kill(child)
        time.sleep(0.001)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # its children, if any outlived it
    err = streams[1].read_text(errors="replace")
    for stream in streams:
        stream.unlink()
    code = os.waitstatus_to_exitcode(status)
    code = 124 if hung else 128 - code if code < 0 else code
    return Outcome(code, err, passed)


def seqmodel(*arguments):
    """The work of one command line."""

    def work():
        sys.argv = ["seqmodel", *map(str, arguments)]
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return work


def _in_fork(work, folder, streams, memory):
    status = 70
    try:
        os.setpgid(0, 0)
        # It is killed when its parent dies.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        os.chdir(folder)
        for number, stream in enumerate(streams, 1):
            os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
        if memory is not None:
            held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (held + memory, held + memory))
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _kill(child):
    """Kill a fork not yet waited for, and its group, which is created a moment after the fork."""
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
