"""The inputs of each note, in plain PyTorch: the specification of `note_inputs`."""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from seqmodel.model.echo import echo_inputs, followed, remember

REACH = 12
"""Semitones that a note reads one by one on either side; also the number of pitch classes."""
WINDOW = 2 * REACH + 1
HEARD = WINDOW + REACH + 1
"""Numbers that a note reads from a frame: a window, pitch classes, and a count."""
BUMPS = 8
"""The number of smooth functions of absolute pitch."""
PITCH = BUMPS + REACH
"""Numbers that encode the absolute pitch of a note: these functions, and its class."""


def heard_size(*, onsets: bool) -> int:
    """The number of inputs of a note from the previous frame and from its pitch."""
    return HEARD + PITCH + (WINDOW if onsets else 0)


def plain_echoes(heard: Tensor, memory: Tensor, *, onsets: bool) -> tuple[Tensor, Tensor]:
    """`echo_inputs` (T B D, E) after each frame of `heard` (T, B, C), and the memory at the end."""
    told = []
    for frame in heard:
        memory = remember(memory, frame)
        told.append(echo_inputs(*followed(memory, heard.shape[2]), onsets=onsets))
    return torch.cat(told), memory


def heard_inputs(past: Tensor, *, onsets: bool = False) -> Tensor:
    """The inputs of notes (N D, heard_size) after frames `past` (N, C); see `NoteEncoder`."""
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
    """The notes around each of `notes` (N, D): (N, D, WINDOW)."""
    return F.pad(notes, (REACH, REACH)).unfold(1, WINDOW, 1)


@cache
def absolute_pitch(notes: int) -> Tensor:
    """(D, PITCH): bell curves over the notes, as far apart as they are wide, then pitch classes."""
    note = torch.arange(notes).unsqueeze(1)
    centres = torch.linspace(0, notes - 1, BUMPS, dtype=torch.float64)
    bumps = torch.exp(-0.5 * ((note - centres) * (BUMPS / notes)) ** 2)
    return torch.cat([bumps, (note % REACH == torch.arange(REACH)).double()], 1)
