"""Errors that take more than a command: one line, and nothing lost or left behind."""

import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from calling import call_ok, call_refused, listing

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


def test_all_awkward_files(shared_data):
    """Guards against tracebacks on the odd MIDI files of other projects' test suites."""
    said = call_ok("prepare", shared_data / "awkward" / "midi", "-o", "d").err
    assert said.startswith("skipped 10 files:\n")
    assert "Traceback" not in said


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
