"""What the tied model's unit reads: the past as each note hears it."""

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodel.kernels import device
from seqmodel.kernels.device import one_thread
from seqmodel.model.echo import echo_inputs, echo_size, followed, remember, start_memory
from seqmodel.model.encoder import CompiledInputs, Encoded, Inputs, Past

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

    With `echo` the unit and the output also read what followed when the piece was last as it is
    now, see `model.echo`: the memory holds all frames but the last, which are the numbers.
    """

    binary = False

    def __init__(self, notes: int, *, onsets: bool = False, echo: bool = False) -> None:
        self.rows, self.onsets, self.echo = notes, onsets, echo
        self.beside_size = echo_size(onsets=onsets) if echo else 0
        self.input_size = heard_size(onsets=onsets) + self.beside_size
        self._frame_size = 2 * notes if onsets else notes

    def start(self, like: Tensor, batch_size: int) -> Past:
        """See `Encoder`."""
        numbers = like.new_zeros(batch_size, self._frame_size)
        if not self.echo:
            return Past(numbers)
        return Past(numbers, start_memory(batch_size, self._frame_size, like.device))

    def encode(self, frames: Tensor, past: Past) -> Encoded:
        """See `Encoder`."""
        T, B, C = frames.shape
        with one_thread():
            steps = past.numbers.new_empty(T + 1, B, C)
            steps[0], steps[1:] = past.numbers, frames
        before = steps[:-1]
        x, memory = self._read(before, past.memory)
        beside = x[..., -self.beside_size :] if self.echo else None
        return Encoded(x, beside, steps[1:], before, Past(steps[-1], memory))

    def inputs(self, past: Past) -> Inputs:
        """See `Encoder`."""
        x, _ = self._read(past.numbers.unsqueeze(0), past.memory)
        return Inputs(x[0], x[0, :, -self.beside_size :] if self.echo else None)

    def append(self, past: Past, frame: Tensor) -> Past:
        """See `Encoder`."""
        return Past(frame, None if past.memory is None else remember(past.memory, past.numbers))

    def kept(self, numbers: Tensor) -> Tensor:
        """See `Encoder`."""
        return numbers

    def compiled(self, arena: "Arena") -> CompiledInputs:
        """See `Encoder`."""
        from seqmodel.model.note_inputs import inputs_call  # the compiler loads at first use

        return inputs_call(self.rows, arena, onsets=self.onsets, echo=self.echo)

    def _read(self, heard: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The unit inputs (T, B D, I) for the frames after `heard` (T, B, C), and the memory."""
        T, B, C = heard.shape
        if device.why_not([heard]) is not None:
            x = heard_inputs(heard.reshape(T * B, C), onsets=self.onsets)
            if memory is not None:
                told, memory = plain_echoes(heard, memory, onsets=self.onsets)
                x = torch.cat([x, told.to(x)], 1)
        else:
            from seqmodel.model.note_inputs import compiled_inputs  # as above

            x, memory = compiled_inputs(heard, memory, onsets=self.onsets)
        return x.view(T, B * self.rows, self.input_size), memory


def heard_size(*, onsets: bool) -> int:
    """The numbers that a note hears of the frame before, and of its pitch."""
    return HEARD + PITCH + (WINDOW if onsets else 0)


def plain_echoes(heard: Tensor, memory: Tensor, *, onsets: bool) -> tuple[Tensor, Tensor]:
    """`echo_inputs` (T B D, E) after each of frames `heard` (T, B, C), and the memory then."""
    told = []
    for frame in heard:
        memory = remember(memory, frame)
        told.append(echo_inputs(*followed(memory, heard.shape[2]), onsets=onsets))
    return torch.cat(told), memory


def heard_inputs(past: Tensor, *, onsets: bool = False) -> Tensor:
    """What notes hear (N D, heard_size) after the frames `past` (N, C); see `NoteEncoder`."""
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
