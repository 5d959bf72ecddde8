"""`seqmodel export`: what it says and writes, and that mistakes leave nothing behind."""

from pathlib import Path

import pytest
from calling import Call, call_ok
from reading import read

from seqmodel.errors import SeqmodelError
from seqmodel.export import EXPORTS


def test_a_page_is_written(call: Call, run: Path):
    result = call("export", run, "page.html")
    page = Path("page.html")
    size = f"{page.stat().st_size / 1000:,.0f} kB"
    said = f"page.html: page of {run}, {size}\n"
    assert (result.status, result.out, result.err) == (0, "", said)
    assert read(page.read_text("utf-8")).one("title").text == "Music by run"
    assert call("export", run, "PAGE.HTML", "-q").err == ""
    assert Path("PAGE.HTML").read_bytes() == page.read_bytes()


def test_a_page_of_the_default_model_is_below_a_megabyte(call: Call, data: Path):
    call_ok("train", data, "--epochs", 1, "--run", "r", "-q")
    call_ok("export", "r", "page.html", "-q")
    assert 200_000 < Path("page.html").stat().st_size < 1_000_000


SUFFIXES = f"must be one of {', '.join(EXPORTS)}"
HELP = "(see seqmodel export --help)"
MISTAKES = {
    "export": (2, f"Missing argument 'RUN' {HELP}"),
    "export {run}": (2, f"Missing argument 'FILE' {HELP}"),
    "export {run} page.htm": (2, f"the suffix of page.htm {SUFFIXES}"),
    "export {run} page": (2, f"the suffix of page {SUFFIXES}"),
    "export {run} -": (2, f"the suffix of - {SUFFIXES}"),
    "export nope page.html": (1, "there is no run nope"),
    "export {data} page.html": (1, "{data} is a dataset: name a run that was trained on it"),
    "export {run} there.html": (1, "there.html exists already; add --force to replace it"),
    "export {run} no/page.html": (1, "no/page.html: there is no folder no; make it first"),
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_a_one_line_error(command: str, call: Call, run: Path, data: Path, here: Path):
    Path("there.html").write_text("mine")
    status, line = MISTAKES[command]
    paths = {"run": run, "data": data}
    result = call(*(word.format(**paths) for word in command.split()))
    assert (result.err, result.status) == (f"seqmodel: {line.format(**paths)}\n", status)
    assert result.out == ""
    assert [path.name for path in here.iterdir()] == ["there.html"]
    assert Path("there.html").read_text() == "mine"


def test_what_was_there_is_replaced_only_when_all_is_written(
    call: Call, run: Path, here: Path, monkeypatch: pytest.MonkeyPatch
):
    """Guards against a page cut short where the disk is full, or where something fails before."""
    page = Path("page.html")
    page.write_text("mine")

    def fail(*given: object) -> None:
        raise SeqmodelError("no")

    with monkeypatch.context() as patch:
        patch.setattr("seqmodel.export.page.render._data", fail)
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
