"""Default option values for audio."""

FRAME_SIZE = 10
CONTEXT = 20
"""In samples, as in Chung et al. 2014."""

SECONDS = 2.0
"""The length of a sampled piece."""
