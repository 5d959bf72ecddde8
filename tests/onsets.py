"""Frames with onsets for tests: each note is off, struck or held, by the rule as stated."""

import numpy as np

from seqmodel.media.marks import MARKS

OFF, STRUCK, HELD = 0, 1, 2


def random_states(seed, *shape, density=0.5):
    """States (T, ..., N): a note is off or struck after off; after sounding it may also be held."""
    random = np.random.default_rng(seed)
    drawn = np.where(random.random(shape) < density, random.integers(1, 3, shape), OFF)
    states = np.zeros(shape, np.uint8)
    for t in range(len(states)):
        before = states[t - 1] if t else np.zeros(shape[1:], np.uint8)
        states[t] = np.where((before == OFF) & (drawn[t] == HELD), STRUCK, drawn[t])
    return states


def as_frames(states):
    """States (..., N) as frames (..., 2N): what sounds, then what is struck."""
    return np.concatenate([states != OFF, states == STRUCK], -1).astype(np.uint8)


def marked(frames, **marks):
    """Frames (T, 176) with these marks (T, 88) as they are drawn and written; others are 0."""
    known = [marks.get(name, np.zeros((len(frames), 88))) for name in MARKS]
    return np.concatenate([frames, *known], axis=1).astype(np.uint8)


def restrikes(pieces):
    """How often each note was struck again while it sounded (88,), and how often it could be."""
    again, could = np.zeros((2, 88), int)
    for frames in pieces:
        for t, note in np.argwhere(frames[1:, :88] & frames[:-1, :88]):
            again[note] += frames[t + 1, 88 + note]
            could[note] += 1
    return again, could
