"""What `train` prints and writes: by one process or several, tracked, killed, refused."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from calling import (
    ENVIRONMENT,
    PATIENCE,
    begun,
    call_ok,
    call_refused,
    children,
    epochs_of,
    free_port,
    gone,
    same_tensors,
    start,
    told,
    waited,
)
from forking import Forked, outcome
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seqmodel.cli import job
from seqmodel.runs.folder import read_metrics
from seqmodel.training import loop

EPOCH = r"epoch {}/2  train +\d+\.\d{{4}}  valid +\d+\.\d{{4}}\*  +[\d,]+ frames/s"


def test_train_prints_plain_lines_without_a_terminal(call, data, run):
    """Guards the log of a job: one line per epoch, no control characters, the result on stdout."""
    result = call("train", data, "--hidden", 4, "--epochs", 2)
    lines = result.err.splitlines()
    assert lines[0] == f"runs/data-lstm-1: lstm of 4 units, lstm of 2 along pitch, on {data}"
    assert re.fullmatch(EPOCH.format(1), lines[1])
    assert re.fullmatch(EPOCH.format(2), lines[2])
    # Two epochs are not enough.
    assert re.match("a trivial model predicts valid at least as well", lines[3])
    assert len(lines) == 4
    assert result.err.replace("\n", "").isprintable()
    nats = read_metrics(Path("runs/data-lstm-1"))[1]["valid_nats_per_frame"]
    out = f"runs/data-lstm-1  best valid {nats:.4f} nats per frame, epoch 2 of 2\n"
    assert result.out == out
    files = {"best.safetensors", "config.yaml", "last.safetensors", "learning-curve.png"}
    assert {f.name for f in Path("runs/data-lstm-1").iterdir()} == files | {"metrics.jsonl"}
    quiet = call("train", data, "--hidden", 4, "--epochs", 1, "--json", "-q")
    values = json.loads(quiet.out)
    assert (quiet.err, set(values), values["best"]["epoch"]) == ("", {"run", "epochs", "best"}, 1)
    assert values["run"] == "runs/data-lstm-2"  # without a name it takes the next number
    assert call_ok("train", "--resume").err.startswith(
        "resuming runs/data-lstm-2, the newest run\n"
    )
    assert told("train", "--resume", "runs/data-lstm-1")["run"] == "runs/data-lstm-1"


def test_train_says_that_patience_ended_it(call, data):
    """The last line was that of a training of so few epochs."""
    options = ("--epochs", 30, "--patience", 1, "--lr", 1, "--schedule", "constant")
    line = call("train", data, "--hidden", 4, *options).out
    why = "; stopped after 1 epoch without a better valid figure"
    best, last = re.search(rf"epoch (\d+) of (\d+){why}\n$", line).groups()
    assert int(best) + 1 == int(last) < 30


@pytest.mark.parametrize(
    ("which", "options", "worse"),
    [
        ("dataset", [], True),
        # It starts better than a single Gaussian.
        ("audio_dataset", ["--model", "frame-wise", "--output", "gaussian"], False),
    ],
)
def test_train_warns_only_when_a_trivial_model_is_better(call, request, which, options, worse):
    """Guards against taking a run that learned nothing for a success; the figures are eval's."""
    train = ["train", request.getfixturevalue(which).folder, "--hidden", 4, "--lr", 1e-9]
    result = call_ok(*train, "--epochs", 1, *options, "--run", "r")
    scores = told("eval", "r")
    baseline, figure = min(scores["baselines"].items(), key=lambda item: item[1])
    assert (figure < scores["nats_per_frame"]) == worse
    line = (
        f"a trivial model predicts valid at least as well ({baseline.replace('_', ' ')}, "
        f"{figure:.4f}): train again with more --epochs or another --learning-rate; "
        "`seqmodel eval r` shows all figures"
    )
    said = [words for words in result.err.splitlines() if words.startswith("a trivial model")]
    assert said == [line] * worse


def test_settings_may_lie_beside_the_data(data):
    """Such a dataset was taken for a run."""
    shutil.copytree(data, "d")
    Path("d/config.yaml").write_text("hidden: 7\n")
    assert "hidden: 7\n" in call_ok("train", "d", "--config", "d/config.yaml", "--print-config").out


