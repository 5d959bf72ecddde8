"""What holds for audio where no option says otherwise."""

FRAME_SIZE = 10
CONTEXT = 20
"""In samples, as in Chung et al. 2014."""

SECONDS = 2.0
"""Of a sampled piece."""
