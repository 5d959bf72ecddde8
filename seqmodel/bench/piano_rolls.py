"""The whole model's training step on piano-rolls, against the same model built from torch.nn."""

from typing import Any

import numpy as np
import torch

from seqmodel.bench import music, peers
from seqmodel.bench.clock import Contender, ratio, take_turns
from seqmodel.bench.steps import forget_gradients, model_gradient
from seqmodel.media.music.grid import NOTES
from seqmodel.units import unit_spec

BATCH, FRAMES = 16, 200


def measure_piano_rolls(unit: str, seconds: float) -> dict[str, Any]:
    """Time forward, loss and backward to all weights; the input is data and gets no gradient."""
    frames, lengths = music.piano_rolls(FRAMES, BATCH), np.full(BATCH, FRAMES)
    ours, hidden = music.music_model(unit), music.paper_hidden(unit)
    stored = frames.to(torch.uint8)  # as in training batches
    theirs = peers.PeerModel(unit_spec(unit), NOTES, hidden)

    our_weights, their_weights = list(ours.parameters()), list(theirs.parameters())

    def their_step() -> None:
        forget_gradients(their_weights)
        theirs(frames).backward()

    taken = take_turns(
        {
            "ours": Contender(lambda: model_gradient(ours, our_weights, stored, lengths)),
            "torch_nn": Contender(their_step),
        },
        seconds,
    )
    return {
        "unit": unit,
        "hidden": hidden,
        "batch": BATCH,
        "frames": FRAMES,
        "notes": NOTES,
        "notes_on": music.NOTES_ON,
        "timings": {name: timing.to_json() for name, timing in taken.items()},
        "over_torch_nn": ratio(taken["torch_nn"], taken["ours"]),
    }
