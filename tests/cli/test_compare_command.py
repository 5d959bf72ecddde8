"""`compare` from the command line: the figures are eval's, and no kill changes the table."""

import csv
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from calling import ENVIRONMENT, PATIENCE, call_ok, call_refused, children, start, told, waited
from forking import LOADS_ANEW

from seqmodel.cli.compare import status_lines
from seqmodel.experiment.folder import Counts
from seqmodel.experiment.search import paper_rates
from seqmodel.runs.folder import read_metrics

TABLES = ("table.md", "table.tex", "table.csv", "table.json")
SETTINGS = ("model=frame-wise", "hidden=5", "epochs=3", "dropout=0", "batch_size=2", "end=false")
OPTIONS = [word for setting in SETTINGS for word in ("--set", setting)]
PAPER = ["--units", "tanh,gru", "--search", "paper", "--trials", 3, "--seeds", 2, *OPTIONS]
TWO = [*PAPER, "--jobs", 2]
ENDLESS = ["--set", "epochs=100000", "--set", "patience=100000"]
ASKED_IN_VAIN = (
    r"(Traceback .*\n(  .*\n)*"
    r"  File .*/multiprocessing/(reduction|spawn)\.py.*, in (recvfds|_main)\n(    .*\n)+"
    r"EOFError(: Ran out of input)?\n)?"
)
"""What Python's server says, if anything, when one that asks it for a process is killed."""

pytestmark = pytest.mark.usefixtures("no_pages")  # but those of `undisturbed` are drawn


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, data):
    """The experiment, run by one process."""
    out = tmp_path_factory.mktemp("compared") / "e"
    call_ok("compare", data, *PAPER, "--jobs", 1, "--out", out, "-q")
    return out


def test_the_table_agrees_with_eval(call, data, undisturbed):
    """Guards against a winner chosen on test, misreported seeds, and averages of averages."""
    with (undisturbed / "table.csv").open() as file:
        lines = list(csv.DictReader(file))
    values = json.loads((undisturbed / "table.json").read_text())
    entry = values["datasets"][0]["variants"][1]
    trials = [undisturbed / f"runs/data/gru/trial-{k}" for k in range(3)]
    valid = [min(m["valid_nats_per_frame"] for m in read_metrics(run)) for run in trials]
    best, rates = valid.index(min(valid)), paper_rates(1, 3)
    assert entry["found"] == {"learning_rate": rates[best]}
    assert [t["found"]["learning_rate"] for t in entry["trials"]] == rates
    for seed, run in ((1, trials[best]), (2, undisturbed / "runs/data/gru/seed-1")):
        for split in ("train", "valid", "test"):
            shown = told("eval", run, "--split", split)
            figures = [
                float(line["nats_per_frame"])
                for line in lines
                if (line["variant"], line["split"], line["seed"]) == ("gru", split, str(seed))
            ]
            assert figures == [pytest.approx(shown["nats_per_frame"], rel=1e-12)]
    figures = entry["nats_per_frame"]["test"]
    cell = f"{statistics.mean(figures):.3f} ± {statistics.stdev(figures):.3f}"
    assert cell in (undisturbed / "table.md").read_text()


def test_what_is_printed_and_what_is_written(call, data, undisturbed):
    again = call("compare", data, *PAPER, "--out", undisturbed)
    assert (again.status, again.err) == (0, f"written to {undisturbed}\n")
    lines = again.out.splitlines()
    assert lines[0].split() == ["data", "tanh", "gru"]
    assert [line.split()[0] for line in lines[1:4]] == ["train", "valid", "test"]
    assert lines[4].split() == ["hidden", "5", "5"]
    assert lines[5].split() == ["parameters", "470", "1,410"]  # H (88 + H + 1), three times that
    assert lines[6].startswith("with the output ")
    assert lines[8].split() == ["epochs", "3", "3"]
    assert lines[9].startswith("training time  ")
    assert lines[10].endswith("pieces cannot tell from chance (at least 6 are needed)")
    shown = call_ok("compare", data, *PAPER, "--out", undisturbed, "--json").out
    assert shown == (undisturbed / "table.json").read_text()
    status = call("compare", "--status", "--out", undisturbed).out.splitlines()
    cells = [f"data/{unit}: 3 of 3 trials, 2 of 2 seeds" for unit in ("tanh", "gru")]
    assert [line.split("  ")[0] for line in status] == [*cells, "8/8 runs done"]
    assert {"curves-data.png", "report.html", *TABLES} <= {p.name for p in undisturbed.iterdir()}


