"""Default option values for audio."""

FRAME_SIZE = 10
CONTEXT = 20
"""In samples, as in Chung et al. 2014."""

CLIP_SECONDS = 8.0
"""The pieces that longer recordings are cut into, as in Mehri et al. 2017, SampleRNN."""

SECONDS = 2.0
"""The length of a sampled piece."""
