"""Encoders, which turn frames and the numbers before them into unit inputs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.config import Config
from seqmodel.data.dataset import Split
from seqmodel.errors import UsageError
from seqmodel.kernels.device import one_thread
from seqmodel.kernels.run.calls import Arena, Call, Slot
from seqmodel.media.definitions import FrameDefinition


class Past(NamedTuple):
    """Everything that an encoder stores of the previous frames."""

    numbers: Tensor
    """(B, C), which outputs read as well."""
    memory: Tensor | None = None
    """(B, K), whatever else an encoder remembers, in its own dtype."""


class Encoded(NamedTuple):
    """Frames ready for the unit and for the output."""

    inputs: Tensor
    """(T S, B R, I): what the unit reads before each step."""
    skip: Tensor | None
    """(T S, B R, E): what the output reads alongside h, if anything."""
    frames: Tensor
    """(T, B, F), in the model's type."""
    past: Tensor
    """(T, B, C): the numbers before each frame."""
    last: Past
    """The past before the next frame."""
    changed: Tensor | None = None
    """(T, B) booleans on the CPU: where the unit makes a step; elsewhere it rests. None:
    everywhere."""


class Encoder(ABC):
    """Turns the past into unit inputs, and stores as much of it as that requires.

    A model may run several unit rows for each piece, such as one per note. The inputs, h and the
    unit's state then have B R rows, with the rows of a piece adjacent.

    Attributes:
        input_size: I, the size of a unit row's input.
        skip_size: E, the number of values that the output reads alongside each row of h.
        end_skip_size: how many of these, from the first, an output may read for the end of a piece;
            None: all.
        end_odds: the factor that turns the last of these into the log odds that the piece ends; 0
            if it is something else.
        rows: R, the number of unit rows for each piece.
        steps: S, the number of unit steps for each frame, each of which predicts F / S numbers.
        sparse: whether most inputs are zeros, which sampling then skips.
    """

    input_size: int
    skip_size: int = 0
    end_skip_size: int | None = None
    end_odds: float = 0.0
    rows: int = 1
    steps: int = 1
    sparse: bool = False

    @classmethod
    @abstractmethod
    def build(cls, config: Config, frame: FrameDefinition) -> Self:
        """The encoder that a config describes for such frames; its sizes may still be open."""

    def start_at(self, train: Split) -> None:  # noqa: B027
        """Store what the inputs need from the training split; by default nothing."""

    def free_frames(self, frames: int) -> int | None:
        """How many frames to draw freely for `correct`, if train has `frames`; None to skip it."""
        return None

    def anneal(self, share: float) -> None:  # noqa: B027
        """Called as training proceeds, with the learning rate as a share of its initial value."""

    def correct(  # noqa: B027
        self, drawn: NDArray[np.float32] | None, score: Callable[[], float]
    ) -> None:
        """Correct what keeps free running close to train, from freely drawn frames (T, F) if any.

        `score` gives the nats per frame on part of train with the encoder as it then is. The
        weights do not change. By default there is nothing to correct.
        """

    usual_guidance = 1.0
    """The factor by which samples are guided by default."""

    def guide(self, factor: float) -> None:
        """Pull samples `factor` times as strongly towards what is usual for their labels.

        UsageError if the encoder has no such pull, as by default.
        """
        raise UsageError("--guidance is for runs on audio with labels")

    def restored(self, memory: Tensor) -> Tensor:
        """The memory (B, K) that an earlier version stored, with what was added since."""
        return memory

    @abstractmethod
    def start(self, like: Tensor, batch_size: int) -> Past:
        """The past before the first frame: zeros, the numbers in the dtype and device of `like`."""

    def with_metres(self, past: Past, metres: NDArray[np.int64]) -> Past:
        """The past before the first frame of pieces with these metres (B, G).

        See `FrameDefinition.metres`. By default an encoder has no use for them.
        """
        return past

    def with_labels(self, past: Past, labels: Tensor) -> Past:
        """The past before pieces with these labels (B, N), see `Carry.labels`.

        By default an encoder has no use for them: the unit and the output read all labels.
        """
        return past

    @abstractmethod
    def encode(self, frames: Tensor, past: Past, lengths: Tensor | None = None) -> Encoded:
        """Encode frames (T, B, F), or one step (1, B, F / S), of any numeric type, after `past`.

        With `lengths` (B,) from 0 to T, frames from a piece's length on are padding. The last past
        is then the one at that length, but only for encoders that can join pieces.
        """

    def carried_over(self, past: Past) -> Past:
        """The past before the first frame of further pieces that continue those read.

        Encoders that cannot join pieces return it unchanged, as by default.
        """
        return past

    def encode_next(self, past: Past) -> Encoded:
        """What is known before the step after `past`, whatever that step's numbers are."""
        return self.encode(past.numbers.unsqueeze(0), past)

    def append(self, past: Past, numbers: Tensor) -> Past:
        """The past with the numbers of one step (B, F / S) appended."""
        return self.encode(numbers.unsqueeze(0), past).last

    def scaled(self, numbers: Tensor) -> Tensor:
        """The numbers (B, C) in the form that compiled sampling uses."""
        return numbers

    @abstractmethod
    def compiled(self, arena: Arena) -> "CompiledInputs":
        """The compiled calls that turn the last numbers into the unit inputs, for one piece."""


