"""A unit of the user's own is a text file, from training to the report, without any Python."""

import json
import re
from pathlib import Path

import pytest
from calling import call_ok

from seqmodel.unit_setting import read_unit
from seqmodel.units import UNITS, unit_spec, zoo

TEXT = """\
# An lstm whose forget gate is 1 - i.
i = s(Wi x + Ui h' + Vi (.) c' + bi)
g = phi(Wc x + Uc h' + bc)
c = (1 - i) (.) c' + i (.) g
o = s(Wo x + Uo h' + Vo (.) c + bo)
h = o (.) phi(c)
"""
OPTIONS = ("--unit", "texts/mine.unit", "--hidden", 4, "--model", "frame-wise")


@pytest.fixture(autouse=True)
def file(here):
    (here / "texts").mkdir()
    (here / "texts/mine.unit").write_text(TEXT)
    return here / "texts/mine.unit"


def test_from_training_to_the_report_without_the_file(call, data, file):
    """Guards against a run that needs the file again, and a name that is lost on the way."""
    call_ok("train", data, *OPTIONS, "--epochs", 2, "-q")
    file.unlink()
    run = Path("runs/data-mine-1")
    config = (run / "config.yaml").read_text()
    indented = "".join(f"  {line}\n" for line in TEXT.splitlines())
    assert f"unit: |\n{indented}  unit: mine\n" in config
    assert call_ok("eval").out.startswith(f"{run} (mine, epoch ")
    call_ok("sample", "out.mid", "--length", 20, "-q")
    inspected = json.loads(call_ok("inspect", run, "--json").out)
    I, H = 88, 4  # noqa: E741
    assert inspected["parameters"] == 3 * (I * H + H * H + H) + 2 * H
    call_ok("report", "--out", "report.html", "-q")
    assert "mine 4" in Path("report.html").read_text()
    call_ok("train", data, "--config", run / "config.yaml", "--run", "again", "-q")
    weights = [Path(folder, "best.safetensors").read_bytes() for folder in (run, "again")]
    assert len(weights[0]) == len(weights[1])


def test_a_run_resumes_without_its_file_but_not_with_another(call, data, file):
    """Guards against a checkpoint that does not hold the unit, and a change that goes unnoticed."""
    options = (data, *OPTIONS, "--schedule", "constant", "-q")
    call_ok("train", *options, "--epochs", 2, "--run", "whole")
    call_ok("train", *options, "--epochs", 1, "--run", "r")
    file.write_text(TEXT.replace("1 - i", "2 - i"))
    result = call("train", "--resume", "--run", "r", *OPTIONS[:2], "--epochs", 2, "-q")
    assert result.status == 2
    assert "--unit cannot change on --resume" in result.err
    file.unlink()
    call_ok("train", "--resume", "--run", "r", "--epochs", 2, "-q")
    assert Path("r/best.safetensors").read_bytes() == Path("whole/best.safetensors").read_bytes()


@pytest.mark.usefixtures("no_pages")
def test_compare_and_units_take_a_file(data, file):
    """Guards against a table that calls it by its path or its text."""
    options = ("--search", "none", "--seeds", 1, "--set", "epochs=1", "--set", "model=frame-wise")
    out = call_ok("compare", data, "--units", f"gru,{file},mingru", "--params", 900, *options).out
    assert out.splitlines()[0].split() == ["data", "gru", "mine", "mingru"]
    assert Path("results/data/runs/data/mine").is_dir()
    shown = call_ok("units", file, "--diff", "lstm-coupled").out.splitlines()
    assert shown[0] == "# mine"
    assert {line[:2] for line in shown[1:-2]} == {"  "}
    shown = call_ok("units", file, "--diff", "lstm").out.splitlines()
    assert "- f = s(Wf x + Uf h' + Vf (.) c' + bf)" in shown
    assert "+ c = (1 - i) (.) c' + i (.) g" in shown


def test_what_is_shown_of_a_unit_is_a_text_again(file):
    for name in (*UNITS, *zoo()):
        file.write_text(call_ok("units", name).out)
        ours, known = unit_spec(read_unit(str(file))), unit_spec(name)
        assert [e[:2] for e in ours.equations] == [e[:2] for e in known.equations]
        assert ours.starts == known.starts


def test_a_mistake_in_a_file_shows_the_place(call, data, file):
    file.write_text(TEXT.replace("Vi (.) c' + bi", "Vi (.) e' + bi"))
    for command in (("units", file), ("train", data, *OPTIONS), ("bench", file)):
        result = call(*command)
        assert result.status == 1
        assert result.err == (
            "seqmodel: mine.unit:2: e' is the previous e, which has no equation\n"
            "    i = s(Wi x + Ui h' + Vi (.) e' + bi)\n"
            "                                ^\n"
        )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "texts/mine.unit has no equation, such as h = phi(W x + U h' + b)"),
        (b"h = W x\xff", "texts/mine.unit is not UTF-8 text (byte 7)"),
        (
            b"h = W x\n" * 10_000,
            "texts/mine.unit is larger than 4,000 bytes, too large to be valid",
        ),
        (
            b"h = 2 (.) (W x) + 0 (.) U h'",
            "mine.unit:1: U has no effect on h: its gradient stays zero\n"
            "    h = 2 (.) (W x) + 0 (.) U h'\n"
            "                            ^",
        ),
    ],
)
def test_a_file_that_is_no_unit_is_refused(call, data, file, content, message):
    file.write_bytes(content)
    result = call("train", data, *OPTIONS)
    assert (result.status, result.err) == (1, f"seqmodel: {message}\n")
    assert not Path("runs").exists()


def test_a_unit_that_explodes_ends_with_a_clear_message(call, data, file):
    file.write_text("h = 999 (.) h' + W x")
    result = call("train", data, *OPTIONS, "--weight-noise", 0.01)
    assert result.status == 1
    assert re.fullmatch(
        r"seqmodel: training diverged at update 0 of epoch 1 \(loss nan\); "
        "does h of mine grow from step to step without bound\\?\n",
        result.err.splitlines(keepends=True)[-1],
    )
