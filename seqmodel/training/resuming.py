"""What must not have changed for a run to be resumed."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seqmodel.config import Config
from seqmodel.errors import SeqmodelError
from seqmodel.runs.content import read_content

RESUMABLE = ("data", "epochs", "patience")
"""Settings that may change: where the dataset is (its content may not), and when to end."""

DATA_HASH = "data_sha256"
"""The checkpoint's key for the dataset's fingerprint."""


def check_resumable(config: Config, data_hash: str, content: Mapping[str, Any], path: Path) -> None:
    """SeqmodelError unless `config` and the dataset continue the run of the last checkpoint `path`.

    The checkpoint, not config.yaml, records how the run was trained so far.
    """
    trained, folder = read_content(content, path).config, path.parent
    fresh = f"start a new run with --init-from {folder}"
    for name, value in asdict(config).items():
        before = getattr(trained, name)
        if name not in RESUMABLE and value != before:
            raise SeqmodelError(
                f"{folder} was trained with {name} {before}, not {value}: restore it in "
                f"{folder}/config.yaml, or {fresh}"
            )
    if config.schedule != "constant" and config.epochs != trained.epochs:
        raise SeqmodelError(
            f"--epochs cannot change on --resume with --schedule {config.schedule}, which spreads "
            f"the learning rate over the {trained.epochs} epochs of {folder}; {fresh}"
        )
    if content.get(DATA_HASH) != data_hash:
        raise SeqmodelError(
            f"{config.data} is not the dataset that {folder} was trained on: prepare it again as "
            f"it was, or {fresh}"
        )
