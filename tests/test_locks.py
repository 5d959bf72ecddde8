"""Locks: one process at a time, released when the process dies, and no file left behind."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import refusals

from seqmodel.files import held_lock, locked, sibling


def busy(target):
    return f"another process is writing {target}: wait for it to finish, or choose another path"


def refused(target):
    return refusals.refused(lambda: locked(target).__enter__())


@pytest.mark.parametrize("there", [True, False])
def test_a_second_lock_is_refused_and_the_first_leaves_nothing(tmp_path, there):
    target = tmp_path / "deep" / "run"
    if there:
        target.mkdir(parents=True)
    with locked(target):
        assert refused(target) == busy(target)
        with locked(tmp_path / "deep" / "other"):
            pass
    with locked(target):
        pass
    assert list(tmp_path.rglob("*")) == ([target.parent, target] if there else [])


def test_a_link_its_target_and_what_replaces_that_share_a_lock(tmp_path):
    """--force renames a folder over another: a lock on the old one itself would go with it."""
    target, new, link, loop = (tmp_path / name for name in ("run", "new", "link", "loop"))
    target.mkdir()
    new.mkdir()
    link.symlink_to("run")
    loop.symlink_to("loop")
    with locked(link), locked(loop):
        assert refused(target) == busy(target)
        target.rmdir()
        new.rename(target)
        assert refused(target) == busy(target)


@contextmanager
def held_by_one_who_dies(lock, path):
    """Another process holds the lock for the duration of the block, and is then killed."""
    told, telling = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(30)  # one that hangs dies, and has told nothing
        try:
            with lock(path):
                os.write(telling, b"held")
                time.sleep(60)
        finally:
            os._exit(1)
    os.close(telling)
    assert os.read(told, 4) == b"held"
    try:
        yield
    finally:
        os.close(told)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_dead_process_holds_no_lock(tmp_path):
    """Guards against a lock file whose owner was killed: nobody could ever train there again."""
    with held_by_one_who_dies(locked, tmp_path / "run"):
        assert refused(tmp_path / "run") == busy(tmp_path / "run")
    with locked(tmp_path / "run"):
        pass
    assert list(tmp_path.iterdir()) == []
    with held_by_one_who_dies(held_lock, tmp_path / "lock"), held_lock(tmp_path / "lock") as free:
        assert not free
    with held_lock(tmp_path / "lock") as free:
        assert free


def test_one_waiter_at_a_time_gets_the_lock(tmp_path):
    """The holder removes the lock file at the end: a waiter must not take the removed file."""
    inside, most = [], []

    def enter(_):
        with locked(tmp_path / "data", wait=True):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.001)
            inside.pop()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(enter, range(20)))
    assert most == [1] * 20
    assert list(tmp_path.iterdir()) == []


def test_the_folder_itself_is_locked_if_no_file_can_be_created(tmp_path):
    """As when someone else owns the parent folder; here a folder is where the file would be."""
    target = tmp_path / "run"
    target.mkdir()
    sibling(target, "lock").mkdir()
    with locked(target):
        assert refused(target) == busy(target)
    with locked(target):
        pass


def test_a_file_that_happens_to_have_the_locks_name_is_kept(tmp_path):
    """Its name was .run.lock, as other programs' are, and whatever had it was removed."""
    for k, content in enumerate(("", "letter")):
        (tmp_path / ".run.lock").write_text(content)
        with locked(tmp_path / "run"):
            (lock,) = set(tmp_path.iterdir()) - {tmp_path / ".run.lock"}
        assert (tmp_path / ".run.lock").read_text() == content, k
    lock.write_text("letter")
    with locked(tmp_path / "run"):
        pass
    assert lock.read_text() == "letter"


def test_a_pipe_in_the_locks_place_is_left_alone(tmp_path):
    """Guards against waiting for its writer, and against removing it."""
    with locked(tmp_path / "run"):
        (lock,) = tmp_path.iterdir()
    os.mkfifo(lock)
    with locked(tmp_path / "run"):
        pass
    assert lock.is_fifo()
