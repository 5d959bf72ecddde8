"""The tied model from the command line: its parameters, and runs from before its clock."""

import json
from pathlib import Path

import pytest
from calling import call_ok
from safetensors.numpy import load_file

OPTIONS = ["--model", "tied", "--unit", "gru", "--hidden", "4", "--note-hidden", "3"]


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
    told = json.loads(call_ok("inspect", "run", "--json").out)
    assert (told["parameters"], told["parameters_with_output"]) == (units, whole)
    call_ok("report", "run", "--samples", 0)
    assert f"{units:,} ({whole:,})" in Path("report.html").read_text()
    once = ["--units", "lstm", "--set", "epochs=1", "--params", 3000, "--quick", "-q"]
    lines = call_ok("compare", data, *once).out.splitlines()
    assert [f"{units:,}", f"{whole:,}"] == [line.split()[-1] for line in lines[5:7]]


def test_a_run_from_before_the_clock_is_resumed_without_one(call, data):
    """Its config.yaml does not name the setting, whose default is now another."""
    constant = ["--no-clock", "--schedule", "constant", "--epochs", 1]
    call_ok("train", data, *OPTIONS, *constant, "--run", "run")
    config = Path("run/config.yaml")
    written = config.read_text()
    config.write_text(written.replace("clock: false\n", ""))
    assert config.read_text() != written
    call_ok("train", "--resume", "--run", "run", "--epochs", 2)
    assert "clock: false" in config.read_text()
