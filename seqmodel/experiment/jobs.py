"""The processes of an experiment: the work of one, and this host's, replaced when killed."""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from optuna.trial import Trial

from seqmodel.config import Config
from seqmodel.errors import SeqmodelError, advising, lacks_memory
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.experiment.folder import (
    RESUME_HINT,
    Event,
    is_dead,
    lock_of,
    new_name,
    remove_lock,
    write_event,
)
from seqmodel.experiment.plan import Cell, Plan, Source
from seqmodel.experiment.search import run_next, train_trial
from seqmodel.experiment.studies import (
    CHECKPOINT,
    ENDED,
    EPOCHS,
    SCORES,
    WORKER,
    Studies,
    name_in,
    open_storage,
)
from seqmodel.files import held_lock, locked, read_bytes, write_file
from seqmodel.runs.files import epochs_of
from seqmodel.runs.folder import BEST, LAST, load_run, read_metrics
from seqmodel.system.machine import available_memory, cores, peak_memory
from seqmodel.system.processes import request_end, start, wait
from seqmodel.system.signals import TERMINATE, name_of
from seqmodel.training.stopping import InterruptError, StopRequest, stop_on_signals
from seqmodel.training.trackers import Listener, Tick

POLL = 0.5
"""Seconds between checks for a signal, or for work that waits for other processes."""
INTERVAL = 0.5
"""Seconds between two reports of the current epoch."""
DEATHS = 3
"""The number of kills at the same epoch of a run after which the experiment ends."""
DEFAULT_MEMORY = 2 << 30
"""Bytes that a process is expected to use before any has trained."""
MARGIN = 1.25
"""Memory kept free for a process, as a multiple of the highest use of one."""
SILENCE = 60
"""Seconds after a process's message in which those of others are dropped."""
DONE = "done"
"""The last word of a process that found nothing left to do."""

Message = Event | SeqmodelError | MemoryError | str
"""What a process reports: progress, the error that stopped it, `DONE` or a message."""


class Worker:
    """Works on an experiment in a folder, alongside any others."""

    def __init__(
        self,
        studies: Studies,
        folder: Path,
        report: Callable[[Event], None] = lambda event: None,
        stop: StopRequest | None = None,
        artifacts: Path | None = None,
    ) -> None:
        self._studies, self._folder, self._artifacts = studies, folder, artifacts
        self._report, self._stop = report, stop or StopRequest()
        self._name = new_name(folder)
        self._lock = lock_of(folder, self._name)
        self._dataset = cache(Source.dataset)
        self._reported_at = 0.0
        self._last: Event | None = None

    def work(self) -> None:
        """Run trials until the experiment is complete.

        Raises:
            InterruptError: after `stop` was set; the current run can be resumed.
            SeqmodelError: if a dataset is not the plan's, or the disk is full.
        """
        try:
            with held_lock(self._lock):
                while not self._studies.complete():
                    self._end_if_stopped()
                    if not any(map(self._run_next, self._studies.plan.cells())):
                        time.sleep(POLL)
        finally:
            remove_lock(self._lock)

    def _end_if_stopped(self, *scored: int) -> None:
        if self._stop.signal is not None:
            raise InterruptError("stopped", self._stop.signal)

    def _run_next(self, cell: Cell) -> bool:
        """Run the next trial or seed of a cell; False if there is none for now."""
        study = self._studies.unfinished(cell)
        if study is None:
            return False
        with held_lock(self._folder / "locks" / "queue", wait=True):
            study.requeue_abandoned(
                lambda worker: worker != self._name and is_dead(self._folder, worker)
            )
        if not study.has_unclaimed():
            return False
        train = partial(self._train, cell, study.kind)
        run_next(self._studies, cell, study, self._config(cell, {}, 0), train)
        if self._last is not None:  # None if another process got the last one
            self._report(replace(self._last, counts=self._studies.counts(cell)))
            self._last = None
        return True

    def _publish(self, event: Event) -> None:
        """Report to the parent process, and to the lock file for `--status`."""
        self._report(event)
        write_event(self._lock, event)

    def _config(self, cell: Cell, params: Mapping[str, Any], seed: int) -> Config:
        return self._studies.plan.config(cell, self._dataset(cell.source), params, seed)

    def _train(
        self, cell: Cell, kind: str, trial: Trial, number: int, params: Mapping[str, Any]
    ) -> float:
        """Train or resume a run in its folder, see `train_trial`; score it if it is a winner's."""
        dataset, name, seed = self._dataset(cell.source), f"trial-{number}", 0
        if kind == "seed":
            name, seed = self._studies.run_of_seed(cell, number), number
        folder = self._folder / "runs" / cell.name / name
        config = self._config(cell, params, seed)
        run = f"{cell.name}/{kind}-{number}"
        epochs_before = epochs_of(read_metrics(folder)) if folder.is_dir() else 0
        figures: list[tuple[float, float]] = []  # at valid so far: (figure, epochs)

        def event(share: float = 0.0, ended: str | None = None) -> Event:
            best, best_at = min(figures) if figures else (None, 0)
            done = figures[-1][1] if figures else 0
            return Event(run, done, config.most_epochs(best_at), best, ended, share, epochs_before)

        def tick(now: Tick) -> None:
            if now.nats_per_frame is not None and time.monotonic() - self._reported_at > INTERVAL:
                self._reported_at = time.monotonic()
                done = figures[-1][1] if figures else 0
                self._publish(event(now.epoch - 1 + now.done / now.total - done))

        def epochs(lines: Sequence[Mapping[str, Any]]) -> None:
            for line in lines:
                figures.append((line["valid_nats_per_frame"], line["epoch"]))
                trial.report(figures[-1][0], len(figures))
            if lines:
                trial.set_user_attr(EPOCHS, figures[-1][1])
            self._publish(event())

        trial.set_user_attr(WORKER, self._name)
        self._publish(event())
        try:
            with locked(folder):
                figure = train_trial(
                    trial,
                    config,
                    dataset,
                    folder,
                    resume=(folder / LAST).is_file(),
                    listener=Listener(tick, lambda line, _: epochs([line]), resumed=epochs),
                    stop=self._stop,
                    hint=RESUME_HINT,
                )
            if kind == "seed":
                model = load_run(folder).model
                nats = dict[str, list[float]]()  # of each piece, in order, at the best epoch
                for split in dataset.splits:
                    scores = likelihood(model, dataset[split], progress=self._end_if_stopped)
                    nats[split] = scores.piece_nats.tolist()
                trial.set_user_attr(SCORES, nats)
                if self._artifacts is not None:  # for other hosts that see this folder
                    artifact = uuid.uuid4().hex
                    write_file(self._artifacts / artifact, read_bytes(folder / BEST))
                    trial.set_user_attr(CHECKPOINT, artifact)
            return figure
        finally:
            if ENDED in trial.user_attrs:
                self._publish(event())
                self._last = event(ended=trial.user_attrs[ENDED])


