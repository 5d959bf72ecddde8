"""Processes of one training killed, frozen or delayed at random; another number of them goes on.

What is left must be resumed to the bits of a run that nothing disturbed.
"""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from calling import children
from corpora import going_on, training, write_datasets
from safetensors.numpy import load_file

STUCK = 15
"""Seconds after which one process takes another for stuck: as short as four can start in, beside
other work."""
LEADER = (
    "import sys; from datetime import timedelta; from seqmodel.training import processes; "
    f"processes.PATIENCE = timedelta(seconds={STUCK}); "
    "from seqmodel.cli.main import main; main()"
)
TRIED = ("tied lstm", "tied gru of two layers, bernoulli", "sample-wise")
PARTS = ("--parts", 4, "--batch-size", 4, "--epochs", 40, "--patience", 40)
PATIENCE = 120.0


@dataclass
class Ranks:
    """How many processes were hurt, and what broke."""

    killed: int = 0
    frozen: int = 0
    delayed: int = 0
    mid_work: int = 0
    """Trainings that ended early and were resumed."""
    complaints: list[str] = field(default_factory=list)


def hurt_all(folder, seed, *, short):
    """Hurt processes of 50 trainings, if `short` of two, each resumed until it has ended."""
    found, draw = Ranks(), random.Random(seed)
    write_datasets(folder)
    whole = {}
    for name in TRIED:
        command = (*training(folder, name, folder / f"whole {name}"), *PARTS)
        status, err, seconds = _ended(_started(command, 1))
        assert status == 0, err
        whole[name] = load_file(folder / f"whole {name}/best.safetensors"), seconds
    for number in range(2 if short else 50):
        name, run = draw.choice(TRIED), folder / f"run {number}"
        weights, seconds = whole[name]
        wrong = _tried(found, (*training(folder, name, run), *PARTS), run, seconds, draw)
        if wrong is None:
            ours = load_file(run / "best.safetensors")
            if any((ours[key] != value).any() for key, value in weights.items()):
                wrong = "other weights"
        if wrong is not None:
            found.complaints.append(f"{name}, seed {seed}, attempt {number}: {wrong}")
    said = (
        f"{found.killed} processes of a training killed, {found.frozen} frozen, "
        f"{found.delayed} delayed, {found.mid_work} trainings resumed"
    )
    return said, found.complaints


def _tried(found, command, run, seconds, draw):
    """Train, hurt twice, until it has ended; returns what broke."""
    for turn in count():
        size = draw.choice([2, 4])
        process = _started(command if turn == 0 else going_on(run, command), size)
        how = _hurt(process, size, seconds, draw) if turn < 2 else "let be"
        status, err, _ = _ended(process)
        if "Traceback" in err or (status and how in ("let be", "delayed")):
            return f"{size} processes, one {how} in turn {turn}, ended with {status}: {err}"
        if how != "let be":
            setattr(found, how, getattr(found, how) + 1)
        if status == 0:
            return None
        found.mid_work += 1
    raise AssertionError


def _started(command, size):
    words = [sys.executable, "-c", LEADER, *map(str, command)]
    many = ["--processes", str(size)] if size > 1 else []
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([*words, *many], text=True, **silent)


def _ended(process):
    began = time.monotonic()
    try:
        _, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return 0, "Traceback: it hangs", PATIENCE
    return process.returncode, err, time.monotonic() - began


def _hurt(process, size, seconds, draw):
    """Kill, freeze or delay one of the processes; the first is never frozen for good."""
    time.sleep(draw.uniform(0.2, 1.2) * seconds)
    others = children(process.pid)
    rank = draw.randrange(size)
    pid = process.pid if rank == 0 or len(others) < rank else others[rank - 1]
    frozen = [] if pid == process.pid else ["frozen"]
    how = draw.choice(["killed", "delayed", *frozen])
    with suppress(ProcessLookupError):
        if how == "killed":
            os.kill(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGSTOP)
        if how == "delayed":
            time.sleep(draw.uniform(0, STUCK / 3))
            os.kill(pid, signal.SIGCONT)
    return how
