"""Units in all commands: of the user's own, as a text or a torch module, and along pitch."""

import re
from pathlib import Path

import own_modules
import pytest
from calling import call_ok, told
from safetensors.numpy import load_file

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


@pytest.fixture
def file(here):
    (here / "texts").mkdir()
    (here / "texts/mine.unit").write_text(TEXT)
    return here / "texts/mine.unit"


def test_from_training_to_the_report_without_the_file(call, data, file):
    """Guards against a run that needs the file again, or takes another, and a name that is lost."""
    options = (data, *OPTIONS, "--schedule", "constant", "-q")
    call_ok("train", *options, "--epochs", 2)
    call_ok("train", *options, "--epochs", 1, "--run", "r")
    file.write_text(TEXT.replace("1 - i", "2 - i"))
    result = call("train", "--resume", "--run", "r", *OPTIONS[:2], "--epochs", 2, "-q")
    assert (result.status, "--unit cannot change on --resume" in result.err) == (2, True)
    file.unlink()
    call_ok("train", *options[:1], "--hidden", 2, "--minutes", 0.01, "--run", "timed", "-q")
    result = call("train", "--resume", "--run", "timed", "--epochs", 9, "-q")
    assert (result.status, "--epochs cannot change on --resume" in result.err) == (2, True)
    run = Path("runs/data-mine-1")
    call_ok("train", "--resume", "--run", "r", "--epochs", 2, "-q")
    call_ok("train", data, "--config", run / "config.yaml", "--run", "again", "-q")
    for folder in ("r", "again"):
        weights = [Path(each, "best.safetensors").read_bytes() for each in (run, folder)]
        assert weights[0] == weights[1]
    indented = "".join(f"  {line}\n" for line in TEXT.splitlines())
    assert f"unit: |\n{indented}  unit: mine\n" in (run / "config.yaml").read_text()
    assert call_ok("eval", run).out.startswith(f"{run} (mine, epoch ")
    call_ok("sample", "out.mid", "--run", run, "--length", 20, "-q")
    inspected = told("inspect", run)
    I, H = 88, 4  # noqa: E741
    assert inspected["parameters"] == 3 * (I * H + H * H + H) + 2 * H
    call_ok("report", run, "--out", "report.html", "-q")
    assert "mine 4" in Path("report.html").read_text()


@pytest.fixture
def module(here):
    (here / "own.py").write_text(Path(own_modules.__file__).read_text())


@pytest.mark.usefixtures("no_pages", "module")
def test_compare_and_units_take_files_and_modules(data, file):
    """Guards against a table that calls a text by its path or its content."""
    options = ("--search", "none", "--seeds", 1, "--set", "epochs=1", "--set", "model=frame-wise")
    names = f"gru,{file},mingru,own:Attention"
    out = call_ok("compare", data, "--units", names, "--params", 900, *options).out.splitlines()
    assert out[0].split() == ["data", "gru", "mine", "mingru", "own:Attention"]
    sizes = next(line for line in out if line.startswith("parameters"))
    assert all(abs(int(size) - 900) < 300 for size in sizes.split()[1:])
    assert Path("results/data/runs/data/mine").is_dir()
    shown = call_ok("units", file, "--diff", "lstm-coupled").out.splitlines()
    assert shown[0] == "# mine"
    assert {line[:2] for line in shown[1:-2]} == {"  "}
    shown = call_ok("units", file, "--diff", "lstm").out.splitlines()
    assert "- f = s(Wf x + Uf h' + Vf (.) c' + bf)" in shown
    assert "+ c = (1 - i) (.) c' + i (.) g" in shown


@pytest.mark.usefixtures("module")
def test_a_module_from_training_to_the_report(call, data):
    """Guards against a command that asks the unit for its equations."""
    options = ("--unit", "own:LayerNormLSTM", "--hidden", 4, "--model", "tied", "--epochs", 1)
    call_ok("train", data, *options, "-q")
    run = Path("runs/data-LayerNormLSTM-1")
    config = (run / "config.yaml").read_text()
    assert re.search("^unit: own:LayerNormLSTM$", config, re.M)
    assert re.search("^note_unit: gru$", config, re.M)
    assert call_ok("eval").out.startswith(f"{run} (tied LayerNormLSTM, epoch ")
    call_ok("sample", "out.mid", "--length", 8, "-q")
    fill = ("--fill", "out.mid", "--frames", "2:3", "--particles", 4, "-q")
    call_ok("sample", "filled.mid", *fill)
    assert told("inspect", run)["parameters"] > 0
    call_ok("report", "--out", "report.html", "-q")
    assert "LayerNormLSTM 4" in Path("report.html").read_text()
    for name in ("page.html", "model.onnx"):
        result = call("export", run, name)
        assert result.status == 2
        assert result.err.startswith(f"seqmodel: {name}: the unit is a torch module, without ")
    figure = told("eval", run)["nats_per_frame"]
    call_ok("export", run, "run.zip")
    assert told("eval", "run.zip", "--data", data)["nats_per_frame"] == figure


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
        said, line, place = result.err.splitlines()
        assert result.status == 1
        assert said == "seqmodel: mine.unit:2: e' is the previous e, which has no equation"
        assert line == "    i = s(Wi x + Ui h' + Vi (.) e' + bi)"
        assert place.index("^") == line.index("e'")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "texts/mine.unit has no equation, such as h = phi(W x + U h' + b)"),
        (b"h = W x\xff", "texts/mine.unit is not UTF-8 text (byte 7)"),
        (b"h = W x\n" * 999, "texts/mine.unit is larger than 4,000 bytes, too large to be valid"),
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
    assert "diverged at update 0 of epoch 1 (loss nan); does h" in result.err.splitlines()[-1]


@pytest.mark.usefixtures("no_pages")
def test_every_command_counts_the_same_parameters(call, data):
    """`inspect` and reports used to leave out the unit along pitch, which --params counts."""
    call_ok("train", data, "--model", "tied", "--params", 3000, "--epochs", 1, "--run", "run")
    weights = load_file("run/best.safetensors")
    units, whole = (
        sum(w.size for name, w in weights.items() if name.startswith(prefixes))
        for prefixes in (("model.unit.", "model.output.unit."), ("model.unit.", "model.output."))
    )
    assert abs(units - 3000) < 300
    shown = call_ok("inspect", "run").out
    assert f"\n  {units:,} parameters, {whole:,} with the output\n" in shown
    values = told("inspect", "run")
    assert (values["parameters"], values["parameters_with_output"]) == (units, whole)
    call_ok("report", "run", "--samples", 0)
    assert f"{units:,} ({whole:,})" in Path("report.html").read_text()
    once = ["--units", "lstm", "--set", "epochs=1", "--params", 3000, "--quick", "--jobs", 1, "-q"]
    lines = call_ok("compare", data, *once).out.splitlines()
    assert [f"{units:,}", f"{whole:,}"] == [line.split()[-1] for line in lines[5:7]]
