"""How well a model predicts: exact likelihoods, accuracy, and the trivial baselines beside them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqmodel.data import batches
from seqmodel.data.dataset import Dataset, Split, open_dataset
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs import (
    BernoulliOutput,
    DiscretisedLogisticOutput,
    GaussianMixtureOutput,
    Output,
)
from seqmodel.runs.folder import Run


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
    # Music alone
    accuracy: float | None = None
    """TP / (TP + FP + FN) over all notes of all frames (Bay, Ehmann, Downie 2009); a note is
    predicted where it is more likely on than off."""
    precision: float | None = None
    recall: float | None = None
    end_nats_per_piece: float | None = None
    """-log p of when each piece ends, where the model was trained to say."""
    # Audio alone
    nats_per_sample: float | None = None
    bits_per_sample: float | None = None
    """Of the 16-bit levels, where the output gives their probabilities and not a density."""
    floor_share: float | None = None
    """The share of samples where the floor of the scale, not the model, decides the density."""

    def of_its_medium(self) -> dict[str, float]:
        """The figures that only music or only audio has."""
        common = {field.name for field in fields(self)[:5]}
        return {k: v for k, v in self.__dict__.items() if k not in common and v is not None}


class _Sums:
    """What a split's windows add up to, (pieces,) each, and the counts of notes."""

    def __init__(self, pieces: int) -> None:
        self.nats, self.first, self.ends = (np.zeros(pieces) for _ in range(3))
        self.true = self.false = self.missed = 0
        self.at_floor = 0.0

    def add_notes(self, predicted: Tensor, sounding: Tensor) -> None:
        self.true += int((predicted & sounding).sum())
        self.false += int((predicted & ~sounding).sum())
        self.missed += int((~predicted & sounding).sum())


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
    sums, output = _Sums(len(split)), model.output
    frames_at_once = 8192
    was_training = model.training
    model.eval()
    done = 0
    with torch.inference_mode():
        for indices in batches.in_order(split.lengths, batch_size):
            carry = model.start(len(indices))
            window = max(1, frames_at_once // len(indices))
            for begin in range(0, int(split.lengths[indices].max()), window):
                batch = batches.load(split, indices, begin=begin, window=window)
                place = torch.arange(len(batch.frames)).unsqueeze(1)
                lengths = torch.from_numpy(batch.lengths)
                inside = place < lengths
                h, frames, past, carry = model.read(torch.from_numpy(batch.frames), carry)
                nats = output.score(h, frames, past).double() * inside
                sums.nats[indices] += nats.sum(0).numpy()
                if begin == 0:
                    sums.first[indices] = nats[0].numpy()
                if isinstance(output, BernoulliOutput):
                    parameters = output(h)
                    sums.add_notes(output.predicted(parameters)[inside], frames[inside] > 0)
                    if output.end:
                        last = (place == lengths - 1).float()
                        end_nats = output.end_nats(parameters, last).double() * inside
                        sums.ends[indices] += end_nats.sum(0).numpy()
                elif isinstance(output, GaussianMixtureOutput):
                    share = output.floor_share(output(h), frames, past).double() * inside
                    sums.at_floor += float(share.sum())
                done += int(inside.sum())
                if progress is not None:
                    progress(done, split.frames)
    model.train(was_training)
    return _likelihood(sums, output, split)


def _likelihood(sums: _Sums, output: Output, split: Split) -> Likelihood:
    nats = float(sums.nats.sum())
    figures: dict[str, float] = {}
    if isinstance(output, BernoulliOutput):
        true, false, missed = sums.true, sums.false, sums.missed
        figures["accuracy"] = _ratio(true, true + false + missed)
        figures["precision"] = _ratio(true, true + false)
        figures["recall"] = _ratio(true, true + missed)
        if output.end:
            figures["end_nats_per_piece"] = float(sums.ends.mean())
    else:
        figures["nats_per_sample"] = nats / (split.frames * split.frame.frame_size)
        if isinstance(output, GaussianMixtureOutput):
            figures["floor_share"] = sums.at_floor / split.frames
        else:
            figures["bits_per_sample"] = figures["nats_per_sample"] / math.log(2)
    return Likelihood(
        pieces=len(split),
        frames=split.frames,
        nats_per_frame=nats / split.frames,
        nats_per_frame_skip_first=_ratio(nats - sums.first.sum(), split.frames - len(split)),
        piece_mean_nats_per_frame=float(np.mean(sums.nats / split.lengths)),
        **figures,
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
        **_standardisation(run),
        **{name: value for name, value in scores.__dict__.items() if value is not None},
        "baselines": _baselines(run, dataset, pieces),
    }


def _standardisation(run: Run) -> dict[str, Any]:
    """What the nats of audio refer to."""
    standardisation = run.frame.standardisation()
    return {} if standardisation is None else {"standardisation": standardisation}


def _baselines(run: Run, dataset: Dataset, pieces: Split) -> dict[str, float]:
    """The baselines counted on the dataset's own train, or on the run's where it has none."""
    counted = dataset if "train" in dataset.splits else open_dataset(str(run.config.data))
    discrete = isinstance(run.model.output, DiscretisedLogisticOutput)
    return run.frame.medium.baselines(counted["train"], pieces, run.frame, discrete=discrete)


def _ratio(part: float, whole: float) -> float:
    """Part of a whole; 0 where there is nothing, as when no note sounds and none is predicted."""
    return float(part) / float(whole) if whole else 0.0
