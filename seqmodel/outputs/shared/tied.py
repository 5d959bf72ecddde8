"""What outputs over a unit row for each note share: the layer of a note, and when pieces end."""

import math
from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.data.dataset import Split
from seqmodel.outputs.protocol import Loss, Output
from seqmodel.outputs.shared.note_figures import NoteFigures, describe
from seqmodel.outputs.shared.onsets import as_drawn, log_odds, onset_nats, restrikes


class TiedOutput(Output):
    """An output over frames of D notes, all with the same weights.

    h (T, B D, H) holds the notes of a piece side by side. Frames have F numbers: F is D, or with
    `onsets` 2 D, see `shared.onsets`. With `end` the output also gives the probability that the
    piece ends with the frame.

    Attributes:
        notes: D.
        onsets: whether frames say which notes are struck.
        end: whether it predicts when pieces end.
        linear: the layer of a note, which reads `read_size` numbers: the logit that it sounds, and
            with `onsets` that it is struck.
    """

    discrete = True
    frame_type = np.uint8

    def __init__(
        self, hidden_size: int, read_size: int, notes: int, *, end: bool, onsets: bool = False
    ) -> None:
        super().__init__()
        self.notes, self.end, self.onsets = notes, end, onsets
        self.frame_size = 2 * notes if onsets else notes
        self.uniforms_per_frame = self.frame_size + 1
        self.linear = nn.Linear(read_size, 2 if onsets else 1)
        self.ending = nn.Linear(hidden_size, 1) if end else None

    def start_at(self, train: Split) -> None:
        """Start at the share of notes that sound in train, of those struck again, and of ends."""
        sounding = train.totals()[: self.notes].sum(keepdims=True)
        logits = [log_odds(sounding, train.frames * self.notes)]
        if self.onsets:
            struck, chances = restrikes(train)
            logits.append(log_odds(struck.sum(keepdims=True), chances.sum()))
        with torch.no_grad():
            self.linear.bias.copy_(torch.cat(logits))
            if self.ending is not None:
                self.ending.bias.copy_(log_odds(np.array([len(train)]), train.frames))

    def logits(self, read: Tensor) -> Tensor:
        """The logits (..., F) of frames, of whose notes (..., D, read_size) is read."""
        rows = read.reshape(-1, read.shape[-1])
        # Not `linear` itself: over so many rows a product with one or two columns takes far longer.
        columns = [
            torch.mv(rows, weight).view(read.shape[:-1]) + bias
            for weight, bias in zip(self.linear.weight, self.linear.bias, strict=True)
        ]
        return torch.cat(columns, -1)

    @abstractmethod
    def note_logits(self, h: Tensor, frames: Tensor) -> Tensor:
        """The logits (T, B, F), given h and what they depend on in frames (T, B, F)."""

    @abstractmethod
    def weighted_score(
        self, h: Tensor, frames: Tensor, past: Tensor, weights: Tensor, *, ragged: bool
    ) -> Tensor:
        """The sum of the frames' nats times weights (T, B), for training.

        The weights of padding are zero; without `ragged` there is none.
        """

    def score(self, h: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """See `Output.score`."""
        logits, D = self.note_logits(h, frames), self.notes
        sounding = logits[..., :D], frames[..., :D]
        nats = F.binary_cross_entropy_with_logits(*sounding, reduction="none").sum(-1)
        return nats + self.onset_nats(logits, frames, past) if self.onsets else nats

    def weighted_nats(
        self, logits: Tensor, frames: Tensor, past: Tensor, weights: Tensor
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
        return total + (self.onset_nats(logits, frames, past) * weights.squeeze(-1)).sum()

    def onset_nats(self, logits: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """The part of the nats of frames (..., F) that strikes cost, given the logits (..., F)."""
        return onset_nats(logits, frames, past)

    def loss(
        self,
        h: Tensor,
        frames: Tensor,
        past: Tensor,
        weights: Tensor,
        lengths: NDArray[np.int64],
    ) -> Loss:
        """See `Output.loss`."""
        ragged = bool(lengths.min() < len(frames))
        nats = self.weighted_score(h, frames, past, weights, ragged=ragged)
        if not self.end:
            return Loss(nats, nats.detach())
        last = torch.from_numpy(np.arange(len(frames))[:, None] == lengths - 1).to(h)
        ends = self.end_score(h, last)
        return Loss(nats + torch.dot(ends.view(-1), weights.view(-1)), nats.detach())

    def draw(self, logits: Tensor, past: Tensor, uniforms: Tensor, temperature: float) -> Tensor:
        """Draw numbers of frames (..., F), or of one note, as `BernoulliOutput.draw` does."""
        likely = logits > 0
        drawn = likely if temperature == 0 else uniforms < torch.sigmoid(logits / temperature)
        frame = drawn.to(logits.dtype)
        return as_drawn(frame, past) if self.onsets else frame

    def end_score(self, h: Tensor, last: Tensor) -> Tensor:
        """-log p(whether the piece ends here) for `last` (T, B), 1 at a piece's last frame."""
        logits = self.end_logits(h.view(*last.shape, self.notes, -1))
        return F.binary_cross_entropy_with_logits(logits, last, reduction="none")

    def end_logits(self, h: Tensor) -> Tensor:
        """The logit of the end (...), from the notes' h (..., D, H): of the mean of their odds.

        Any note may thus say that the piece ends, however many are silent.
        """
        assert self.ending is not None
        of_notes = torch.mv(h.reshape(-1, h.shape[-1]), self.ending.weight[0]).view(h.shape[:-1])
        return of_notes.logsumexp(-1) - math.log(self.notes) + self.ending.bias

    def ends(self, h: Tensor, uniforms: Tensor) -> Tensor:
        """Draw whether pieces end (B,) with the frame, from h (B D, H), by the last uniform.

        The temperature does not apply: it is about which notes sound, not about a piece's length.
        """
        if not self.end:
            return torch.zeros(len(uniforms), dtype=torch.bool)
        logits = self.end_logits(h.view(len(uniforms), self.notes, -1))
        return uniforms[:, self.frame_size] < torch.sigmoid(logits)

    def figures(self) -> NoteFigures:
        """Accuracy, precision and recall over all notes; the nats of onsets and ends, if any."""
        return NoteFigures(self)

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        """See `Output.describe`."""
        return describe(figures)
