"""Errors that take more than a command: one line, and nothing lost or left behind."""

import re
import shutil
from pathlib import Path

import pytest
from calling import Call, listing

from seqmodel.errors import SeqmodelError
from seqmodel.files import new_file
from seqmodel.runs.checkpoint import load_checkpoint, save_checkpoint
from seqmodel.training import loop


def test_force_keeps_the_old_run_until_the_new_one_can_start(call: Call, data: Path, run: Path):
    """Guards against losing a good run to a mistyped option of its replacement.

    The last ones surface only when the model is built or makes its first update.
    """
    shutil.copytree(run, "r")
    before = listing(Path())
    noise = ["--unit", "tanh", "--activation", "relu", "--weight-noise", "1e30"]
    for mistake, said in (
        (["--unit", "gnu"], "there is no unit 'gnu'"),
        (["--init-from", str(run), "--hidden", "5"], "weights do not fit the model"),
        (["--hidden", "1000000"], "out of memory"),
        (["--hidden", "1000000", "--lr", "search"], "out of memory"),
        (noise, "training diverged at update 0"),
        ([*noise, "--lr", "search"], "training diverged at update 0"),
    ):
        result = call("train", data, "--run", "r", "--force", *mistake)
        assert result.status != 0
        assert said in result.err
        assert listing(Path()) == before


def test_force_keeps_the_old_run_if_no_checkpoint_can_be_written(
    call: Call, data: Path, run: Path, monkeypatch: pytest.MonkeyPatch
):
    """Guards against losing both runs, the old and the new, to a full disk."""
    shutil.copytree(run, "r")
    before = listing(Path())

    def full(path: Path, *_: object) -> None:
        raise SeqmodelError(f"cannot write {path}: no space left on device")

    monkeypatch.setattr(loop, "save_checkpoint", full)
    result = call("train", data, "--run", "r", "--force", "--hidden", 4)
    assert (result.status, result.err.count("\n")) == (1, 1)
    assert listing(Path()) == before


def test_all_awkward_files(call: Call, shared_data: Path):
    """Guards against tracebacks on the odd MIDI files of other projects' test suites."""
    result = call("prepare", shared_data / "awkward" / "midi", "-o", "d")
    assert result.status == 0
    assert result.err.startswith("skipped 10 files:\n")
    # Five files, how many more, the one repaired, copies in valid and test, the notes merged, those
    # that the pedal lengthens, how they lie on the grid and what is not kept.
    assert result.err.count("\n") == 15


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("prepare {music} -o d", "prepare fewer or shorter files"),
        ("eval {run}", "try a smaller --batch-size"),
    ],
)
def test_out_of_memory_advice_fits_the_command(
    call: Call, music: Path, run: Path, monkeypatch: pytest.MonkeyPatch, command: str, advice: str
):
    """`prepare` has no model, but its error used to advise a smaller one."""

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    for place in ("data.sources.find_sources", "evaluation.evaluate.evaluate"):
        monkeypatch.setattr(f"seqmodel.{place}", full)
    result = call(*command.format(music=music, run=run).split())
    assert result.status == 1
    assert result.err.startswith(f"seqmodel: out of memory; {advice}")


def from_(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


SEGMENT = OSError("libllvmlite.so: failed to map segment from shared object")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "out of memory"),
        (from_(OSError("Could not find 'libllvmlite.so'"), SEGMENT), "out of memory"),
        (OSError(12, "Cannot allocate memory"), "out of memory"),
        (OSError("AF_UNIX path too long"), "AF_UNIX path too long; set TMPDIR to a shorter path"),
        (OSError(5, "Input/output error", "some.wav"), "cannot use some.wav: input/output error"),
        (OSError(5, "Input/output error"), "input/output error"),
    ],
)
@pytest.mark.parametrize("writing", [False, True])
def test_errors_of_libraries_are_not_blamed_on_outputs(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str, writing: bool
):
    """They used to be called "cannot write to stdout", or to the file being written."""

    def fail(*_: object) -> None:
        if not writing:
            raise error
        with new_file(Path("out.wav")):
            raise error

    monkeypatch.setattr("seqmodel.cli.units.unit_spec", fail)
    result = call("units")
    assert (result.status, result.out) == (1, "")
    if not (writing and getattr(error, "errno", None)):  # an error of the file's
        assert result.err.splitlines() == [f"seqmodel: {said}"]


def test_long_values_are_shortened(call: Call):
    """Guards a terminal against a mistyped option of thousands of characters."""
    for value in ("z" * 5000, "z " * 2500):
        result = call("train", "--unit", value)
        assert result.status == 2
        assert re.match("seqmodel: there is no unit 'zz?", result.err)
        assert result.err.endswith("a file NAME.unit, or package.module:Class\n")
        assert len(result.err) < 1500


def test_an_infinite_score_is_an_error(call: Call, run: Path, data: Path):
    """Used to exit 0 with NaN in the table, and with a traceback under --json."""
    shutil.copytree(run, "r")
    tensors, content = load_checkpoint(Path("r/best.safetensors"))
    for tensor in tensors.values():
        tensor.fill_(1e38)
    save_checkpoint(Path("r/best.safetensors"), tensors, content)
    for options in ((), ("--json",)):
        result = call("eval", "r", *options)
        assert (result.status, result.out) == (1, "")
        assert re.match(r"seqmodel: r scores (nan|inf) nats per frame on valid of ", result.err)


def test_an_empty_argument_is_not_the_current_folder(call: Call, music: Path):
    """A shell's unset variable used to prepare everything that lay around."""
    shutil.copytree(music, "music")
    result = call("prepare", "", "-o", "d")
    said = "seqmodel: an argument is empty: is a shell variable unset?\n"
    assert (result.status, result.out, result.err) == (2, "", said)
    assert [path.name for path in Path().iterdir()] == ["music"]
