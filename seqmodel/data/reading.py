"""Files read in order: one after the other or, where there are many, by several processes."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from seqmodel.errors import SeqmodelError, SourceError
from seqmodel.system.processes import start

ALONE = 1.0
"""Seconds of reading before other processes help: about as long as they take to start."""
FEW = 64
"""Files that are not worth it."""

Read = Callable[[Path], Any]


def read_all(read: Read, paths: Sequence[Path], processes: int) -> Generator[Any, None, None]:
    """What `read` makes of each path, or its SourceError, in order.

    Both have to be picklable. SeqmodelError if one of the processes is killed.
    """
    spent = 0.0
    for k, path in enumerate(paths):
        if processes > 1 and len(paths) - k > FEW and spent > ALONE:
            yield from _shared_out(read, paths[k:], processes)
            return
        began = time.monotonic()
        outcome = _outcome(read, path)
        spent += time.monotonic() - began
        yield outcome


def _shared_out(read: Read, paths: Sequence[Path], processes: int) -> Generator[Any, None, None]:
    """Each process reads every n-th path, and goes ahead until its pipe is full."""
    members = list[tuple[Any, Any]]()
    try:
        for k, path in enumerate(paths):
            try:
                for other in () if members else range(processes):
                    members.append(start(_send, read, paths[other::processes]))
                outcome = members[k % processes][1].recv()
            except (EOFError, OSError) as error:  # also within what it sends
                raise SeqmodelError(f"the process that read {path} was killed") from error
            if isinstance(outcome, Exception) and not isinstance(outcome, SourceError):
                raise outcome
            yield outcome
    finally:
        for _, pipe in members:
            pipe.close()
        for process, _ in members:
            process.join()


def _send(read: Read, paths: Sequence[Path], pipe: Any) -> None:
    with suppress(BrokenPipeError):  # nobody wants them any longer
        for path in paths:
            try:
                outcome = _outcome(read, path)
            except Exception as error:  # raised where they are wanted
                outcome = error
            pipe.send(outcome)


def _outcome(read: Read, path: Path) -> Any:
    try:
        return read(path)
    except SourceError as error:
        return error
