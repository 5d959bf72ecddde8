"""How often the predicted notes are right, and how surprising onsets and ends of pieces are."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from seqmodel.outputs.protocol import Window

LABELS = {
    "onset_nats_per_frame": "  of it, struck or held",
    "end_nats_per_piece": "end, nats per piece",
    "accuracy": "accuracy",
    "precision": "precision",
    "recall": "recall",
}


class PredictsNotes(Protocol):
    """An output over frames of notes."""

    notes: int
    onsets: bool
    end: bool

    def note_logits(self, h: Tensor, frames: Tensor, /) -> Tensor:
        """The logits of a frame's numbers, given h and what they depend on in their frames."""

    def onset_nats(self, logits: Tensor, frames: Tensor, past: Tensor, /) -> Tensor:
        """The part of the frames' nats that is due to strikes."""

    def end_score(self, h: Tensor, last: Tensor, /) -> Tensor:
        """The nats of whether the piece ends with each frame."""


class NoteFigures:
    """Counts of notes over all frames of a split (Bay, Ehmann, Downie 2009).

    A note is predicted where it is more likely on than off, given all that the output conditions
    on: the past, and where notes depend on each other the frame's true lower notes.
    accuracy is TP / (TP + FP + FN), precision TP / (TP + FP), recall TP / (TP + FN). Onsets do not
    count; their cost is a separate figure, by which the nats per frame exceed the piano roll's.
    """

    def __init__(self, output: PredictsNotes) -> None:
        self._output = output
        self._true = self._false = self._missed = 0
        self._onset_nats = self._end_nats = 0.0

    def add(self, window: Window) -> None:
        """Add the frames of a window."""
        output = self._output
        logits = output.note_logits(window.h, window.frames)
        predicted = logits[window.inside][:, : output.notes] > 0
        sounding = window.frames[window.inside][:, : output.notes] > 0
        self._true += int((predicted & sounding).sum())
        self._false += int((predicted & ~sounding).sum())
        self._missed += int((~predicted & sounding).sum())
        if output.onsets:
            nats = output.onset_nats(logits, window.frames, window.past).double()
            self._onset_nats += float(nats[window.inside].sum())
        if output.end:
            nats = output.end_score(window.h, window.ends.to(window.h)).double()
            self._end_nats += float(nats[window.inside].sum())

    def values(self, *, nats: float, frames: int, pieces: int) -> dict[str, float]:
        """The figures by name."""
        true, false, missed = self._true, self._false, self._missed
        figures = {
            "accuracy": _ratio(true, true + false + missed),
            "precision": _ratio(true, true + false),
            "recall": _ratio(true, true + missed),
        }
        if self._output.onsets:
            figures["onset_nats_per_frame"] = self._onset_nats / frames
        if self._output.end:
            figures["end_nats_per_piece"] = self._end_nats / pieces
        return figures


def describe(figures: Mapping[str, float]) -> list[str]:
    """The figures as lines of text, one line each."""
    return [f"{label:24} {figures[name]:9.4f}" for name, label in LABELS.items() if name in figures]


def _ratio(part: int, whole: int) -> float:
    """part / whole, or 0 where no note sounds and none is predicted."""
    return part / whole if whole else 0.0
