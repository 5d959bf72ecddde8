"""Signals, pipes, full disks and terminals: what shows only in or around a real process."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer
from calling import ENVIRONMENT, PATIENCE, call_main, call_ok, start, waited
from forking import Forked, outcome

from seqmodel.cli import main
from seqmodel.runs.folder import read_metrics


def test_a_closed_pipe_ends_quietly():
    """Guards `seqmodel units | head -1` against a traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    process = start("units", stdout=writer)
    os.close(writer)
    assert process.communicate(timeout=PATIENCE)[1] == ""
    assert process.returncode == 128 + signal.SIGPIPE


def test_a_log_that_nobody_reads_leaves_the_exit_status_alone(here):
    """Guards against 120, Python's own for output that is left at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    unset = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONUNBUFFERED"}
    process = start("inspect", "nothing", stderr=writer, env=unset)
    os.close(writer)
    assert (process.communicate(timeout=PATIENCE)[0], process.returncode) == ("", 1)


def test_a_full_stdout_is_a_one_line_error():
    """Guards `> file` on a full disk: an error and status 1, not a truncated file and status 0."""
    with Path("/dev/full").open("w") as full:
        process = start("units", stdout=full)
        err = process.communicate(timeout=PATIENCE)[1]
    said = "seqmodel: cannot write to stdout: no space left on device\n"
    assert (process.returncode, err) == (1, said)


def closing(streams, *arguments):
    """`outcome` of a command without some streams, as Python starts where a shell closed them."""
    code = (
        "import os, runpy, sys\n"
        f"for name in {streams}:\n"
        "    os.close(getattr(sys, name).fileno())\n"
        "    setattr(sys, name, None), setattr(sys, f'__{name}__', None)\n"
        "runpy.run_module('seqmodel', run_name='__main__', alter_sys=True)\n"
    )
    return outcome("-c", code, *arguments, env=ENVIRONMENT)


SETTINGS = "--set hidden=4 --set epochs=1 --set model=frame-wise"


@pytest.mark.parametrize(
    "command",
    [
        "prepare {music} -o out",
        "sample out.mid --run {run}",
        "train {data} --hidden 4 --epochs 1 --model frame-wise --run out --processes 2",
        f"compare {{data}} --units gru {SETTINGS} --quick --jobs 1 --out out",
    ],
)
def test_without_stdin_and_stderr_a_command_does_its_work(command, music, data, run):
    """Each exited 1, in silence, after its work or before it."""
    words = command.format(music=music, data=data, run=run).split()
    status, out, err = closing(["stdin", "stderr"], *words)
    assert (status, bool(out), err) == (0, words[0] != "sample", "")
    assert [*Path().glob("out*")]


def test_without_stdin_there_are_no_paths_on_it(here):
    """It was a traceback."""
    said = "seqmodel: there are no paths on stdin, which - reads, one per line\n"
    assert closing(["stdin"], "prepare", "-", "-o", "d") == (2, "", said)
    assert closing(["stdin", "stdout", "stderr"], "prepare", "-", "-o", "d") == (2, "", "")


def test_messages_that_cannot_be_written_stop_nothing(data):
    """A training ended where its log could not grow, or its terminal had gone."""
    with Path("/dev/full").open("w") as full:
        options = ("--model", "frame-wise", "--hidden", 4, "--epochs", 1)
        process = start("train", data, *options, "--run", "r", stderr=full)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert out.startswith("r  best valid ")


@pytest.mark.parametrize("command", ["units", "sample - --format mid --run {run}"])
def test_a_closed_stdout_is_a_one_line_error(run, command):
    """Guards against `seqmodel units >&-` exiting 0 although its result is lost."""
    said = "seqmodel: cannot write to stdout: it is closed\n"
    assert closing(["stdout"], *command.format(run=run).split()) == (1, "", said)


def test_ctrl_c_while_loading_gives_no_traceback():
    """Used to be uncaught in the first tenth of a second."""
    script = """
import os, runpy, signal, sys
# As in a terminal: a script's background processes ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
class Press:
    def find_spec(self, name, path=None, target=None):
        if name == 'typer': os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Press())
sys.argv = ['seqmodel', 'units']
runpy.run_module('seqmodel', run_name='__main__')
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("error", [KeyboardInterrupt, typer.Abort])
def test_ctrl_c_at_any_time_is_silent(error, call, monkeypatch):
    """Guards the exit status where typer, whose versions differ, does not turn it into one."""
    monkeypatch.setattr(main, "app", Mock(side_effect=error))
    result = call("units")
    assert (result.status, result.out, result.err) == (128 + signal.SIGINT, "", "")


def start_after(code, *words):
    """Start the command line in a process that first runs some lines of Python."""
    code += "\nimport runpy; runpy.run_module('seqmodel', run_name='__main__', alter_sys=True)\n"
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return Forked(["-c", code, *map(str, words)], text=True, env=ENVIRONMENT, **streams)


