"""Frames that distinguish struck from held notes: (T, 176), which sound, then which begin.

A note that begins also sounds, and one that sounds after silence begins. Before the first frame
there is silence. Frames without onsets, (T, 88), are the first half alone.
"""

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.grid import NOTES

OFF, STRUCK, HELD = 0, 1, 2
"""The states of a note, in .npy files (T, 88)."""


def has_onsets(frames: NDArray[np.uint8]) -> bool:
    """Whether frames are (T, 176), not (T, 88)."""
    width: int = frames.shape[1]
    return width == 2 * NOTES


def sounding(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The piano-roll (T, 88), a view."""
    return frames[:, :NOTES]


def struck(frames: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which notes begin (T, 88); without onsets, those that sound after silence."""
    if has_onsets(frames):
        return frames[:, NOTES:] > 0
    return (frames > 0) & ~sounded(frames)


def sounded(frames: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which notes sound in the previous frame (T, 88)."""
    before = np.zeros((len(frames), NOTES), np.bool_)
    before[1:] = sounding(frames)[:-1]
    return before


def with_onsets(roll: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The roll (T, 88) as frames (T, 176) in which a note that continues to sound is held."""
    return np.concatenate([roll, struck(roll).astype(np.uint8)], axis=1)


def after_silence(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Frames (T, 176) cut from their past: notes held into the first one begin there."""
    begun = frames.copy()
    begun[:1, NOTES:] = begun[:1, :NOTES]
    return begun


def possible(frames: NDArray[np.uint8]) -> bool:
    """Whether only sounding notes of frames (T, 176) begin, and all notes after silence do."""
    roll, begins = sounding(frames) > 0, struck(frames)
    return not (begins & ~roll).any() and not (roll & ~sounded(frames) & ~begins).any()


def states(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Frames (T, 176) as states (T, 88): 0 off, 1 struck, 2 held."""
    return np.where(struck(frames), STRUCK, HELD * sounding(frames)).astype(np.uint8)


def from_states(states: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The inverse of `states`."""
    return np.concatenate([states != OFF, states == STRUCK], axis=1).astype(np.uint8)
