"""Calls of the command line, in this process or a separate one, and small MIDI files."""

import functools
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer.main
from forking import Forked
from safetensors.numpy import load_file

from seqmodel.cli.main import main
from seqmodel.data.dataset import open_dataset
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.writing import midi_bytes

# Building the parser anew for each call would take as long as a short command.
typer.main.get_command = functools.cache(typer.main.get_command)
# One thread per process, since the tests run in parallel; NO_COLOR only if a test sets it.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm"}
ENVIRONMENT.pop("NO_COLOR", None)
PNG = b"\x89PNG\r\n\x1a\n"
"""The signature of a PNG file."""
PATIENCE = 300.0
"""Seconds for what takes a few where nothing else runs."""


@dataclass(frozen=True)
class Result:
    """The result of a command."""

    status: int
    out: str
    err: str
    raw: bytes
    """stdout as bytes."""


def call_main(*arguments, stdin="", stdout=None, stderr=None):
    """Run the command line in this process; what goes to streams that are given, they keep."""
    raw, err = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    former = sys.argv, sys.stdin, sys.stdout, sys.stderr, signal.getsignal(signal.SIGTERM)
    sys.argv = ["seqmodel", *map(str, arguments)]
    sys.stdin, sys.stdout, sys.stderr = io.StringIO(stdin), stdout or out, stderr or err
    try:
        main()
    except SystemExit as end:
        status = end.code or 0
    finally:
        sys.argv, sys.stdin, sys.stdout, sys.stderr, handler = former
        signal.signal(signal.SIGTERM, handler)
    assert isinstance(status, int)
    out.flush()
    return Result(status, raw.getvalue().decode(errors="replace"), err.getvalue(), raw.getvalue())


def call_ok(*arguments, stdin=""):
    result = call_main(*arguments, stdin=stdin)
    assert result.status == 0, result.err
    return result


def told(*arguments):
    """What a command prints as JSON."""
    return json.loads(call_ok(*arguments, "--json").out)


def call_refused(*arguments, says, status=1, stdin=""):
    """Run a command that prints nothing but one line of these words; "..." stands for others."""
    result = call_main(*arguments, stdin=stdin)
    shape = ".*".join(re.escape(part.strip(" ")) for part in says.split("..."))
    assert re.match(rf"seqmodel: {shape}.*\n\Z", result.err), result.err
    assert (result.status, result.out) == (status, ""), result.out
    return result.err


def start(*arguments, **options):
    """Start the command line in a separate process, with piped output unless overridden."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = ["seqmodel", *map(str, arguments)]
    return Forked(command, text=True, **{"env": ENVIRONMENT, **streams, **options})


def write_piece(path, seed, frames=32):
    """Write a MIDI file of a scale-like walk in two voices, at four steps per beat."""
    random = np.random.default_rng(seed)
    roll = np.zeros((frames, 88), np.uint8)
    walk = 40 + np.cumsum(random.integers(-2, 3, frames // 2)).repeat(2)
    roll[np.arange(frames), walk] = 1
    roll[np.arange(frames), walk - 12] = 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(midi_bytes(roll, Grid.of_beats(4), flat=True))


def listing(*folders):
    """Everything below the folders, with sizes."""
    found = [path for folder in folders for path in sorted(folder.rglob("*"))]
    return [(str(path), path.lstat().st_size) for path in found]


def only(folder):
    """The one piece of a dataset, or its first."""
    data = open_dataset(folder)
    return data[data.splits[0]][0]


def same_tensors(*files):
    """Whether safetensors of these files are the same, bit for bit."""
    one, *others = map(load_file, files)
    return all(
        one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)
        for other in others
    )


def children(pid):
    """The processes that a process has started and that have not ended."""
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended itself
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    return []


def gone(pid):
    """Whether a process has ended, be it as a zombie of the tests' container."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def free_port():
    """A port of this machine that nothing uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def waited(condition, seconds=PATIENCE):
    """Wait until the condition is true, and return its value."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found


def epochs_of(run):
    try:
        return len(Path(run, "metrics.jsonl").read_text().splitlines())
    except FileNotFoundError:
        return 0


def begun(run, process, epochs=1):
    """Wait until a run that a process trains has so many epochs."""
    waited(lambda: epochs_of(run) >= epochs or process.poll() is not None)
    assert process.poll() is None, process.communicate()
