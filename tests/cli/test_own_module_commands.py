"""A unit that is a torch module in the working directory, from training to the report."""

import json
from pathlib import Path

import own_modules
import pytest
from calling import call_ok

OPTIONS = ("--unit", "mine:LayerNormLSTM", "--hidden", 4, "-q")


@pytest.fixture(autouse=True)
def module(here):
    (here / "mine.py").write_text(Path(own_modules.__file__).read_text())


def test_from_training_to_the_report(call, data):
    """Guards against a command that asks the unit for its equations."""
    call_ok("train", data, *OPTIONS, "--model", "tied", "--epochs", 1)
    run = Path("runs/data-LayerNormLSTM-1")
    assert "unit: mine:LayerNormLSTM\nnote_unit: gru\n" in _without_sizes(run / "config.yaml")
    assert call_ok("eval").out.startswith(f"{run} (tied LayerNormLSTM, epoch ")
    call_ok("sample", "out.mid", "--length", 8, "-q")
    fill = ("--fill", "out.mid", "--frames", "2:3", "--particles", 4, "-q")
    call_ok("sample", "filled.mid", *fill)
    assert json.loads(call_ok("inspect", run, "--json").out)["parameters"] > 0
    call_ok("report", "--out", "report.html", "-q")
    assert "LayerNormLSTM 4" in Path("report.html").read_text()
    for name in ("page.html", "model.onnx"):
        result = call("export", run, name)
        assert result.status == 2
        assert result.err.startswith(f"seqmodel: {name}: the unit is a torch module, without ")


def _without_sizes(path):
    kept = ("unit:", "note_unit:")
    return "".join(line + "\n" for line in path.read_text().splitlines() if line.startswith(kept))


@pytest.mark.usefixtures("no_pages")
def test_compare_takes_a_module(data):
    options = ("--search", "none", "--seeds", 1, "--set", "epochs=1", "--set", "model=frame-wise")
    both = "gru,mine:Attention"
    out = call_ok("compare", data, "--units", both, "--params", 900, *options).out
    assert out.splitlines()[0].split() == ["data", "gru", "mine:Attention"]
    sizes = next(line for line in out.splitlines() if line.startswith("parameters"))
    assert all(abs(int(size) - 900) < 300 for size in sizes.split()[1:])