def collect(studies: Studies, folder: Path, artifacts: Path) -> None:
    """Fetch the winners' checkpoints that the experiment's `folder` lacks."""
    for cell in studies.plan.cells():
        for index, trial in enumerate(studies.seeds(cell).runs()):
            best = folder / "runs" / cell.name / studies.run_of_seed(cell, index) / BEST
            name = trial.user_attrs.get(CHECKPOINT)
            if name is not None and not best.exists():
                write_file(best, read_bytes(artifacts / name))


# ---- those of this host --------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """The work shared by all processes of a pool."""

    folder: Path
    """The experiment's folder."""
    plan: Plan
    """With the paths of the data on this host."""
    storage: str | None
    """A database's address; None for the journal."""
    artifacts: Path | None = None
    """Where hosts store the checkpoints of winners."""


@dataclass
class _Member:
    """A process, alive as long as its pipe is open, and its last report."""

    process: Any
    last: Event | None = None


class Pool:
    """Single-threaded processes that work on a begun experiment until it is complete.

    On one thread a run's result does not depend on what else is running. There are `jobs`
    processes, or one per core as far as memory allows, but at most `max_processes`, the number of
    open runs; killed ones are replaced. `report` receives their events, `say` messages. Each
    process has a pipe: a shared queue breaks if one is killed writing.
    """

    def __init__(
        self,
        task: Task,
        jobs: int | None,
        max_processes: int,
        *,
        report: Callable[[Event], None],
        say: Callable[[str], None],
        stop: StopRequest,
    ) -> None:
        self._task, self._report, self._say, self._stop = task, report, say, stop
        self._jobs, self._max_processes, self._cores = jobs, max_processes, cores()
        self._deaths: Counter[tuple[str, int]] = Counter()
        self._members: dict[Any, _Member] = {}
        self.largest = 0  # peak bytes of a process
        self._error: SeqmodelError | MemoryError | None = None
        self._closing = False
        """Whether processes are no longer replaced: one found nothing left to do, or has to end."""
        self._end_requested = self._limit_reported = False
        self._reported_at = -float(SILENCE)

    def run(self) -> None:
        """Start the processes and wait until they have ended.

        Raises:
            InterruptError: after `stop` was set; another pool resumes.
            MemoryError: if a process has too little memory.
            SeqmodelError: the error that stopped a process, or if one was killed repeatedly.
        """
        try:
            while True:
                while self._stop.signal is None and not self._closing:
                    if not self.can_start([member.last for member in self._members.values()]):
                        break
                    self._start()
                if not self._members:
                    break
                self._listen()
                if self._stop.signal is not None or self._error is not None:
                    self._end()
        finally:
            self._end()
            for member in self._members.values():
                member.process.join()
        if self._stop.signal is not None:  # which may have killed the server, too
            raise InterruptError(f"stopped; {RESUME_HINT}", self._stop.signal)
        if self._error is not None:
            raise self._error
        if self.largest:
            self._say(f"a run takes up to {_gigabytes(self.largest)} of memory")

    def can_start(self, others: list[Event | None]) -> bool:
        """Whether one more has a core and memory next to others, whose latest events are given."""
        if len(others) >= self._max_processes:
            return False
        if self._jobs is not None:
            return len(others) < self._jobs
        if not others or len(others) >= self._cores:
            return not others
        memory_used = [event.memory if event else 0 for event in others]
        each = int(MARGIN * self.largest) or DEFAULT_MEMORY
        free = available_memory() - sum(max(0, each - so_far) for so_far in memory_used)
        if free < each and all(memory_used) and not self._limit_reported:
            self._limit_reported = True
            self._say(
                f"using {len(others)} of {self._cores} processes, as each takes {_gigabytes(each)} "
                f"of memory and {_gigabytes(max(free, 0))} is left (override with --jobs)"
            )
        return free >= each

    def _start(self) -> None:
        try:
            process, pipe = start(_process, self._task)
        except (EOFError, ConnectionError):
            self._fail(SeqmodelError(f"the server of processes was killed; {RESUME_HINT}"))
        else:
            self._members[pipe] = _Member(process)

    def _listen(self) -> None:
        for connection in wait(self._members, POLL):
            member = self._members[connection]
            try:
                message: Message = connection.recv()
            except (EOFError, OSError):
                del self._members[connection]
                if not self._closing:
                    self._record_death(member)
                continue
            if isinstance(message, Event):
                member.last = message
                self.largest = max(self.largest, message.memory)
                self._report(message)
            elif message == DONE:
                self._closing = True
            elif isinstance(message, str):
                if time.monotonic() - self._reported_at > SILENCE:  # all lose the database at once
                    self._reported_at = time.monotonic()
                    self._say(message)
            else:
                self._fail(message)

    def _end(self) -> None:
        if self._end_requested:
            return
        self._end_requested = self._closing = True
        for connection, member in [*self._members.items()]:
            if not request_end(member.process):  # its next report fails, as if this had died
                connection.close()
                del self._members[connection]
                member.process.join()

    def _record_death(self, member: _Member) -> None:
        """Record a process that ended unasked: it is replaced, unless that would be in vain."""
        member.process.join()
        code, last = member.process.exitcode or 0, member.last
        place = (last.run, int(last.epoch)) if last else ("a starting process", 0)
        self._deaths[place] += 1
        if code == 1:  # an exception, whose traceback has been printed
            self._fail(SeqmodelError(f"{place[0]} failed: see above"))
        elif self._deaths[place] == DEATHS:
            how = name_of(-code) if code < 0 else f"status {code}"
            self._fail(
                SeqmodelError(
                    f"{place[0]} was killed {DEATHS} times in epoch {place[1] + 1} (by {how}): "
                    f"{RESUME_HINT}, with fewer --jobs if memory is short"
                )
            )

    def _fail(self, error: SeqmodelError | MemoryError) -> None:
        self._error, self._closing = self._error or error, True


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


def _process(task: Task, pipe: Any) -> None:
    import torch

    torch.set_num_threads(1)
    base, trained = peak_memory(), False  # with the server, at the start
    with stop_on_signals() as stop:

        def report(message: Message) -> None:
            nonlocal trained
            if isinstance(message, Event):
                trained = trained or message.share > 0 or message.epoch > message.begun
                message = replace(message, memory=max(peak_memory() - base, 1) if trained else 0)
            try:
                pipe.send(message)
            except BrokenPipeError:  # the command was killed: save and end, as if stopped
                stop.signal = TERMINATE

        try:
            storage = open_storage(task.folder, task.storage, report, stop)
            name = name_in(storage, task.folder, task.storage)
            studies = Studies(storage, name, task.plan)
            with advising(RESUME_HINT):
                Worker(studies, task.folder, report, stop, task.artifacts).work()
            report(DONE)
        except InterruptError:
            pass
        except SeqmodelError as error:
            report(SeqmodelError(str(error)))
        except Exception as error:
            if not lacks_memory(error):
                raise
            report(MemoryError())
