"""How well a model, or the average of several, predicts a split: exact likelihoods and figures."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.data import batches
from seqmodel.data.dataset import Split
from seqmodel.media.marks import MARK_FIGURES
from seqmodel.media.samples import Progress, no_progress
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.protocol import END_FIGURE, END_LABELS, Window, figure_lines
from seqmodel.outputs.samples import LABELS

BATCH_SIZE = 32
"""Pieces scored at once; affects the speed, not the figures."""
STEPS_AT_ONCE = 1 << 16
"""The most unit steps in a window over all pieces, unless a single frame has more."""
FIGURES = {
    "nats_per_frame": "nats per frame",
    "nats_per_frame_skip_first": "  first frames left out",
    "piece_mean_nats_per_frame": "  mean over pieces",
}
"""What the figures of every model are called below each other."""


@dataclass(frozen=True, eq=False, repr=False)
class Likelihood:
    """A model's score on one split. Every frame counts, including the first; padding never does."""

    lengths: NDArray[np.int64]
    """Frames of each piece, (pieces,)."""
    piece_nats: NDArray[np.float64]
    """Nats of each piece, (pieces,)."""
    first_nats: NDArray[np.float64]
    """Those of first frames, (pieces,)."""
    figures: dict[str, float]
    """Other figures of the output, such as accuracy or bits per sample."""
    frame_nats: list[NDArray[np.float64]]
    """Nats of each frame of each piece, (T,), if requested; else empty."""
    end_nats: list[NDArray[np.float64]]
    """The same for whether the piece ends with the frame; empty if the model predicts no ends."""

    @property
    def nats_per_frame(self) -> float:
        return float(self.piece_nats.sum()) / int(self.lengths.sum())

    def to_json(self) -> dict[str, float]:
        """All figures by name, without those of single pieces.

        One figure leaves first frames out of both nats and count, as in much of the literature, if
        there are others; the mean over pieces is the mean of each piece's own mean.
        """
        pieces, frames = len(self.lengths), int(self.lengths.sum())
        others = float(self.piece_nats.sum()) - float(self.first_nats.sum())
        later = {"nats_per_frame_skip_first": others / (frames - pieces)} if frames > pieces else {}
        return {
            "pieces": pieces,
            "frames": frames,
            "nats_per_frame": self.nats_per_frame,
            **later,
            "piece_mean_nats_per_frame": float(np.mean(self.piece_nats / self.lengths)),
            **self.figures,
        }


class Group(Protocol):
    """Processes that score a split together, each with the same model."""

    rank: int
    size: int

    def all(self, values: Any) -> list[Any]:
        """The JSON values that each process gives, in order."""


