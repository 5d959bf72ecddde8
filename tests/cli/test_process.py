"""Signals, pipes, full disks, terminals and errors: what shows only around a real process."""

import io
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, redirect_stderr
from itertools import count as count_from
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer
from calling import ENVIRONMENT, PATIENCE, call_main, call_ok, call_refused, listing, start, waited
from forking import Forked, outcome
from rich.cells import cell_len

from seqmodel.cli import bars as bars_module
from seqmodel.cli import compare, main, progress
from seqmodel.cli.bars import Bars
from seqmodel.cli.common import Verbosity
from seqmodel.cli.compare import experiment_progress
from seqmodel.cli.progress import counter, training_progress
from seqmodel.config import resolve
from seqmodel.errors import SeqmodelError
from seqmodel.experiment.folder import Counts, Event
from seqmodel.files import new_file
from seqmodel.runs.checkpoint import load_checkpoint, save_checkpoint
from seqmodel.runs.folder import read_metrics
from seqmodel.training import loop
from seqmodel.training.trackers import Tick


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


def test_a_home_that_cannot_be_written_is_no_matter(music, here):
    """Guards against matplotlib's warnings, as in a container's job, even with --quiet."""
    variables = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    command = [sys.executable, "-m", "seqmodel", "inspect", music / "valid/0.mid"]
    done = subprocess.run(
        [*command, "--plot", "p.png", "--quiet"],
        env={**ENVIRONMENT, **dict.fromkeys(variables, "/dev/null")},
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    assert Path("p.png").is_file()


@pytest.mark.parametrize("command", ["units", "sample - --format mid --run {run}"])
def test_a_closed_stdout_is_a_one_line_error(run, command):
    """Guards against `seqmodel units >&-` exiting 0 although its result is lost."""
    said = "seqmodel: cannot write to stdout: it is closed\n"
    assert closing(["stdout"], *command.format(run=run).split()) == (1, "", said)


def test_a_working_folder_that_is_gone_is_told(tmp_path):
    """Guards against an end by torch's libraries with the status of wrong usage."""
    (tmp_path / "gone").mkdir()
    script = "cd gone && rmdir ../gone && exec $0 -m seqmodel train"
    done = subprocess.run(
        ["sh", "-c", script, sys.executable],
        env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = "seqmodel: the working folder is gone: change to another\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


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


ANSI = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]")
EPOCH = {"epoch": 3, "train_nats_per_frame": 6.4891, "valid_nats_per_frame": 4.0217}
EPOCH |= {"frames_per_second": 3559}


class Terminal(io.StringIO):
    """A terminal that records what is written to it."""

    def isatty(self):
        return True

    def take(self):
        """The lines written since the last call, without control sequences."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        lines = re.split(r"[\r\n]+", ANSI.sub("", text))
        return [line.rstrip() for line in lines if line.strip()]


class Prompt(Bars):
    """Bars that are redrawn at each change, rather than ten times a second."""

    def update(self, *arguments, **fields):
        super().update(*arguments, **fields)
        self.refresh()


@pytest.fixture(params=[20, 120])
def width(request, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(request.param))
    monkeypatch.setenv("TERM", "xterm")
    return int(request.param)


@pytest.fixture
def terminal(width, monkeypatch):
    monkeypatch.setattr(bars_module, "Bars", Prompt)
    return Terminal()


def bars(lines):
    return [line for line in lines if "━" in line or "╸" in line]


def test_training_shows_its_bar_and_epoch_at_any_width(width, terminal):
    """Guards against a narrow terminal that shows only the figures, truncated in the middle."""
    settings = resolve({"epochs": 14})
    with redirect_stderr(terminal), training_progress(settings, "a title") as listener:
        listener.tick(Tick(13, 40, 100, 6.4891, 3559.0, 3723.0))
        lines = bars(terminal.take())
    last = lines[-1]
    assert cell_len(last) <= width
    assert re.match("(epoch|…h) 13/14 ━" if width == 20 else "epoch 13/14 ━", last)
    assert len(re.findall("[━╸╺]", last)) >= 4
    assert "6.4891" in last
    assert ("1:02:03 left" in last) == (width >= 40)
    assert ("3,559 frames/s" in last) == (width >= 120)


def test_compare_shows_runs_and_figures_at_any_width(width, terminal):
    """Guards against run names that push bars and figures off the terminal."""
    counts = {"音楽/[gru]": Counts(18, 0, 2, 0)}
    counts["nottingham/lstm-nopeephole"] = Counts(8, 2, 2, 0)
    with redirect_stderr(terminal), experiment_progress(counts) as (take, _):
        take(Event("nottingham/lstm-nopeephole/trial-3", 10, 14, 3.4567))
        take(Event("音楽/[gru]/seed-2", 1, 14, None))
        lines = bars(terminal.take())[-3:]
        counts = Counts(18, 1, 2, 0)
        take(Event("音楽/[gru]/seed-2", 14, 14, 3.1, "finished", counts=counts))
        after = bars(terminal.take())
        counts = Counts(18, 1, 2, 1)
        take(Event("音楽/[gru]/seed-0", 14, 14, 3.1, "finished", counts=counts))  # a trial, scored
        after += bars(terminal.take())
    assert [cell_len(line) <= width for line in lines] == [True] * 3
    assert lines[0].startswith("all runs ")
    assert [re.search(r"[━╸] +(\d+/\d+)", line)[1] for line in lines] == ["2/28", "10/14", "1/14"]
    assert re.match(r"\S*trial-3 +━", lines[1])
    assert re.match(r"\S*seed-2 +[━╸]", lines[2])
    assert ("[gru]" in lines[2]) == (width > 20)
    assert ("3.4567" in lines[1]) == (width >= 120)
    assert {match[1] for line in after if (match := re.search(r"(\d+/28)", line))} == {"3/28"}


def clock(monkeypatch):
    """The time, which moves only by hand; threads do not look at it."""
    now = [100.0]
    for module in (compare, progress):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "BEAT", 9999.0)
    return now


@pytest.mark.parametrize("quiet", [False, True])
def test_without_a_terminal_a_line_tells_at_times_how_far_the_work_is(monkeypatch, quiet):
    """A log used to be silent until all files were read, or pieces scored."""
    now, said = clock(monkeypatch), io.StringIO()
    monkeypatch.setattr(Verbosity, "quiet", quiet)
    with redirect_stderr(said), counter("reading", then="writing") as count:
        for done in (*range(1, 28), *range(1, 31)):  # again from the start, after a while
            now[0] += 1
            count(done, 30)
        now[0] += 12
        count(30, 30)
    lines = ["33%  10/30  0:20 left", "67%  20/30  0:10 left", "10%  3/30  0:18 left"]
    lines += ["43%  13/30  0:16 left", "77%  23/30  0:07 left"]
    expected = [*(f"reading  {line}" for line in lines), "writing  0:12 so far"]
    assert said.getvalue().splitlines() == ([] if quiet else expected)


def test_work_that_cannot_tell_how_far_it_is_is_not_silent(monkeypatch):
    """As one file of an hour, or a compiler: a thread looks after the time."""
    monkeypatch.setattr(progress, "BEAT", 0.001)
    ticks, said = count_from(0, 4), io.StringIO()
    monkeypatch.setattr(progress, "monotonic", lambda: float(next(ticks)))
    with redirect_stderr(said), counter("reading"):
        while said.getvalue().count("\n") < 3:
            time.sleep(0.001)
    for line in said.getvalue().splitlines():
        assert re.fullmatch(r"reading  \d+:\d\d so far", line)


def test_without_a_terminal_an_epoch_that_lasts_is_not_silent(monkeypatch):
    """There were only the lines at the ends of epochs, an hour apart where data are large."""
    now, said, settings = clock(monkeypatch), io.StringIO(), resolve({"epochs": 14})
    with redirect_stderr(said), training_progress(settings, "a title") as listener:
        for done in range(1, 11):
            now[0] += 14
            listener.tick(Tick(3, 10 * done, 100, 6.4891, 3559.0, 3723.0))
        now[0] += 31
        listener.tick(Tick(3, 20, 40, None))
        listener.epoch({**EPOCH, "epoch": 3.0416667}, True)
        now[0] += 59
        listener.tick(Tick(4, 1, 100, 6.0, 10.0, None))
    assert said.getvalue().splitlines() == [
        "a title",
        "epoch 3/14  20%  6.4891  1:02:03 left  3,559 frames/s",  # soon, for the time left
        "epoch 3/14  70%  6.4891  1:02:03 left  3,559 frames/s",
        "valid 3/14  50%",
        "epoch 3.0417/14  train   6.4891  valid   4.0217*    3,559 frames/s",  # as in summaries
    ]


@pytest.mark.parametrize(
    ("command", "works"),
    [
        ("prepare {music} -o d", ["reading"]),
        ("eval {run} --samples 3 --batch-size 1", ["scoring", "fitting trivial", "sampling"]),
        ("sample o.mid --run {run} -n 3 --length 5 --json", ["sampling"]),
        ("sample o.mid --run {run} -n 2 --best-of 2 --length 5", ["drafts"]),
        ("report {run} --samples 1", ["scoring", "sampling"]),
        ("inspect {music}/train/0.mid --plot o.png --listen o.wav", ["reading", "rendering"]),
    ],
)
def test_commands_show_how_far_they_are(command, works, music, run, monkeypatch):
    """Minutes without a word looked as if nothing happened; here each look takes 11 s."""
    ticks = count_from(0, 11)
    monkeypatch.setattr(progress, "monotonic", lambda: float(next(ticks)))
    monkeypatch.setattr(progress, "BEAT", 0.001)
    words = command.format(music=music, run=run).split()
    told = call_main(*words)
    assert told.status == 0
    for what in works:
        assert re.search(rf"^{what}.*  (\d+%  [\d,]+/[\d,]+|\d+:\d\d so far)", told.err, re.M)
    assert call_main(*words, "--force", "-q").err == ""


NOISE = ("--unit", "tanh", "--activation", "relu", "--weight-noise", "1e30")


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (("--unit", "gnu"), "there is no unit 'gnu'"),
        (("--backend", "torch-nn"), "the torch-nn backend cannot run lstm here: "),
        (("--init-from", "r", "--hidden", "5"), "weights do not fit the model"),
        (("--hidden", "1000000"), "out of memory"),
        (("--hidden", "1000000", "--lr", "search"), "out of memory"),
        (NOISE, "training diverged at update 0"),
        ((*NOISE, "--lr", "search"), "training diverged at update 0"),
        ((), "no space left on device"),
    ],
)
def test_force_keeps_the_old_run_until_the_new_one_can_start(
    call, data, run, monkeypatch, mistake, said
):
    """Even if the mistake shows only when the model is built, first updated or saved."""
    shutil.copytree(run, "r")
    before = listing(Path())

    def full(path: Path, *_: object) -> None:
        raise SeqmodelError(f"cannot write {path}: no space left on device")

    if not mistake:
        monkeypatch.setattr(loop, "save_checkpoint", full)
    result = call("train", data, "--run", "r", "--force", *mistake)
    assert (result.status != 0, said in result.err) == (True, True)
    assert listing(Path()) == before


def test_out_of_memory_advice_fits_the_command(music, monkeypatch):
    """`prepare` has no model, but its error used to advise a smaller one."""
    monkeypatch.setattr("seqmodel.data.sources.find_sources", Mock(side_effect=MemoryError))
    says = "out of memory; prepare fewer or shorter files"
    call_refused("prepare", music, "-o", "d", says=says)


def from_(error, cause):
    error.__cause__ = cause
    return error


SEGMENT = OSError("libllvmlite.so: failed to map segment from shared object")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "out of memory"),
        (from_(OSError("Could not find 'libllvmlite.so'"), SEGMENT), "out of memory"),
        (OSError(12, "Cannot allocate memory"), "out of memory"),
        (RuntimeError("std::bad_alloc"), "out of memory"),
        (RuntimeError("can't start new thread"), "out of memory or threads"),
        (OSError("AF_UNIX path too long"), "AF_UNIX path too long; set TMPDIR to a shorter path"),
        (OSError(5, "Input/output error", "some.wav"), "cannot use some.wav: input/output error"),
        (OSError(5, "Input/output error"), "input/output error"),
    ],
)
@pytest.mark.parametrize("writing", [False, True])
def test_errors_of_libraries_are_not_blamed_on_outputs(call, monkeypatch, error, said, writing):
    """They used to be called "cannot write to stdout", or to the file being written."""

    def fail(*_):
        with new_file(Path("out.wav")) if writing else nullcontext():
            raise error

    monkeypatch.setattr("seqmodel.cli.units.unit_spec", fail)
    result = call("units")
    assert (result.status, result.out) == (1, "")
    if not (writing and getattr(error, "errno", None)):  # an error of the file's
        assert result.err.splitlines() == [f"seqmodel: {said}"]


def test_long_values_are_shortened():
    """Guards a terminal against a mistyped option of thousands of characters."""
    said = call_refused("train", "--unit", "z" * 5000, says="there is no unit 'zz", status=2)
    assert len(said) < 1500


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_infinite_score_is_an_error(run, options):
    """Used to exit 0 with NaN in the table, and with a traceback under --json."""
    shutil.copytree(run, "r")
    tensors, content = load_checkpoint(Path("r/best.safetensors"))
    huge = {name: tensor.fill_(1e38) for name, tensor in tensors.items()}
    save_checkpoint(Path("r/best.safetensors"), huge, content)
    said = call_refused("eval", "r", *options, says="r scores ... nats per frame on valid of ")
    assert re.search(r" scores (nan|inf) ", said)


def test_an_empty_argument_is_not_the_current_folder(music):
    """A shell's unset variable used to prepare everything that lay around."""
    shutil.copytree(music, "music")
    says = "an argument is empty: is a shell variable unset?"
    call_refused("prepare", "", "-o", "d", says=says, status=2)
    assert [path.name for path in Path().iterdir()] == ["music"]
