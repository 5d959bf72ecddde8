"""The processes of an experiment on this host."""

import multiprocessing
import os
import queue
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from seqmodel.errors import SeqmodelError
from seqmodel.experiment.storage import open_storage
from seqmodel.experiment.studies import Studies
from seqmodel.experiment.worker import Event, Worker
from seqmodel.training.stopping import InterruptError, StopRequest, stop_on_signals

WAIT = 0.5
"""Seconds between looks at whether processes live and a signal came."""


def work(
    folder: Path,
    name: str,
    storage: str | None,
    jobs: int,
    *,
    tell: Callable[[Event], None],
    stop: StopRequest,
) -> None:
    """Work on a begun experiment with `jobs` single-threaded processes until it is complete.

    Small models share a machine better than they use it, and on one thread a run comes out the same
    whoever runs beside it.

    Raises:
        InterruptError: after `stop` was set; the same call goes on.
        SeqmodelError: what stopped a process, or that all were killed.
    """
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    arguments = (folder, name, storage, told)
    processes = [context.Process(target=_process, args=arguments) for _ in range(jobs)]
    former = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # read as a process loads its libraries
    try:
        for process in processes:
            process.start()
        _listen(processes, told, tell, stop)
    finally:
        if former is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = former
        for process in processes:
            if process.is_alive():
                process.terminate()
            process.join()


def _listen(
    processes: list[Any], told: Any, tell: Callable[[Event], None], stop: StopRequest
) -> None:
    error: SeqmodelError | None = None
    asked = False
    while True:
        alive = [process for process in processes if process.is_alive()]
        with suppress(queue.Empty):
            while True:
                event = told.get(timeout=WAIT if alive else 0.01)
                if isinstance(event, SeqmodelError):
                    error = error or event
                else:
                    tell(event)
        if (stop.signal is not None or error is not None) and not asked:
            asked = True
            for process in alive:
                process.terminate()
        if not alive:
            break
    if error is not None:
        raise error
    if stop.signal is not None:
        raise InterruptError("stopped; the same command goes on where it was", stop.signal)
    killed = [-p.exitcode for p in processes if p.exitcode]
    if len(killed) == len(processes):
        how = signal.Signals(killed[0]).name if killed[0] > 0 else f"status {-killed[0]}"
        raise SeqmodelError(f"every process ended by {how}; the same command goes on where it was")


def _process(folder: Path, name: str, storage: str | None, told: Any) -> None:
    import torch

    from seqmodel.kernels.run.allocator import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(1)
    with stop_on_signals() as stop:
        try:
            studies = Studies.begun(open_storage(folder, storage), name)
            assert studies is not None
            Worker(studies, folder, told.put, stop).work()
        except InterruptError:
            pass
        except SeqmodelError as error:
            told.put(SeqmodelError(str(error)))
