"""Shared by outputs with one unit row per note: the layer of a note, and the ends of pieces."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.data.dataset import Split
from seqmodel.outputs.ends import log_odds
from seqmodel.outputs.notes.onsets import needed, restrikes
from seqmodel.outputs.notes.output import NotesOutput


class TiedOutput(NotesOutput):
    """An output over frames of D notes, all with the same weights.

    h (T, B D, H) holds the notes of a piece side by side.

    Attributes:
        linear: the layer of a note, which reads `read_size` numbers: the logit that it sounds, and
            with `onsets` that it is struck.
        ending: with `end`, the layer that gives a note's odds that the piece ends.
    """

    def __init__(
        self, hidden_size: int, read_size: int, notes: int, *, end: bool, onsets: bool = False
    ) -> None:
        super().__init__(notes, end=end, onsets=onsets)
        self.linear = nn.Linear(read_size, 2 if onsets else 1)
        self.ending = nn.Linear(hidden_size, 1) if end else None

    def start_at(self, train: Split) -> None:
        """Start at the shares in train of sounding notes, of restrikes and of ends."""
        sounding = train.totals()[: self.notes].sum(keepdims=True)
        logits = [log_odds(sounding, train.frames * self.notes)]
        if self.onsets:
            struck, chances = restrikes(train)
            logits.append(log_odds(struck.sum(keepdims=True), chances.sum()))
        with torch.no_grad():
            self.linear.bias.copy_(torch.cat(logits))
            if self.ending is not None:
                self.ending.bias.copy_(log_odds(np.array([len(train)]), train.frames))

    def start_ends_at(self, scale: float) -> None:
        """See `Output.start_ends_at`."""
        if self.ending is not None:
            with torch.no_grad():
                self.ending.weight[0, -1] = scale
                self.ending.bias.zero_()

    def logits(self, read: Tensor) -> Tensor:
        """The logits (..., F) of frames, from what is read of their notes (..., D, read_size)."""
        rows = read.reshape(-1, read.shape[-1])
        # Not `linear` itself: with so many rows, a matrix product is far slower at 1 or 2 columns.
        columns = [
            torch.mv(rows, weight).view(read.shape[:-1]) + bias
            for weight, bias in zip(self.linear.weight, self.linear.bias, strict=True)
        ]
        return torch.cat(columns, -1)

    def score(self, h: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """See `Output.score`."""
        return self.nats(self.note_logits(h, frames), frames, past)

    def weighted_nats(
        self, logits: Tensor, frames: Tensor, weights: Tensor, past: Tensor | None
    ) -> Tensor:
        """The nats of frames (..., F) times weights (..., 1), summed."""
        D = self.notes
        total = F.binary_cross_entropy_with_logits(
            logits[..., :D],
            frames[..., :D],
            weights.expand(*weights.shape[:-1], D),
            reduction="sum",
        )
        if not self.onsets:
            return total
        return total + (self.onset_nats(logits, frames, needed(past)) * weights.squeeze(-1)).sum()

    def end_score(self, h: Tensor, last: Tensor) -> Tensor:
        """-log p(whether the piece ends here) for `last` (T, B), 1 at a piece's last frame."""
        logits = self.end_logits(h.view(*last.shape, self.notes, -1))
        return F.binary_cross_entropy_with_logits(logits, last, reduction="none")

    def end_logits(self, h: Tensor) -> Tensor:
        """The logit of the end (...), from the notes' h (..., D, H): the log of their mean odds.

        Any one note can thus signal the end, however many are silent.
        """
        assert self.ending is not None
        of_notes = torch.mv(h.reshape(-1, h.shape[-1]), self.ending.weight[0]).view(h.shape[:-1])
        return of_notes.logsumexp(-1) - math.log(self.notes) + self.ending.bias

    def ends(self, h: Tensor, uniforms: Tensor) -> Tensor:
        """Draw whether pieces end (B,) with the frame, from h (B D, H), by the last uniform.

        The temperature does not apply: it governs which notes sound, not a piece's length.
        """
        if not self.end:
            return torch.zeros(len(uniforms), dtype=torch.bool)
        logits = self.end_logits(h.view(len(uniforms), self.notes, -1))
        return uniforms[:, self.frame_size] < torch.sigmoid(logits)
