"""The interface of outputs: everything about p(x_t | x_<t), given h, a summary of the past.

Training, evaluation and sampling use outputs only through `Output`. Adding one takes a file in this
folder and a row in `outputs.registry`; README.md walks through an example.

Shapes: T frames, B pieces, F numbers in a frame, C numbers of past. h is (T S, B R, H): the model's
encoder runs R unit rows per piece (1, except for models that run a row per note) and makes S steps
per frame (1, except for models that make one per sample).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from seqmodel.config import Config
from seqmodel.data.dataset import Split
from seqmodel.kernels import device
from seqmodel.kernels.run.calls import Arena, Slot
from seqmodel.media.definitions import FrameDefinition

END_FIGURE = "end_nats_per_piece"
END_LABELS = {END_FIGURE: "end, nats per piece"}


class Loss(NamedTuple):
    """The weighted nats of a window."""

    total: Tensor
    """What training minimises: the nats of frames and, if the output models them, of ends."""
    nats: Tensor
    """The nats of the frames alone, detached."""


class Drawn(NamedTuple):
    """One new frame of each piece."""

    frame: Tensor
    """(B, F)"""
    ended: Tensor
    """(B,) booleans: whether the piece ends with this frame."""


class Window(NamedTuple):
    """Frames of a batch, as an output scores them."""

    h: Tensor
    """(T S, B R, H)"""
    frames: Tensor
    """(T, B, F)"""
    past: Tensor
    """(T, B, C), the numbers before each frame."""
    ends: Tensor
    """(T, B) booleans: whether the frame is its piece's last."""
    inside: Tensor
    """(T, B) booleans: whether the frame belongs to the piece, rather than to padding."""


Sums = dict[str, float]
"""Sums over the frames of windows, by name; they may be added up."""


def figure_lines(figures: Mapping[str, float], labels: Mapping[str, str]) -> list[str]:
    """One line for each of the figures that has a label."""
    return [f"{label:24} {figures[name]:9.4f}" for name, label in labels.items() if name in figures]


class DrawSetting(NamedTuple):
    """The setting for which a compiled draw is made."""

    h: Slot
    """(H,) or (R, H), from which it draws a step."""
    x: Slot
    """(C,), where it leaves the last C numbers, standardised, for the unit's next inputs."""
    arena: Arena
    chunk: int
    """Steps drawn at a time."""
    temperature: float
    fills: bool = False
    """Whether numbers may be given, see `sampling.compiled`; only for outputs over notes."""


