"""Where training starts: outputs that already know how the data are spread."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from seqmodel.data.dataset import Split
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs import BernoulliOutput, GaussianMixtureOutput

# Frames of audio that are looked at, evenly from all pieces.
FRAMES = 20_000


def start_at_data(model: SequenceModel, train: Split) -> None:
    """Let the model's output start at the marginals of the training data, or near them."""
    output = model.output
    if isinstance(output, BernoulliOutput):
        output.start_at_marginals(train.totals(), train.frames, len(train))
        return
    if isinstance(output, GaussianMixtureOutput):
        output.start_at_data(_windows(train, 0))
        return
    context = output.context
    windows = _windows(train, context)
    output.start_at_data(windows[:, :context], windows[:, context])


def _windows(train: Split, context: int) -> NDArray[np.float32]:
    """Frames, each behind the `context` samples before it: (N, context + frame_size)."""
    frame_size = train.frame.frame_size
    stride = max(1, train.frames // FRAMES)
    found, skip = [], 0
    for piece in train:
        line = np.concatenate([np.zeros(context, np.float32), piece.ravel()])
        windows = sliding_window_view(line, context + frame_size)[::frame_size]
        found.append(windows[skip::stride].copy())
        skip = (skip - len(windows)) % stride
    return np.concatenate(found)
