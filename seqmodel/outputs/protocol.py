"""The interface of outputs: everything about p(x_t | x_<t), given h, a summary of the past.

Training, evaluation and sampling use outputs only through `Output`. Adding one takes a file
in this folder and a row in `outputs.registry`; README.md walks through an example.

Shapes: T frames, B pieces, F numbers in a frame, C numbers of past. h is (T S, B R, H), where the
model's encoder runs R unit rows per piece (1, except for models that run a row per note) and makes
S steps per frame (1, except for models that make one per sample).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqmodel.config import Config
from seqmodel.data.dataset import Split
from seqmodel.media.definitions import FrameDefinition

if TYPE_CHECKING:
    from seqmodel.kernels.run.calls import Arena, Call, Slot
    from seqmodel.kernels.uniforms import Uniforms


class Loss(NamedTuple):
    """The weighted nats of a window."""

    total: Tensor
    """What training minimises: the nats of frames and, if the output models them, of ends."""
    nats: Tensor
    """The frames' nats alone, detached."""


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
    lengths: Tensor
    """(B,) how many frames of this window belong to the piece; <= 0 once it has ended."""
    ends: Tensor
    """(T, B) booleans: whether the frame is its piece's last."""
    inside: Tensor
    """(T, B) booleans: whether the frame belongs to the piece, rather than to padding."""


Sums = dict[str, float]
"""By name, sums over the frames of windows, which may be added up."""


def labelled(figures: Mapping[str, float], labels: Mapping[str, str]) -> list[str]:
    """Those of the figures that have labels, a line each."""
    return [f"{label:24} {figures[name]:9.4f}" for name, label in labels.items() if name in figures]


class DrawSetting(NamedTuple):
    """What a compiled draw is made for."""

    h: "Slot"
    """(H,) or (R, H), of which it draws a step."""
    x: "Slot"
    """(C,), where it leaves the last C numbers, standardised, for the unit's next inputs."""
    arena: "Arena"
    chunk: int
    """Steps drawn at a time."""
    temperature: float
    fills: bool = False
    """Whether numbers may be given, see `sampling.compiled`; only for outputs over notes."""


class CompiledDraw(Protocol):
    """A draw in compiled code, which `sampling.compiled` calls for each step, usually a frame.

    Attributes:
        call: draw(fields, n), which draws step n of a chunk from h, leaves the last C numbers in x,
            and returns 1 if the piece ends there, else 0.
        uniforms: (1,), where the chunk begins in the stream.
    """

    call: "Call"
    uniforms: "Slot"

    def refill(self, memory: NDArray[np.uint8], uniforms: "Uniforms") -> None:
        """Take the uniforms of the next chunk."""

    def drawn(self, memory: NDArray[np.uint8], count: int) -> NDArray[Any]:
        """What the first `count` steps of the chunk drew (count, D)."""


class Output(nn.Module, ABC):
    """The distribution of the next frame, given h and the numbers before the frame.

    Attributes:
        discrete: whether nats are of probabilities, comparable with any model's, or of a density.
        over_notes: whether a separate unit runs over a frame's notes.
        frame_type: the NumPy type of drawn frames.
        frame_size: F, or how many of a frame's numbers are drawn at a time.
        uniforms_per_frame: how many uniforms `draw_frame` takes at a time.
    """

    discrete: ClassVar[bool]
    over_notes: ClassVar[bool] = False
    frame_type: ClassVar[type[np.generic]]
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
        """Set the weights so that training starts near the marginals of the training split.

        By default they keep their initial values.
        """

    def start_ends_at(self, scale: float) -> None:
        """Start with log odds of the end that are the last number of a row of h times `scale`.

        By default ends, if there are any, start as `start_at` has left them.
        """

    def limit_ends(self, h_size: int) -> None:
        """Let ends, if there are any, depend on the first `h_size` numbers of a row of h alone.

        By default they depend on what frames do.
        """

    @abstractmethod
    def score(self, h: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """-log p(x_t | x_<t) in nats, exact: (T, B), differentiable.

        Compiled where possible; equal to the specification within a few rounding errors.
        """

    def loss(
        self, h: Tensor, frames: Tensor, past: Tensor, weights: Tensor, lengths: NDArray[np.int64]
    ) -> Loss:
        """The loss of a window, its frames' nats times weights (T, B), 0 for padding.

        `lengths` (B,) is as in `Window`.
        """
        total = self.weighted_score(h, frames, weights, past)
        return Loss(total, total.detach())

    def weighted_score(self, h: Tensor, frames: Tensor, weights: Tensor, past: Tensor) -> Tensor:
        """The sum of `score` times weights (T, B), for training."""
        return torch.dot(self.score(h, frames, past).reshape(-1), weights.reshape(-1))

    def figure_sums(self, window: Window) -> Sums:
        """What `figures` need, summed over the frames of a window; padding must not count."""
        return {}

    def figures(self, sums: Sums, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """What is reported of a split, from its sums, total nats, frames and pieces.

        By default nothing besides the nats. The names appear in `eval --json`, and as `valid_NAME`
        in metrics.jsonl.
        """
        return {}

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        """Its own among all `figures` as lines of text, as `seqmodel eval` prints them."""
        return []

    @abstractmethod
    def draw_frame(self, h: Tensor, past: Tensor, uniforms: Tensor, temperature: float) -> Drawn:
        """Draw a frame of each piece: the specification of sampling.

        h is (B R, H), past (B, C), uniforms (B, uniforms_per_frame) float64 in [0, 1). How many
        steps a frame takes is up to the output.
        """

    def compiled_draw(self, setting: DrawSetting) -> CompiledDraw | None:
        """The compiled draw of the same frames, or None if there is none."""
        return None
