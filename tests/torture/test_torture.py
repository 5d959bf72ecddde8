"""The short form of `make torture`."""

import subprocess
import sys
from pathlib import Path

import pytest


# The second replaces a folder, which Windows cannot do in one step, and dies by SIGKILL as by its
# TerminateProcess: without notice. A training is killed so in test_without_posix.py.
@pytest.mark.parametrize(
    "options", ["kills faults mutants --seed 1", "kills faults --seed 10 --without-posix"]
)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it takes /proc and forks")
def test_a_little_torture_breaks_nothing(options):
    """Guards against truncated outputs, runs that resume differently, and tracebacks."""
    # Of ranks others test the same at chosen moments; and files are read the same on any system.
    kinds = options.partition(" --")[0].split()
    command = [sys.executable, Path(__file__).parent, "--short", *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines()[1:]] == kinds
