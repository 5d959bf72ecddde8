"""A note's inputs from the notes below it in its own frame."""

import torch
from torch import Tensor

REACH = 12
"""Notes just below that a note sees individually; also the number of pitch classes."""


def below_size(*, onsets: bool) -> int:
    """How many inputs `notes_below` gives each note."""
    return (3 if onsets else 2) * REACH + 1


def notes_below(frames: Tensor, *, onsets: bool = False) -> Tensor:
    """Each note's inputs from the notes below it in its frame: (N, F) -> (D, N, below_size).

    For note n, input k of the first 12 is note n - 12 + k, input k of the next 12 counts the
    sounding notes below n of that note's pitch class, then comes the number of all sounding notes
    below n, divided by 12; with `onsets`, whether note n - 12 + k is struck.
    """
    sounding = frames.chunk(2, 1)[0] if onsets else frames
    N, D = sounding.shape
    octaves = -(-D // REACH)
    below = _below(sounding, octaves)
    # The window is as wide as an octave: a count is the sum of windows at n, n - 12, n - 24, ...
    classes = below.reshape(octaves, REACH, N, REACH).cumsum(0).view(-1, N, REACH)[:D]
    count = (sounding.cumsum(1) - sounding).t().unsqueeze(2) / REACH
    parts = [below[:D], classes, count]
    if onsets:
        parts.append(_below(frames.chunk(2, 1)[1], octaves)[:D])
    return torch.cat(parts, 2)


def _below(notes: Tensor, octaves: int) -> Tensor:
    """The 12 notes below each of notes (N, D), padded with silent notes to `octaves` octaves."""
    N, D = notes.shape
    line = notes.new_zeros(REACH + octaves * REACH, N)
    line[REACH : REACH + D] = notes.t()
    return line[:-1].unfold(0, REACH, 1)
