"""Samples of 256 mu-law levels from a softmax: specification and compiled draw."""

import math
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from seqmodel.config import Config
from seqmodel.data.dataset import Split
from seqmodel.media.audio import mu_law
from seqmodel.media.audio.mu_law import SAMPLES
from seqmodel.media.definitions import FrameDefinition
from seqmodel.outputs.draws import SamplesDraw, by_rows, choose, put
from seqmodel.outputs.protocol import DrawSetting, Sums, Window
from seqmodel.outputs.samples import LABELS, LEVEL_STEP, SampleWiseOutput

SILENT_LEVELS = mu_law.LEVELS // 2 - 1, mu_law.LEVELS // 2
"""The two levels nearest to zero, for samples up to 5 of 32,768 in size."""


class CategoricalOutput(SampleWiseOutput):
    """P(x_n | x_<n) of each sample: a softmax over 256 levels, from one linear layer on row n of h.

    The output of WaveNet (van den Oord et al. 2016) and its successors. Levels are those of
    `mu_law`, counted from 0; a sample between two levels has the level of its step. Parameters are
    the logits (..., 256).
    """

    discrete = True
    labels = LABELS | {
        "bits_per_silent_sample": "  silent samples",
        "bits_per_other_sample": "  others",
        "silent_share": "share of silent samples",
    }
    remarks = ("  of 8-bit mu-law levels; silent are the two about zero",)

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition, h_size: int) -> Self:
        return cls(h_size, frame.frame_size, mu_law.LEVELS, end=config.end)

    def make_layers(self, hidden_size: int) -> None:
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
        return self.linear(h)

    def nats(self, parameters: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """-log P (T, B) of raw `frames` (T, B, S), from logits (T S, B, 256)."""
        log_p, levels = parameters.log_softmax(-1), self.levels(frames)
        return self.of_frames(-log_p.gather(-1, levels.unsqueeze(-1)).squeeze(-1), frames)

    def draw(
        self, parameters: Tensor, past: Tensor, uniforms: Tensor, temperature: float
    ) -> Tensor:
        """Draw a raw sample (B, 1), one of `mu_law.SAMPLES`, from logits (B, 256).

        The first of a row's `uniforms` (B, 1 or more), float64 in [0, 1), chooses its level, see
        `draws.choose`.
        """
        return by_rows(self, draw_level, parameters, uniforms, temperature, samples=SAMPLES)

    def compiled_draw(self, setting: DrawSetting) -> SamplesDraw:
        return SamplesDraw(
            self, setting, draw_level, self.linear.weight, self.linear.bias,
            {"samples": torch.from_numpy(SAMPLES).double()},
        )  # fmt: skip

    def figure_sums(self, window: Window) -> Sums:
        """Silent samples and their nats.

        Digital silence costs next to nothing, so a figure over recordings padded with it reveals
        little about their sound.
        """
        levels = self.levels(window.frames)
        inside = window.inside.repeat_interleave(self.steps, 0)
        silent = inside & torch.isin(levels, torch.tensor(SILENT_LEVELS, device=levels.device))
        nats = self.score(window.h, self.of_steps(window.frames).unsqueeze(2)).double()[silent]
        sums = {"silent": float(silent.sum()), "silent_nats": float(nats.sum())}
        return sums | super().figure_sums(window)

    def figures(self, sums: Sums, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """Nats and bits per sample, also separately for silent samples and for the others."""
        silent, silent_nats = sums["silent"], sums["silent_nats"]
        others = frames * self.steps - silent
        return super().figures(sums, nats=nats, frames=frames, pieces=pieces) | {
            "silent_share": silent / (frames * self.steps),
            "bits_per_silent_sample": silent_nats / max(silent, 1) / math.log(2),
            "bits_per_other_sample": (nats - silent_nats) / max(others, 1) / math.log(2),
        }


def draw_level(f: Any) -> None:
    """A text of `kernels.code.language`: see `CategoricalOutput.draw`."""
    put(f, 0, f.samples[choose(f)], LEVEL_STEP)
