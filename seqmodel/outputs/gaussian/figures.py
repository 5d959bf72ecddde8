"""Nats per sample, and the share of samples whose density is decided by the scale's floor."""

import math
from collections.abc import Callable, Mapping

from torch import Tensor

from seqmodel.outputs.protocol import Window


class DensityFigures:
    """Figures of densities of samples.

    `floor_share` maps a window to the share, in each of its frames, of samples whose density the
    floor decides, not the model.
    """

    def __init__(self, floor_share: Callable[[Window], Tensor], frame_size: int) -> None:
        self._floor_share, self._frame_size = floor_share, frame_size
        self._at_floor = 0.0

    def add(self, window: Window) -> None:
        """Add the frames of a window."""
        share = self._floor_share(window)
        self._at_floor += float(share.double()[window.inside].sum())

    def values(self, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """The figures by name."""
        return {
            "nats_per_sample": nats / (frames * self._frame_size),
            "floor_share": self._at_floor / frames,
        }


def describe(figures: Mapping[str, float], mean: float, deviation: float) -> list[str]:
    """The figures as lines of text, and what the densities refer to."""
    more = math.log(deviation)
    return [
        f"nats per sample          {figures['nats_per_sample']:9.4f}",
        f"samples at the floor     {figures['floor_share']:9.4f}",
        f"  densities of (sample - {mean:.3g}) / {deviation:.3g}; add {more:.4f} nats",
        "  per sample for those of samples in [-1, 1)",
    ]
