"""The wheel, installed without the rest of the repository."""

import importlib.util
import os
import re
import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLES = [f"sample_data/{name}" for name in ("music", "speech", "pretrained")]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith("PIP_") and name not in ("PYTHONPATH", "PYTHONHOME")
}


def run(*command, folder):
    options = {"cwd": folder, "env": CLEAN, "capture_output": True, "text": True}
    done = subprocess.run([*map(str, command)], check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    for needed in ("hatchling", "pip"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"no {needed} to build the package with")
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    run(*PIP, "wheel", *options, "--wheel-dir", folder, REPOSITORY, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_all_files(wheel):
    """Guards against data that only a checkout has: a style sheet, a unit's text, the samples."""
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    command, options = ["git", "ls-files", "--", "seqmodel", *SAMPLES], {"cwd": REPOSITORY}
    listed = subprocess.run(command, check=False, capture_output=True, text=True, **options)
    if listed.returncode:
        pytest.skip("not a clone: nothing says which files there should be")
    there = {re.sub("^sample_data/", "seqmodel/sample_data/", n) for n in listed.stdout.split()}
    assert there - packed == set()


def test_its_extras_are_those_that_messages_name(wheel):
    """Guards against advice to install an extra that has been renamed."""
    packed = zipfile.ZipFile(wheel)
    (name,) = (name for name in packed.namelist() if name.endswith("/METADATA"))
    extras = Parser().parsestr(packed.read(name).decode()).get_all("Provides-Extra") or []
    sources = "".join(p.read_text() for p in (REPOSITORY / "seqmodel").rglob("*.py"))
    named = set(re.findall(r"seqmodel\[(\w+)\]", sources))
    assert "track" in named <= set(extras)


def test_the_installed_command_works_in_any_folder(wheel, tmp_path):
    """In an environment of its own, which finds the dependencies of this one."""
    venv.create(tmp_path / "env", symlinks=True)
    bin = tmp_path / "env" / "bin"
    options = ("--no-deps", "--no-index", "--no-compile", "--quiet")
    run(*PIP, "--python", bin / "python", "install", *options, wheel, folder=tmp_path)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    ours = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (site / "dependencies.pth").write_text("\n".join(ours))  # their own .pth files are not read
    code = "import seqmodel; print(seqmodel.__file__, seqmodel.__version__)"
    where, version = run(bin / "python", "-c", code, folder=tmp_path).split()
    assert Path(where).is_relative_to(site)
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert "# cfn" in run(bin / "seqmodel", "units", "cfn", folder=tmp_path)
    run(bin / "seqmodel", "sample", "out.mid", "--length", 8, folder=tmp_path)  # the bundled run
    assert (tmp_path / "out.mid").read_bytes().startswith(b"MThd")