def likelihood(
    model: SequenceModel,
    split: Split,
    *,
    batch_size: int = BATCH_SIZE,
    each_frame: bool = False,
    labels: NDArray[np.int64] | None = None,
    progress: Progress = no_progress,
    group: Group | None = None,
) -> Likelihood:
    """Score `model` on every frame of `split`; the batch size affects the speed, not the figures.

    `each_frame` requests `frame_nats` and `end_nats`, which take memory; `labels` (pieces, L)
    replace those of the pieces, see `Split.labels`. With a `group`, whose processes all call this,
    each scores some of the batches, and all get the same figures as a single one, to the bit.
    """
    rank, size = (0, 1) if group is None else (group.rank, group.size)
    labels = split.labels(model.known_labels) if labels is None else labels
    was_training = model.training
    model.eval()
    nats, first = np.zeros(len(split)), np.zeros(len(split))
    sums, done = defaultdict[str, float](float), 0
    ends = model.output.end
    frame_nats, end_nats = (
        [np.zeros(length) for length in split.lengths] if requested else []
        for requested in (each_frame, each_frame and ends)
    )

    def report(read: int) -> None:
        # A group reports progress where all its processes are, so that they can agree to save or
        # stop.
        if size == 1:
            progress(done + read, split.frames)

    # Very long frames are read one piece at a time: a window has at least a frame of each.
    most = max(1, STEPS_AT_ONCE // model.encoder.steps)
    plan = batches.by_length(split.lengths, min(batch_size, most))
    with torch.inference_mode():
        for turn in range(0, len(plan), size):
            ours = plan[turn + rank : turn + rank + 1]
            scored = None
            if ours:
                scored = _score(model, split, ours[0], labels, frame_nats, end_nats, report)
            scores = [scored] if group is None else group.all(scored)
            for indices, score in zip(plan[turn : turn + size], scores, strict=False):
                nats[indices], first[indices], figures = score
                _add(sums, figures)
                done += int(split.lengths[indices].sum())
            if size > 1:
                progress(done, split.frames)
    model.train(was_training)
    figures = model.output.figures(
        sums, nats=float(nats.sum()), frames=split.frames, pieces=len(split)
    )
    for figure in model.mark_figures():
        if count := sums[f"{figure} count"]:
            figures[figure] = sums[figure] / count
    return Likelihood(split.lengths, nats, first, figures, frame_nats, end_nats)


def _score(
    model: SequenceModel,
    split: Split,
    indices: NDArray[np.int64],
    labels: NDArray[np.int64],
    frame_nats: list[NDArray[np.float64]],
    end_nats: list[NDArray[np.float64]],
    report: Callable[[int], None],
) -> list[Any]:
    """The nats of these pieces, those of their first frames, and the sums of figures, as JSON.

    Fills in `frame_nats` and `end_nats`, unless they are empty.
    """
    length, carry = model.window(len(indices)), model.start(len(indices), split.metres(indices))
    carry = model.with_labels(carry, labels[indices])
    nats, first = np.zeros(len(indices)), np.zeros(len(indices))
    sums = defaultdict[str, float](float)
    for begin in range(0, int(split.lengths[indices].max()), length):
        batch = batches.load(split, indices, begin=begin, window=length)
        T, lengths = len(batch.frames), torch.from_numpy(batch.lengths)
        ragged = lengths.clamp(0, T) if int(lengths.min()) < T else None
        frames = torch.from_numpy(batch.frames).to(carry.past.numbers.device)
        h, frames, past, carry = reading = model.read(frames, carry, ragged)
        lengths = lengths.to(h.device)
        steps = torch.arange(T, device=h.device).unsqueeze(1)
        window = Window(h, frames, past, steps == lengths - 1, steps < lengths)
        scores = model.output.score(h, frames, past).double().masked_fill(~window.inside, 0.0)
        nats += scores.sum(0).cpu().numpy()
        if frame_nats:
            _store(scores, indices, begin, frame_nats)
        if end_nats:
            _store(model.output.end_score(h, window.ends.to(h)), indices, begin, end_nats)
        if begin == 0:
            first = scores[0].cpu().numpy()
        _add(sums, model.output.figure_sums(window))
        mark_nats, carry = model.score_marks(reading, batch.marks)
        for name, each in mark_nats.items():
            _add(sums, _mark_sums(model, name, each.double(), frames, batch.marks[name]))
        report(int(split.lengths[indices].clip(max=begin + length).sum()))
    return [nats.tolist(), first.tolist(), sums]


def _mark_sums(
    model: SequenceModel, name: str, nats: Tensor, frames: Tensor, numbers: NDArray[np.uint8]
) -> dict[str, float]:
    """The sums of a mark's figures and their counts, given the nats (N,) of its notes."""
    assert model.marks is not None
    figure, mark = MARK_FIGURES[name], model.marks.outputs()[name]
    levels = mark.levels_of(frames, torch.from_numpy(numbers)).permute(1, 0, 2)
    sums = {figure: float(nats.sum()), f"{figure} count": len(nats)}
    for level, level_name in enumerate(mark.levels.names, 1):
        chosen = levels[levels > 0] == level
        sums[f"{figure}_{level_name}"] = float(nats.cpu()[chosen].sum())
        sums[f"{figure}_{level_name} count"] = int(chosen.sum())
    return sums


def _store(
    scores: Tensor, indices: NDArray[np.int64], begin: int, piece_nats: list[NDArray[np.float64]]
) -> None:
    """Fill in the nats (T, B) of a window that begins at frame `begin` of these pieces."""
    for index, column in zip(indices, scores.T.cpu().numpy(), strict=True):
        target = piece_nats[index][begin : begin + len(column)]
        target[:] = column[: len(target)]


def _add(sums: dict[str, float], more: Mapping[str, float]) -> None:
    for name, number in more.items():
        sums[name] += number


# ---- the average of several runs: the mean of their probabilities for each frame -----------------


def average(each: Sequence[Likelihood]) -> Likelihood:
    """The score of the average of models, from the score of each with the nats of its frames.

    p(x_t, e_t | x_<t) = 1/K sum_k p_k(x_t | x_<t) p_k(e_t | x_<t), where e_t is whether the piece
    ends with frame t. Of the other figures, only those that follow from the nats remain.
    """
    frames = list(map(mean_nats, zip(*(scores.frame_nats for scores in each), strict=True)))
    lengths, nats = np.array([len(piece) for piece in frames]), np.array([*map(np.sum, frames)])
    ours, first = each[0].figures, np.array([piece[0] for piece in frames])
    figures = {k: ours[k] * nats.sum() / each[0].piece_nats.sum() for k in ours if k in LABELS}
    ends = []
    if each[0].end_nats:
        sums = [
            [frame + end for frame, end in zip(scores.frame_nats, scores.end_nats, strict=True)]
            for scores in each
        ]
        joint = map(mean_nats, zip(*sums, strict=True))
        ends = [of_both - of_frames for of_both, of_frames in zip(joint, frames, strict=True)]
        figures[END_FIGURE] = float(np.mean([piece.sum() for piece in ends]))
    return Likelihood(lengths, nats, first, figures, frames, ends)


def mean_nats(nats: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """-log of the mean of K probabilities, each given as -log p (T,)."""
    return np.log(len(nats)) - np.logaddexp.reduce(-np.stack(nats))


def describe(figures: Mapping[str, float]) -> list[str]:
    """An average's other figures as lines of text, like `Output.describe`."""
    return figure_lines(figures, END_LABELS | LABELS)