@pytest.mark.parametrize("options", [[], ["--batch-size", 1, "--truncate", 11]])
def test_a_small_folder_has_epochs_for_800_updates(data, options):
    """Guards against runs of a few songs that stop after a few dozen updates, worse than counting.

    What is asked for remains, also where a file asks.
    """
    call_ok("train", data, *options, "--hidden", 4, "--epochs", 1, "--run", "one")
    (epoch,) = read_metrics(Path("one"))

    def settings(*more):
        return yaml.safe_load(call_ok("train", data, *options, *more, "--print-config").out)

    default = settings()
    assert default["epochs"] == -(-800 // epoch["updates"])
    assert default["patience"] == max(-(-200 // epoch["updates"]), 10)
    assert settings("--epochs", 14) == default | {"epochs": 14, "patience": 10}
    assert settings("--patience", 9) == default | {"patience": 9}
    Path("c.yaml").write_text("epochs: 3\n")
    assert settings("--config", "c.yaml")["epochs"] == 3
    assert settings("--minutes", 2)["epochs"] == 0


@pytest.mark.parametrize("options", [[], ["--lr", 0], ["--trials", 2]])
def test_a_run_that_replaces_another_equals_one_in_a_new_folder(call, data, run, options):
    """Guards against remains of the old run, and losing --config, or --init-from at a rate of 0."""
    shutil.copytree(run, "old")
    Path("old/draws/7").mkdir(parents=True)
    Path("link").symlink_to("old")  # which stays a link
    train = ["train", data, "--hidden", 4, "--epochs", 1, "--model", "frame-wise", "--no-end"]
    Path("c.yaml").write_text(call_ok(*train, *options, "--print-config").out)
    new = call_ok(*train, *options, "--init-from", run, "--run", "new")
    replace = ("--config", "c.yaml", "--init-from", run, "--run", "link", "--force")
    assert call_ok("train", *replace).out == new.out.replace("new", "link")
    assert Path("link").is_symlink()
    names = [{str(p.relative_to(old)) for p in old.rglob("*")} for old in map(Path, ("old", "new"))]
    assert names[0] == names[1]
    for name in ("best.safetensors", "config.yaml"):
        assert Path("old", name).read_bytes() == Path("new", name).read_bytes()
    assert {path.name for path in Path().iterdir()} == {"c.yaml", "link", "new", "old"}
    kept = same_tensors("new/best.safetensors", run / "best.safetensors")
    assert kept == ("--lr" in options)
    searched = {"learning rate 1 of 2", "learning rate 2 of 2"} if "--trials" in options else set()
    assert set(re.findall("^learning rate . of .", new.err, re.MULTILINE)) == searched


DIES = """
import os, sys
from pathlib import Path
from seqmodel.cli.main import main
import seqmodel.experiment.search  # once, not in every child
def dying(path, target, rename=Path.replace):
    global left
    left -= 1
    if left == 0:
        os._exit(9)
    return rename(path, target)
for left in map(int, sys.argv.pop(1).split()):
    if not os.fork():
        sys.argv += ["--run", f"r{left}"]
        Path.replace = lambda path, target: dying(path, target)
        main()
    os.wait()
"""


@pytest.mark.parametrize(
    ("options", "points"),
    [([], range(1, 9)), (["--trials", 2, "--init-from", True], range(1, 9, 2))],
)
def test_a_run_killed_at_its_start_can_be_restarted_or_resumed(call, data, run, options, points):
    """Killed at each of the first writes; a checkpoint without config.yaml used to be neither."""
    options = [run if option is True else option for option in options]
    train = ["train", data, "--hidden", 4, "--epochs", 1, "--model", "frame-wise", "--no-end"]
    train += [*options, "-q"]
    call_ok(*train, "--run", "whole")
    assert outcome("-c", DIES, " ".join(map(str, points)), *train, env=ENVIRONMENT)[0] == 0
    resumed = [Path(f"r{point}").exists() for point in points]
    assert len(set(resumed)) == 2  # the points are well chosen
    for point, there in zip(points, resumed, strict=True):
        again = ["train", "--resume", "-q"] if there else train
        call_ok(*again, "--run", f"r{point}")
        for name in ("best.safetensors", "config.yaml"):
            assert Path(f"r{point}", name).read_bytes() == Path("whole", name).read_bytes()


def test_train_says_when_samples_are_odd(call, write_dataset, tmp_path, monkeypatch):
    """As `sample` does of the same pieces; not after seconds of training, which are a trial."""
    nearly_silent = np.zeros((400, 88), np.uint8)
    nearly_silent[0, 40] = 1
    splits = {"train": [nearly_silent] * 4, "valid": [nearly_silent]}
    data = write_dataset(tmp_path / "nearly-silent", splits).folder
    train = ["train", data, "--hidden", 4, "--epochs", 1, "--lr", 1e-9, "--no-end"]
    assert "disappoint" not in call(*train, "--run", "short").err
    monkeypatch.setattr(job, "LONG_ENOUGH", 0)
    told = call(*train, "--run", "long").err.splitlines()[-1]
    said = call("sample", "x.mid", "--run", "long", "-n", job.SAMPLES, "--seconds", 30).err
    hints = [line.split("long; ")[1] for line in said.splitlines() if "try " in line]
    assert told == f"{len(hints)} of 4 samples may disappoint: {hints[0]}"


README = Path(__file__).parents[2] / "seqmodel" / "training" / "README.md"
TRACKED = ("--hidden", 4, "--epochs", 2, "--model", "frame-wise", "--no-end")


def plug_in(folder, code, entry="mine = mine:track"):
    """What installing a package with a tracker would leave in `folder`."""
    name, _, target = entry.partition(" = ")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[seqmodel.trackers]\n{entry}\n")
    (folder / f"{target.partition(':')[0]}.py").write_text(code)


@pytest.fixture
def installed(here, monkeypatch):
    """A function that installs a tracker called mine, of this code."""

    def install(code):
        plug_in(here / "site", code)
        monkeypatch.syspath_prepend(here / "site")
        monkeypatch.delitem(sys.modules, "mine", raising=False)

    return install


def steps_of(run, tag="valid/nats_per_frame"):
    events = EventAccumulator(run, size_guidance={"scalars": 0})
    events.Reload()
    return [event.step for event in events.Scalars(tag)]


def test_tracking_changes_no_bit_of_the_run(call, data, run):
    """And --force may replace a run that was tracked."""
    call_ok("train", data, *TRACKED, "--run", "r", "--track", "tensorboard", "-q")
    assert steps_of("r") == [1, 2]
    for name in ("best.safetensors", "config.yaml"):
        assert Path("r", name).read_bytes() == Path(run, name).read_bytes()
    Path("r/trackers").mkdir()
    Path("r/trackers/mlflow").write_text("the id of a run")
    call_ok("train", data, *TRACKED, "--run", "r", "--force", "-q")
    assert not [*Path("r").glob("events*"), *Path("r").glob("trackers")]


STAND_IN = """
import json
def told(*call):
    with open("told", "a") as file: print(json.dumps(call), file=file)
def start_run(run_name): told("start_run", run_name)
def log_params(params): told("log_params", params["unit"])
def log_metrics(metrics, step): told("log_metrics", metrics, step)
def end_run(status): told("end_run", status)
"""


def test_the_tracker_of_the_readme_is_found_and_told(here, data, monkeypatch):
    """The README's example, installed from outside. Of several processes only one tells it."""
    example = re.search(r"```python\n(import mlflow\n.*?)```", README.read_text(), re.DOTALL)
    group, line = re.search(
        r'^\[project\.entry-points\."(.*)"\]\n(.*)$', README.read_text(), re.MULTILINE
    ).groups()
    assert group == "seqmodel.trackers"
    plug_in(here / "site", example[1], line.replace('"', ""))
    (here / "site/mlflow.py").write_text(STAND_IN)
    code = (
        "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
        "runpy.run_module('seqmodel', run_name='__main__', alter_sys=True)"
    )
    train = ["train", data, *TRACKED, "--processes", 2, "--track", "mlflow", "--run", "r"]
    assert outcome("-c", code, here / "site", *train, env=ENVIRONMENT)[0] == 0
    monkeypatch.syspath_prepend(here / "site")
    for name in ("mlflow", "mytracker"):  # what the test imports must not outlive it
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
    call_ok("train", "--resume", "--run", "r", "--track", "mlflow")
    lines = read_metrics(Path("r"))
    begun = [["start_run", "r"], ["log_params", "lstm"]]
    ended = [["end_run", "FINISHED"]]
    epochs = [["log_metrics", line, line["updates"]] for line in lines]
    told = [json.loads(line) for line in Path("told").read_text().splitlines()]
    assert told == [*begun, *epochs, *ended] * 2
    assert len(lines) == 2


def test_a_missing_tensorboard_is_told_what_to_install(data, monkeypatch):
    for name in [*sys.modules]:
        if name.partition(".")[0] == "tensorboard":
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "seqmodel.training.tensorboard", raising=False)
    says = "--track tensorboard cannot be loaded: ...; pip install 'seqmodel[track]'"
    call_refused("train", data, "--track", "tensorboard", says=says)
    assert not Path("runs").exists()


RAISES = """
from seqmodel.training.trackers import Listener
def track(config, folder):
    def epoch(line, is_best):
        raise ConnectionError("the server is gone")
    return Listener(epoch=epoch)
"""


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("wandb", "", ": there is no such tracker; choose from mine, tensorboard"),
        ("mine", "1 / 0", " cannot be loaded: ZeroDivisionError: division by zero"),
        ("mine", "def track(config, folder): pass", " returns NoneType, not a Listener"),
        (
            "mine",
            "def track(config, folder): raise OSError('no\\nserver')",
            " failed: OSError: no server; continue the saved run with --resume",
        ),
        (
            "mine",
            RAISES,
            " failed: ConnectionError: the server is gone; continue the saved run with --resume",
        ),
    ],
)
def test_a_tracker_that_fails_is_one_line(call, data, run, installed, name, code, told):
    """What it has trained by then is saved, and ends as if it had never been tracked."""
    installed(code)
    result = call("train", data, *TRACKED, "--run", "r", "--track", name)
    assert (result.status, result.out) == (2 if name == "wandb" else 1, "")
    before = 2 if code == RAISES else result.err.startswith("r: lstm")  # title, first epoch
    assert result.err.splitlines()[before:] == [f"seqmodel: --track {name}{told}"]
    if "continue" in told:
        call_ok("train", "--resume", "--run", "r", "-q")
        assert Path("r/best.safetensors").read_bytes() == Path(run, "best.safetensors").read_bytes()
    assert name == "mine" or not Path("r").exists()


