"""The compiled loop that sets the frames of notes."""

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.compiled import compiled


@compiled
def fill(
    roll: NDArray[np.uint8],
    row: NDArray[np.int64],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
) -> None:
    """Set roll[row, begin:end] (88, T) to 1 for every note."""
    for note in range(len(row)):
        for frame in range(begin[note], end[note]):
            roll[row[note], frame] = 1
