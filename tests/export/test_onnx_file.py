"""What `export` writes: an ONNX file that is valid and complete, a zip that is the same run."""

import json
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_sessions import Session, music_frames, run_of
from playing import MARKS

import seqmodel
from seqmodel import export
from seqmodel.config import read_config_file
from seqmodel.errors import SeqmodelError
from seqmodel.export.bundle import bundle
from seqmodel.export.onnx.model import export_graph
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.outputs.bernoulli import BernoulliOutput
from seqmodel.report.subjects import load_subjects, score
from seqmodel.runs.files import BEST, CARD, CONFIG, LAST, METRICS
from seqmodel.runs.folder import load_run, read_metrics

README = Path(export.__file__).with_name("README.md")
SOUND = AudioFrames(8000, 10, 20, "int16", mean=0.001, deviation=0.11)
RUNS = {
    "music": (music_frames(onsets=True), {"model": "tied", "echo": True, "end": True}),
    "music with marks": (
        replace(music_frames(onsets=True), **MARKS),
        {"model": "tied", "unit": "gru", "nearby": True},
    ),
    "frames of sound": (SOUND, {"output": "gaussian", "components": 3}),
    "sound": (SOUND, {"model": "sample-wise", "unit": "sru", "components": 3, "steering": 1.0}),
}


def test_it_says_what_it_is():
    """Guards the README's tables, what an app needs to turn frames into notes, and paths.

    One of a folder whose name is not UTF-8 gave a traceback.
    """
    frame, options = RUNS["music"]
    run = run_of(frame, **options, folder="runs/chorales-\udce9")
    session = Session(run)
    model, facts = onnx.load_from_string(session.file), session.facts
    assert (model.producer_name, model.producer_version) == ("seqmodel", seqmodel.__version__)
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 17)]
    assert model.graph.name == "chorales-\\udce9"
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
    state = ["elapsed", "echo.runs", "echo.frames", "unit.0.h", "unit.0.c"]
    given = ["frames", "given", "uniforms", "temperature"]
    assert [each.name for each in model.graph.input] == given + [f"state.{name}" for name in state]
    told = {"drawn", "logits", "end_logits", "ended"} | {f"new.{name}" for name in state}
    assert {each.name for each in model.graph.output} == told
    ops = {node.name: node.op_type for node in model.graph.node}
    assert (ops["unit.0/LSTM"], ops["output/note_unit/Scan"]) == ("LSTM", "Scan")


def graphs(graph):
    """A graph and those of its scans' bodies."""
    inner = (each.g for node in graph.node for each in node.attribute if each.HasField("g"))
    return [graph, *(one for each in inner for one in graphs(each))]


@pytest.mark.parametrize("name", RUNS)
def test_it_is_valid_and_the_readmes_example_draws(name, tmp_path):
    """Guards stricter runtimes, equal bytes, nodes in vain, an example that needs no torch."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    frame, options = RUNS[name]
    run = run_of(frame, **options)
    data = export_graph(run)
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    nodes = [node for graph in graphs(model.graph) for node in graph.node]
    read = {name for node in nodes for name in node.input}
    read |= {output.name for graph in graphs(model.graph) for output in graph.output}
    assert not [node.name for node in nodes if read.isdisjoint(node.output)]
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
    if "music" in name:
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


@pytest.fixture(scope="module")
def zipped(run, tmp_path_factory):
    """The run, exported."""
    path = tmp_path_factory.mktemp("zip") / "tiny.zip"
    path.write_bytes(bundle(run))
    return path


def members(content):
    with zipfile.ZipFile(BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_zip_predicts_as_its_folder_and_runs_no_code(run, zipped, rolls, monkeypatch):
    """Guards the weights, and every setting that the model is built from."""
    for name in ("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("unpickled"))
    loaded = load_run(zipped)
    assert loaded.config == replace(run.config, data="tiny")
    assert (loaded.frame, loaded.epoch, loaded.longest_piece) == (run.frame, run.epoch, 30)
    for piece in rolls["valid"]:
        assert np.array_equal(loaded.nll(piece), run.nll(piece))
    assert read_metrics(zipped) == read_metrics(run.folder)


def test_the_same_run_gives_the_same_bytes(run, zipped, tmp_path):
    """Guards against times and orders in the zip; a zip's own zip, or its folder's, is the same."""
    assert bundle(run) == zipped.read_bytes()
    assert bundle(load_run(zipped)) == zipped.read_bytes()
    with zipfile.ZipFile(zipped) as archive:
        archive.extractall(tmp_path / "unpacked")
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert bundle(load_run(tmp_path / "unpacked")) == zipped.read_bytes()


def test_it_holds_what_others_need_and_no_path_of_ours(run, zipped, dataset, tmp_path):
    """Guards against home directories sent to strangers, the state of training, lost settings."""
    held = members(zipped.read_bytes())
    assert [*held] == [CARD, CONFIG, BEST, METRICS]
    assert held[METRICS] == (run.folder / METRICS).read_bytes()
    for name, content in held.items():
        assert str(dataset.folder.parent).encode() not in content, name
        assert str(run.folder.parent).encode() not in content, name
    (tmp_path / CONFIG).write_bytes(held[CONFIG])
    assert read_config_file(tmp_path / CONFIG) == {**run.config.__dict__, "data": "tiny"}


def test_the_card_tells_what_the_run_is(zipped, run, dataset):
    """Guards its figures, which are of the epoch of the weights, not of the last."""
    card = members(zipped.read_bytes())[CARD].decode()
    best = json.loads((run.folder / METRICS).read_text().splitlines()[run.epoch - 1])
    assert best["epoch"] == run.epoch
    for name in ("nats_per_frame", "accuracy", "end_nats_per_piece"):
        figure = f"{best[f'valid_{name}']:.4f}"
        assert re.search(rf"^    {name.replace('_', ' ')} +{figure}$", card, re.MULTILINE), name
    assert f"    tiny: {dataset.frame}\n" in card
    assert dataset.fingerprint() in card
    assert "    o = s(Wo x + Uo h' + Vo (.) c + bo)\n" in card
    assert "    seqmodel sample out.mid --run RUN\n    seqmodel eval RUN --data DATA\n" in card


def test_names_in_the_card_are_only_names(run):
    """Guards against a folder's name that becomes a heading, a link or a script where it shows."""
    name = "x\n# Safe!\n<script>alert(1)</script>[y](http:z)`"
    shown = {
        name: "    script>[y](http:z)`: 88 notes",  # what follows the last slash
        name.replace("/", ""): "    x\\n# Safe!\\n<script>",
    }
    for each, begins in shown.items():
        card = members(bundle(replace(run, config=replace(run.config, data=f"/a/{each}"))))[CARD]
        (line,) = [line for line in card.decode().splitlines() if "script" in line]
        assert line.startswith(begins)


