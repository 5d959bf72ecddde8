"""How well a model predicts: exact likelihoods, accuracy, and the trivial baselines beside them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from seqmodel import batches
from seqmodel.baselines import baseline_nats_per_frame
from seqmodel.dataset import Dataset, Split, open_dataset
from seqmodel.model import SequenceModel
from seqmodel.runs import Run

# Frames that a batch is evaluated in at a time: bounds the memory, whatever a piece's length.
WINDOW = 1024


@dataclass(frozen=True)
class Likelihood:
    """A model's score on one split. Every frame counts, the first included; padding never does."""

    pieces: int
    frames: int
    nats_per_frame: float
    nats_per_frame_skip_first: float
    """First frames neither scored nor counted, as in much of the literature."""
    piece_mean_nats_per_frame: float
    """Mean over pieces of each piece's own mean."""
    accuracy: float
    """TP / (TP + FP + FN) over all notes of all frames (Bay, Ehmann, Downie 2009); a note is
    predicted where it is more likely on than off."""
    precision: float
    recall: float
    end_nats_per_piece: float | None
    """-log p of when each piece ends, where the model was trained to say."""


def likelihood(
    model: SequenceModel,
    split: Split,
    *,
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> Likelihood:
    """Score `model` on every frame of `split`; the batch size changes the speed, not the figures.

    `progress` is called with the frames scored and those of the split.
    """
    sums = np.zeros(len(split))
    first = np.zeros(len(split))
    ends = np.zeros(len(split))
    true = false = missed = 0
    was_training = model.training
    model.eval()
    done = 0
    with torch.inference_mode():
        for indices in batches.in_order(split.lengths, batch_size):
            batch = batches.load(split, indices)
            carry = model.start(len(indices))
            for begin in range(0, len(batch.frames), WINDOW):
                frames = torch.from_numpy(batch.frames[begin : begin + WINDOW]).float()
                place = torch.arange(begin, begin + len(frames)).unsqueeze(1)
                lengths = torch.from_numpy(batch.lengths)
                inside = place < lengths
                parameters, carry = model(frames, carry)
                nats = model.output.nats(parameters, frames).double() * inside
                sums[indices] += nats.sum(0).numpy()
                if begin == 0:
                    first[indices] = nats[0].numpy()
                if model.output.end:
                    last = (place == lengths - 1).float()
                    end_nats = model.output.end_nats(parameters, last).double() * inside
                    ends[indices] += end_nats.sum(0).numpy()
                predicted = model.output.predicted(parameters)[inside]
                sounding = frames[inside] > 0
                true += int((predicted & sounding).sum())
                false += int((predicted & ~sounding).sum())
                missed += int((~predicted & sounding).sum())
                done += int(inside.sum())
                if progress is not None:
                    progress(done, split.frames)
    model.train(was_training)
    return Likelihood(
        pieces=len(split),
        frames=split.frames,
        nats_per_frame=float(sums.sum()) / split.frames,
        nats_per_frame_skip_first=_ratio(sums.sum() - first.sum(), split.frames - len(split)),
        piece_mean_nats_per_frame=float(np.mean(sums / split.lengths)),
        accuracy=_ratio(true, true + false + missed),
        precision=_ratio(true, true + false),
        recall=_ratio(true, true + missed),
        end_nats_per_piece=float(ends.mean()) if model.output.end else None,
    )


def report(
    run: Run,
    dataset: Dataset,
    split: str,
    *,
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Everything that `seqmodel eval` says of a run on one split, as plain values."""
    pieces = dataset[split]
    scores = likelihood(run.model, pieces, batch_size=batch_size, progress=progress)
    return {
        "run": str(run.folder),
        "data": str(dataset.folder),
        "split": split,
        "epoch": run.epoch,
        **{name: value for name, value in scores.__dict__.items() if value is not None},
        "baselines": _baselines(run, dataset, pieces),
    }


def _baselines(run: Run, dataset: Dataset, pieces: Split) -> dict[str, float]:
    """The baselines counted on the dataset's own train, or on the run's where it has none."""
    counted = dataset if "train" in dataset.splits else open_dataset(str(run.config.data))
    return baseline_nats_per_frame(counted["train"], pieces)


def _ratio(part: float, whole: float) -> float:
    """Part of a whole; 0 where there is nothing, as when no note sounds and none is predicted."""
    return float(part) / float(whole) if whole else 0.0
