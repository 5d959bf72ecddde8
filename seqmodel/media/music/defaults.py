"""Default option values for music."""

STEPS_PER_BEAT = 4
PUBLISHED_STEPS_PER_BEAT = 2
"""The published rolls of Boulanger-Lewandowski et al. 2012 are in eighth notes."""

LENGTH = 256
"""Frames in a sampled piece."""

PARTICLES, SWEEPS = 64, 2
"""See `sampling.filling`; chosen by the figures in its README."""

TEMPO = 120.0
"""Beats per minute."""
