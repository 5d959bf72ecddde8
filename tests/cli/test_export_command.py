"""`seqmodel export`: what it says and writes, and that mistakes leave nothing behind."""

import sys
from pathlib import Path

import onnxruntime
from calling import call_ok
from reading import read

from seqmodel.errors import SeqmodelError


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


def test_a_graph_is_written(call, run):
    """What it computes is tested with the graphs."""
    result = call("export", run, "model.onnx")
    size = f"{Path('model.onnx').stat().st_size / 1000:,.0f} kB"
    told = f"model.onnx: ONNX graph of {run}, {size}\n"
    assert (result.status, result.out, result.err) == (0, "", told)
    inputs = {each.name for each in onnxruntime.InferenceSession("model.onnx").get_inputs()}
    assert {"frames", "given", "uniforms", "temperature"} < inputs


def test_without_the_extra_export_says_what_to_install(call, run, here, monkeypatch):
    """Guards a traceback of an import; nothing is left behind."""
    for name in [name for name in sys.modules if name.startswith("seqmodel.export.onnx.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    result = call("export", run, "model.onnx")
    message = "seqmodel: the package onnx is missing: pip install 'seqmodel[onnx]'\n"
    assert (result.status, result.out, result.err) == (1, "", message)
    assert list(here.iterdir()) == []