def test_what_continues_a_tracked_run_is_told_with_its_tracker(call, data, monkeypatch):
    def stopped(*given, **more):
        os.kill(os.getpid(), signal.SIGTERM)
        return likelihood(*given, **more)

    likelihood = loop.likelihood
    monkeypatch.setattr(loop, "likelihood", stopped)
    result = call("train", data, *TRACKED, "--track", "tensorboard", "--run", "r", "-q")
    assert result.status == 143
    assert result.err.endswith("`seqmodel train --resume --run r --track tensorboard`\n")


MODEL = ("--model", "frame-wise", "--no-end", "--hidden", 4, "--dropout", 0.2)
SMALL = (*MODEL, "--epochs", 3, "--parts", 2)
LONG = (*MODEL, "--epochs", 4000, "--patience", 4000, "--schedule", "constant")
TORCHRUN = ["torch.distributed.run"]


def others_of(process):
    """The processes that it has started, but the first child, which is its fork server."""
    return children(process.pid)[1:]


def two(data, epochs):
    """Two processes that train into run/, after so many epochs: the first, and the other's pid."""
    process = start("train", data, *LONG, "--processes", 2, "--run", "run")
    begun("run", process, epochs)
    return process, *others_of(process)


def test_two_processes_print_and_write_what_one_does(data):
    """Whatever the others say, the user sees one training."""
    one = call_ok("train", data, *SMALL, "--run", "one")
    two = start("train", data, *SMALL, "--processes", 2, "--run", "two").communicate()
    plain = [re.sub(r"one|two| +[\d,]+ frames/s", "", text) for text in (one.out, one.err, *two)]
    assert plain[:2] == plain[2:]
    assert Path("one/best.safetensors").read_bytes() == Path("two/best.safetensors").read_bytes()
    assert same_tensors("one/last.safetensors", "two/last.safetensors")
    settings = Path("two/config.yaml").read_text()
    assert "parts: 2\n" in settings
    assert "processes" not in settings
    Path("four.yaml").write_text("parts: 4\nbatch_size: 4\n")
    command = ("train", data, "--config", "four.yaml", "--processes", 2, "--print-config")
    assert "parts: 4\n" in call_ok(*command).out  # those of the file


