"""What the unit reads: frames and the numbers before them, as unit inputs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from seqmodel.kernels.device import one_thread

if TYPE_CHECKING:
    from seqmodel.kernels.run.calls import Arena, Call, Slot


class Past(NamedTuple):
    """All that an encoder keeps of the frames before."""

    numbers: Tensor
    """(B, C), which outputs see too."""
    memory: Tensor | None = None
    """(B, K) what else an encoder remembers, of a type of its own."""


class Inputs(NamedTuple):
    """What is read before a frame."""

    x: Tensor
    """(B R, I), by the unit."""
    beside: Tensor | None = None
    """(B R, E), by the output beside each row of h."""


class Encoded(NamedTuple):
    """Frames ready for the unit and for the output."""

    inputs: Tensor
    """(T, B R, I): what the unit reads before each frame."""
    beside: Tensor | None
    """(T, B R, E): what the output reads beside h, if anything."""
    frames: Tensor
    """(T, B, F), in the model's type."""
    past: Tensor
    """(T, B, C): the numbers before each frame."""
    last: Past
    """That before the frame that follows."""


class Encoder(Protocol):
    """Turns the past into unit inputs, and keeps as much of it as that takes.

    A model may run several unit rows for each piece, such as one per note: the inputs, and with
    them h and the unit's state, then have B R rows, those of a piece side by side.

    Attributes:
        input_size: I, the size of a unit row's input.
        beside_size: E, the numbers that the output reads beside each row of h.
        rows: R, the number of unit rows for each piece.
        binary: whether inputs are zeros and ones, which may be read as a sparse set.
    """

    input_size: int
    beside_size: int
    rows: int
    binary: bool

    def start(self, like: Tensor, batch_size: int) -> Past:
        """The past before the first frame: zeros, the numbers of the type and device of `like`."""

    def encode(self, frames: Tensor, past: Past) -> Encoded:
        """Encode frames (T, B, F), of any type of number, that follow `past`."""

    def inputs(self, past: Past) -> Inputs:
        """What is read before the frame that follows `past`."""

    def append(self, past: Past, frame: Tensor) -> Past:
        """The past once `frame` (B, F) is part of it."""

    def kept(self, numbers: Tensor) -> Tensor:
        """What compiled sampling keeps of numbers (B, C), in the form that a draw leaves it."""

    def compiled(self, arena: "Arena") -> "CompiledInputs":
        """What turns that into the unit inputs in compiled code, for one piece."""


class CompiledInputs(NamedTuple):
    """The compiled form of `Encoder.inputs`."""

    kept: "Slot"
    """(C,), which a draw updates; see `Encoder.kept`."""
    x: "Slot"
    """(I,), or (R, I): what the unit reads, the last E of which the output reads beside h."""
    calls: "Sequence[Call]"
    """What computes x; none where it is the same as `kept`."""
    memory: "Slot | None" = None
    """(1, K), as in `Past`."""


class WindowEncoder:
    """The unit reads the last C numbers, standardised: C = I, one row per piece.

    A sequence is a line of numbers, and a frame the next F of it; the line begins after zeros. For
    music C = F = 88: the unit reads the frame before.
    """

    rows, beside_size = 1, 0

    def __init__(
        self, context: int, *, mean: float = 0.0, deviation: float = 1.0, binary: bool = False
    ) -> None:
        self.input_size, self.binary = context, binary
        self.mean, self.deviation = mean, deviation

    def start(self, like: Tensor, batch_size: int) -> Past:
        """See `Encoder`."""
        return Past(like.new_zeros(batch_size, self.input_size))

    def encode(self, frames: Tensor, past: Past) -> Encoded:
        """See `Encoder`. What comes back are views of one line wherever that can be."""
        with one_thread():
            frames, before, last = _in_line(frames, past.numbers)
        return Encoded(self.kept(before), None, frames, before, Past(last))

    def inputs(self, past: Past) -> Inputs:
        """See `Encoder`."""
        return Inputs(self.kept(past.numbers))

    def append(self, past: Past, frame: Tensor) -> Past:
        """See `Encoder`."""
        return Past(torch.cat([past.numbers, frame], 1)[:, -self.input_size :])

    def kept(self, numbers: Tensor) -> Tensor:
        """See `Encoder`: standardised."""
        if self.mean == 0 and self.deviation == 1:
            return numbers
        return (numbers - self.mean) / self.deviation

    def compiled(self, arena: "Arena") -> CompiledInputs:
        """See `Encoder`."""
        x = arena.take(self.input_size)
        return CompiledInputs(x, x, [])


def _in_line(frames: Tensor, past: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Frames (T, B, F) in line behind the past (B, C), in its type.

    Returns the frames, and as views of the line the C numbers before each (T, B, C) and the last
    C of all (B, C).
    """
    (T, B, F), C = frames.shape, past.shape[1]
    if C == F:
        steps = past.new_empty(T + 1, B, F)
        steps[0], steps[1:] = past, frames
        return steps[1:], steps[:-1], steps[-1]
    frames = frames.to(past)
    line = torch.cat([past, frames.transpose(0, 1).reshape(B, T * F)], 1)
    return frames, line.unfold(1, C, F)[:, :T].transpose(0, 1), line[:, T * F :]
