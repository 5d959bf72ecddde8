"""The processes of an experiment: their names, and the locks that show which are alive."""

import os
import socket
import uuid
from pathlib import Path

from seqmodel.experiment.place import JOURNAL
from seqmodel.locks import held

AGAIN = "run the same command to resume"
"""What to do after a stop."""
GRACE = 60
"""Seconds without a sign of life before a process of another host is considered dead.

On one host, dead processes are recognised at once by the locks that they lost.
"""


def new_name(folder: Path) -> str:
    """The name of a process that works in `folder` on this host."""
    return f"{_place(folder)} {uuid.uuid4().hex}"


def host_of(name: str) -> str:
    """The host of a process."""
    return name.partition(":")[0]


def lock_of(folder: Path, name: str) -> Path:
    """The file that a process of this folder locks for as long as it lives.

    It holds what the process is doing, see `progress.write_event`.
    """
    return folder / "locks" / name.rpartition(" ")[2]


def is_here(folder: Path, name: str) -> bool:
    """Whether a process belongs, or belonged, to this host and folder.

    All that share a journal do, wherever its folder was when they worked in it.
    """
    return (folder / JOURNAL).is_file() or name.startswith(f"{_place(folder)} ")


def is_dead(folder: Path, name: str) -> bool:
    """Whether a process belonged to this host and folder, and no longer holds its lock."""
    if not is_here(folder, name):
        return False
    with held(lock_of(folder, name)) as free:
        return free


def _place(folder: Path) -> str:
    return f"{socket.gethostname()}:{os.path.realpath(folder)}"
