"""Errors that take more than a command: one line, and nothing lost or left behind."""

import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from calling import listing

from seqmodel.errors import SeqmodelError
from seqmodel.files import new_file
from seqmodel.runs.checkpoint import load_checkpoint, save_checkpoint
from seqmodel.training import loop

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
    """Guards against losing a good run to a mistyped option of its replacement, or to a full disk.

    Most surface only when the model is built, makes its first update or is saved.
    """
    shutil.copytree(run, "r")
    before = listing(Path())

    def full(path: Path, *_: object) -> None:
        raise SeqmodelError(f"cannot write {path}: no space left on device")

    if not mistake:
        monkeypatch.setattr(loop, "save_checkpoint", full)
    result = call("train", data, "--run", "r", "--force", *mistake)
    assert (result.status != 0, said in result.err) == (True, True)
    assert listing(Path()) == before


def test_all_awkward_files(call, shared_data):
    """Guards against tracebacks on the odd MIDI files of other projects' test suites."""
    result = call("prepare", shared_data / "awkward" / "midi", "-o", "d")
    assert result.status == 0
    assert result.err.startswith("skipped 10 files:\n")
    assert "Traceback" not in result.err


def test_out_of_memory_advice_fits_the_command(call, music, monkeypatch):
    """`prepare` has no model, but its error used to advise a smaller one."""

    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr("seqmodel.data.sources.find_sources", full)
    result = call("prepare", music, "-o", "d")
    assert result.err.startswith("seqmodel: out of memory; prepare fewer or shorter files")


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


def test_long_values_are_shortened(call):
    """Guards a terminal against a mistyped option of thousands of characters."""
    result = call("train", "--unit", "z" * 5000)
    assert result.status == 2
    assert result.err.startswith("seqmodel: there is no unit 'zz")
    assert len(result.err) < 1500


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_infinite_score_is_an_error(call, run, data, options):
    """Used to exit 0 with NaN in the table, and with a traceback under --json."""
    shutil.copytree(run, "r")
    tensors, content = load_checkpoint(Path("r/best.safetensors"))
    huge = {name: tensor.fill_(1e38) for name, tensor in tensors.items()}
    save_checkpoint(Path("r/best.safetensors"), huge, content)
    result = call("eval", "r", *options)
    assert (result.status, result.out) == (1, "")
    assert re.match(r"seqmodel: r scores (nan|inf) nats per frame on valid of ", result.err)


def test_an_empty_argument_is_not_the_current_folder(call, music):
    """A shell's unset variable used to prepare everything that lay around."""
    shutil.copytree(music, "music")
    result = call("prepare", "", "-o", "d")
    said = "seqmodel: an argument is empty: is a shell variable unset?\n"
    assert (result.status, result.out, result.err) == (2, "", said)
    assert [path.name for path in Path().iterdir()] == ["music"]
