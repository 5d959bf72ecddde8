"""What `seqmodel eval` always reports of a run: its likelihood next to the trivial baselines'."""

import math
from collections.abc import Callable
from typing import Any

from seqmodel.data.dataset import Dataset, Split, open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.media.registry import medium_of
from seqmodel.runs.folder import Run


def evaluate(
    run: Run,
    dataset: Dataset,
    split: str,
    *,
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """The score of a run on one split of a dataset, as plain values: see README.md."""
    pieces = dataset[split]
    scores = likelihood(run.model, pieces, batch_size=batch_size, progress=progress)
    if not math.isfinite(scores.nats_per_frame):
        raise SeqmodelError(
            f"{run.folder} scores {scores.nats_per_frame} nats per frame on {split} of "
            f"{dataset.folder}: its weights are too large, or a piece holds impossible frames "
            "(`seqmodel inspect` checks all); use another run"
        )
    standardisation = run.frame.standardisation()
    return {
        "run": str(run.folder),
        "data": str(dataset.folder),
        "split": split,
        "epoch": run.epoch,
        **({} if standardisation is None else {"standardisation": standardisation}),
        **scores.to_json(),
        "baselines": _baselines(run, dataset, pieces),
    }


def _baselines(run: Run, dataset: Dataset, pieces: Split) -> dict[str, float]:
    """The baselines fitted to the dataset's own train, or to the run's if it has none."""
    fitted = dataset if "train" in dataset.splits else open_dataset(str(run.config.data))
    discrete = run.model.output.discrete
    return medium_of(run.frame).baselines(fitted["train"], pieces, run.frame, discrete=discrete)
