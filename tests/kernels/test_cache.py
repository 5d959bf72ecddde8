"""Compiled code cached on disk: reused, never trusted blindly, never required."""

import ctypes
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from llvmlite import binding, ir

from seqmodel.kernels.code import cache, jit
from seqmodel.kernels.code.jit import Library, call_at


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A separate cache for the test."""
    monkeypatch.setenv("SEQMODEL_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


@pytest.fixture
def compiled(monkeypatch):
    """The IR of the modules that were compiled rather than found in the cache."""
    made = []

    def compile_it(source, machine):
        made.append(source)
        return untouched(source, machine)

    untouched = jit._compiled
    monkeypatch.setattr(jit, "_compiled", compile_it)
    return made


def adding(number):
    """A module with add(x): x + number."""
    module, kind = ir.Module("adding"), ir.IntType(64)
    made = ir.Function(module, ir.FunctionType(kind, [kind]), "add")
    builder = ir.IRBuilder(made.append_basic_block())
    builder.ret(builder.add(made.args[0], ir.Constant(kind, number)))
    return module


def calling(library):
    """A module with twice(x): add(add(x))."""
    module, kind = ir.Module("calling"), ir.IntType(64)
    made = ir.Function(module, ir.FunctionType(kind, [kind]), "twice")
    builder, x = ir.IRBuilder(made.append_basic_block()), made.args[0]
    for _ in range(2):
        x = call_at(builder, library.address("add"), kind, [x])
    builder.ret(x)
    return module


def result(library, name, x):
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address(name))(x))


@pytest.mark.parametrize("name", ["get_host_cpu_name", "COMPILER"])
def test_code_for_another_processor_or_by_another_compiler_is_not_used(
    folder, compiled, monkeypatch, name
):
    """A home shared by several machines, or an upgrade, must not run the wrong instructions."""
    Library(adding(2))
    if name == "COMPILER":
        monkeypatch.setattr(jit, name, ("another",))
    else:
        monkeypatch.setattr(binding, name, lambda: "x86-64")
    assert result(Library(adding(2)), "add", 1) == 3
    assert len(compiled) == 2


def test_callers_of_other_modules_are_found_where_addresses_differ(folder):
    """Guards against keys that depend on addresses: each process would cache its own copy."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_cache import adding, calling, result, Library\n"
        "add = Library(adding(5)); print(result(Library(calling(add)), 'twice', 1))"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == "11\n"
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes() + b"\0"),
        lambda file: file.chmod(0o602),
        lambda file: file.chmod(0o620),
    ],
)
def test_what_is_damaged_or_others_may_write_to_is_made_again(folder, compiled, spoil):
    """Files of our own folder stayed dangerous when that had been open to others for a while."""
    Library(adding(2))
    (kept,) = folder.iterdir()
    assert [path.stat().st_mode & 0o777 for path in (folder, kept)] == [0o700, 0o600]
    whole = kept.read_bytes()
    spoil(kept)
    for _ in range(2):
        assert result(Library(adding(2)), "add", 1) == 3
        assert len(compiled) == 2
        assert (kept.stat().st_mode & 0o777, kept.read_bytes()) == (0o600, whole)


def test_a_folder_that_others_may_write_to_is_not_used(folder, compiled):
    """We would run whatever others write there."""
    folder.mkdir()
    for mode in (0o777, 0o770):
        folder.chmod(mode)
        Library(adding(2))
    assert list(folder.iterdir()) == []
    folder.chmod(0o755)
    Library(adding(2))
    assert len(list(folder.iterdir())) == 1
    assert len(compiled) == 3


def test_a_file_of_another_user_is_not_used(folder, compiled, monkeypatch):
    """It may have been put there before the folder became ours alone."""
    Library(adding(2))
    (kept,) = folder.iterdir()
    assert cache._read(kept) is not None
    monkeypatch.setattr(os, "getuid", lambda: kept.stat().st_uid + 1)
    assert cache._read(kept) is None


@pytest.mark.parametrize(
    "change",
    [
        *(("setenv", "SEQMODEL_CACHE", place) for place in ("", "/dev/null/kernels", "/dev/null")),
        # Without a home, newer versions of platformdirs raise an error, older ones return ~.
        ("setattr", pwd, "getpwuid", Mock(side_effect=KeyError)),
        ("setattr", cache, "user_cache_path", lambda name: Path("~/.cache", name)),
    ],
)
def test_without_a_folder_everything_is_compiled(tmp_path, monkeypatch, compiled, change):
    """Guards against a folder called ~ in the working directory of a container's nameless user."""
    for variable in ("HOME", "XDG_CACHE_HOME", "SEQMODEL_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    how, *what = change
    getattr(monkeypatch, how)(*what)
    monkeypatch.chdir(tmp_path)
    assert [result(Library(adding(2)), "add", 1) for _ in range(2)] == [3, 3]
    assert len(compiled) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_not_an_error(folder, monkeypatch):
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    assert result(Library(adding(2)), "add", 1) == 3
    assert list(folder.iterdir()) == []


def test_files_unused_for_a_month_are_removed(folder):
    for number in (2, 3):
        Library(adding(number))
    used, unused = folder.iterdir()
    month = time.time() - 31 * 24 * 60 * 60
    for path in (used, unused):
        os.utime(path, (month, month))
    assert cache.cached(used.stem, bytes) != b""  # found, so used
    left = folder / f".{unused.name}.seqmodel-0123456789ab"  # by a process killed while writing
    letter = folder / "letter.o"
    for path in (left, letter):
        path.touch()
        os.utime(path, (month, month))
    cache._sweep.cache_clear()  # as in another process
    Library(adding(4))
    assert used.exists()
    assert not unused.exists()
    assert not left.exists()
    assert letter.exists(), "what is somebody's own"


def test_a_read_only_cache_is_used(folder, compiled, monkeypatch):
    Library(adding(2))
    monkeypatch.setattr(os, "utime", Mock(side_effect=OSError(30, "Read-only file system")))
    assert result(Library(adding(2)), "add", 1) == 3
    assert len(compiled) == 1