def test_a_complete_experiment_answers_without_loading_anything(data, undisturbed):
    """It used to take 6 s of a processor, and --status 2 s, to say what is in a file."""
    heavy = ("torch", "optuna", "sqlalchemy", "numba", "matplotlib")
    asked = [
        [*map(str, more), "--out", str(undisturbed)] for more in ((data, *PAPER), ["--status"])
    ]
    code = (
        "import sys; from seqmodel.cli.main import main\n"
        f"for words in {asked}:\n"
        "    sys.argv = ['seqmodel', 'compare', *words]\n"
        "    try: main()\n    except SystemExit as end: print(end.code)\n"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    *printed, loaded = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    assert (printed.count("0"), loaded) == (2, "[]")


def test_a_damaged_journal_is_one_line(call, undisturbed, tmp_path):
    """A fifth of such files used to give a traceback, most of them from Optuna."""
    lines = (undisturbed / "journal.log").read_bytes().splitlines(keepends=True)
    old = [re.sub(rb',"checksum":"\w+"', b"", line) for line in lines]  # older versions'
    chance, place = random.Random(3), tmp_path / "e" / "journal.log"
    place.parent.mkdir()
    for number in range(12):
        some = list(old if number % 2 else lines)
        if number % 3:
            some.pop(chance.randrange(1, len(some)))
        whole = bytearray(b"".join(some))
        whole[chance.randrange(20, len(whole))] = chance.randrange(33, 127)
        place.write_bytes(whole)
        told = call("compare", "--status", "--out", place.parent)
        assert told.status in (0, 1)
        assert told.err.count("\n") == told.status


def test_a_page_lacks_the_sample_of_a_damaged_checkpoint(data, undisturbed, tmp_path, monkeypatch):
    """For want of one nothing was printed, although the figures are in the journal."""
    monkeypatch.undo()  # so that the page is drawn
    whole, copied = call_ok("compare", data, *PAPER, "--out", undisturbed).out, tmp_path / "copied"
    shutil.copytree(undisturbed, copied)
    (copied / "complete.json").unlink()
    for best in (copied / "runs/data/gru").glob("*/best.safetensors"):
        best.write_bytes(best.read_bytes()[:3000])
    assert call_ok("compare", data, *PAPER, "--out", copied).out == whole
    page = (copied / "report.html").read_text()
    assert "Without gru, whose checkpoint cannot be read." in page
    assert page.count("data:audio/mpeg;base64,") == 1 + 1


def test_no_kill_changes_the_table(data, undisturbed):
    """Of a worker, the command alone, or all processes at once; nor are there tracebacks."""
    chance, victims, command = random.Random(1), ["worker", "command", "everyone"], begin(data)
    try:
        while victims:
            before = epochs()
            waited(lambda now=command, before=before: epochs() != before or now.poll() is not None)
            if command.poll() is not None:  # it was done before this process had its turn
                assert ended(command) == 0, said()
                shutil.rmtree("e")
                command = begin(data)
                continue
            time.sleep(chance.uniform(0, 0.05))
            victim = victims.pop(0)
            if victim == "worker":
                with suppress(ProcessLookupError, IndexError):
                    os.kill(chance.choice(workers_of(command.pid)), signal.SIGKILL)
                continue
            told = len(said())
            (os.killpg if victim == "everyone" else os.kill)(command.pid, signal.SIGKILL)
            ended(command)
            assert re.fullmatch(ASKED_IN_VAIN, said()[told:]), said()
            command = begin(data)
    finally:
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGKILL)
        ended(command)
    call_ok("compare", data, *TWO, "--out", "e", "-q")
    same_tables("e", undisturbed)


def epochs():
    """What has been trained so far."""
    return {path: path.read_bytes() for path in Path("e").glob("runs/data/*/*/metrics.jsonl")}


