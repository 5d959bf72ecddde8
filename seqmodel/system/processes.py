"""Further processes of this tool: how they start, and how they are asked to end."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.process import BaseProcess
from typing import Any

_FORKS = hasattr(os, "fork")
_importing_pid = os.getpid()


def forked() -> bool:
    """Whether this process is a fork of another, and so lacks its threads."""
    return _missed_fork() or os.getpid() != _importing_pid


@cache
def _missed_fork() -> bool:
    """Whether this module was first imported in a fork."""
    method = multiprocessing.get_start_method(allow_none=True)
    return multiprocessing.parent_process() is not None and method in (None, "fork")


def no_groups_reason() -> str | None:
    """Why several processes cannot train one model here; None if they can."""
    if hasattr(os, "killpg") and _FORKS:
        return None
    return "this system has no process groups, by which they would end together"


def start(target: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Any]:
    """A process that calls `target` with the arguments and its end of a pipe; the pipe's other end.

    If processes can fork, a server loads the module of `target` once and forks them: they share its
    memory, and each starts in milliseconds instead of seconds. Libraries that they load use one
    thread. ConnectionError or EOFError if the server was killed.
    """
    context: Any = multiprocessing.get_context("forkserver" if _FORKS else "spawn")
    with _one_thread():
        if _FORKS:
            _start_server(target.__module__)
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=target, args=(*arguments, sender))
        process.start()
    sender.close()  # so that the pipe closes when the process ends
    return process, receiver


def wait(pipes: Iterable[Any], seconds: float) -> list[Any]:
    """The pipes that are readable or closed, once any is or the time is over."""
    from multiprocessing import connection

    return connection.wait(pipes, seconds)


def _start_server(module: str) -> None:
    from multiprocessing import forkserver, resource_tracker

    if sys.platform == "win32":
        return
    multiprocessing.set_forkserver_preload([module])
    resource_tracker.ensure_running()  # starting it below would unblock the signal
    # The server and its forks inherit the mask: Ctrl-C and a hangup reach them too, but this
    # process is the one to stop them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # read when libraries are loaded
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def request_end(process: BaseProcess) -> bool:
    """Send a process the signal to save its work and end.

    False on Windows, where the signal would end it at once.
    """
    if not _FORKS:
        return False
    assert process.pid is not None
    with suppress(ProcessLookupError):
        # Not Process.terminate, which does nothing once the server is dead.
        os.kill(process.pid, signal.SIGTERM)
    return True
