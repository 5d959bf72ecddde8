"""Shared by outputs that can also give the probability that a piece ends with a frame."""

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.outputs.protocol import Figures, Loss, Output, Sums, Window, labelled

FIGURE = "end_nats_per_piece"
END_LABELS = {FIGURE: "end, nats per piece"}


class EndingOutput(Output):
    """An output with this further probability, if asked for.

    Attributes:
        end: whether it predicts when pieces end.
    """

    end: bool

    @abstractmethod
    def end_score(self, h: Tensor, last: Tensor) -> Tensor:
        """-log p(whether the piece ends here) for `last` (T, B), 1 at a piece's last frame."""

    def with_ends(
        self, nats: Tensor, h: Tensor, weights: Tensor, lengths: NDArray[np.int64]
    ) -> Loss:
        """The loss, given the weighted sum of the frames' `nats`; the rest is as in `loss`."""
        if not self.end:
            return Loss(nats, nats.detach())
        last = torch.from_numpy(np.arange(len(weights))[:, None] == lengths - 1).to(h)
        ends = self.end_score(h, last)
        return Loss(nats + torch.dot(ends.view(-1), weights.view(-1)), nats.detach())


class EndFigures(Figures):
    """What the ends of pieces cost, if the output predicts them."""

    def __init__(self, output: EndingOutput) -> None:
        self._output = output

    def sums(self, window: Window) -> Sums:
        """See `Figures`."""
        if not self._output.end:
            return {}
        nats = self._output.end_score(window.h, window.ends.to(window.h)).double()
        return {"end_nats": float(nats[window.inside].sum())}

    def values(self, sums: Sums, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """The figure by name."""
        return {FIGURE: sums["end_nats"] / pieces} if self._output.end else {}

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        """See `Figures`."""
        return labelled(figures, END_LABELS)


def log_odds(counts: NDArray[np.int64], chances: NDArray[np.int64] | int) -> Tensor:
    """The logits of `counts` out of `chances`, with half a count added to both outcomes."""
    return torch.from_numpy(np.log(counts + 0.5) - np.log(chances - counts + 0.5))
