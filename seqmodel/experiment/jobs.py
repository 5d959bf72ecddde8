"""The processes of an experiment on this host."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from seqmodel.errors import SeqmodelError
from seqmodel.experiment.plan import Plan
from seqmodel.experiment.progress import Event
from seqmodel.experiment.storage import open_storage
from seqmodel.experiment.studies import Studies
from seqmodel.experiment.worker import Worker
from seqmodel.training.stopping import InterruptError, StopRequest, stop_on_signals

WAIT = 0.5
"""Seconds between checks for a signal."""


def work(
    folder: Path,
    name: str,
    plan: Plan,
    storage: str | None,
    jobs: int,
    *,
    tell: Callable[[Event], None],
    stop: StopRequest,
) -> None:
    """Work on a begun experiment with `jobs` single-threaded processes until it is complete.

    Small models gain more from running side by side than from threads, and on one thread a run's
    result does not depend on what else is running. `plan` says where this host has the data.

    Raises:
        InterruptError: after `stop` was set; the same call resumes.
        SeqmodelError: the error that stopped a process, or if all of them or the server were
            killed.
    """
    context = multiprocessing.get_context("forkserver")
    processes: list[ForkServerProcess] = []
    # One pipe each: a shared queue could no longer be read once a process is killed while it
    # writes.
    heard: list[Connection] = []
    try:
        _start_server()
        for _ in range(jobs):
            if stop.signal is not None:  # it may have come while the server loaded
                break
            ours, its = context.Pipe(duplex=False)
            arguments = (folder, name, plan, storage, its)
            process = context.Process(target=_process, args=arguments)
            try:
                process.start()
            except (EOFError, ConnectionError) as error:
                raise SeqmodelError(
                    "the server of processes was killed; run the same command to resume"
                ) from error
            its.close()  # so that the pipe ends when the process does
            processes.append(process)
            heard.append(ours)
        _listen(processes, heard, tell, stop)
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
            process.join()


def _start_server() -> None:
    """Start the server, unless it runs: it loads the libraries once, and processes are its forks.

    They share its memory, and each needs milliseconds instead of seconds to start.
    """
    multiprocessing.set_forkserver_preload([__name__])
    resource_tracker.ensure_running()  # starting it below would unblock the signal
    former = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # read as the server loads its libraries
    # The server and its forks inherit the block: Ctrl-C reaches them too, but this process is the
    # one to stop them.
    with _blocked(signal.SIGINT):
        forkserver.ensure_running()
    if former is None:
        del os.environ["OMP_NUM_THREADS"]
    else:
        os.environ["OMP_NUM_THREADS"] = former


@contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    """Defer a signal to the end of the block; processes started in it never receive it."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _listen(
    processes: list[ForkServerProcess],
    heard: list[Connection],
    tell: Callable[[Event], None],
    stop: StopRequest,
) -> None:
    """Pass on the processes' events until all have ended; the first error stops them all."""
    error: SeqmodelError | None = None
    asked = False
    while heard:
        for connection in wait(heard, WAIT):
            assert isinstance(connection, Connection)
            try:
                event = connection.recv()
            except (EOFError, OSError):
                heard.remove(connection)
                continue
            if isinstance(event, SeqmodelError):
                error = error or event
            else:
                tell(event)
        if (stop.signal is not None or error is not None) and not asked:
            asked = True
            for process in processes:
                process.terminate()
    for process in processes:
        process.join()
    if error is not None:
        raise error
    if stop.signal is not None:
        raise InterruptError("stopped; run the same command to resume", stop.signal)
    killed = [-process.exitcode for process in processes if process.exitcode]
    if len(killed) == len(processes):
        how = signal.Signals(killed[0]).name if killed[0] > 0 else f"status {-killed[0]}"
        raise SeqmodelError(f"every process ended by {how}; run the same command to resume")


def _process(folder: Path, name: str, plan: Plan, storage: str | None, heard: Connection) -> None:
    import torch

    from seqmodel.kernels.run.allocator import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(1)
    with stop_on_signals() as stop:

        def tell(event: Event | SeqmodelError) -> None:
            try:
                heard.send(event)
            except BrokenPipeError:  # the command was killed: save, and end as if stopped
                stop.signal = signal.SIGTERM

        try:
            studies = Studies(open_storage(folder, storage), name, plan)
            Worker(studies, folder, tell, stop).work()
        except InterruptError:
            pass
        except SeqmodelError as error:
            tell(SeqmodelError(str(error)))
