"""What outputs over frames of notes share: their sizes, nats, draws, figures and the loss.

A frame may have onsets: F = 2N numbers then state which of N notes sound and which of these are
struck. A struck bit is free only if its note sounds both now and in the previous frame. Otherwise
it is determined, since a note that sounds after silence is struck and a silent one is not: it then
equals the sounding bit and costs nothing. An output over such frames is an output over the piano
roll and, for each free struck bit, a Bernoulli; -log p is that of each note being off, struck or
held.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.config import Config
from seqmodel.data.dataset import Split
from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.music.frames import count_restrikes
from seqmodel.outputs.protocol import (
    END_LABELS,
    Drawn,
    Output,
    Sums,
    Window,
    figure_lines,
    log_odds,
)

OCTAVE = 12
"""Semitones: the range in which a note of the tied model reads its neighbours one by one, and the
number of pitch classes."""
LABELS = {
    "onset_nats_per_frame": "  of it, struck or held",
    **END_LABELS,
    "accuracy": "accuracy",
    "precision": "precision",
    "recall": "recall",
}


def note_count(frame: FrameDefinition) -> int:
    """The number of notes in frames of music, with or without onsets."""
    return frame.frame_size // 2 if frame.onsets else frame.frame_size


def only_hits(frame: FrameDefinition) -> bool:
    """Whether every sounding note is struck in every frame, as with drums."""
    return frame.kind == "drums"


def require_past(past: Tensor | None) -> Tensor:
    """The previous frames; ValueError if None, since they decide which struck bits are free."""
    if past is None:
        raise ValueError("frames with onsets are scored and drawn given the frames before")
    return past


def free_strikes(frames: Tensor, past: Tensor) -> Tensor:
    """Which struck bits of frames (..., 2N) are free given the previous ones: booleans (..., N)."""
    N = frames.shape[-1] // 2
    return (frames[..., :N] > 0) & (past[..., :N] > 0)


def with_forced_strikes(drawn: Tensor, past: Tensor) -> Tensor:
    """Set the determined struck bits of frames (..., 2N) that were drawn as if all were free."""
    sounding, struck = drawn.chunk(2, -1)
    return torch.cat([sounding, torch.where(free_strikes(drawn, past), struck, sounding)], -1)


class NotesOutput(Output):
    """An output over frames of F numbers, zeros and ones: which of D notes sound.

    With `onsets` F is 2 D and the second half states which of them are struck, see above; without,
    F is D. With `end` it also gives the probability that the piece ends with the frame. Everything
    is computed from logits: log(sigmoid) and log(1 - sigmoid) lose all precision when the model is
    confident.

    Attributes:
        notes: D.
        onsets: whether frames state which notes are struck.
    """

    discrete = True
    frame_type = np.uint8

    def __init__(self, notes: int, *, end: bool, onsets: bool) -> None:
        super().__init__()
        self.notes, self.end, self.onsets = notes, end, onsets
        self.frame_size = 2 * notes if onsets else notes
        self.uniforms_per_frame = self.frame_size + 1

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition, h_size: int) -> Self:
        sizes: Any = h_size, note_count(frame)
        return cls(*sizes, end=config.end, onsets=frame.onsets)

    @abstractmethod
    def note_logits(self, h: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """The logits (T, B, F) given h (T, B R, H) and what they depend on of frames and past."""

    def nats(self, logits: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """-log p of frames (..., F) of zeros and ones, given their logits (..., F or more): (...).

        With `onsets` the previous frames, `past` (..., F), decide which struck bits are free.
        """
        sounding = logits[..., : self.notes], frames[..., : self.notes]
        nats = F.binary_cross_entropy_with_logits(*sounding, reduction="none").sum(-1)
        return nats + self.onset_nats(logits, frames, require_past(past)) if self.onsets else nats

    def onset_nats(self, logits: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """The part of the nats of frames (..., F) that is due to strikes (...), given the logits.

        A determined bit costs nothing if it has its value; an impossible frame costs infinity.
        """
        strikes, (sounding, struck) = logits[..., self.notes : self.frame_size], frames.chunk(2, -1)
        nats = F.binary_cross_entropy_with_logits(strikes, struck, reduction="none")
        determined = torch.where(struck == sounding, 0.0, math.inf).to(nats)
        return torch.where(free_strikes(frames, past), nats, determined).sum(-1)

    def tempered(
        self,
        logits: Tensor,
        frames: Tensor,
        past: Tensor,
        temperature: float,
    ) -> Tensor:
        """The logits (..., F) by which frames (..., F) after `past` are drawn, for T above 0."""
        return logits / temperature

    def in_turn(self, h: Tensor, frame: Tensor, past: Any) -> Iterator[tuple[Any, Tensor]]:
        """The order in which numbers are drawn: their indices and logits (B, n), some at a time.

        `frame` (B, F) then holds those drawn before. By default all are drawn at once.
        """
        yield slice(0, self.frame_size), self(h)[..., : self.frame_size]

    def draw_frame(self, h: Tensor, past: Any, uniforms: Tensor, temperature: float) -> Drawn:
        """See `Output`: a number is one if its uniform is below its probability.

        Logits are `tempered`; at temperature 0 each number takes its more likely value. Strikes
        that are not free given `past` (B, F) follow from the notes.
        """
        frame = h.new_zeros(len(uniforms), self.frame_size)
        logits = frame.clone()
        for numbers, found in self.in_turn(h, frame, past):
            logits[:, numbers] = found
            if temperature == 0:
                ones = found > 0
            else:
                tempered = self.tempered(logits, frame, past, temperature)[:, numbers]
                ones = uniforms[:, numbers] < torch.sigmoid(tempered)
            frame[:, numbers] = ones.to(frame)
            if self.onsets:
                frame[:] = with_forced_strikes(frame, require_past(past))
        return Drawn(frame, self.ends(h, uniforms))

    def figure_sums(self, window: Window) -> Sums:
        """Counts of notes over all frames (Bay, Ehmann, Downie 2009), and the nats of onsets.

        A note is predicted if it is more likely on than off, given all that the output conditions
        on: the past and, if notes depend on each other, the frame's true lower notes.
        """
        logits = self.note_logits(window.h, window.frames, window.past)
        predicted = logits[window.inside][:, : self.notes] > 0
        sounding = window.frames[window.inside][:, : self.notes] > 0
        sums = {
            "true": float((predicted & sounding).sum()),
            "false": float((predicted & ~sounding).sum()),
            "missed": float((~predicted & sounding).sum()),
        }
        if self.onsets:
            nats = self.onset_nats(logits, window.frames, window.past).double()
            sums["onset_nats"] = float(nats[window.inside].sum())
        return sums | super().figure_sums(window)

    def figures(self, sums: Sums, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """Accuracy TP / (TP + FP + FN), precision TP / (TP + FP), recall TP / (TP + FN) of notes.

        Onsets do not count; their cost is a separate figure, the excess of the nats per frame over
        the piano roll's.
        """
        true, false, missed = sums["true"], sums["false"], sums["missed"]
        figures = {
            "accuracy": _ratio(true, true + false + missed),
            "precision": _ratio(true, true + false),
            "recall": _ratio(true, true + missed),
        }
        if self.onsets:
            figures["onset_nats_per_frame"] = sums["onset_nats"] / frames
        return figures | super().figures(sums, nats=nats, frames=frames, pieces=pieces)

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        return figure_lines(figures, LABELS)


def _ratio(part: float, whole: float) -> float:
    """part / whole, or 0 if no note sounds and none is predicted."""
    return part / whole if whole else 0.0


class LinearNotesOutput(NotesOutput):
    """An output over frames of notes, from h (..., H) of a single row. The end depends on h alone.

    Attributes:
        linear: the layer that reads h. Its first F columns are the numbers' logits, or their biases
            if the logits depend on more; with `end` the last column is the logit of the end.
    """

    def __init__(
        self, hidden_size: int, notes: int, width: int = 0, *, end: bool = False,
        onsets: bool = False,
    ) -> None:  # fmt: skip
        """`width` is the number of columns besides those of the numbers and the end."""
        super().__init__(notes, end=end, onsets=onsets)
        self.linear = nn.Linear(hidden_size, self.frame_size + width + end)

    def start_at(self, train: Split) -> None:
        """Start at the frequencies in train of each note, of its restrikes and of ends."""
        logits = log_odds(np.append(train.totals(), len(train)), train.frames)
        if self.onsets:
            logits[self.notes : -1] = log_odds(*count_restrikes(train))
        with torch.no_grad():
            self.linear.bias[: self.frame_size] = logits[:-1]
            if self.end:
                self.linear.bias[-1] = logits[-1]

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(h)

    def without_end(self) -> tuple[Tensor, Tensor]:
        """The layer's weight and bias, without those of the end."""
        weight, bias = self.linear.weight, self.linear.bias
        return (weight[:-1], bias[:-1]) if self.end else (weight, bias)

    def end_logits(self, h: Tensor) -> Tensor:
        """See `Output.end_logits`: the layer's last column."""
        return F.linear(h, self.linear.weight[-1:], self.linear.bias[-1:]).squeeze(-1)