class Output(nn.Module, ABC):
    """The distribution of the next frame, given h and the numbers before the frame.

    A subclass defines `build`, `nats` and either `forward` and `draw`, or `plain_nats` and
    `draw_frame`, which otherwise use them; the rest is optional.

    Attributes:
        end: whether it also predicts when pieces end, by `end_logits`.
        discrete: whether nats are of probabilities, comparable with any model's, or of a density.
        over_notes: whether a separate unit runs over a frame's notes.
        frame_type: the NumPy type of drawn frames.
        frame_size: F, or how many of a frame's numbers are drawn at a time.
        uniforms_per_frame: how many uniforms `draw_frame` uses at a time.
    """

    discrete: ClassVar[bool]
    over_notes: ClassVar[bool] = False
    frame_type: ClassVar[type[np.generic]]
    end: bool = False
    frame_size: int
    uniforms_per_frame: int

    @classmethod
    @abstractmethod
    def build(cls, config: Config, frame: FrameDefinition, h_size: int) -> Self:
        """The output that a resolved config describes for such frames, freshly initialised.

        It reads rows of h of `h_size` numbers: the unit's, and what the encoder adds to them.

        Raises:
            UsageError: if the config asks for something that this output does not support.
        """

    def start_at(self, train: Split) -> None:
        """Start near the marginals of the training split; by default weights do not change."""

    def start_ends_at(self, scale: float) -> None:
        """Start with log odds of the end, if any, equal to the last number of h times `scale`."""

    def limit_ends(self, h_size: int) -> None:
        """Let ends, if any, depend only on the first `h_size` numbers of a row of h."""

    @abstractmethod
    def nats(self, parameters: Tensor, frames: Tensor, past: Any) -> Tensor:
        """-log p of frames (T, B, F), given `forward(h)` and the past (T, B, C): (T, B)."""

    def plain_nats(self, h: Tensor, frames: Tensor, past: Any) -> Tensor:
        """`score` in PyTorch: the specification."""
        return self.nats(self(h), frames, past)

    def compiled_nats(
        self, h: Tensor, frames: Tensor, past: Tensor | None, weights: Tensor | None
    ) -> Tensor | None:
        """`score` in compiled code, or its sum times weights; None if there is none."""
        return None

    def score(self, h: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """-log p(x_t | x_<t) in nats, exact: (T, B), differentiable.

        Compiled where possible; equal to the specification within a few rounding errors.
        """
        compiled = self._compiled(h, frames, past, None)
        return self.plain_nats(h, frames, past) if compiled is None else compiled

    def _compiled(self, h: Tensor, *arguments: Any) -> Tensor | None:
        """`compiled_nats`, or None if compiled code cannot run."""
        tensors = h, next(self.parameters(), None), *arguments
        if not h.numel() or device.unsupported_reason(tensors) is not None:
            return None
        return self.compiled_nats(h, *arguments)

    def weighted(
        self, h: Tensor, frames: Tensor, weights: Tensor, past: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The sum of `score` times weights (T, B) and, with `end`, the `end_logits`."""
        total = self._compiled(h, frames, past, weights)
        if total is None:
            total = torch.dot(self.score(h, frames, past).reshape(-1), weights.reshape(-1))
        return total, self.end_logits(self.end_rows(h)) if self.end else None

    def loss(
        self, h: Tensor, frames: Tensor, past: Tensor, weights: Tensor, lengths: NDArray[np.int64]
    ) -> Loss:
        """The loss of a window, given the weights (T, B) of frames, 0 for padding.

        `lengths` (B,) are each piece's frames from the window's first on, <= 0 once it has ended.
        """
        nats, logits = self.weighted(h, frames, weights, past)
        if logits is None:
            return Loss(nats, nats.detach())
        last = torch.from_numpy(np.arange(len(weights))[:, None] == lengths - 1).to(h)
        ends = binary_cross_entropy_with_logits(logits, last, reduction="none")
        return Loss(nats + torch.dot(ends.view(-1), weights.view(-1)), nats.detach())

    def end_logits(self, h: Tensor) -> Tensor:
        """The logits (...) of the end, from h (..., B R, H) or the part that the end depends on."""
        raise NotImplementedError

    def end_rows(self, h: Tensor) -> Tensor:
        """The rows of a window's h that the ends depend on, those of each frame."""
        return h

    def end_score(self, h: Tensor, last: Tensor) -> Tensor:
        """-log p(whether the piece ends here) for `last` (T, B), 1 at a piece's last frame."""
        logits = self.end_logits(self.end_rows(h))
        return binary_cross_entropy_with_logits(logits, last, reduction="none")

    def figure_sums(self, window: Window) -> Sums:
        """The sums over a window's frames that `figures` needs; padding must not count."""
        if not self.end:
            return {}
        nats = self.end_score(window.h, window.ends.to(window.h)).double()
        return {"end_nats": float(nats[window.inside].sum())}

    def figures(self, sums: Sums, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """The reported figures of a split, from its sums, total nats, frames and pieces.

        By default the cost of ends, if there are any. The names appear in `eval --json`, and as
        `valid_NAME` in metrics.jsonl.
        """
        return {END_FIGURE: sums["end_nats"] / pieces} if self.end else {}

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        """Lines of text for its own among all `figures`, as `seqmodel eval` prints them."""
        return figure_lines(figures, END_LABELS)

    def draw(
        self, parameters: Tensor, past: Tensor, uniforms: Tensor, temperature: float
    ) -> Tensor:
        """Draw frames (B, F), given `forward(h)` and the rest as in `draw_frame`."""
        raise NotImplementedError

    def draw_frame(self, h: Tensor, past: Tensor, uniforms: Tensor, temperature: float) -> Drawn:
        """Draw a frame of each piece: the specification of sampling.

        h is (B R, H), past (B, C), uniforms (B, uniforms_per_frame) float64 in [0, 1). How many
        steps a frame takes is up to the output.
        """
        frame = self.draw(self(h), past, uniforms, temperature)
        return Drawn(frame, self.ends(h, uniforms))

    def ends(self, h: Tensor, uniforms: Tensor) -> Tensor:
        """Draw whether pieces end (B,) with the frame, from h (B R, H), by the last uniform.

        The temperature does not apply: it governs what a frame holds, not a piece's length.
        """
        if not self.end:
            return torch.zeros(len(uniforms), dtype=torch.bool, device=uniforms.device)
        return uniforms[..., -1] < torch.sigmoid(self.end_logits(h))

    def compiled_draw(self, setting: DrawSetting) -> Any:
        """The compiled draw of the same frames, a `draws.Draw`, or None if there is none."""
        return None


def log_odds(counts: NDArray[np.int64], chances: NDArray[np.int64] | int) -> Tensor:
    """The logits of `counts` out of `chances`, with half a count added to both outcomes."""
    return torch.from_numpy(np.log(counts + 0.5) - np.log(chances - counts + 0.5))
