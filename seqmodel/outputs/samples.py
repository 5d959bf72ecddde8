"""Shared by outputs over samples: levels, start, figures.

Raw samples are in [-1, 1); 16-bit ones are integer multiples of `LEVEL_STEP`, their levels.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor, nn

from seqmodel.config import Config
from seqmodel.data.dataset import Split
from seqmodel.errors import UsageError
from seqmodel.media.definitions import FrameDefinition
from seqmodel.outputs.protocol import Output, Sums, figure_lines, log_odds

LOWEST, HIGHEST, LEVELS = -32768, 32767, 65536
LEVEL_STEP = 1 / 32768
UNIFORM = 2.0**-40
"""The share of a distribution over levels that is spread evenly over all of them."""
MIN_FINE = 2.0**-20
"""The least weight of single levels beside a coarser grid."""
MIN_UNIFORM = 2.0**-54
"""Replaces a uniform of 0 when it makes noise: half the smallest positive one."""
LABELS = {"nats_per_sample": "nats per sample", "bits_per_sample": "bits per sample"}
# An output finds its start from at least this many frames, if available, evenly from all pieces.
_START_FRAMES = 20_000


class SampleBlocksOutput(Output):
    """An output over blocks of F raw samples in [-1, 1), given the C samples before them.

    It computes with z = (x - mean) / deviation, the mean and deviation of the training samples.

    Attributes:
        labels: those of its figures, as `describe` prints them.
        remarks: what these refer to, line by line.
        floor: the smallest scale of a component, standardised.
        steps: how many blocks a frame has.
        ending: the layer that gives the logit of the end from h, if any.
    """

    frame_type = np.float32
    labels: Mapping[str, str] = LABELS
    remarks: Sequence[str] = ("  of 16-bit levels, so figures compare whatever the scaling",)
    steps = 1
    floor: float
    linear: nn.Linear

    def __init__(
        self,
        hidden_size: int,
        frame_size: int,
        components: int,
        *,
        mean: float,
        deviation: float,
        context: int,
    ) -> None:
        """`components` is the number of the mixture's components, `context` is C."""
        super().__init__()
        self.frame_size, self.components, self.context = frame_size, components, context
        self.mean, self.deviation = mean, deviation
        self.ending: nn.Linear | None = None
        self.make_layers(hidden_size)

    @abstractmethod
    def make_layers(self, hidden_size: int) -> None:
        """Set `floor`, `uniforms_per_frame`, `linear` and whatever else reads h (..., H)."""

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition, h_size: int) -> Self:
        if config.end:
            raise UsageError(f"--end for audio needs --model sample-wise, not {config.model}")
        return cls(
            h_size,
            frame.frame_size,
            config.components,
            mean=frame.mean,
            deviation=frame.deviation,
            context=frame.context,
        )

    def end_logits(self, h: Tensor) -> Tensor:
        assert self.ending is not None
        logits: Tensor = self.ending(h)
        return logits.squeeze(-1)

    def figures(self, sums: Sums, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """Nats and bits per sample, of the probabilities of levels; the nats of ends, if any."""
        per_sample = nats / (frames * self.steps * self.frame_size)
        figures = {"nats_per_sample": per_sample, "bits_per_sample": per_sample / math.log(2)}
        return figures | super().figures(sums, nats=nats, frames=frames, pieces=pieces)

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        return [*figure_lines(figures, self.labels), *self.remarks, *super().describe(figures)]

    def standardised(self, samples: Tensor) -> Tensor:
        """z of raw samples."""
        return (samples - self.mean) / self.deviation


def windows(train: Split, context: int) -> NDArray[np.float32]:
    """Raw frames, each preceded by `context` samples: (N, context + frame_size).

    All of them if fewer than 40,000, else 20,000 to 30,000, evenly from all pieces.
    """
    frame_size = train.frame.frame_size
    stride = max(1, train.frames // _START_FRAMES)
    kept, skip = [], 0
    for piece in train:
        line = np.concatenate([np.zeros(context, np.float32), piece.ravel()])
        all_windows = sliding_window_view(line, context + frame_size)[::frame_size]
        kept.append(all_windows[skip::stride].copy())
        skip = (skip - len(all_windows)) % stride
    return np.concatenate(kept)


class SampleWiseOutput(SampleBlocksOutput):
    """An output over samples one at a time, each from its own row of h.

    A frame has S samples, and its rows follow each other. Pieces end with a frame: the row of its
    last sample determines whether.
    """

    def __init__(self, h_size: int, frame_size: int, components: int, *, end: bool = False) -> None:
        """`h_size` is the size of a row, `frame_size` is S."""
        self.steps, self.end = frame_size, end
        super().__init__(h_size, 1, components, mean=0.0, deviation=1.0, context=1)
        self.uniforms_per_frame += end
        if end:
            self.ending = nn.Linear(h_size, 1)
            with torch.no_grad():
                self.ending.weight.mul_(0.1)

    def start_at(self, train: Split) -> None:
        """Start at the share in train of frames that are a piece's last."""
        if self.ending is not None:
            with torch.no_grad():
                self.ending.bias.copy_(log_odds(np.array([len(train)]), train.frames))

    def end_rows(self, h: Tensor) -> Tensor:
        return h[self.steps - 1 :: self.steps]

    def of_steps(self, frames: Tensor) -> Tensor:
        """The samples (T S, B) of frames (T, B, S), one for each row of h."""
        return frames.transpose(1, 2).flatten(0, 1)

    def of_frames(self, nats: Tensor, frames: Tensor) -> Tensor:
        """The nats (T, B) of frames (T, B, S) from those of their samples (T S, B)."""
        T, B, S = frames.shape
        return nats.view(T, S, B).sum(1)