def test_a_signal_removes_the_unfinished_dataset(music, here):
    """Guards against a partial dataset, its temporary folder, or silence after kill."""
    waits = (
        "import time; from seqmodel.data.dataset import DatasetWriter\n"
        "def finish(*_):\n    while True: time.sleep(0.01)\n"
        "DatasetWriter.finish = finish"
    )
    process = start_after(waits, "prepare", music, "-o", "d")
    waited(lambda: [*here.glob(".d.*/train.npy")] or process.poll() is not None)
    process.send_signal(signal.SIGHUP)
    said = "seqmodel: ended by SIGHUP; nothing half-written is left\n"
    assert process.communicate(timeout=PATIENCE) == ("", said)
    assert process.returncode == 128 + signal.SIGHUP
    assert not [*here.iterdir()]


@pytest.mark.parametrize(
    "command",
    ["train {data} --hidden 4 --epochs 4 --model frame-wise --run r", "prepare {music} -o d"],
)
def test_nohup_outlives_its_terminal(command, data, music):
    """SIGHUP stays ignored, as the caller wants it."""
    ignores = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); print(flush=True)"
    process = start_after(ignores, *command.format(data=data, music=music).split())
    assert process.stdout.readline() == "\n"
    while process.poll() is None:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.01)
    err = process.communicate()[1]
    assert process.returncode == 0, err


def test_a_terminal_that_goes_away_stops_a_training_once(data):
    """It sends SIGHUP more than once, and nothing can be written to it any more."""
    master, slave = pty.openpty()
    train = ("train", data, "--hidden", 4, "--model", "frame-wise", "--run", "r")
    command = (*train, "--epochs", 9999, "--patience", 9999)
    process = start(*command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    shown = b""
    while b"epoch    6/" not in shown:
        shown += os.read(master, 65536)
    for _ in range(2):
        process.send_signal(signal.SIGHUP)
    os.close(master)
    assert process.wait(PATIENCE) == 128 + signal.SIGHUP
    kept = read_metrics(Path("r"))
    assert len(kept) >= 6
    call_ok("train", "--resume", "--run", "r", "--epochs", len(kept) + 1, "-q")
    assert read_metrics(Path("r"))[:-1] == kept


def on_terminal(*arguments):
    """Run the command line with a terminal as stderr; also returns what the terminal received."""
    master, slave = pty.openpty()
    chunks: list[bytes] = []

    def read():
        try:
            while chunk := os.read(master, 65536):
                chunks.append(chunk)
        except OSError:  # the other end was closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    with io.TextIOWrapper(io.FileIO(slave, "w"), write_through=True) as terminal:
        result = call_main(*arguments, stderr=terminal)
    reader.join()
    os.close(master)
    return result, b"".join(chunks).decode()


COLOUR = re.compile(r"\x1b\[(?:[39]\d|38;5;\d+)m")


def test_the_bar_is_shown_on_a_terminal(data, music, run, monkeypatch):
    """Guards the live bar on a terminal, its absence with -q, and NO_COLOR."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    training = ("train", data, "--hidden", 4, "--epochs", 2)
    result, shown = on_terminal(*training)
    assert result.status == 0
    assert result.out.replace("\n", "").isprintable()
    assert f"runs/data-lstm-1: lstm of 4 units, lstm of 2 along pitch, on {data}" in shown
    assert re.search(r"epoch 2/2 +train +\d+\.\d{4} +valid +\d+\.\d{4}", shown)
    assert "━" in shown
    assert COLOUR.search(shown)
    shown, _, verdict = shown.partition("a trivial model")
    end = shown.rstrip()[-20:]  # the bar is gone, the cursor back
    assert "\x1b[2K" in end
    assert "\x1b[?25h" in end
    assert verdict.count("\n") == 1
    for command in (("prepare", music, "-o", "d"), ("eval", run)):
        assert "━" in on_terminal(*command)[1]
    assert on_terminal(*training, "-q")[1] == ""
    assert on_terminal("eval", run, "-q")[1] == ""
    monkeypatch.setenv("NO_COLOR", "1")
    plain = on_terminal(*training)[1]
    assert "━" in plain
    assert not COLOUR.search(plain)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("OTHER", "", "5000"), ("GOMP_SPINCOUNT", "7", "7"), ("OMP_WAIT_POLICY", "active", None)],
)
def test_threads_wait_briefly_unless_told_otherwise(call, monkeypatch, name, value, expected):
    """Guards against training that crawls alongside another program, or ignores user settings."""
    monkeypatch.setenv("GOMP_SPINCOUNT", "")  # restored at the end, whatever the command sets
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv(name, value)
    assert call("--version").status == 0
    assert os.environ.get("GOMP_SPINCOUNT") == expected
