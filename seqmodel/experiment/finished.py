"""The answer of a complete experiment, kept in its folder: asked again, nothing need be loaded."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import seqmodel
from seqmodel.experiment.plan import Plan
from seqmodel.experiment.progress import CellStatus, Counts, Status
from seqmodel.files import write_file

FILE = "complete.json"
"""The file's name in the experiment's folder."""


def remember(folder: Path, plan: Plan, text: str, status: Status, files: Sequence[str]) -> None:
    """Keep the answer of an experiment whose results are in `files`."""
    values = {
        "version": seqmodel.__version__,
        "plan": _as_text(plan),
        "text": text,
        "cells": status.cells,
        "files": files,
    }
    write_file(folder / FILE, json.dumps(values, indent=2).encode())


def recall(folder: Path, plan: Plan | None = None) -> tuple[str, Status] | None:
    """The answer kept in a folder: its results, as printed, and its progress.

    None unless it is that of `plan` and all files of the results remain.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):  # written again by whoever looks on
        values = json.loads((folder / FILE).read_bytes())
        cells = [CellStatus(name, Counts(*counts), v) for name, counts, v in values["cells"]]
        if (
            values["version"] == seqmodel.__version__
            and (plan is None or values["plan"] == _as_text(plan))
            and all((folder / name).is_file() for name in values["files"])
        ):
            return str(values["text"]), Status(cells)
    return None


def forget(folder: Path) -> None:
    """Remove the answer: the experiment goes on."""
    (folder / FILE).unlink(missing_ok=True)


def _as_text(plan: Plan) -> str:
    return json.dumps(plan.to_json(), sort_keys=True)
