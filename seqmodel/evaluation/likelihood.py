"""How well a model predicts a split: exact likelihoods and its output's figures."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel.data import batches
from seqmodel.data.dataset import Split
from seqmodel.model.carry import Carry
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.protocol import Window

STEPS_AT_ONCE = 1 << 16
"""Unit steps in a window of all pieces, at most, unless a frame of one has more."""


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
    figures: dict[str, float]
    """What else the output reports, such as accuracy or bits per sample."""
    piece_nats: NDArray[np.float64] = field(compare=False, repr=False)
    """Nats of each piece, (pieces,)."""
    frame_nats: list[NDArray[np.float64]] = field(compare=False, repr=False)
    """Nats of each frame of each piece, (T,), if asked for; else empty."""

    def to_json(self) -> dict[str, float]:
        """All figures by name in one flat dictionary, without those of single pieces."""
        apart = ("figures", "piece_nats", "frame_nats")
        common = {name: value for name, value in vars(self).items() if name not in apart}
        return {**common, **self.figures}


def likelihood(
    model: SequenceModel,
    split: Split,
    *,
    batch_size: int = 32,
    each_frame: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Likelihood:
    """Score `model` on every frame of `split`; the batch size changes the speed, not the figures.

    `each_frame` asks for `Likelihood.frame_nats`, which takes memory. `progress` is called with the
    frames scored so far and the frames in the split.
    """
    figures = model.output.figures()
    nats, first = np.zeros(len(split)), np.zeros(len(split))
    of_frames = [np.zeros(length) for length in split.lengths] if each_frame else []
    done = 0
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        # Very long frames are read one piece at a time: a window has at least a frame of each.
        most = max(1, STEPS_AT_ONCE // model.encoder.steps)
        for indices in batches.in_order(split.lengths, min(batch_size, most)):
            carry = model.start(len(indices))
            length = model.window(len(indices))
            for begin in range(0, int(split.lengths[indices].max()), length):
                batch = batches.load(split, indices, begin=begin, window=length)
                window, carry = _read(model, batch, carry)
                scores = model.output.score(window.h, window.frames, window.past)
                scores = scores.double().masked_fill(~window.inside, 0.0)
                nats[indices] += scores.sum(0).cpu().numpy()
                if each_frame:
                    for index, column in zip(indices, scores.T.cpu().numpy(), strict=True):
                        place = of_frames[index][begin : begin + length]
                        place[:] = column[: len(place)]
                if begin == 0:
                    first[indices] = scores[0].cpu().numpy()
                figures.add(window)
                done += int(window.inside.sum())
                if progress is not None:
                    progress(done, split.frames)
    model.train(was_training)
    total = float(nats.sum())
    others = split.frames - len(split)
    skip_first = (total - float(first.sum())) / others if others else 0.0
    return Likelihood(
        pieces=len(split),
        frames=split.frames,
        nats_per_frame=total / split.frames,
        nats_per_frame_skip_first=skip_first,
        piece_mean_nats_per_frame=float(np.mean(nats / split.lengths)),
        figures=figures.values(nats=total, frames=split.frames, pieces=len(split)),
        piece_nats=nats,
        frame_nats=of_frames,
    )


def _read(model: SequenceModel, batch: batches.Batch, carry: Carry) -> tuple[Window, Carry]:
    """A batch's window as the output scores it, and the carry after it."""
    T = len(batch.frames)
    lengths = torch.from_numpy(batch.lengths)
    ragged = lengths.clamp(0, T) if int(lengths.min()) < T else None
    frames = torch.from_numpy(batch.frames).to(carry.past.numbers.device)
    h, frames, past, after = model.read(frames, carry, ragged)
    lengths = lengths.to(h.device)
    steps = torch.arange(T, device=h.device).unsqueeze(1)
    return Window(h, frames, past, lengths, steps == lengths - 1, steps < lengths), after
