"""The files of a run while it trains."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from seqmodel.config import Config, to_yaml
from seqmodel.files import write_file
from seqmodel.plots import plot_learning_curve
from seqmodel.runs import folder as runs
from seqmodel.runs.checkpoint import save_checkpoint


class RunWriter:
    """Writes a run's folder; where there is none, another process does."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def clear(self) -> None:
        """Remove what is left of a run that this one replaces."""
        self._remove(runs.METRICS, runs.BEST, runs.CURVE)

    def forget(self) -> None:
        """Remove a run that has come to nothing."""
        self._remove(runs.LAST, runs.CONFIG)

    def config(self, config: Config) -> None:
        """Write the settings."""
        if self.folder is not None:
            write_file(self.folder / runs.CONFIG, to_yaml(config).encode())

    def checkpoint(
        self, name: str, tensors: Mapping[str, Tensor], content: Mapping[str, Any]
    ) -> None:
        """Write the best checkpoint, or the last, from which the run can be resumed."""
        if self.folder is not None:
            save_checkpoint(self.folder / name, tensors, content)

    def metrics(self, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Write the lines of all epochs so far."""
        lines = "".join(json.dumps(line, allow_nan=False) + "\n" for line in metrics)
        if self.folder is not None:
            write_file(self.folder / runs.METRICS, lines.encode())

    def curve(self, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Draw the learning curve, if there is one."""
        if self.folder is not None and metrics:
            plot_learning_curve(self.folder / runs.CURVE, metrics)

    def _remove(self, *names: str) -> None:
        if self.folder is not None:
            for name in names:
                (self.folder / name).unlink(missing_ok=True)