def begin(data, *more, **environment):
    """Start the command as the leader of its own process group, with its messages in a file."""
    with Path("messages").open("w") as file:
        options = {"stderr": file, "start_new_session": True, "env": ENVIRONMENT | environment}
        return start("compare", data, *TWO, *more, "--out", "e", "-q", **options)


def ended(command):
    """Its exit status, once all that have its stdout have ended: what it has started, too."""
    command.communicate(timeout=PATIENCE)
    return command.returncode


def said():
    return Path("messages").read_text()


def servers_of(command):
    """The servers of processes that load Python anew."""
    with suppress(FileNotFoundError):  # ended meanwhile
        words = {child: Path(f"/proc/{child}/cmdline").read_text() for child in children(command)}
        return [child for child, word in words.items() if "forkserver" in word]
    return []


def workers_of(command):
    """The processes that run the experiment: forks of one of the command's servers."""
    return [worker for server in children(command) for worker in children(server)]


@pytest.mark.usefixtures("undisturbed")  # which compiles the kernels
def test_the_end_of_a_terminal_keeps_what_is_done(data, call):
    """As Ctrl-C does, which is pressed below; both reach all processes, their server too.

    Not while a kernel is compiled: what arrives as llvmlite frees its objects, Python also prints.
    """
    command = begin(data, *ENDLESS)
    waited(lambda: list(Path("e").glob("runs/data/*/*/last.safetensors")))
    os.killpg(command.pid, signal.SIGHUP)
    assert ended(command) == 128 + signal.SIGHUP
    assert said() == "seqmodel: stopped; run the same command to resume\n"
    last = call("compare", "--status", "--out", "e").out.splitlines()[-1]
    assert re.fullmatch(r"\d+/8 runs done, none in progress: run the same command to resume", last)


def test_status_shows_what_another_process_runs(data, call):
    """Guards against progress within an epoch (of ten minutes, say) that only the parent knows."""
    options = ["--units", "gru", "--search", "paper", "--trials", 2, "--jobs", 1, *OPTIONS]
    options += [*ENDLESS, "--out", "e", "-q"]

    def timed():
        shown = call("compare", "--status", "--out", "e", "--json")
        assert command.poll() is None
        found = {} if shown.status else json.loads(shown.out)
        return found.get("seconds_left") is not None and found

    with start("compare", data, *options) as command:
        try:
            status = waited(timed)
            (run,) = status["running"]
            lines = call("compare", "--status", "--out", "e").out.splitlines()
        finally:
            command.send_signal(signal.SIGINT)
    assert command.returncode == 130
    assert (run["run"], run["epochs"], run["host"]) == ("data/gru/trial-0", 100_000, None)
    assert 0 < run["share_done"] < 1
    assert (status["runs"], status["done"]) == (4, 0)
    assert lines[0] == "data/gru: 0 of 2 trials, 0 of 3 seeds"
    assert re.match(r"running: data/gru/trial-0  \d+%  \d+/100000", lines[1])
    assert lines[2].startswith("0/4 runs done, about ")


def test_a_winner_that_is_not_scored_is_not_done():
    """Although all runs are trained: the same command still has its table to write."""
    cell = {"cell": "data/gru", **Counts(2, 2, 1, 0)._asdict(), "best_valid_nats_per_frame": None}
    status = {"runs": 2, "done": 2, "cells": [cell], "running": [], "seconds_left": None}
    told = "2/2 runs done, none in progress: run the same command to resume"
    assert status_lines(status)[-1] == told


def test_what_is_left_to_score_is_said(call, data):
    """After a kill between training and scoring, the command once had "0 of 1 run to do"."""
    same = [data, "--units", "gru", "--quick", *OPTIONS, "--jobs", 1, "--out", "q"]
    table = call_ok("compare", *same).out
    journal, answer = Path("q/journal.log"), Path("q/complete.json")
    begin = journal.read_text().rindex('{"op_code":4,')  # the seed's trial
    os.truncate(journal, begin)
    answer.unlink()
    resumed = call_ok("compare", *same)
    assert resumed.err.startswith("q: 1 run trained, the best to be scored, 1 trial and 1 seed of ")
    assert resumed.out == table


