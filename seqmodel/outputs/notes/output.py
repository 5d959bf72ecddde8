"""Shared by all outputs over frames of notes: their sizes, nats, draws, figures and the loss."""

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from seqmodel.outputs.ends import END_LABELS, EndFigures, EndingOutput
from seqmodel.outputs.notes.onsets import as_drawn, needed, onset_nats
from seqmodel.outputs.protocol import Figures, Loss, Sums, Together, Window, labelled

LABELS = {
    "onset_nats_per_frame": "  of it, struck or held",
    **END_LABELS,
    "accuracy": "accuracy",
    "precision": "precision",
    "recall": "recall",
}


class NotesOutput(EndingOutput):
    """An output over frames of F numbers, zeros and ones: which of D notes sound.

    With `onsets` F is 2 D and the second half says which of them are struck, see `notes.onsets`;
    without, F is D. With `end` it also gives the probability that the piece ends with the frame.
    Everything is computed from logits: log(sigmoid) and log(1 - sigmoid) lose all precision where
    the model is confident.

    Attributes:
        notes: D.
        onsets: whether frames say which notes are struck.
    """

    discrete = True
    frame_type = np.uint8

    def __init__(self, notes: int, *, end: bool, onsets: bool) -> None:
        super().__init__()
        self.notes, self.end, self.onsets = notes, end, onsets
        self.frame_size = 2 * notes if onsets else notes
        self.uniforms_per_frame = self.frame_size + 1

    @abstractmethod
    def note_logits(self, h: Tensor, frames: Tensor) -> Tensor:
        """The logits (T, B, F), given h (T, B R, H) and what they depend on in frames (T, B, F)."""

    @abstractmethod
    def weighted_score(
        self, h: Tensor, frames: Tensor, weights: Tensor, past: Tensor | None = None
    ) -> Tensor:
        """The sum of the frames' nats times weights (T, B), for training.

        The weights of padding are zero. `past` (T, B, F) holds the previous frames, needed with
        `onsets`.
        """

    def nats(self, logits: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """-log p of frames (..., F) of zeros and ones, given their logits (..., F or more): (...).

        With `onsets` the previous frames, `past` (..., F), decide which struck bits are free.
        """
        sounding = logits[..., : self.notes], frames[..., : self.notes]
        nats = F.binary_cross_entropy_with_logits(*sounding, reduction="none").sum(-1)
        return nats + self.onset_nats(logits, frames, needed(past)) if self.onsets else nats

    def onset_nats(self, logits: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """The part of the nats of frames (..., F) that strikes cost, given the logits."""
        return onset_nats(logits[..., : self.frame_size], frames, past)

    def draw(
        self, logits: Tensor, past: Tensor | None, uniforms: Tensor, temperature: float
    ) -> Tensor:
        """Draw the numbers of frames (..., F), or of one note, each by its own logit.

        A note sounds where its entry of `uniforms` (..., F or more), in [0, 1), is below its
        probability. The logits are divided by `temperature`; at 0 each note takes its likelier
        value. With `onsets` the same goes for strikes, where they are free given `past` (..., F).
        """
        logits = logits[..., : self.frame_size]
        if temperature == 0:
            drawn = logits > 0
        else:
            drawn = uniforms[..., : logits.shape[-1]] < torch.sigmoid(logits / temperature)
        frame = drawn.to(logits.dtype)
        return as_drawn(frame, needed(past)) if self.onsets else frame

    def loss(
        self, h: Tensor, frames: Tensor, past: Tensor, weights: Tensor, lengths: NDArray[np.int64]
    ) -> Loss:
        """See `Output.loss`."""
        nats = self.weighted_score(h, frames, weights, past)
        return self.with_ends(nats, h, weights, lengths)

    def figures(self) -> Together:
        """Accuracy, precision and recall over all notes; the nats of onsets and ends, if any."""
        return Together(NoteFigures(self), EndFigures(self))

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        """See `Output.describe`."""
        return labelled(figures, LABELS)


class NoteFigures(Figures):
    """Counts of notes over all frames of a split (Bay, Ehmann, Downie 2009).

    A note is predicted where it is more likely on than off, given all that the output conditions
    on: the past, and where notes depend on each other the frame's true lower notes.
    accuracy is TP / (TP + FP + FN), precision TP / (TP + FP), recall TP / (TP + FN). Onsets do not
    count; their cost is a separate figure, by which the nats per frame exceed the piano roll's.
    """

    def __init__(self, output: NotesOutput) -> None:
        self._output = output

    def sums(self, window: Window) -> Sums:
        """See `Figures`."""
        output = self._output
        logits = output.note_logits(window.h, window.frames)
        predicted = logits[window.inside][:, : output.notes] > 0
        sounding = window.frames[window.inside][:, : output.notes] > 0
        sums = {
            "true": float((predicted & sounding).sum()),
            "false": float((predicted & ~sounding).sum()),
            "missed": float((~predicted & sounding).sum()),
        }
        if output.onsets:
            nats = output.onset_nats(logits, window.frames, window.past).double()
            sums["onset_nats"] = float(nats[window.inside].sum())
        return sums

    def values(self, sums: Sums, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """The figures by name."""
        true, false, missed = sums["true"], sums["false"], sums["missed"]
        figures = {
            "accuracy": _ratio(true, true + false + missed),
            "precision": _ratio(true, true + false),
            "recall": _ratio(true, true + missed),
        }
        if self._output.onsets:
            figures["onset_nats_per_frame"] = sums["onset_nats"] / frames
        return figures


def _ratio(part: float, whole: float) -> float:
    """part / whole, or 0 where no note sounds and none is predicted."""
    return part / whole if whole else 0.0
