"""Writes and locks: atomic, leaving nothing behind, and removing nothing that is not ours."""

import errno
import os
import re
import resource
import shutil
import signal
import stat
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pytest
from refusals import refused

from seqmodel.errors import SeqmodelError, advising
from seqmodel.files import (
    FolderFormat,
    check_writable,
    disk_errors,
    held_lock,
    locked,
    new_folder,
    open_input,
    read_bytes,
    refuse_existing,
    sibling,
    write_file,
)

MARK = "manifest.json"
FORMAT = FolderFormat(
    "dataset",
    lambda folder: (folder / MARK).is_file() and (folder / MARK).read_text() in ("old", "new"),
    re.compile(r"manifest\.json|train\.npy|draws/\d+/new|new"),
)


@contextmanager
def full_disk(limit=100):
    """Every write beyond `limit` bytes of a file fails in the kernel, for root as well."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def fails(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def tree(folder):
    """Every path below `folder`, files with their bytes as the characters of Latin-1."""
    return {p: p.read_text("latin1") if p.is_file() else None for p in folder.rglob("*")}


def fill(folder, files):
    """Make a folder of these texts, by path; None: of an empty folder."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if text is None else path.write_text(text)


def replace_by(path, content):
    """As a command does: with the path locked, and --force."""
    with locked(path), new_folder(path, FORMAT, force=True) as folder:
        (folder / MARK).write_text(content)


def begin(path):
    """Begin to replace `path`, as far as checks go."""
    with new_folder(path, FORMAT, force=True):
        pytest.fail("the work began")


OLD = {MARK: "old", "train.npy": "old frames"}
"""A dataset-like folder that --force may replace."""


@pytest.fixture
def marked(tmp_path):
    fill(tmp_path / "data", OLD)
    return tmp_path / "data"


@pytest.mark.parametrize("broken", ["write", "os.fsync", "pathlib.Path.replace"])
def test_a_failed_write_leaves_the_old_file_and_no_temporary(tmp_path, monkeypatch, broken):
    target = tmp_path / "best.safetensors"
    write_file(target, b"old")
    if broken == "write":
        context = full_disk()
    else:
        context = monkeypatch.context()
        monkeypatch.setattr(broken, fails)
    with context, pytest.raises(SeqmodelError, match=f"cannot write {target}: "):
        write_file(target, b"new" * 10_000)
    assert tree(tmp_path) == {target: "old"}


def test_the_rename_comes_after_the_bytes_are_on_the_disk(tmp_path, monkeypatch):
    """A rename before fsync can leave an empty file after a power cut."""
    order = []
    sync, rename = os.fsync, Path.replace
    monkeypatch.setattr(
        os, "fsync", lambda fd: (order.append(("sync", os.fstat(fd).st_size)), sync(fd))
    )
    monkeypatch.setattr(Path, "replace", lambda a, b: (order.append("rename"), rename(a, b))[1])
    write_file(tmp_path / "a" / "b" / "file", b"12345")
    assert order[:2] == [("sync", 5), "rename"]
    assert (tmp_path / "a/b/file").read_bytes() == b"12345"


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_follow_the_umask(tmp_path, monkeypatch, mask):
    """mkstemp makes private files. To read the umask means to set it, for other threads, too."""
    before = os.umask(mask)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", fails)
            write_file(tmp_path / "file", b"")
            replace_by(tmp_path / "folder", "new")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o777 & ~mask


@pytest.mark.parametrize(
    ("name", "said"), [("file/deep/out.mid", ""), ("loop", " is a link that leads to itself")]
)
def test_a_path_below_a_file_or_a_link_to_itself_is_an_error_that_names_it(tmp_path, name, said):
    """Permissions do not stop root; a file where a folder should be always does."""
    (tmp_path / "file").write_text("here")
    (tmp_path / "loop").symlink_to("loop")
    path = tmp_path / name
    for attempt in (
        lambda: write_file(path, b""),
        lambda: check_writable(path),
        lambda: FORMAT.check_target(path, force=True),
        lambda: begin(path),
        *(() if said else (lambda: read_bytes(path),)),
    ):
        refused(attempt, f"{path}{said}")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file", tmp_path / "loop"]


def test_an_error_that_is_no_files_fault_blames_none(tmp_path):
    with pytest.raises(OSError, match=r"^cannot load library$"), disk_errors("read", tmp_path):
        raise OSError("cannot load library")