def test_a_varied_rate_is_trained_and_a_tuned_setting_is_drawn_in_its_range(call, data):
    """The rates of the search once replaced those varied, and compared nothing; guards against
    settings that are drawn and not trained."""
    options = ["--vary", "learning_rate=0.001,0.02", "--seeds", 1, *OPTIONS[:2], "--jobs", 1]
    options += ["--set", "epochs=1", "--set", "batch_size=8"]
    result = call_ok("compare", data, *options, "--set", "hidden=5", "--out", "v")
    lines = [line.split() for line in result.out.splitlines()]
    assert ["learning", "rate", "0.001", "0.02"] in lines
    assert result.out.count("which one seed cannot tell from chance") == 1
    assert "learning_rate=0.001 and learning_rate=0.02 still improved" in result.out
    tuned = ["--search", "tpe", "--tune", "hidden=2..6", "--trials", 2]
    result = call_ok("compare", data, *options, *tuned, "--out", "w")
    assert "a rerun may choose differently" in result.out
    (of_data,) = json.loads(Path("w/table.json").read_text())["datasets"]
    for variant, rate in zip(of_data["variants"], (0.001, 0.02), strict=True):
        for number, trial in enumerate(variant["trials"]):
            assert ([*trial["found"]], 2 <= trial["found"]["hidden"] <= 6) == (["hidden"], True)
            run = Path(f"w/runs/data/{variant['variant']}/trial-{number}")
            config = (run / "config.yaml").read_text()
            assert f"learning_rate: {rate}\n" in config
            assert f"hidden: {trial['found']['hidden']}\n" in config
        assert number == 1


def test_train_searches_as_compare_does(data):
    """Guards against `train` and `compare` differing in their rates or winner."""
    Path("c.yaml").write_text("\n".join(SETTINGS).replace("=", ": "))
    both = [data, "--config", "c.yaml", "--trials", 7, "-q"]
    call_ok("compare", *both, "--units", "gru", "--seeds", 1, "--jobs", 1, "--out", "e")
    call_ok("train", *both, "--unit", "gru", "--lr", "search", "--run", "r")
    entry = json.loads(Path("e/table.json").read_text())["datasets"][0]["variants"][0]
    draws = [json.loads(line) for line in Path("r/draws.jsonl").read_text().splitlines()]
    assert len(draws) == 7
    for trial, draw in zip(entry["trials"], draws, strict=True):
        assert draw["learning_rate"] == trial["found"]["learning_rate"]
        assert draw["ended"] == trial["ended"]
        theirs = read_metrics(Path(f"e/runs/data/gru/trial-{draw['draw']}"))
        assert draw["valid_nats_per_frame"] == min(m["valid_nats_per_frame"] for m in theirs)
    best = min(draws, key=lambda draw: draw["valid_nats_per_frame"])
    assert entry["found"] == {"learning_rate": best["learning_rate"]}
    winner = Path(f"e/runs/data/gru/trial-{best['draw']}/best.safetensors")
    assert Path("r/best.safetensors").read_bytes() == winner.read_bytes()


def test_a_trial_that_diverges_is_reported_and_does_not_win(call, data):
    """The first seed has the figure of its trial, which it resumes with nothing left to train."""
    options = ["--vary", "learning_rate=0.01,1e30", "--search", "none", "--seeds", 1, *OPTIONS]
    options += ["--set", "clip=0", "--set", "activation=relu", "--jobs", 1, "--out", "d"]
    result = call_ok("compare", data, *options)
    ahead, *lines = result.err.splitlines()
    cells = "data/learning_rate=0.01 and data/learning_rate=1e+30"
    each = f"1 trial and 1 seed of the best for each of {cells}"
    assert ahead == f"d: 2 of 2 runs to do, {each}; --quick gives a first answer sooner"
    *runs, memory, _ = map(str.split, lines)
    good = "data/learning_rate=0.01"
    assert runs[0][:2] == ["1/2", f"{good}/trial-0"]
    assert len(runs) == 2
    assert re.fullmatch(r"a run takes up to \d\.\d GB of memory", " ".join(memory))
    variants = json.loads(Path("d/table.json").read_text())["datasets"][0]["variants"]
    assert [v["trials"][0]["ended"] for v in variants] == ["complete", "diverged in epoch 1"]
    assert variants[1]["nats_per_frame"]["test"] == []
    assert "diverged" in result.out


