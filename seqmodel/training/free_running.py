"""What a model draws freely after an epoch, for its encoder to correct itself by."""

import math
from collections.abc import Callable

import numpy as np

from seqmodel.data.dataset import Split
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.model.sequence import SequenceModel
from seqmodel.sampling.sampler import Sampler

SCORED_PIECES, SCORED = 64, 2**19
"""Of train, at even steps through it: how many, and about how many of their first unit steps."""


def run_free(
    model: SequenceModel, train: Split, seed: int, epoch: int, drawn: Callable[[], None]
) -> None:
    """Let the encoder correct itself by what the model draws, if it does; see `Encoder.correct`.

    What is drawn is a function of the model, the seed and the epoch. `drawn` is called after every
    few frames. Models whose backend has no compiled steps would take hours: they draw nothing.
    """
    frames = model.encoder.free_frames
    if frames is None:
        return
    sampler, chunks = Sampler(model), []
    if frames and sampler.is_compiled:
        for chunk in sampler.piece(frames, seed=seed, number=epoch, shortest=math.inf):
            chunks.append(chunk)
            drawn()
    some = train.beginnings(SCORED_PIECES, -(-SCORED // model.encoder.steps))
    free = np.concatenate(chunks) if chunks else None
    model.encoder.correct(free, lambda: likelihood(model, some).nats_per_frame)
