"""Removes from seqmodel what Windows lacks, as far as possible within a process.

Run as a script, this is the command (`python tests/without_posix.py train ...`), and so are the
processes that it spawns; `pytest -p without_posix` applies it to a session of tests.

It removes the modules and names that typeshed knows to be missing on Windows, libraries without a
name (GNU's OpenMP and allocator, renameat2), /proc, /dev, and opening a folder. No file that is
open or mapped can be renamed, replaced or removed. Text needs a named encoding, as far as Python
can be made to warn (-X warn_default_encoding). Other packages keep all of it, since they have code
for Windows: filelock, psutil and Python's own library.
"""

import ast
import builtins
import ctypes
import importlib
import os
import shutil
import signal
import sys
import warnings
from contextlib import suppress
from errno import EACCES, ENOENT
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

STUBS = Path(find_spec("mypy").origin).parent / "typeshed" / "stdlib"
WINDOWS = SimpleNamespace(platform="win32", version_info=sys.version_info)
MODULES = {"fcntl", "resource", "grp", "pwd", "termios", "tty", "pty"}
_import = builtins.__import__


def missing(stub):
    """The names that a module of the standard library has, but not on Windows."""
    names: dict[bool, set[str]] = {True: set(), False: set()}

    def read(body, there):
        for line in body:
            if isinstance(line, ast.If):
                test = compile(ast.Expression(line.test), stub.name, "eval")
                holds = eval(test, {"sys": WINDOWS})
                read(line.body, there and holds)
                read(line.orelse, there and not holds)
            elif isinstance(line, ast.FunctionDef | ast.ClassDef):
                names[there].add(line.name)
            elif isinstance(line, ast.AnnAssign | ast.Assign):
                targets = line.targets if isinstance(line, ast.Assign) else [line.target]
                names[there].update(target.id for target in targets if isinstance(target, ast.Name))

    read(ast.parse(stub.read_text("utf-8")).body, there=True)
    return names[False] - names[True]


class NamedLibrary(ctypes.CDLL):
    """A library, which Windows cannot load without a name."""

    def __init__(self, name, *arguments, **options):
        if name is None:
            raise TypeError("argument of type 'NoneType' is not iterable")
        super().__init__(name, *arguments, **options)


def import_module(name):
    """`importlib.import_module` as it is on Windows."""
    if name in MODULES:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return importlib.import_module(name)


def lessened(module, lacks, **replaced):
    """A module without some of its names."""
    made = ModuleType(module.__name__)
    kept = {name: value for name, value in vars(module).items() if name not in lacks}
    vars(made).update(kept | replaced)
    return made


LESSENED = {
    "os": lessened(os, missing(STUBS / "os" / "__init__.pyi")),
    "signal": lessened(signal, missing(STUBS / "signal.pyi")),
    "ctypes": lessened(ctypes, set(), CDLL=NamedLibrary),
    "importlib": lessened(importlib, set(), import_module=import_module),
}


def is_ours(name):
    return str(name).partition(".")[0] == "seqmodel"


def import_less(name, globals=None, locals=None, fromlist=(), level=0):
    """`import` as it is on Windows, for seqmodel."""
    if is_ours((globals or {}).get("__name__")):
        if name in MODULES:
            return import_module(name)
        if name in LESSENED:
            return LESSENED[name]
    return _import(name, globals, locals, fromlist, level)


def in_use():
    """The files that this process has open, or mapped into its memory."""
    maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
    found = {line.split(maxsplit=5)[-1] for line in maps}
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one for this listing
            found.add(str(link.readlink()))
    return found


def refuse(event, arguments):
    """What Windows refuses; an audit hook."""
    if event == "open":
        path, mode, _ = arguments
        name = path if isinstance(path, str) else ""
        frame = sys._getframe(1)
        while frame and frame.f_globals.get("__name__") in ("pathlib", "pathlib._local"):
            frame = frame.f_back
        if frame and is_ours(frame.f_globals.get("__name__")):
            if name.startswith(("/proc", "/dev/fd")):
                raise FileNotFoundError(ENOENT, os.strerror(ENOENT), name)
            if mode is None and Path(name).is_dir():
                raise PermissionError(EACCES, os.strerror(EACCES), name)
    elif event in ("os.rename", "os.remove", "os.rmdir"):
        paths = [os.path.realpath(path) for path in arguments[: 1 + (event == "os.rename")]]
        for used in in_use():
            if any(used == path or used.startswith(f"{path}{os.sep}") for path in paths):
                raise PermissionError(EACCES, f"{used} is in use", paths[0])


def hide():
    """Take it all away, before seqmodel is imported."""
    assert not any(map(is_ours, sys.modules))
    warnings.filterwarnings("error", category=EncodingWarning, module="seqmodel")
    shutil._use_fd_functions = False
    builtins.__import__ = import_less
    sys.addaudithook(refuse)


hide()
if __name__ == "__main__":
    from seqmodel.__main__ import run

    run()
