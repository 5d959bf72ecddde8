"""Counts writing calls, and makes them fail or kill the process, through a preloaded library.

It intercepts Python, NumPy and libsndfile alike, and needs a C compiler; forks arm it.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

LIBRARY = "TORTURE_LIBRARY"
"""The environment variable that holds the path of the library."""
KILLS = -1
"""In place of an error: the process is killed instead of making the call."""
COUNT = ".calls"
"""The file in which a fork reports how many calls it made."""


def armed():
    """Whether the library is loaded."""
    return hasattr(ctypes.CDLL(None), "torture_arm")


def compiled():
    """The library, in a new temporary folder; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = Path(tempfile.mkdtemp(prefix="torture-library-")) / "calls.so"
    source = Path(__file__).with_name("calls.c")
    options = ("-shared", "-fPIC", "-O1", "-w", "-o", library, source, "-ldl")
    subprocess.run([compiler, *options], check=True)
    return library


def failing(command, place, at, error, *, stays=False):
    """`command`, whose call `at` below `place` fails with `error`, as do all later ones if `stays`.

    Calls count from 0; at -1 none fails. Afterwards `calls_made` returns how many there were.
    """

    def work():
        library = ctypes.CDLL(None)
        library.torture_arm(os.fsencode(place), ctypes.c_long(at), error, stays)
        status = command()
        calls = library.torture_calls()
        library.torture_arm(b"", ctypes.c_long(-1), 0, 0)
        (place / COUNT).write_text(str(calls))
        return status

    return work


def calls_made(place):
    """How many calls a fork of `failing` made; 0 if it died before reporting it."""
    count = place / COUNT
    if not count.exists():
        return 0
    made = int(count.read_text())
    count.unlink()
    return made