def test_a_quick_answer_leaves_the_folder_of_the_experiment_free(call, data):
    """Guards against a first answer after which the whole experiment is refused."""
    options = [data, "--units", "gru", *OPTIONS, "--set", "epochs=1", "--jobs", 1]
    told = call("compare", *options, "--quick", "--seeds", 2, "-q").out
    assert "\nNats per frame, mean ± standard deviation of 2 seeds each, without" in told
    assert [path.name for path in Path("results").iterdir()] == ["data-quick"]
    status = call("compare", data, "--quick", "--status")
    assert status.out.splitlines()[-1] == "2/2 runs done"
    assert call("compare", "--status").err == (
        "seqmodel: --status needs the datasets or --out FOLDER\n"
    )


@pytest.mark.parametrize("foreign", ["report.html", "journal.log", "locks"])
def test_no_experiment_starts_among_other_files(data, run, foreign):
    """A page of the user's, a dataset, a run; a journal, also behind a link, used to be emptied."""
    Path("kept").write_text("a diary")
    Path("o").mkdir()
    if foreign == "journal.log":
        Path("o", foreign).symlink_to(Path("kept").resolve())
    else:
        Path("o", foreign).write_text("mine")
    for folder in (data, run, Path("o")):
        before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        says = f"--out {folder} is not empty and holds no experiment: choose another folder"
        call_refused("compare", data, "--quick", "--out", folder, says=says)
        assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    call_refused("compare", "--status", "--out", "o", says="o holds no experiment")
    assert sorted(path.name for path in Path("o").iterdir()) == [foreign]
    assert Path("kept").read_text() == "a diary"


@pytest.mark.parametrize("name", ["journal.log", "journal.log.lock"])
def test_a_pipe_in_place_of_a_journal_or_its_lock_is_one_line(data, name):
    """They used to be waited for, for ever."""
    Path("e").mkdir()
    os.mkfifo(Path("e", name))
    Path("e/locks").mkdir()
    Path("e/locks/begin").touch()
    call_refused("compare", data, "--quick", "--out", "e", says=f"...e/{name}")
    call_refused("compare", "--status", "--out", "e", says="...")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_processes_load_is_one_line(data, number):
    """Otherwise their tracebacks would fill the terminal after a mistyped command is stopped; and
    `timeout` ends the server, too."""
    command = begin(data, *ENDLESS, **{LOADS_ANEW: "1"})
    waited(lambda: any(map(heeds_ctrl_c, servers_of(command.pid))))
    os.killpg(command.pid, number)
    assert ended(command) == 128 + number
    assert said() == "seqmodel: stopped; run the same command to resume\n"


def test_a_server_killed_while_it_loads_is_one_line(data):
    """By a lack of memory, say. One killed before it was asked for anything is replaced."""
    command = begin(data, **{LOADS_ANEW: "1"})

    def killed():
        for server in servers_of(command.pid):
            with suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
        return command.poll() is not None

    waited(killed)
    assert ended(command) == 1
    assert re.fullmatch(r"seqmodel: the server of processes was killed; run .*\n", said())


def heeds_ctrl_c(process):
    """Whether Python has started in a process and would raise KeyboardInterrupt if allowed to."""
    status = Path(f"/proc/{process}/status").read_text()
    (caught,) = re.findall(r"^SigCgt:\t(\w+)", status, re.MULTILINE)
    return bool(int(caught, 16) & 1 << signal.SIGINT - 1)


