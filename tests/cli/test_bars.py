"""Live displays on terminals of any width: what they show, and what they leave behind."""

import io
import re
import time
from contextlib import redirect_stderr
from itertools import count as count_from

import pytest
from calling import call_main
from rich.cells import cell_len

from seqmodel.cli import bars as bars_module
from seqmodel.cli import compare, progress
from seqmodel.cli.bars import Bars
from seqmodel.cli.common import Verbosity
from seqmodel.cli.compare import experiment_progress
from seqmodel.cli.progress import counter, training_progress
from seqmodel.config import resolve
from seqmodel.experiment.folder import Counts, Event
from seqmodel.training.trackers import Tick

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
    assert [cell_len(line) <= width for line in lines] == [True] * 3
    assert lines[0].startswith("all runs ")
    assert [re.search(r"[━╸] +(\d+/\d+)", line)[1] for line in lines] == ["2/30", "10/14", "1/14"]
    assert re.match(r"\S*trial-3 +━", lines[1])
    assert re.match(r"\S*seed-2 +[━╸]", lines[2])
    assert ("[gru]" in lines[2]) == (width > 20)
    assert ("3.4567" in lines[1]) == (width >= 120)
    assert "3/30" in after[-2] if len(after) > 1 else after[-1]


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
        "epoch 3/14  60%  6.4891  1:02:03 left  3,559 frames/s",
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
    ],
)
def test_commands_show_how_far_they_are(command, works, music, run, monkeypatch):
    """Minutes without a word looked as if nothing happened; here each look takes 11 s."""
    ticks = count_from(0, 11)
    monkeypatch.setattr(progress, "monotonic", lambda: float(next(ticks)))
    words = command.format(music=music, run=run).split()
    told = call_main(*words)
    assert told.status == 0
    for what in works:
        assert re.search(rf"^{what}.*  (\d+%  [\d,]+/[\d,]+|\d+:\d\d so far)", told.err, re.M)
    assert call_main(*words, "--force", "-q").err == ""
