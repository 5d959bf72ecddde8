"""Real processes of the command line that need not load torch, which takes longer than their work.

A server that has loaded torch, but nothing of seqmodel, forks them. They are children of the
process that asked, which sees no difference from processes that `subprocess` starts.
"""

import atexit
import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from multiprocessing import util
from pathlib import Path

LOADED = ("torch", "numpy", "typer", "rich", "yaml", "mido", "soundfile", "safetensors.torch")
LOADED += ("optuna", "sqlalchemy", "matplotlib.figure", "pydantic", "filelock", "platformdirs")
LOADED += ("llvmlite.binding", "llvmlite.ir")
SUBREAPER = 36
"""Of prctl: what orphans below this process are children of."""
MAX_FILES = 16
"""How many files a process is given at most."""
SEVERAL = {"--processes", "--nproc-per-node"}
"""Options of commands that start Python again, as `compare` does, too."""
LOADS_ANEW = "SEQMODEL_TEST_LOADS_ANEW"
"""The environment variable with which `compare` starts Python as it does for users."""


@cache
def server():
    """The end of a server's line; it ends with this process."""
    ours, theirs = socket.socketpair()
    encodings = ("-X", "warn_default_encoding", "-W", "ignore::EncodingWarning")
    command = [sys.executable, *encodings, __file__, str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
    theirs.close()
    atexit.register(lambda: (ours.close(), process.wait()))
    return ours


class Forked(subprocess.Popen[str]):
    """A module, a file or after -c a text of Python, and arguments, as `Popen` starts it."""

    line = None

    def _execute_child(self, args, *options):
        if sys.platform != "linux":
            module = [] if args[0] == "-c" or args[0].endswith(".py") else ["-m"]
            super()._execute_child([sys.executable, *module, *args], *options)
            return
        folder, environment, pipes, new_session = *options[4:6], options[9:15], options[20]
        given = [k if pipe < 0 else pipe for k, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        try:
            self.pid = fork(args, given, folder, environment, new_session=new_session)
        finally:
            self._close_pipe_fds(*pipes)
        self._child_created = True


def fork(args, streams, folder=None, environment=None, *, new_session=False, kept=()):
    """The number of a new process, with these streams; `kept` files have the same numbers there."""
    folder, environment = str(Path(folder or "").absolute()), dict(environment or os.environ)
    line = Forked.line or server()
    set_subreaper = ctypes.CDLL(None).prctl
    set_subreaper(SUBREAPER, 1, 0, 0, 0)
    try:
        with tempfile.TemporaryFile() as file:  # longer than a message can be
            blocked = [*map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))]
            order = args, folder, environment, new_session, blocked, [*kept]
            file.write(json.dumps(order).encode())
            file.flush()
            socket.send_fds(line, [b"."], [file.fileno(), *streams, *kept])
        return int(line.recv(20))
    finally:
        set_subreaper(SUBREAPER, 0, 0, 0, 0)


def fork_servers():
    """Let multiprocessing fork the servers that it starts for this process."""

    def spawn(_, args, files):
        return fork(args[args.index("-c") :], range(3), kept=files)

    if sys.platform == "linux":
        util.spawnv_passfds = spawn


def fork_others():
    """Let this process, and all below it, fork what they start of Python; returns in all of them.

    Each has a server of its own, which is its first child.
    """
    execute = subprocess.Popen._execute_child

    def execute_child(process, args, *options):
        if args[0] == sys.executable and args[1] in ("-m", "-c"):
            Forked._execute_child(process, args[1 if args[1] == "-c" else 2 :], *options)
        else:
            execute(process, args, *options)

    while SEVERAL & {*sys.argv} or (sys.argv[1:2] == ["compare"] and LOADS_ANEW not in os.environ):
        ours, theirs = socket.socketpair()
        if os.fork():
            theirs.close()
            Forked.line, subprocess.Popen._execute_child = ours, execute_child
            fork_servers()
            return
        ours.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a whole process group
        serve(theirs)


def outcome(*command, **options):
    """The exit status of what `Forked` starts, and what it prints and says."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Forked([*map(str, command)], text=True, **streams, **options) as process:
        out, err = process.communicate()
    return process.returncode, out, err


def skip_pictures():
    """To draw a curve takes longer than a tiny training, and nobody looks at those of processes."""
    from matplotlib.figure import Figure

    save = Figure.savefig

    def savefig(figure, file, *, format, **options):
        if format == "png":
            file.write(b"\x89PNG\r\n\x1a\n")
        else:
            save(figure, file, format=format, **options)

    Figure.savefig = savefig


def serve(line):
    """Fork for every order; returns in the forks."""
    import fcntl  # which Windows lacks

    while True:
        try:
            message, given, _, _ = socket.recv_fds(line, 1, MAX_FILES)
        except ConnectionResetError:  # killed before it took an answer
            message = b""
        if not message:
            os._exit(0)
        reader, writer = os.pipe()
        # Orphaned at once: it becomes a child of the process that asked.
        if between := os.fork():
            os.waitpid(between, 0)
            os.close(writer)
            try:
                line.send(os.read(reader, 20))
            except BrokenPipeError:  # killed before it took the answer
                os._exit(0)
            for number in (*given, reader):
                os.close(number)
        elif os.fork():
            os._exit(0)
        else:
            line.close()
            os.lseek(given[0], 0, os.SEEK_SET)
            with os.fdopen(given.pop(0)) as order:
                arguments, folder, environment, new_session, blocked, kept = json.load(order)
            if new_session:
                os.setsid()
            os.write(writer, str(os.getpid()).encode())  # by then it has its group
            wanted = [*range(3), *kept]
            # Out of the way first.
            files = [fcntl.fcntl(number, fcntl.F_DUPFD, max(wanted) + 1) for number in given]
            for number in (*given, reader, writer):
                os.close(number)
            for file, number in zip(files, wanted, strict=True):
                os.dup2(file, number)
                os.close(file)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            # Tests in the background of a shell ignore Ctrl-C, and so would all that they start.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            sys.argv = arguments
            return


def leave():
    """What a module or file exits by, as the last of all that is done at exit.

    To take down what is loaded, which a fork shares, would take as long as a short command.
    """
    with suppress(OSError, ValueError):  # or Python itself says that a stream cannot be flushed
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        if isinstance(STATUS, int):
            os._exit(STATUS)


if __name__ == "__main__":
    STATUS = None
    atexit.register(leave)
    for name in LOADED:
        __import__(name)
    skip_pictures()
    del sys.path[0]
    gc.freeze()  # otherwise forks would copy objects when they look for garbage at exit
    serve(socket.socket(fileno=int(sys.argv[1])))
    fork_others()
    if sys.argv[0] == "-c":  # which ends as Python does
        exec(sys.argv.pop(1), {"__name__": "__main__"})
        sys.exit()
    try:
        if sys.argv[0].endswith(".py"):
            runpy.run_path(sys.argv[0], run_name="__main__")
        else:
            runpy.run_module(sys.argv[0], run_name="__main__")
        STATUS = 0
    except SystemExit as end:
        STATUS = 0 if end.code is None else end.code
        raise
