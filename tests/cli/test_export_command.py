"""`seqmodel export`: what it says and writes, and that mistakes leave nothing behind."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from calling import call_ok
from reading import read

from seqmodel.errors import SeqmodelError
from seqmodel.runs.folder import load_run


def test_a_page_is_written(call, run):
    result = call("export", run, "page.html")
    page = Path("page.html")
    size = f"{page.stat().st_size / 1000:,.0f} kB"
    said = f"page.html: page of {run}, {size}\n"
    assert (result.status, result.out, result.err) == (0, "", said)
    assert read(page.read_text("utf-8")).one("title").text == "Music by a neural network"
    assert call("export", run, "PAGE.HTML", "-q").err == ""
    assert Path("PAGE.HTML").read_bytes() == page.read_bytes()


def test_what_was_there_is_replaced_only_when_all_is_written(call, run, here, monkeypatch):
    """Guards against a page cut short where the disk is full, or where something fails before."""
    page = Path("page.html")
    page.write_text("mine")

    def fail(*given, **options):
        raise SeqmodelError("no")

    with monkeypatch.context() as patch:
        patch.setattr("seqmodel.export.page.render.document", fail)
        assert call("export", run, page, "--force").err == "seqmodel: no\n"
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left")))
        result = call("export", run, page, "--force")
    assert (result.status, result.err.count("\n")) == (1, 1)
    assert "no space left" in result.err
    assert page.read_text() == "mine"
    assert [*here.iterdir()] == [here / "page.html"]
    call_ok("export", run, page, "--force")
    assert page.read_text("utf-8").endswith("</html>\n")


def test_a_graph_is_written(call, run, here):
    """Guards the whole way, from the checkpoint to the figures of `nll`."""
    result = call("export", run, "model.onnx")
    size = f"{Path('model.onnx').stat().st_size / 1000:,.0f} kB"
    told = f"model.onnx: ONNX graph of {run}, {size}\n"
    assert (result.status, result.out, result.err) == (0, "", told)
    session = onnxruntime.InferenceSession("model.onnx")
    frames = (np.random.default_rng(0).random((50, 88)) < 0.1).astype(np.float32)
    feeds = {
        "frames": np.concatenate([np.zeros((1, 88), np.float32), frames[:-1]]),
        "given": frames,
        "uniforms": np.zeros((50, 89), np.float32),
        "temperature": np.array(1, np.float32),
    }
    for each in session.get_inputs():
        if each.name.startswith("state."):
            feeds[each.name] = np.zeros(each.shape, np.float32)
    (logits,) = session.run(["logits"], feeds)
    nats = (np.logaddexp(0, logits) - frames * logits).sum(1)
    np.testing.assert_allclose(nats, load_run(run).nll(frames), rtol=0, atol=1e-4)


def test_without_the_extra_export_says_what_to_install(call, run, here, monkeypatch):
    """Guards a traceback of an import; nothing is left behind."""
    for name in [name for name in sys.modules if name.startswith("seqmodel.export.onnx.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    result = call("export", run, "model.onnx")
    message = "seqmodel: the package onnx is missing: pip install 'seqmodel[onnx]'\n"
    assert (result.status, result.out, result.err) == (1, "", message)
    assert list(here.iterdir()) == []
