"""`seqmodel export`: what it says and writes, and that mistakes leave nothing behind."""

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from calling import call_ok, call_refused

from seqmodel.errors import SeqmodelError


@pytest.mark.parametrize(
    ("name", "kind"),
    [("page.html", "page"), ("model.onnx", "ONNX graph"), ("run.zip", "zip")],
)
def test_what_is_asked_for_is_written(call, run, name, kind):
    """What is in it is tested with pages, graphs and zips."""
    result = call("export", run, name)
    said = f"{name}: {kind} of {run}, {Path(name).stat().st_size / 1000:,.0f} kB\n"
    assert (result.status, result.out, result.err) == (0, "", said)
    assert call("export", run, name.upper(), "-q").err == ""
    assert Path(name.upper()).read_bytes() == Path(name).read_bytes()


def test_what_was_there_is_replaced_only_when_all_is_written(run, here, monkeypatch):
    """Guards against a page cut short where the disk is full, or where something fails before."""
    page = Path("page.html")
    page.write_text("mine")

    with monkeypatch.context() as patch:
        document = "seqmodel.export.page.render.document"
        patch.setattr(document, Mock(side_effect=SeqmodelError("no")))
        call_refused("export", run, page, "--force", says="no")
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", Mock(side_effect=OSError(28, "No space left")))
        call_refused("export", run, page, "--force", says="...no space left")
    assert page.read_text() == "mine"
    assert [*here.iterdir()] == [here / "page.html"]
    call_ok("export", run, page, "--force")
    assert page.read_text("utf-8").endswith("</html>\n")


def test_without_the_extra_export_says_what_to_install(run, here, monkeypatch):
    """Guards a traceback of an import; nothing is left behind."""
    for name in [name for name in sys.modules if name.startswith("seqmodel.export.onnx.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    says = "the package onnx is missing: pip install 'seqmodel[onnx]'"
    call_refused("export", run, "model.onnx", says=says)
    assert list(here.iterdir()) == []
