"""What a model draws freely after an epoch, for its encoder to correct itself by."""

import math
from collections.abc import Callable

import numpy as np

from seqmodel.model.sequence import SequenceModel
from seqmodel.sampling.sampler import Sampler


def run_free(model: SequenceModel, seed: int, epoch: int, drawn: Callable[[], None]) -> None:
    """Let the encoder correct by as many frames as it asks for, if any; see `Encoder.correct`.

    They are a function of the model, the seed and the epoch. `drawn` is called after every few.
    Models whose backend has no compiled steps would take hours: they are left as they are.
    """
    frames = model.encoder.free_frames
    sampler = Sampler(model) if frames else None
    if sampler is None or not sampler.is_compiled:
        return
    chunks = []
    for chunk in sampler.piece(frames, seed=seed, number=epoch, shortest=math.inf):
        chunks.append(chunk)
        drawn()
    model.encoder.correct(np.concatenate(chunks))