def test_check_writable_leaves_nothing_and_touches_nothing(tmp_path):
    (tmp_path / "out.mid").write_text("old")
    check_writable(tmp_path / "out.mid")
    check_writable(tmp_path / "deep" / "er" / "out.mid")
    assert tree(tmp_path) == {tmp_path / "out.mid": "old"}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_signal_while_a_file_is_opened_is_not_taken_for_a_failure_to_open_it(tmp_path):
    """Guards against two owners of a descriptor: closing it twice hid the signal's exception."""
    (tmp_path / "a").write_bytes(b"old")
    interrupted = 0

    def interrupt(frame, event, _):
        nonlocal left
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if left == 0:
            raise SystemExit(143)
        return interrupt

    sys._getframe().f_trace_opcodes = True  # or Python 3.12 reports no instructions at all
    while True:
        left = interrupted + 1
        sys.settrace(interrupt)
        try:
            file = open_input(tmp_path / "a")
            break
        except SystemExit:
            interrupted += 1
        finally:
            sys.settrace(None)
    file.close()
    assert interrupted > 20  # once at each instruction


def test_refuse_existing_sees_files_folders_and_dangling_links(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for name in ("link", "file", "folder"):
        there = partial(refuse_existing, tmp_path / name)
        refused(lambda there=there: there(force=False), f"{name} already exists; add --force")
        there(force=True)
    refuse_existing(tmp_path / "new", force=False)


LEFT = ".{}.seqmodel-{:012x}".format
"""A temporary name, by number."""


@pytest.mark.parametrize(
    "before",
    [
        {},
        OLD,
        {LEFT(MARK, 7): "ol"},  # of a process killed during its first write
        OLD | {".DS_Store": "", "._train.npy": "", "Thumbs.db": "", LEFT("train.npy", 1): ""},
        OLD | {"draws/7": None},  # an empty folder holds nothing to lose
    ],
)
def test_force_replaces_all_of_what_is_ours(tmp_path, before):
    """A file left from the old dataset would belong to neither. It appears when the block ends."""
    target, link = tmp_path / "data", tmp_path / "link"
    fill(target, before)
    link.symlink_to(target)
    was = tree(target)
    with new_folder(link, FORMAT, force=True) as folder:
        (folder / MARK).write_text("new")
        assert tree(target) == was
    assert link.is_symlink()
    assert tree(target) == {target / MARK: "new"}
    assert sorted(tmp_path.iterdir()) == [target, link]


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ({"thesis.tex": "years of work"}, "is not a dataset, so it is never replaced"),
        ({"train.npy": "frames"}, "is not a dataset, so it is never replaced"),
        ({"train.npy": "frames", MARK: "another program's"}, "is not a dataset"),
        ({"train.npy": "frames", MARK: ""}, "is not a dataset"),
        ({LEFT(MARK, 7): "ol", ".bashrc": "somebody's"}, "is not a dataset"),
        (OLD | {"draws/1/notes.txt": ""}, "holds draws/1/notes.txt, which is not part of"),
        (OLD | {"train.npy.bak": ""}, "holds train.npy.bak, which"),
        (OLD | {"draws/manifest.json": ""}, "holds draws/manifest.json, which"),
        (OLD | {".train.npy": ""}, "holds .train.npy, which"),
    ],
)
def test_force_never_removes_what_is_not_ours(tmp_path, before, said):
    """`--out ~ --force` must not remove somebody's home, nor a thesis next to our manifest."""
    fill(tmp_path / "home", before)
    was = tree(tmp_path)
    refused(lambda: begin(tmp_path / "home"), f"{tmp_path / 'home'} {said}")
    assert tree(tmp_path) == was


def test_force_refuses_files_links_and_what_came_during_the_work(tmp_path, marked):
    """A link to a folder counts as a file: its target is not searched."""
    (tmp_path / "file").write_text("years of work")
    (marked / "link").symlink_to(tmp_path)
    for path, said in ((tmp_path / "file", "is not a dataset"), (marked, "holds link, which")):
        refused(lambda path=path: begin(path), said)
    (marked / "link").unlink()

    def work():
        with new_folder(marked, FORMAT, force=True):
            (marked / "notes.txt").write_text("years of work")

    refused(work, "holds notes.txt, which")
    assert (marked / "notes.txt").read_text() == "years of work"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError(28, "No space")])