def test_an_experiment_grows_also_where_it_or_its_data_moved(call, data, undisturbed, tmp_path):
    """Earlier runs stay, and the tables are as if units, trials, seeds had been there at once."""
    first = tmp_path / "first" / "data"
    shutil.copytree(data, first)
    less = [*PAPER, "--units", "gru", "--trials", 2, "--seeds", 1]
    call_ok("compare", first, *less, "--jobs", 1, "--out", "e", "-q")
    kept = {path: path.stat() for path in Path("e/runs").rglob("*.safetensors")}
    assert len(kept) == 2 * 2
    shutil.rmtree(first)
    Path("e").rename("moved")
    grown = call_ok("compare", data, *PAPER, "--jobs", 1, "--out", "moved")
    each = "3 trials and 2 seeds of the best for each of data/tanh and data/gru"
    assert grown.err.startswith(f"moved: 6 of 8 runs to do, {each}\n")
    for path, before in kept.items():
        assert Path("moved", *path.parts[1:]).stat() == before
    same_tables("moved", undisturbed)
    fewer = call("compare", data, *PAPER, "--trials", 2, "--out", "moved")
    assert fewer.err.startswith("moved keeps its 3 trials and 2 seeds\n")
    same_tables("moved", undisturbed)
    says = "moved: there is already an experiment, which differs in variants (to extend it, list "
    for more in (["--units", "gru"], ["--vary", "weight_noise=0,0.1"]):
        call_refused("compare", data, *PAPER, *more, "--out", "moved", says=says + "its tanh")
    assert call("compare", "--status", "--out", "moved").out.endswith("8/8 runs done\n")


def test_the_page_holds_the_table(data, undisturbed):
    """Guards against a page that lags behind the tables, or lacks a winner's sample."""
    page = (undisturbed / "report.html").read_text()
    for line in (undisturbed / "table.md").read_text().splitlines()[2:5]:
        for cell in line.strip("| ").replace("*", "").split(" | ")[1:]:
            mean, _, deviation = cell.partition(" ± ")
            assert f'{mean} <span class="deviation">± {deviation}</span>' in page
    assert page.count("data:audio/mpeg;base64,") == 2 + 1  # and a real piece
    for path in (undisturbed.parent, data.parent, Path.home()):  # it is made to be shared
        assert f"{path}/" not in page


def same_tables(out, undisturbed):
    for name in TABLES:
        assert Path(out, name).read_bytes() == (undisturbed / name).read_bytes()


def test_models_of_sound_are_compared_in_nats_per_frame(audio_dataset):
    """Frames are those of the dataset, whatever steps the unit makes; each with its own defaults.
    Densities of samples used to be ranked before probabilities of 16-bit levels."""
    options = ["--vary", "model=frame-wise,sample-wise", "--quick", "--jobs", 1, "--out", "v"]
    for setting in ("hidden=3", "components=2", "epochs=1"):
        options += ["--set", setting]
    says = "model=frame-wise gives densities and model=sample-wise probabilities, whose nats are "
    says += "not comparable: choose outputs of one kind, such as --set output=logistic"
    call_refused("compare", audio_dataset.folder, *options, says=says, status=2)
    call_ok("compare", audio_dataset.folder, *options, "--set", "output=logistic")
    with Path("v/table.csv").open() as file:
        valid = {x["variant"]: x for x in csv.DictReader(file) if x["split"] == "valid"}
    for model, rate in (("frame-wise", 0.004), ("sample-wise", 0.003)):
        run = Path(f"v/runs/tones/model={model}/trial-0")
        settings = (run / "config.yaml").read_text()
        assert f"model: {model}\n" in settings
        assert f"learning_rate: {rate}\n" in settings
        scored = told("eval", run)
        figure = float(valid[f"model={model}"]["nats_per_frame"])
        assert figure == pytest.approx(scored["nats_per_frame"], rel=1e-12)
        assert figure == pytest.approx(10 * scored["nats_per_sample"])


def test_a_reference_may_be_named_afterwards(call, data, undisturbed, tmp_path):
    """Guards against runs trained again, and an answer kept for another question."""
    copied = tmp_path / "copied"
    shutil.copytree(undisturbed, copied)
    trained = {path: path.stat().st_mtime_ns for path in copied.rglob("metrics.jsonl")}
    lines = call_ok("compare", data, *PAPER, "--out", copied, "--against", "gru", "-q").out
    assert sum(line.startswith("above gru") for line in lines.splitlines()) == 1
    assert trained == {path: path.stat().st_mtime_ns for path in copied.rglob("metrics.jsonl")}
    (line,) = (copied / "differences.csv").read_text().splitlines()[1:]
    assert line.startswith("data,test,tanh,gru,")
    again = call_ok("compare", data, *PAPER, "--out", copied, "-q").out
    assert "above gru" not in again
    says = "--against lstm is not compared here: choose from tanh and gru"
    command = ("compare", data, *PAPER, "--out", copied, "--against", "lstm", "-q")
    call_refused(*command, says=says, status=2)