class CompiledInputs(NamedTuple):
    """The compiled form of the inputs of `Encoder.encode_next`."""

    last: Slot
    """(C,), updated by each draw; see `Encoder.scaled`."""
    x: Slot
    """(I,), or (R, I): what the unit reads; the output reads the last E of each row alongside h."""
    calls: Sequence[Call]
    """The calls that compute x; none if x is the same as `last`."""
    memory: Slot | None = None
    """(1, K), as in `Past`."""
    changed: Slot | None = None
    """(1,), nonzero if the unit makes a step; None: it always does."""


class WindowEncoder(Encoder):
    """The unit reads the last C numbers, standardised: C = I, one row per piece.

    A sequence is a line of numbers, preceded by zeros, and a frame is the next F of them. For music
    C = F = 88: the unit reads the previous frame.
    """

    def __init__(
        self, context: int, *, mean: float = 0.0, deviation: float = 1.0, sparse: bool = False
    ) -> None:
        self.input_size, self.sparse = context, sparse
        self.mean, self.deviation = mean, deviation

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition) -> Self:
        sparse = frame.values == "binary"
        return cls(frame.context, mean=frame.mean, deviation=frame.deviation, sparse=sparse)

    def start(self, like: Tensor, batch_size: int) -> Past:
        return Past(like.new_zeros(batch_size, self.input_size))

    def encode(self, frames: Tensor, past: Past, lengths: Tensor | None = None) -> Encoded:
        """See `Encoder`. Returns views of one line where possible."""
        with one_thread():
            frames, before, last = append_frames(frames, past.numbers)
        return Encoded(self.scaled(before), None, frames, before, Past(last))

    def scaled(self, numbers: Tensor) -> Tensor:
        """See `Encoder`: standardised."""
        if self.mean == 0 and self.deviation == 1:
            return numbers
        return (numbers - self.mean) / self.deviation

    def compiled(self, arena: Arena) -> CompiledInputs:
        x = arena.take(self.input_size)
        return CompiledInputs(x, x, [])


def append_frames(frames: Tensor, past: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Append frames (T, B, F) to the past (B, C) in one line, in the past's dtype.

    Returns the frames and, as views of the line, the C numbers before each frame (T, B, C) and the
    last C overall (B, C).
    """
    (T, B, F), C = frames.shape, past.shape[1]
    if C == F:
        steps = past.new_empty(T + 1, B, F)
        steps[0], steps[1:] = past, frames
        return steps[1:], steps[:-1], steps[-1]
    frames = frames.to(past)
    line = torch.cat([past, frames.transpose(0, 1).reshape(B, T * F)], 1)
    return frames, line.unfold(1, C, F)[:, :T].transpose(0, 1), line[:, T * F :]