def test_ctrl_c_stops_all_and_one_process_goes_on(data):
    process, other = two(data, 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    again = "the work is saved: continue with `seqmodel train --resume --run run`"
    assert re.fullmatch(rf"seqmodel: stopped in epoch \d+; {again}", err.splitlines()[-1])
    assert gone(other)
    assert not list(Path("run").glob(".*"))  # no temporary file is left
    again = epochs_of("run") + 2
    for folder in ("run", "whole"):  # as if only some epochs had been asked for
        options = ("--resume",) if folder == "run" else (data, *LONG, "--parts", 2)
        call_ok("train", *options, "--run", folder, "--epochs", again, "-q")
    assert same_tensors("run/last.safetensors", "whole/last.safetensors")


def test_a_killed_process_ends_the_others_with_one_line(data):
    process, other = two(data, 1)
    os.kill(other, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    assert err.splitlines()[-1] == (
        "seqmodel: process 1 has ended with signal 9; "
        "continue from the last checkpoint with `seqmodel train --resume --run run`"
    )
    assert "Traceback" not in err
    call_ok("train", "--resume", "--run", "run", "--print-config")


def test_when_the_first_is_killed_the_others_end(data):
    """Before they give up waiting for it, after 50 s each time that they look for it."""
    process = start("train", data, *LONG, "--processes", 2, "--run", "run")
    others = waited(lambda: others_of(process))
    process.kill()
    assert "Traceback" not in process.communicate(timeout=PATIENCE)[1]
    waited(lambda: all(map(gone, others)), 40)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nothing watches elsewhere")
def test_torchrun_goes_on_after_the_only_process_of_a_host_was_frozen(data):
    """torchrun sees no frozen process, nor counts the restart that another host asks for.

    As on many hosts, each has the data in a place of its own, one the run and the result.
    """
    freezing = """if True:
        import os, signal
        from datetime import timedelta
        from pathlib import Path
        from seqmodel.cli.main import main
        from seqmodel.training import loop, processes

        def write_and_freeze(trainer, write=loop.Trainer._write_metrics):
            write(trainer)
            if trainer.folder and not Path("frozen").exists():  # of the first, once
                Path("frozen").touch()
                os.kill(os.getpid(), signal.SIGSTOP)

        loop.Trainer._write_metrics = write_and_freeze
        processes.PATIENCE = timedelta(seconds=10)
        main()
    """
    port = free_port()
    for host in ("a", "b"):
        shutil.copytree(data, Path(host, "music"))
    launched = [
        Forked(
            [*TORCHRUN, "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d",
             "--rdzv-endpoint", f"localhost:{port}", "--max-restarts", "1", "--no-python", "--",
             sys.executable, "-c", freezing, "train", "music", *map(str, SMALL), "--run", "run"],
            cwd=host, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for host in ("a", "b")
    ]  # fmt: skip
    printed, said = zip(*(each.communicate(timeout=PATIENCE) for each in launched), strict=True)
    assert [process.returncode for process in launched] == [0, 0], said
    assert sorted(map(bool, printed)) == [False, True]
    (frozen,) = Path().glob("*/frozen")
    first = frozen.parent
    (line,) = re.findall(r"^seqmodel: .*$", said[first.name == "b"], re.MULTILINE)
    assert line == (
        "seqmodel: process 0 was frozen for 10 s and has been killed; "
        "continue from the last checkpoint with `seqmodel train --resume --run run`"
    )
    call_ok("train", data, *SMALL, "--run", "one", "-q")
    assert same_tensors("one/last.safetensors", first / "run/last.safetensors")


def test_what_slurm_starts_again_goes_on(call, data, monkeypatch):
    """The same command, from the queue once more; by hand it is refused."""
    line = ("train", data, *SMALL, "--run", "run")
    call_ok(*line)
    before = Path("run/last.safetensors").read_bytes()
    for count, status in (("0", 1), ("1", 0)):
        monkeypatch.setenv("SLURM_RESTART_COUNT", count)
        result = call(*line)
        assert (result.status, "run is already complete" in result.err) == (status, not status)
    assert Path("run/last.safetensors").read_bytes() == before


def test_a_host_with_the_wrong_data_is_named(data, music):
    call_ok("prepare", music / "train", "--out", "b/music")
    shutil.copytree(data, "a/music")
    in_its_folder = (
        "import os; os.chdir('ab'[int(os.environ['RANK'])]); "
        "from seqmodel.cli.main import main; main()"
    )
    status, _, err = outcome(
        *TORCHRUN, "--standalone", "--nproc-per-node", "2", "--no-python", "--",
        *(sys.executable, "-c", in_its_folder, "train", "music", *SMALL, "--run", "run"),
        env=ENVIRONMENT,
    )  # fmt: skip
    (said,) = [line for line in err.splitlines() if line.startswith("seqmodel: ")]
    assert status == 1
    assert re.match(r"seqmodel: process 1 on \S+: .*music differs from the dataset of", said)
    assert not Path("a/run").exists()  # so that the same line will do once the data is there


def test_a_full_disk_under_the_first_ends_all(data):
    """The last save before it stays whole."""
    process, other = two(data, 2)
    limit = subprocess.run(
        ["prlimit", f"--pid={process.pid}", "--fsize=100:100"], check=False, capture_output=True
    )
    if limit.returncode:
        process.kill()
        process.communicate()
        pytest.skip("no prlimit here")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("seqmodel: cannot write run/")
    assert gone(other)
    load_file("run/last.safetensors")
