"""The README is true: its commands run as written and print what it shows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sessions() -> list[tuple[str, list[str]]]:
    """Every command of the README's console blocks, in order, with the lines shown below it."""
    found: list[tuple[str, list[str]]] = []
    for block in CONSOLE.findall(README.read_text()):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def shape(line: str) -> str:
    """A line without what may differ between machines: figures, notes, stars of best epochs."""
    line = re.sub(r"\b[A-G][#b]?[0-9]?(?![\w(.])", "@", line)
    return " ".join(re.sub(r"[0-9][0-9,.]*", "#", line).replace("*", " ").split())


def test_commands_of_the_readme_print_what_it_shows(tmp_path: Path) -> None:
    """Guards against a tour that has gone stale: an option renamed, a line of output reworded.

    Lines shown must appear in their order; figures may differ, and "..." stands for any lines.
    """
    music = README.parent / "sample_data"
    shutil.copytree(music, tmp_path / "sample_data")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    assert len(sessions()) >= 8
    for command, shown in sessions():
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        printed = iter([shape(line) for line in done.stdout.splitlines()])
        for line in shown:
            if line.strip() != "...":
                assert shape(line) in printed, f"{command}: {line!r} not in\n{done.stdout}"


@pytest.mark.parametrize("command", ["prepare", "train", "eval", "sample", "inspect", "units"])
def test_every_command_is_in_the_tour(command: str) -> None:
    """Guards against a command that newcomers never meet."""
    assert any(f"seqmodel {command}" in line for line, _ in sessions())


def test_pictures_exist() -> None:
    """Guards against a broken picture on the front page."""
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README.read_text())
    assert pictures
    assert all((README.parent / picture).is_file() for picture in pictures)
