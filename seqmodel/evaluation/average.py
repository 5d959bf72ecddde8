"""Several runs as one model: the mean of the probabilities that they give to each frame."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import UsageError
from seqmodel.evaluation.likelihood import Likelihood
from seqmodel.outputs.protocol import END_FIGURE, END_LABELS, labelled
from seqmodel.outputs.samples import LABELS
from seqmodel.runs.folder import Run


def named(runs: Sequence[Run]) -> str:
    """The run's folder, or what several are together."""
    return str(runs[0].folder) if len(runs) == 1 else f"the average of {len(runs)} runs"


def check_average(runs: Sequence[Run]) -> None:
    """UsageError unless all runs predict the same frames, and whether pieces end."""
    first = runs[0]
    for run in runs[1:]:
        pairs = zip(_predicted(run), _predicted(first), strict=True)
        differences = run.frame.differences(first.frame) or [
            f"{ours}, not {theirs}" for ours, theirs in pairs if ours != theirs
        ]
        if differences:
            raise UsageError(
                f"{run.folder} differs from {first.folder} ({'; '.join(differences)}): only runs "
                "that predict the same have an average"
            )


def _predicted(run: Run) -> tuple[str, str]:
    scale = run.frame.standardisation() or {}
    density = " ".join(["densities", *(f"{name} {n:.3g}" for name, n in scale.items())])
    nats = "probabilities" if run.model.output.discrete else density
    return f"{'with' if run.config.end else 'without'} ends", nats


def average(each: Sequence[Likelihood]) -> Likelihood:
    """The score of the average of models, from that of each with the nats of its frames.

    p(x_t, e_t | x_<t) = 1/K sum_k p_k(x_t | x_<t) p_k(e_t | x_<t), where e_t is whether the piece
    ends with frame t. Of the other figures only those that follow from the nats are left.
    """
    frames = list(map(mean_nats, zip(*(scores.frame_nats for scores in each), strict=True)))
    lengths, nats = np.array([len(piece) for piece in frames]), np.array([*map(np.sum, frames)])
    ours, first = each[0].figures, np.array([piece[0] for piece in frames])
    figures = {k: ours[k] * nats.sum() / each[0].piece_nats.sum() for k in ours if k in LABELS}
    ends = []
    if each[0].end_nats:
        both = [
            [frame + end for frame, end in zip(scores.frame_nats, scores.end_nats, strict=True)]
            for scores in each
        ]
        joint = map(mean_nats, zip(*both, strict=True))
        ends = [of_both - of_frames for of_both, of_frames in zip(joint, frames, strict=True)]
        figures[END_FIGURE] = float(np.mean([piece.sum() for piece in ends]))
    return Likelihood.of(lengths, nats, first, figures, frames, ends)


def mean_nats(nats: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """-log of the mean of K probabilities, each given as -log p (T,)."""
    return np.log(len(nats)) - np.logaddexp.reduce(-np.stack(nats))


def describe(figures: Mapping[str, float]) -> list[str]:
    """An average's figures besides the nats as lines of text, as `Output.describe`."""
    return labelled(figures, END_LABELS | LABELS)
