"""Nats and bits per sample, of the probabilities of 16-bit levels."""

import math
from collections.abc import Mapping

from seqmodel.outputs.protocol import Window


class LevelFigures:
    """Figures of probabilities, which follow from the nats."""

    def __init__(self, frame_size: int) -> None:
        self._frame_size = frame_size

    def add(self, window: Window) -> None:
        """Does nothing: the nats suffice."""

    def values(self, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """The figures by name."""
        per_sample = nats / (frames * self._frame_size)
        return {"nats_per_sample": per_sample, "bits_per_sample": per_sample / math.log(2)}


def describe(figures: Mapping[str, float]) -> list[str]:
    """The figures as lines of text."""
    return [
        f"nats per sample          {figures['nats_per_sample']:9.4f}",
        f"bits per sample          {figures['bits_per_sample']:9.4f}",
        "  of 16-bit levels, so figures compare whatever the scaling",
    ]
