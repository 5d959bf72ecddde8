"""The figures of outputs that give probabilities of levels."""

import math
from collections.abc import Mapping

from seqmodel.outputs.ends import END_LABELS
from seqmodel.outputs.protocol import NoFigures, Sums, labelled


class LevelFigures(NoFigures):
    """Nats and bits per sample, of the probabilities of levels: they follow from the nats."""

    def __init__(self, frame_size: int) -> None:
        self._frame_size = frame_size

    def values(self, sums: Sums, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """The figures by name."""
        per_sample = nats / (frames * self._frame_size)
        return {"nats_per_sample": per_sample, "bits_per_sample": per_sample / math.log(2)}


def describe_levels(figures: Mapping[str, float]) -> list[str]:
    """The figures as `Output.describe` gives them."""
    labels = {"nats_per_sample": "nats per sample", "bits_per_sample": "bits per sample"}
    return [
        *labelled(figures, labels),
        "  of 16-bit levels, so figures compare whatever the scaling",
        *labelled(figures, END_LABELS),
    ]
