"""Names that are not UTF-8, control the terminal, or lack a glyph: usable, and shown escaped."""

import os
import shutil
import warnings
from pathlib import Path

import pytest
from calling import PNG, call_ok, write_piece

RAW = os.fsdecode(b"caf\xe9") + "\x1b]0;owned\x07\x1b[2Jre\nd"
ODD = [RAW, "音楽 $\\frac$", "a$b$ \u202egpj"]


def clean(text):
    """Whether the text consists of lines of printable characters."""
    return text.replace("\n", "").isprintable()


@pytest.fixture
def odd(request, here):
    name = str(request.param)
    try:
        (here / name).touch()
    except OSError as error:
        pytest.skip(f"this file system refuses the name: {error}")
    (here / name).unlink()
    return name


@pytest.mark.parametrize("odd", ODD, indirect=True, ids=ascii)
def test_a_file_of_any_name_can_be_inspected_and_plotted(odd, call):
    """Guards against names that reach the terminal raw, matplotlib's warnings and its mathtext."""
    path = Path(f"{odd}.mid")
    write_piece(path, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = call("inspect", path, "--plot", f"{odd}.png")
    assert (shown.status, clean(shown.out), clean(shown.err)) == (0, True, True)
    assert Path(f"{odd}.png").read_bytes().startswith(PNG)
    assert call("inspect", path, "--json").status == 0
    folder = Path("music", odd)
    shutil.copytree(path.parent, folder, ignore=shutil.ignore_patterns("music", "*.png"))
    shown = call("prepare", "music", "-o", f"{odd}-data")
    assert (shown.status, clean(shown.out), clean(shown.err)) == (0, True, True)
    shown = call("inspect", f"{odd}-data", "--plot", "data.png")
    assert (shown.status, clean(shown.out)) == (0, True)


@pytest.mark.parametrize("odd", [RAW], indirect=True, ids=ascii)
def test_a_run_folder_may_have_any_name(odd, data, call):
    """Guards against a run that trains but then counts as damaged because of its name."""
    given = Path(odd, "data")
    shutil.copytree(data, given)
    run = Path(odd, "run")
    options = ("--hidden", 4, "--model", "frame-wise", "--epochs", 1)
    shown = call("train", given, *options, "--run", run)
    assert (shown.status, clean(shown.out), clean(shown.err)) == (0, True, True)
    for arguments in (
        ("eval", run),
        ("inspect", run, "--plot", Path(odd, "curve.png")),
        ("sample", Path(odd, "o.mid"), "--run", run, "--length", 4),
        ("sample", Path(odd, "o.png"), "--run", run, "--length", 4),
        ("report", run, "--out", Path(odd, "r.html")),
        ("train", "--resume", "--run", run, "--epochs", 2),
    ):
        shown = call(*arguments)
        assert (shown.status, clean(shown.out), clean(shown.err)) == (0, True, True), arguments
    call_ok("train", given, *options, "--run", run, "--force", "-q")  # recognised as a run
    (run / "best.safetensors").write_bytes(b"x")
    assert "best.safetensors is damaged" in call("eval", run).err
