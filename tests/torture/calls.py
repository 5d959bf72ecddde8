"""Calls that write, counted, made to fail, or to be the last: a preloaded library does it.

It reaches whoever calls, Python, NumPy or libsndfile, and takes a C compiler; forks arm it.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

LIBRARY = "TORTURE_LIBRARY"
"""The environment variable that says where the library is."""
KILLS = -1
"""In the place of an error: the process is killed instead of making the call."""
COUNT = ".calls"
"""Where a fork says how many calls it made."""


def armed() -> bool:
    """Whether the library is loaded."""
    return hasattr(ctypes.CDLL(None), "torture_arm")


def compiled() -> Path | None:
    """The library, in a folder of its own; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = Path(tempfile.mkdtemp(prefix="torture-library-")) / "calls.so"
    source = Path(__file__).with_name("calls.c")
    options = ("-shared", "-fPIC", "-O1", "-w", "-o", library, source, "-ldl")
    subprocess.run([compiler, *options], check=True)
    return library


def failing(
    command: Callable[[], int], place: Path, at: int, error: int, *, stays: bool = False
) -> Callable[[], int]:
    """`command`, whose call `at` below `place` fails with `error`, and, if that `stays`, all after.

    Calls count from 0; at -1 none fails. Behind it `calls_made` tells how many there were.
    """

    def work() -> int:
        library = ctypes.CDLL(None)
        library.torture_arm(os.fsencode(place), ctypes.c_long(at), error, stays)
        status = command()
        calls = library.torture_calls()
        library.torture_arm(b"", ctypes.c_long(-1), 0, 0)
        (place / COUNT).write_text(str(calls))
        return status

    return work


def calls_made(place: Path) -> int:
    """How many calls a fork of `failing` has made; 0 if it did not live to say so."""
    count = place / COUNT
    if not count.exists():
        return 0
    made = int(count.read_text())
    count.unlink()
    return made