def test_an_exception_leaves_the_old_folder_and_nothing_else(tmp_path, marked, error):
    before = tree(tmp_path)
    expected = SeqmodelError if isinstance(error, OSError) else error

    def work():
        with new_folder(marked, FORMAT, force=True) as folder:
            (folder / "half").write_text("written")
            raise error

    with pytest.raises(expected):
        work()
    assert tree(tmp_path) == before


def test_where_two_paths_cannot_be_exchanged_a_failed_rename_restores_the_old_folder(
    tmp_path, marked, monkeypatch
):
    """If the old dataset were removed before the new one is in place, a failure would lose both."""
    monkeypatch.setattr("seqmodel.system.files.exchange", lambda one, other: False)
    replace_by(marked, "old")
    assert tree(tmp_path) == {marked: None, marked / MARK: "old"}
    before = tree(tmp_path)
    rename = Path.replace

    def second_fails(self, target):
        if (self / MARK).exists() and (self / MARK).read_text() == "new":
            fails()
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", second_fails)
    refused(lambda: replace_by(marked, "new"), "cannot write")
    assert tree(tmp_path) == before


def test_a_new_folders_files_are_on_the_disk_before_it_appears(tmp_path, monkeypatch):
    """Otherwise a power cut leaves a dataset of the right name with empty shards."""
    synced, data = [], tmp_path / "data"
    monkeypatch.setattr(os, "fsync", lambda fd: data.exists() or synced.append(os.fstat(fd).st_ino))
    with new_folder(data, FORMAT, force=False) as folder:
        (folder / "train.npy").write_bytes(b"frames")
    assert (data / "train.npy").stat().st_ino in synced


def test_a_replaced_folder_is_never_missing(tmp_path):
    """Guards processes that read, or are killed, between two renames."""
    replace_by(tmp_path / "d", "old")
    away, done = [], threading.Event()

    def look():
        while not done.is_set():
            try:
                os.stat(tmp_path / "d" / MARK)  # noqa: PTH116  as fast as possible
            except OSError:
                away.append(True)

    watcher = threading.Thread(target=look)
    watcher.start()
    for k in range(200):
        replace_by(tmp_path / "d", ("new", "old")[k % 2])
    done.set()
    watcher.join()
    assert not away


def killed_within(path, moment):
    """Replace `path` in another process, which dies in the call that `moment` patches."""
    child = os.fork()
    if not child:
        signal.alarm(30)  # one that hangs dies of that
        try:
            moment()
            replace_by(path, "new")
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] >> 8 == 9


def die(*arguments, **options):
    os._exit(9)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("call", ["system.flush", "_replace_folder", "shutil.rmtree"])
