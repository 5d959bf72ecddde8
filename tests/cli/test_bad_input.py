"""Each mistake of a user: one line on stderr, the right status, and nothing left behind."""

import re
import shutil
from pathlib import Path

import pytest
from calling import Call, call_ok
from mistakes import MISTAKES
from mistakes.files import make_bad_files

from seqmodel.errors import SeqmodelError
from seqmodel.runs.checkpoint import load_checkpoint, save_checkpoint
from seqmodel.training import loop


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory, music: Path, data: Path, run: Path) -> Path:
    """A folder of everything that can be wrong with files."""
    folder = tmp_path_factory.mktemp("bad")
    make_bad_files(folder, music, data, run)
    return folder


def listing(*folders: Path) -> list[tuple[str, int]]:
    """Everything below the folders, with sizes."""
    found = [path for folder in folders for path in sorted(folder.rglob("*"))]
    return [(str(path), path.lstat().st_size) for path in found]


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_said_in_one_line(
    command: str, call: Call, bad: Path, music: Path, data: Path, run: Path, here: Path
):
    """Guards against tracebacks, vague errors, wrong statuses and things left behind."""
    if any(not Path(path).exists() for path in re.findall("/proc|/dev/full", command)):
        pytest.skip("this system has no such path")
    paths = {"bad": bad, "music": music, "data": data, "run": run}
    status, line = MISTAKES[command]
    before = listing(here, bad, music, data, run)
    result = call(*(word.format(**paths) for word in command.split()))
    assert (result.err, result.status) == (f"seqmodel: {line.format(**paths)}\n", status)
    assert result.out == ""
    assert listing(here, bad, music, data, run) == before


def test_a_dataset_that_changed_is_not_resumed_on(call: Call, music: Path, run: Path, here: Path):
    """Guards against going on, with a wrong order of data, on other pieces than were learned."""
    call_ok("prepare", music, "-o", "data")
    small = ("--hidden", 4, "--epochs", 1, "--schedule", "constant")
    call_ok("train", "data", *small, "--run", "r")
    shutil.rmtree("data")
    call_ok("prepare", music / "train", music / "valid", "-o", "data", "--steps-per-beat", 2)
    result = call("train", "--resume", "--run", "r", "--epochs", 2)
    assert (result.status, result.out) == (1, "")
    assert result.err == (
        f"seqmodel: {here}/data is not the dataset that r was trained on: prepare it again as it "
        "was, or start a new run with --init-from r\n"
    )


def test_diverged_training_says_so(call: Call, data: Path):
    """Guards against nan being trained on for hours."""
    result = call("train", data, "--hidden", 4, "--lr", 1e38, "-q")
    assert result.status == 1
    assert re.fullmatch(
        r"seqmodel: training diverged at update 1 of epoch 1 \(loss (nan|inf)\); lower "
        r"--learning-rate, now 1e\+38\n",
        result.err,
    )


def test_force_does_not_take_a_run_away_before_the_new_one_can_begin(
    call: Call, data: Path, run: Path
):
    """Guards against losing a good run to a mistyped option of the one that was to replace it.

    The last ones come out only when the model is built.
    """
    shutil.copytree(run, "r")
    before = listing(Path())
    for mistake in (
        ["--unit", "gnu"],
        ["--init-from", str(run), "--hidden", "5"],
        ["--hidden", "1000000"],
        ["--hidden", "1000000", "--lr", "search"],
        ["--unit", "tanh", "--activation", "relu", "--weight-noise", "1e30"],
        ["--unit", "tanh", "--activation", "relu", "--weight-noise", "1e30", "--lr", "search"],
    ):
        assert call("train", data, "--run", "r", "--force", *mistake).status != 0
        assert listing(Path()) == before


def test_force_does_not_take_a_run_away_on_a_disk_that_takes_no_checkpoint(
    call: Call, data: Path, run: Path, monkeypatch: pytest.MonkeyPatch
):
    """Guards against two runs lost to a full disk, the old one and the new."""
    shutil.copytree(run, "r")
    before = listing(Path())

    def full(path: Path, *_: object) -> None:
        raise SeqmodelError(f"cannot write {path}: no space left on device")

    monkeypatch.setattr(loop, "save_checkpoint", full)
    result = call("train", data, "--run", "r", "--force", "--hidden", 4)
    assert (result.status, result.err.count("\n")) == (1, 1)
    assert listing(Path()) == before


def test_all_awkward_files(call: Call, shared_data: Path):
    """Guards against a traceback from anybody's test suite of odd MIDI files."""
    result = call("prepare", shared_data / "awkward" / "midi", "-o", "d")
    assert result.status == 0
    assert result.err.startswith("skipped 10 files:\n")
    assert result.err.count("\n") == 9  # five files, how many more, and the one repaired


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("prepare {music} -o d", "prepare fewer or shorter files"),
        ("eval {run}", "try a smaller --batch-size"),
    ],
)
def test_memory_that_runs_out_is_told_in_the_commands_own_terms(
    call: Call, music: Path, run: Path, monkeypatch: pytest.MonkeyPatch, command: str, advice: str
):
    """prepare, which has no model, was told to make it smaller."""

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    for place in ("data.prepare.find_sources", "evaluation.report.report"):
        monkeypatch.setattr(f"seqmodel.{place}", full)
    result = call(*command.format(music=music, run=run).split())
    assert result.status == 1
    assert result.err.startswith(f"seqmodel: out of memory; {advice}")


def test_an_infinite_score_is_an_error(call: Call, run: Path, data: Path):
    """It was a 0 with NaN in the table, and a traceback as JSON."""
    shutil.copytree(run, "r")
    tensors, content = load_checkpoint(Path("r/best.safetensors"))
    for tensor in tensors.values():
        tensor.fill_(1e38)
    save_checkpoint(Path("r/best.safetensors"), tensors, content)
    for options in ((), ("--json",)):
        result = call("eval", "r", *options)
        assert (result.status, result.out) == (1, "")
        assert re.match(r"seqmodel: r scores (nan|inf) nats per frame on valid of ", result.err)
