"""The ONNX file: valid, the same each time, and all that another program needs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_sessions import Session, music_frames, run_of

import seqmodel
from seqmodel import export
from seqmodel.errors import SeqmodelError
from seqmodel.export.onnx.model import export_graph
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.outputs.bernoulli import BernoulliOutput

README = Path(export.__file__).with_name("README.md")
SOUND = AudioFrames(8000, 10, 20, "int16", mean=0.001, deviation=0.11)
RUNS = {
    "music": (music_frames(onsets=True), {"model": "tied", "echo": True, "end": True}),
    "frames of sound": (SOUND, {"output": "gaussian", "components": 3}),
    "sound": (SOUND, {"model": "sample-wise", "unit": "sru", "components": 3, "steering": 1.0}),
}


def test_it_says_what_it_is():
    """Guards the README's tables, what an app needs to turn frames into notes, and paths."""
    frame, options = RUNS["music"]
    run = run_of(frame, **options, folder="runs/chorales")
    session = Session(run)
    model, facts = onnx.load_from_string(session.file), session.facts
    assert (model.producer_name, model.producer_version) == ("seqmodel", seqmodel.__version__)
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 17)]
    assert model.graph.name == "chorales"
    settings = json.loads(facts.pop("settings"))
    assert settings["hidden"] == 7
    assert settings["note_unit"] == "lstm"
    assert json.loads(facts.pop("frame")) == run.frame.to_json()
    equations = "\n".join(run.model.layers()[0].spec.statements)
    assert facts == {
        "medium": "music", "output": "note-unit", "unit": equations, "note_unit": equations,
        "rows_per_frame": "1", "longest_piece": "90", "epoch": "3",
    }  # fmt: skip
    assert b"/home/someone" not in session.file
    state = ["heard", "echo.runs", "echo.frames", "unit.0.h", "unit.0.c"]
    given = ["frames", "given", "uniforms", "temperature"]
    assert [each.name for each in model.graph.input] == given + [f"state.{name}" for name in state]
    told = {"drawn", "logits", "end_logits", "ended"} | {f"new.{name}" for name in state}
    assert {each.name for each in model.graph.output} == told
    ops = {node.name: node.op_type for node in model.graph.node}
    assert (ops["unit.0/LSTM"], ops["output/note_unit/Scan"]) == ("LSTM", "Scan")


@pytest.mark.parametrize("name", RUNS)
def test_it_is_valid_and_the_readmes_example_draws(name, tmp_path):
    """Guards stricter runtimes, equal bytes, an example that needs no torch."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    frame, options = RUNS[name]
    run = run_of(frame, **options)
    data = export_graph(run)
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    assert export_graph(run_of(frame, **options)) == data
    (tmp_path / "model.onnx").write_bytes(data)
    only = "import sys\nassert not {'torch', 'seqmodel', 'onnx'} & {*sys.modules}\n"
    (tmp_path / "draw.py").write_text(code + only)
    command = [sys.executable, "-I", "draw.py", "model.onnx", "40", "out.npy"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    drawn = np.load(tmp_path / "out.npy")
    assert drawn.shape[1] == run.model.output.frame_size
    assert len(drawn) == 40 or (options.get("end") and len(drawn) < 40)
    if name == "music":
        assert {*np.unique(drawn)} == {0, 1}
        assert np.isfinite(run.nll(drawn)).all()  # no note is held that was not struck
    else:
        np.testing.assert_array_equal(drawn * 32768, np.rint(drawn * 32768))
    assert len(code.splitlines()) <= 30


def test_an_output_of_ones_own_is_refused():
    """Guards an output that would be exported as the one it derives from."""
    run = run_of(music_frames(), output="bernoulli")
    run.model.output.__class__ = type("Mine", (BernoulliOutput,), {})
    with pytest.raises(SeqmodelError, match=r"^runs/x has the output bernoulli of the frame-wise"):
        export_graph(run)
