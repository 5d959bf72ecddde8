"""The processes of an experiment on this host."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqmodel.errors import SeqmodelError, advising
from seqmodel.experiment.folder import AGAIN, Event
from seqmodel.experiment.plan import Plan
from seqmodel.experiment.studies import Studies, name_in, open_storage
from seqmodel.experiment.worker import Worker
from seqmodel.system.machine import available_memory, cores, keep_freed_memory, peak_memory
from seqmodel.system.processes import ask_to_end, start, wait
from seqmodel.system.signals import TERMINATE, name_of
from seqmodel.training.stopping import InterruptError, StopRequest, stop_on_signals

WAIT = 0.5
"""Seconds between checks for a signal."""
DEATHS = 3
"""How often a process may be killed at the same epoch of a run before the experiment ends."""
USUAL = 2 << 30
"""Bytes that a process is expected to take before any has trained."""
MARGIN = 1.25
"""Memory kept free for a process, as a multiple of the most that one has taken."""
SILENCE = 60
"""Seconds after a process's line for people in which those of others are left out."""
DONE = "done"
"""The last word of a process that found nothing left to do."""

Message = Event | SeqmodelError | MemoryError | str
"""What a process reports: progress, the error that stopped it, `DONE` or a line for people."""


@dataclass(frozen=True)
class Task:
    """What every process of a pool works on."""

    folder: Path
    """The experiment's."""
    plan: Plan
    """It says where this host has the data."""
    storage: str | None
    """A database's address; None for the journal."""
    artifacts: Path | None = None
    """Where hosts leave the checkpoints of winners."""


def work(
    task: Task,
    jobs: int | None,
    most: int,
    *,
    report: Callable[[Event], None],
    say: Callable[[str], None],
    stop: StopRequest,
) -> None:
    """Work on a begun experiment with single-threaded processes until it is complete.

    On one thread a run's result does not depend on what else is running. There are `jobs`
    processes, or one per core as far as memory allows, but at most `most`, which have something to
    do; a killed one is replaced. `report` takes their events, `say` lines for people.

    Raises:
        InterruptError: after `stop` was set; the same call resumes.
        MemoryError: if a process has too little memory.
        SeqmodelError: the error that stopped a process, or if one was killed again and again.
    """
    room = _Room(jobs, most, say)
    pool = _Pool(task, room, report, say)
    try:
        while True:
            while stop.signal is None and not pool.ends:
                if not room.for_another([member.last for member in pool.members.values()]):
                    break
                pool.start()
            if not pool.members:
                break
            pool.listen()
            if stop.signal is not None or pool.error is not None:
                pool.end()
    finally:
        pool.end()
        for member in pool.members.values():
            member.process.join()
    if pool.error is not None:
        raise pool.error
    if stop.signal is not None:
        raise InterruptError(f"stopped; {AGAIN}", stop.signal)
    if room.largest:
        say(f"a run takes up to {_gigabytes(room.largest)} of memory")


@dataclass
class _Member:
    """A process, which lives as long as its pipe is open, and what it reported last."""

    process: Any
    last: Event | None = None


