"""What the tied model's unit reads: the past as each note hears it."""

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodel.kernels import device
from seqmodel.kernels.device import one_thread
from seqmodel.model.encoder import CompiledInputs, Encoded

if TYPE_CHECKING:
    from seqmodel.kernels.run.calls import Arena

REACH = 12
"""Semitones that a note hears on either side, one by one; also the classes of pitch."""
WINDOW = 2 * REACH + 1
HEARD = WINDOW + REACH + 1
"""Numbers that a note hears of a frame: a window, classes of pitch, and a count."""
BUMPS = 8
"""Smooth functions of absolute pitch."""
PITCH = BUMPS + REACH
"""Numbers that tell a note its absolute pitch: those, and its class."""


class NoteEncoder:
    """One unit row per note, with the same weights for all: R = D notes, C = F.

    The inputs of note n, after Johnson (2017), "Generating polyphonic music using tied parallel
    networks": which of the notes n - 12 to n + 12 sounded in the frame before; how many notes of
    each pitch class did, counted from n; how many in all, over 12; and its absolute pitch, as
    smooth functions of n and as one of 12 classes. With `onsets` (see `outputs.shared.onsets`) also
    which of the notes n - 12 to n + 12 were struck. But for absolute pitch, transposed music is
    thus read as the same inputs, rows further up.
    """

    binary = False

    def __init__(self, notes: int, *, onsets: bool = False) -> None:
        self.rows, self.onsets = notes, onsets
        self.input_size = input_size(onsets=onsets)
        self._frame_size = 2 * notes if onsets else notes

    def start(self, like: Tensor, batch_size: int) -> Tensor:
        """See `Encoder`."""
        return like.new_zeros(batch_size, self._frame_size)

    def encode(self, frames: Tensor, past: Tensor) -> Encoded:
        """See `Encoder`."""
        T, B, C = frames.shape
        with one_thread():
            steps = past.new_empty(T + 1, B, C)
            steps[0], steps[1:] = past, frames
        before = steps[:-1]
        inputs = self.inputs(before.view(T * B, C)).view(T, B * self.rows, self.input_size)
        return Encoded(inputs, steps[1:], before, steps[-1])

    def inputs(self, past: Tensor) -> Tensor:
        """See `Encoder`."""
        if device.why_not([past]) is not None:
            return heard_inputs(past, onsets=self.onsets)
        from seqmodel.model.note_inputs import compiled_inputs  # the compiler loads at first use

        return compiled_inputs(past, onsets=self.onsets)

    def append(self, past: Tensor, frame: Tensor) -> Tensor:
        """See `Encoder`."""
        return frame

    def kept(self, past: Tensor) -> Tensor:
        """See `Encoder`."""
        return past

    def compiled(self, arena: "Arena") -> CompiledInputs:
        """See `Encoder`."""
        from seqmodel.model.note_inputs import inputs_call  # as above

        return inputs_call(self.rows, arena, onsets=self.onsets)


def input_size(*, onsets: bool) -> int:
    """I, the numbers that a note reads."""
    return HEARD + PITCH + (WINDOW if onsets else 0)


def heard_inputs(past: Tensor, *, onsets: bool = False) -> Tensor:
    """The unit inputs (N D, I) for the frames after `past` (N, C); see `NoteEncoder`."""
    sounding = past.chunk(2, 1)[0] if onsets else past
    N, D = sounding.shape
    octaves = -(-D // REACH)
    classes = F.pad(sounding, (0, octaves * REACH - D)).view(N, octaves, REACH).sum(1)
    from_note = (torch.arange(D).unsqueeze(1) + torch.arange(REACH)) % REACH
    count = sounding.sum(1).div(REACH).view(N, 1, 1).expand(N, D, 1)
    pitch = absolute_pitch(D).to(past).expand(N, D, PITCH)
    parts = [_window(sounding), classes[:, from_note.to(past.device)], count, pitch]
    if onsets:
        parts.append(_window(past.chunk(2, 1)[1]))
    return torch.cat(parts, 2).view(N * D, -1)


def _window(notes: Tensor) -> Tensor:
    """Of notes (N, D) those around each: (N, D, WINDOW)."""
    return F.pad(notes, (REACH, REACH)).unfold(1, WINDOW, 1)


@cache
def absolute_pitch(notes: int) -> Tensor:
    """(D, PITCH): bell curves over the notes, as far apart as they are wide, then pitch classes."""
    note = torch.arange(notes).unsqueeze(1)
    centres = torch.linspace(0, notes - 1, BUMPS, dtype=torch.float64)
    bumps = torch.exp(-0.5 * ((note - centres) * (BUMPS / notes)) ** 2)
    return torch.cat([bumps, (note % REACH == torch.arange(REACH)).double()], 1)
