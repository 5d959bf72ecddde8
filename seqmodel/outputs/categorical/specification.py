"""Samples of 256 mu-law levels, by a softmax."""

import math
from collections.abc import Mapping
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from seqmodel.config import Config
from seqmodel.data.dataset import Split
from seqmodel.kernels import device
from seqmodel.media.audio import mu_law
from seqmodel.media.definitions import FrameDefinition
from seqmodel.outputs.ends import EndFigures
from seqmodel.outputs.protocol import (
    CompiledDraw,
    DrawSetting,
    Sums,
    Together,
    Window,
    labelled,
)
from seqmodel.outputs.samples.blocks import LABELS, LevelFigures, choose
from seqmodel.outputs.samples.sample_wise import SampleWiseOutput

SILENT = mu_law.LEVELS // 2 - 1, mu_law.LEVELS // 2
"""The two levels about zero, of samples up to 5 of 32,768 in size."""


class CategoricalOutput(SampleWiseOutput):
    """P(x_n | x_<n) of each sample: a softmax over 256 levels, from one linear layer on row n of h.

    The output of WaveNet (van den Oord et al. 2016) and its successors. Levels are those of
    `mu_law`, counted from 0; a sample between them has the level of its step. Parameters are the
    logits (..., 256).
    """

    discrete = True

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition, h_size: int) -> Self:
        """See `Output.build`."""
        return cls(h_size, frame.frame_size, mu_law.LEVELS, end=config.end)

    def make_layers(self, hidden_size: int) -> None:
        """See `SampleBlocksOutput.make_layers`."""
        self.floor = 0.0
        self.uniforms_per_frame = 1
        self.linear = nn.Linear(hidden_size, mu_law.LEVELS)
        with torch.no_grad():  # so that the biases decide where training starts
            self.linear.weight.mul_(0.1)

    def start_at(self, train: Split) -> None:
        """Start at the frequencies of levels in train, with one more sample of each level."""
        super().start_at(train)
        counts = np.ones(mu_law.LEVELS)
        for piece in train:
            levels = mu_law.encode(piece.ravel()).astype(int) + mu_law.LEVELS // 2
            counts += np.bincount(levels, minlength=mu_law.LEVELS)
        with torch.no_grad():
            self.linear.bias.copy_(torch.from_numpy(np.log(counts / counts.sum())))

    def levels(self, frames: Tensor) -> Tensor:
        """The levels (T S, B), from 0 to 255, of raw `frames` (T, B, S)."""
        samples = self.of_steps(frames).double().contiguous()
        boundaries = torch.from_numpy(mu_law.BOUNDARIES).to(samples.device)
        return torch.bucketize(samples, boundaries, right=True)

    def forward(self, h: Tensor) -> Tensor:
        """The logits (..., 256) of levels, from rows of h (..., H)."""
        logits: Tensor = self.linear(h)
        return logits

    def nats(self, parameters: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """-log P (T, B) of raw `frames` (T, B, S), from logits (T S, B, 256)."""
        return self.of_frames(_nats(parameters, self.levels(frames)))

    def score(self, h: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """`nats(forward(h), frames, past)`: h (T S, B, H), frames (T, B, S) -> (T, B)."""
        return self.of_frames(self.step_nats(h, self.levels(frames)))

    def step_nats(self, h: Tensor, levels: Tensor) -> Tensor:
        """-log P (...) of `levels` (...), from rows of h (..., H)."""
        weight, bias = self.linear.weight, self.linear.bias
        if not h.numel() or device.unsupported_reason((h, weight, bias)) is not None:
            return _nats(self(h), levels)
        from seqmodel.outputs.categorical.compiled import categorical_nats  # loads the compiler

        return categorical_nats(h, weight, bias, levels)

    def draw(
        self, parameters: Tensor, past: Tensor, uniforms: Tensor, temperature: float
    ) -> Tensor:
        """Draw a raw sample (B, 1), one of `mu_law.SAMPLES`, from logits (B, 256).

        Its level is the first whose cumulative probability exceeds the first of a row's `uniforms`
        (B, 1 or more), float64 in [0, 1). The logits are divided by `temperature`; at 0 the level
        is the likeliest.
        """
        level = choose(parameters.double(), uniforms[..., 0], temperature)
        samples = torch.from_numpy(mu_law.SAMPLES).to(parameters)
        return samples[level].unsqueeze(-1)

    def split(self, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """See `SampleBlocksOutput.split`; a level that is chosen needs no noise."""
        choices = uniforms[..., :1]
        return choices, torch.zeros_like(choices)

    def compiled_draw(self, setting: DrawSetting) -> CompiledDraw:
        """See `Output.compiled_draw`."""
        from seqmodel.outputs.categorical.compiled import categorical_draw  # loads the compiler

        return categorical_draw(self, setting)

    def figures(self) -> Together:
        """Nats and bits per sample, apart for silence; the nats of ends, if any."""
        return Together(SilenceFigures(self), EndFigures(self))


def _nats(logits: Tensor, levels: Tensor) -> Tensor:
    return -logits.log_softmax(-1).gather(-1, levels.unsqueeze(-1)).squeeze(-1)


class SilenceFigures(LevelFigures):
    """Nats and bits per sample; apart, those of silent samples and of the others.

    Digital silence costs next to nothing, so a figure over recordings that are padded with it says
    little about their sound.
    """

    def __init__(self, output: CategoricalOutput) -> None:
        super().__init__(output.steps)
        self._output = output

    def sums(self, window: Window) -> Sums:
        """See `Figures`."""
        output = self._output
        levels = output.levels(window.frames)
        inside = window.inside.repeat_interleave(output.steps, 0)
        silent = inside & torch.isin(levels, torch.tensor(SILENT, device=levels.device))
        nats = output.step_nats(window.h, levels).double()[silent]
        return {"silent": float(silent.sum()), "silent_nats": float(nats.sum())}

    def values(self, sums: Sums, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """The figures by name."""
        samples = frames * self._output.steps
        silent, silent_nats = sums["silent"], sums["silent_nats"]
        others = samples - silent
        return {
            **super().values(sums, nats=nats, frames=frames, pieces=pieces),
            "silent_share": silent / samples,
            "bits_per_silent_sample": silent_nats / max(silent, 1) / math.log(2),
            "bits_per_other_sample": (nats - silent_nats) / max(others, 1) / math.log(2),
        }

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        """See `Figures`."""
        labels = {
            **LABELS,
            "bits_per_silent_sample": "  silent samples",
            "bits_per_other_sample": "  others",
            "silent_share": "share of silent samples",
        }
        remark = "  of 8-bit mu-law levels; silent are the two about zero"
        return [*labelled(figures, labels), remark]
