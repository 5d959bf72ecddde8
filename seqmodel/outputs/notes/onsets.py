"""Frames with onsets: F = 2N numbers, which of N notes sound and which of these are struck.

A struck bit is free only where its note sounds now and did in the previous frame. Elsewhere it is
determined, since a note that sounds after silence is struck and a silent one is not: it then equals
the sounding bit and costs nothing. An output over such frames is an output over the piano roll and,
for each free struck bit, a Bernoulli; -log p is that of each note being off, struck or held.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from seqmodel.data.dataset import Split


def needed(past: Tensor | None) -> Tensor:
    """The previous frames; ValueError if None, since they decide which struck bits are free."""
    if past is None:
        raise ValueError("frames with onsets are scored and drawn given the frames before")
    return past


def free(frames: Tensor, past: Tensor) -> Tensor:
    """Which struck bits of frames (..., 2N) are free given the previous ones: booleans (..., N)."""
    N = frames.shape[-1] // 2
    return (frames[..., :N] > 0) & (past[..., :N] > 0)


def struck_nats(nats: Tensor, frames: Tensor, past: Tensor) -> Tensor:
    """What struck bits cost (..., N), given what they would cost if all were free (..., N).

    A determined bit costs nothing where it has its value; an impossible frame costs infinity.
    """
    sounding, struck = frames.chunk(2, -1)
    determined = torch.where(struck == sounding, 0.0, math.inf).to(nats)
    return torch.where(free(frames, past), nats, determined)


def onset_nats(logits: Tensor, frames: Tensor, past: Tensor) -> Tensor:
    """The part of the nats of frames (..., 2N) due to strikes (...), given all logits."""
    strikes, struck = logits.chunk(2, -1)[1], frames.chunk(2, -1)[1]
    nats = F.binary_cross_entropy_with_logits(strikes, struck, reduction="none")
    return struck_nats(nats, frames, past).sum(-1)


def as_drawn(drawn: Tensor, past: Tensor) -> Tensor:
    """Set the determined struck bits of frames (..., 2N) that were drawn as if all were free."""
    sounding, struck = drawn.chunk(2, -1)
    return torch.cat([sounding, torch.where(free(drawn, past), struck, sounding)], -1)


def restrikes(train: Split) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How often each note was struck while it sounded (N,), and how often it could have been."""
    N = train.frame.frame_size // 2
    struck, chances = np.zeros(N, np.int64), np.zeros(N, np.int64)
    for piece in train:
        frames = torch.from_numpy(piece)
        again = free(frames[1:], frames[:-1])
        struck += (again & (frames[1:, N:] > 0)).sum(0).numpy()
        chances += again.sum(0).numpy()
    return struck, chances