def test_a_text_unit_travels(make_config, train, tmp_path):
    """Guards the promise that the unit's own file is not needed, in the card either."""
    unit = "unit: mine\nz = s(Wz x + Uz h')\nh = (1 - z) (.) h' + z (.) phi(W x + b)\n"
    train(make_config(unit=unit, epochs=1, model="frame-wise"), tmp_path / "run")
    (tmp_path / "run.zip").write_bytes(bundle(load_run(tmp_path / "run")))
    loaded = load_run(tmp_path / "run.zip")
    assert loaded.config.unit == unit
    card = members((tmp_path / "run.zip").read_bytes())[CARD].decode()
    assert "    # mine\n    z = s(Wz x + Uz h')\n" in card


def test_a_run_without_metrics_or_fingerprint_is_exported_with_a_gap(run_folder, tmp_path):
    """Guards runs that were copied as their best checkpoint alone."""
    (tmp_path / BEST).write_bytes((run_folder / BEST).read_bytes())
    held = members(bundle(load_run(tmp_path)))
    assert [*held] == [CARD, CONFIG, BEST]
    assert held[CARD].decode().count("not recorded") == 2


@pytest.mark.parametrize("name", [LAST, METRICS])
def test_a_damaged_run_is_not_exported(run_folder, tmp_path, name):
    """Guards against a card that leaves out what it could not read."""
    for file in (BEST, LAST, METRICS):
        (tmp_path / file).write_bytes((run_folder / file).read_bytes())
    (tmp_path / name).write_bytes(b"{")
    with pytest.raises(SeqmodelError, match=f"{name} is damaged"):
        bundle(load_run(tmp_path))


# ---- the data that a zip names ------------------------------------------------------------------


def test_the_data_is_found_by_name_and_told_by_its_fingerprint(
    zipped, run, dataset, rolls, write_dataset, tmp_path, monkeypatch
):
    """Guards against other data of the same name, scored as if it were the run's own valid."""
    monkeypatch.chdir(tmp_path)
    loaded = load_run(zipped)
    with pytest.raises(SeqmodelError, match="a dataset tiny that is not here: name one with"):
        loaded.dataset()
    other = write_dataset(Path("tiny"), {**rolls, "valid": rolls["test"]})
    assert not loaded.trained_on(other)
    with pytest.raises(
        SeqmodelError, match=r"tiny is not the dataset that .*tiny\.zip was trained"
    ):
        loaded.dataset()
    assert loaded.trained_on(write_dataset(Path("other"), rolls))
    write_dataset(Path("tiny"), rolls)
    assert loaded.dataset().fingerprint() == dataset.fingerprint()
    assert run.dataset().folder == dataset.folder


def test_a_report_on_a_zip_has_its_curve_and_figures(zipped, run_folder, dataset, monkeypatch):
    monkeypatch.chdir(dataset.folder.parent)
    subjects = load_subjects([run_folder, zipped])
    assert subjects[0].curve.metrics == subjects[1].curve.metrics
    ours, theirs = score(subjects, lambda done, total: None)
    assert ours.nats("valid") == theirs.nats("valid") is not None
    assert theirs.remark == ""
