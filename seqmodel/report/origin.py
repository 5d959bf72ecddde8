"""The provenance of a result: the machine, the versions, the commit of the checkout."""

import platform
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from llvmlite import binding

import seqmodel
from seqmodel.media.words import plural
from seqmodel.report.page.parts import Facts, Section
from seqmodel.system.machine import cores, processor


def machine_facts() -> dict[str, Any]:
    """The processor, its cores, threads and GPU, and the versions of Python and torch."""
    about = {
        "processor": processor(),
        "architecture": binding.get_host_cpu_name(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if torch.cuda.is_available():
        about["gpu"] = torch.cuda.get_device_name()
    return about


def provenance(
    command: str,
    details: Sequence[tuple[str, str]],
    *,
    threads: str | None = None,
    versions: Mapping[str, str] | None = None,
) -> Section:
    """The last section of a page: the command as typed, versions, machine and long texts.

    `threads` describes those used, if not this process's; `versions` are of additional libraries.
    """
    about = machine_facts()
    cores = f"{plural(about['cores'], 'core')}, {threads or plural(about['threads'], 'thread')}"
    items = [
        ("command", shlex.join(map(_short_word, shlex.split(command)))),
        ("seqmodel", version()),
        ("Python", about["python"]),
        ("torch", about["torch"]),
        *(versions or {}).items(),
        ("machine", f"{about['processor']}, {cores}"),
    ]
    if "gpu" in about:
        items.append(("GPU", about["gpu"]))
    return Section("Provenance", (Facts(tuple(items), tuple(details)),))


def short_path(path: str | Path) -> str:
    """A path as pages show it: relative to the working folder, or only its name."""
    full, here = Path(path), Path.cwd()
    if not full.is_absolute():
        return str(path)
    return str(full.relative_to(here)) if full.is_relative_to(here) else full.name


def _short_word(word: str) -> str:
    option, sign, value = word.rpartition("=")
    return f"{option}{sign}{short_path(value)}"


def version() -> str:
    """Version text such as "0.2.0, commit 1234567", with a commit only in a Git checkout."""
    root = Path(seqmodel.__file__).resolve().parents[1]
    # An installed package may be inside an unrelated repository.
    if Path(_git(root, "rev-parse", "--show-toplevel") or "") != root:
        return seqmodel.__version__
    commit = _git(root, "describe", "--always", "--exclude=*", "--dirty= with changes")
    return f"{seqmodel.__version__}, commit {commit}"


def _git(root: Path, *arguments: str) -> str | None:
    """The output of git for the folder; None without git, a repository or a commit."""
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", check=True, timeout=10
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
