"""How likely a model finds pieces, whole, with their ends."""

import torch


def frame_and_end_nats(model, frames, ended):
    """-log p (T, N) of frames (T, N, F), and of pieces going on, or having ended (N,) at the last.

    The second are 0 if the model does not predict ends.
    """
    last = torch.zeros(frames.shape[:2], dtype=torch.float64)
    last[-1] = torch.as_tensor(ended, dtype=torch.float64)
    with torch.no_grad():
        read = model.read(frames, model.start(frames.shape[1]))
        nats = model.output.score(read.h, read.frames, read.past)
        ends = model.output.end_score(read.h, last) if model.output.end else 0 * nats
    return nats, ends
