"""Shell completion: what `--install-completion` installs works in bash and is up to date."""

import os
import shutil
import subprocess
import sys
from dataclasses import fields

import pytest
from calling import ENVIRONMENT

from seqmodel.cli import help as cli_help
from seqmodel.config import Config

HEAVY = ("torch", "numpy", "matplotlib")


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    """A home folder with bash completion installed, and a `seqmodel` command to complete."""
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    home = tmp_path_factory.mktemp("home")
    command = home / "bin" / "seqmodel"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m seqmodel "$@"\n')
    command.chmod(0o755)
    environment = {
        **ENVIRONMENT,
        "HOME": str(home),
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    done = subprocess.run(
        [command, "--install-completion", "bash"],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return home


def completed(home, *words):
    """What bash offers for the last word."""
    script = (
        'source ~/.bashrc\nCOMP_WORDS=("$@")\nCOMP_CWORD=$(($# - 1))\n'
        '_seqmodel_completion seqmodel\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = {**ENVIRONMENT, "HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", "seqmodel", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tr", ["train"]),
        ("train --note-unit mg", ["mgu"]),
        ("compare --units gru,lstm-", ["gru,lstm-nopeephole"]),
        ("eval ", []),  # paths: left to bash
    ],
)
def test_bash_completes(bash, words, expected):
    """Guards against a script that bash cannot use, and names that are out of date."""
    assert completed(bash, *words.split(" ")) == expected


def test_completion_loads_nothing_heavy():
    """Guards against waiting a second for torch at every press of Tab."""
    script = (
        "import atexit, sys\nfrom seqmodel.cli.main import main\n"
        f"atexit.register(lambda: print('LOADED', [n for n in {HEAVY} if n in sys.modules]))\n"
        "main()"
    )
    environment = {**ENVIRONMENT, "_SEQMODEL_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    environment["COMP_WORDS"] = "seqmodel train --unit mg"
    shown = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "mgu\nLOADED []\n"


def test_repeated_names_match_their_originals():
    """Guards against a new backend or activation that is missing from completion."""
    from seqmodel.units.backends import AUTO, BACKENDS, DEVICES
    from seqmodel.units.specification import ACTIVATIONS, GATE_ACTIVATIONS

    among = {field.name: field.metadata["among"] for field in fields(Config)}
    assert (AUTO, *BACKENDS) == among["backend"]
    assert DEVICES == cli_help.DEVICES
    assert tuple(ACTIVATIONS) == among["activation"]
    assert tuple(GATE_ACTIVATIONS) == among["gate_activation"]