def test_what_killed_processes_leave_is_removed(tmp_path, monkeypatch, call):
    """Guards against a copy left on disk by each kill, and an incomplete old or new folder."""
    replace_by(tmp_path / "d", "old")
    killed_within(tmp_path / "d", lambda: monkeypatch.setattr(f"seqmodel.files.{call}", die))
    assert (tmp_path / "d" / MARK).read_text() == ("new" if "rmtree" in call else "old")
    assert len(list(tmp_path.iterdir())) == 3  # with its lock
    replace_by(tmp_path / "d", "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["d"]


def test_only_what_killed_processes_leave_is_removed(tmp_path):
    """Guards others' files, backups, and a complete dataset while it is the only one."""
    left = {name: tmp_path / LEFT("d", k) for k, name in enumerate(("foreign", "only", "half"))}
    fill(left["foreign"], {"letter": ""})
    fill(left["only"], {MARK: "old"})
    fill(left["half"], {"train.npy": ""})
    (tmp_path / LEFT("d", 5)).touch()  # left by a check whether `d` can be written
    (tmp_path / LEFT("d", 9)).symlink_to(left["only"])
    kept = {left["foreign"].name, LEFT("d", 9)}
    for name in (".d.original", ".d.20261122", ".d.seqmodel-backup", LEFT("d", 1)[:-1]):
        fill(tmp_path / name, OLD)
        kept.add(name)
    with new_folder(tmp_path / "d", FORMAT, force=False):
        assert left["half"].exists()  # it may belong to a process at work
    shutil.rmtree(tmp_path / "d")
    with locked(tmp_path / "d"), new_folder(tmp_path / "d", FORMAT, force=False) as folder:
        (folder / MARK).write_text("new")
        assert not left["half"].exists()
        assert left["only"].exists()
    assert {entry.name for entry in tmp_path.iterdir()} == kept | {"d"}


def test_a_link_to_a_file_is_followed(tmp_path):
    """As one to a folder is: it used to be replaced, and its target kept the old content."""
    (tmp_path / "far").mkdir()
    for name in ("old", "new"):  # `new` does not exist yet
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "far" / "old").write_text("old")
        (tmp_path / "link").symlink_to(Path("far", name))
        check_writable(tmp_path / "link")
        write_file(tmp_path / "link", b"written")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "far" / name).read_text() == "written"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["far", "link", "new", "old"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("name", ["x" * 255, "é" * 127])
def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path, monkeypatch, name):
    """Temporary names were longer by 23 bytes, and the file system refused them."""
    (tmp_path / "f").mkdir()
    write_file(tmp_path / "f" / name, b"written")
    with locked(tmp_path / name), pytest.raises(SeqmodelError), locked(tmp_path / name):
        pytest.fail("locked twice")
    for content in ("old", "new"):
        replace_by(tmp_path / name, content)
        assert tree(tmp_path / name) == {tmp_path / name / MARK: content}
    killed_within(tmp_path / name, lambda: monkeypatch.setattr("seqmodel.files.shutil.rmtree", die))
    assert len(list(tmp_path.iterdir())) == 4  # with its lock
    replace_by(tmp_path / name, "old")  # removes what the killed process left
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")} == {
        *("f", f"f/{name}", name, f"{name}/{MARK}")
    }


def test_a_name_that_is_too_long_is_refused_at_once(tmp_path):
    """Not when the work is done."""
    for check in (check_writable, lambda path: FORMAT.check_target(path, force=False)):
        with pytest.raises((SeqmodelError, OSError), match=r"(?i)name too long"):
            check(tmp_path / ("x" * 256))


@pytest.mark.parametrize(
    ("number", "fails"),
    [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True), (errno.ENOSPC, True)],
)
def test_a_file_system_need_not_flush_folders(tmp_path, monkeypatch, number, fails):
    """CIFS, and some that run as a program, refuse to; a broken disk is another matter."""
    flush = os.fsync

    def flush_files(file):
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(number, os.strerror(number))
        flush(file)

    monkeypatch.setattr(os, "fsync", flush_files)
    with pytest.raises(SeqmodelError) if fails else nullcontext():
        replace_by(tmp_path / "d", "new")
    assert (tmp_path / "d").exists() != fails
    assert fails or [entry.name for entry in tmp_path.iterdir()] == ["d"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_told_of_what_the_user_named(tmp_path, monkeypatch, number):
    """Files in a new folder, and the folder itself, were called by their temporary names."""

    def fail(file, **parents):
        if not parents:
            raise OSError(number, os.strerror(number), str(file))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", fail)
        refused(lambda: begin(tmp_path / "d"), "cannot write ", "/d: ")
    monkeypatch.setattr(os, "fsync", fail)

    def work():
        folder = new_folder(tmp_path / "d", FORMAT, force=False)
        with advising("do this again"), advising("do that again"), folder as new:
            write_file(new / "train.npy", b"")

    says = f"cannot write {tmp_path / 'd' / 'train.npy'}: {os.strerror(number).lower()}; "
    assert refused(work) == f"{says}once there is room, do that again"


def busy(target):
    return f"another process is writing {target}: wait for it to finish, or choose another path"


def refusal(target):
    return refused(lambda: locked(target).__enter__())


@pytest.mark.parametrize("there", [True, False])
def test_a_second_lock_is_refused_and_the_first_leaves_nothing(tmp_path, there):
    target = tmp_path / "deep" / "run"
    if there:
        target.mkdir(parents=True)
    with locked(target):
        assert refusal(target) == busy(target)
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
        assert refusal(target) == busy(target)
        target.rmdir()
        new.rename(target)
        assert refusal(target) == busy(target)


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
        assert refusal(tmp_path / "run") == busy(tmp_path / "run")
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
        assert refusal(target) == busy(target)
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
