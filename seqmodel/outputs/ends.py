"""Shared by outputs that can also give the probability that a piece ends with a frame."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from seqmodel.kernels import device
from seqmodel.outputs.protocol import Drawn, Loss, Output, Sums, Window, labelled

FIGURE = "end_nats_per_piece"
END_LABELS = {FIGURE: "end, nats per piece"}


class EndingOutput(Output):
    """An output with this further probability, if asked for.

    Attributes:
        end: whether it predicts when pieces end.
        linear: the layer that reads h.
    """

    end: bool
    linear: nn.Linear

    @abstractmethod
    def nats(self, parameters: Tensor, frames: Tensor, past: Any) -> Tensor:
        """-log p of frames (T, B, F), given `forward(h)` and the past (T, B, C): (T, B)."""

    def score(self, h: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        found = self._compiled(h, frames, past, None)
        return self.plain_nats(h, frames, past) if found is None else found

    def weighted_score(
        self, h: Tensor, frames: Tensor, weights: Tensor, past: Tensor | None = None
    ) -> Tensor:
        found = self._compiled(h, frames, past, weights)
        if found is not None:
            return found
        return torch.dot(self.plain_nats(h, frames, past).reshape(-1), weights.reshape(-1))

    def plain_nats(self, h: Tensor, frames: Tensor, past: Any) -> Tensor:
        """`nats(forward(h), frames, past)`."""
        return self.nats(self(h), frames, past)

    def compiled_nats(
        self, h: Tensor, frames: Tensor, past: Tensor | None, weights: Tensor | None
    ) -> Tensor | None:
        """The same in compiled code or, with weights, `weighted_score`; None if there is none."""
        return None

    def _compiled(self, h: Tensor, *given: Any) -> Tensor | None:
        """`compiled_nats`, or None where compiled code cannot run."""
        if not h.numel() or device.unsupported_reason((h, self.linear.weight, *given)) is not None:
            return None
        return self.compiled_nats(h, *given)

    @abstractmethod
    def end_logits(self, h: Tensor) -> Tensor:
        """The logits (...) of the end, from h (..., B R, H) or what of it the end depends on."""

    @abstractmethod
    def draw(
        self, parameters: Tensor, past: Tensor, uniforms: Tensor, temperature: float
    ) -> Tensor:
        """Draw frames (B, F), given `forward(h)` and the rest as in `draw_frame`."""

    def loss(
        self, h: Tensor, frames: Tensor, past: Tensor, weights: Tensor, lengths: NDArray[np.int64]
    ) -> Loss:
        nats = self.weighted_score(h, frames, weights, past)
        if not self.end:
            return Loss(nats, nats.detach())
        last = torch.from_numpy(np.arange(len(weights))[:, None] == lengths - 1).to(h)
        ends = self.end_score(h, last)
        return Loss(nats + torch.dot(ends.view(-1), weights.view(-1)), nats.detach())

    def end_score(self, h: Tensor, last: Tensor) -> Tensor:
        """-log p(whether the piece ends here) for `last` (T, B), 1 at a piece's last frame."""
        return binary_cross_entropy_with_logits(self.end_logits(h), last, reduction="none")

    def draw_frame(self, h: Tensor, past: Tensor, uniforms: Tensor, temperature: float) -> Drawn:
        frame = self.draw(self(h), past, uniforms, temperature)
        return Drawn(frame, self.ends(h, uniforms))

    def ends(self, h: Tensor, uniforms: Tensor) -> Tensor:
        """Draw whether pieces end (B,) with the frame, from h (B R, H), by the last uniform.

        The temperature does not apply: it governs what a frame holds, not a piece's length.
        """
        if not self.end:
            return torch.zeros(len(uniforms), dtype=torch.bool, device=uniforms.device)
        return uniforms[..., -1] < torch.sigmoid(self.end_logits(h))

    def figure_sums(self, window: Window) -> Sums:
        """What the ends of pieces cost, if the output predicts them."""
        if not self.end:
            return {}
        nats = self.end_score(window.h, window.ends.to(window.h)).double()
        return {"end_nats": float(nats[window.inside].sum())}

    def figures(self, sums: Sums, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """The same per piece."""
        return {FIGURE: sums["end_nats"] / pieces} if self.end else {}

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        return labelled(figures, END_LABELS)


def log_odds(counts: NDArray[np.int64], chances: NDArray[np.int64] | int) -> Tensor:
    """The logits of `counts` out of `chances`, with half a count added to both outcomes."""
    return torch.from_numpy(np.log(counts + 0.5) - np.log(chances - counts + 0.5))
