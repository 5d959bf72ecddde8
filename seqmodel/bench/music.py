"""What the parts on music share: the paper's models, and piano-rolls as sparse as real music."""

import math

import torch
from torch import Tensor

from seqmodel.config import resolve
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import NOTES, Grid
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.sequence import SequenceModel

ROLLS = PianoRollFrames(Grid.of_beats(4))
NOTES_ON = 4
"""Notes per frame."""
START = math.log(NOTES_ON / (NOTES - NOTES_ON))
"""The logit of a note at that density."""


def paper_hidden(unit: str) -> int:
    """H of the unit in the paper's experiments on music; for other units, H of the same budget."""
    hidden = with_sizes(resolve({"preset": "paper", "unit": unit}), ROLLS).hidden
    assert hidden is not None
    return hidden


def music_model(unit: str) -> SequenceModel:
    """The paper's model of the unit, its output initialised to the frequency of the notes."""
    config = resolve({"unit": unit, "hidden": paper_hidden(unit), "dropout": 0.0})
    model = build_model(config, ROLLS)
    torch.nn.init.constant_(model.output.get_parameter("linear.bias"), START)
    return model


def piano_rolls(frames: int, batch: int) -> Tensor:
    """Frames (T, B, D), each with `NOTES_ON` random notes sounding."""
    places = torch.rand(frames, batch, NOTES).topk(NOTES_ON).indices
    return torch.zeros(frames, batch, NOTES).scatter(2, places, 1.0)