class _Pool:
    """The processes at work, each with a pipe: a shared queue breaks if one is killed writing."""

    def __init__(
        self, task: Task, room: "_Room", report: Callable[[Event], None], say: Callable[[str], None]
    ) -> None:
        self._task, self._room, self._report, self._say = task, room, report, say
        self._deaths: Counter[tuple[str, int]] = Counter()
        self.members: dict[Any, _Member] = {}
        self.error: SeqmodelError | MemoryError | None = None
        self.ends = False
        """Whether nobody is to be replaced: one found nothing left to do, or has to end."""
        self._asked = False
        self._said_at = -float(SILENCE)

    def start(self) -> None:
        try:
            process, pipe = start(_process, self._task)
        except (EOFError, ConnectionError) as error:
            raise SeqmodelError(f"the server of processes was killed; {AGAIN}") from error
        self.members[pipe] = _Member(process)

    def listen(self) -> None:
        for connection in wait(self.members, WAIT):
            member = self.members[connection]
            try:
                message: Message = connection.recv()
            except (EOFError, OSError):
                del self.members[connection]
                if not self.ends:
                    self._bury(member)
                continue
            if isinstance(message, Event):
                member.last = message
                self._room.largest = max(self._room.largest, message.memory)
                self._report(message)
            elif message == DONE:
                self.ends = True
            elif isinstance(message, str):
                if time.monotonic() - self._said_at > SILENCE:  # all lose a database at once
                    self._said_at = time.monotonic()
                    self._say(message)
            else:
                self._fail(message)

    def end(self) -> None:
        if self._asked:
            return
        self._asked = self.ends = True
        for connection, member in [*self.members.items()]:
            if not ask_to_end(member.process):  # its next report fails, as if this were killed
                connection.close()
                del self.members[connection]
                member.process.join()

    def _bury(self, member: _Member) -> None:
        """Take note of a process that ended unasked: it is replaced, unless that is in vain."""
        member.process.join()
        code, last = member.process.exitcode or 0, member.last
        at = (last.run, int(last.epoch)) if last else ("a process that loads", 0)
        self._deaths[at] += 1
        if code == 1:  # an exception, whose traceback has been printed
            self._fail(SeqmodelError(f"{at[0]} failed: see above"))
        elif self._deaths[at] == DEATHS:
            how = name_of(-code) if code < 0 else f"status {code}"
            self._fail(
                SeqmodelError(
                    f"{at[0]} was killed {DEATHS} times in epoch {at[1] + 1} (by {how}): {AGAIN}, "
                    "with fewer --jobs if memory is short"
                )
            )

    def _fail(self, error: SeqmodelError | MemoryError) -> None:
        self.error, self.ends = self.error or error, True


class _Room:
    """Whether one more process has a core and memory."""

    def __init__(self, jobs: int | None, most: int, say: Callable[[str], None]) -> None:
        self._jobs, self._most, self._say = jobs, most, say
        self._cores = cores()
        self.largest = 0  # bytes that one has taken
        self._limit_reported = False

    def for_another(self, others: list[Event | None]) -> bool:
        """Whether one more may start next to others, of which the latest events are given."""
        if len(others) >= self._most:
            return False
        if self._jobs is not None:
            return len(others) < self._jobs
        if not others or len(others) >= self._cores:
            return not others
        taken = [event.memory if event else 0 for event in others]
        each = int(MARGIN * self.largest) or USUAL
        free = available_memory() - sum(max(0, each - so_far) for so_far in taken)
        if free < each and all(taken) and not self._limit_reported:
            self._limit_reported = True
            self._say(
                f"{len(others)} of {self._cores} processes, as each takes {_gigabytes(each)} of "
                f"memory and {_gigabytes(max(free, 0))} is left (--jobs decides otherwise)"
            )
        return free >= each


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


def _process(task: Task, pipe: Any) -> None:
    import torch

    keep_freed_memory()
    torch.set_num_threads(1)
    shared, trained = peak_memory(), False  # with the server, at the start
    with stop_on_signals() as stop:

        def report(message: Message) -> None:
            nonlocal trained
            if isinstance(message, Event):
                trained = trained or message.share > 0 or message.epoch > message.begun
                message = replace(message, memory=max(peak_memory() - shared, 1) if trained else 0)
            try:
                pipe.send(message)
            except BrokenPipeError:  # the command was killed: save, and end as if stopped
                stop.signal = TERMINATE

        try:
            storage = open_storage(task.folder, task.storage, report, stop)
            name = name_in(storage, task.folder, task.storage)
            studies = Studies(storage, name, task.plan)
            with advising(AGAIN):
                Worker(studies, task.folder, report, stop, task.artifacts).work()
            report(DONE)
        except InterruptError:
            pass
        except SeqmodelError as error:
            report(SeqmodelError(str(error)))
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
                raise
            report(MemoryError())
