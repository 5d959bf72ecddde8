"""What the outputs over frames of notes share: the layer that reads h, and when pieces end."""

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
from seqmodel.outputs.shared.onsets import log_odds, onset_nats, restrikes


class NotesOutput(Output):
    """An output over frames of F numbers, zeros and ones: which of D notes sound.

    With `onsets` F is 2 D and the second half says which of them are struck, see `shared.onsets`;
    without, F is D. With `end` it also gives the probability that the piece ends with the frame,
    from h alone. Everything is computed from logits: log(sigmoid) and log(1 - sigmoid) lose all
    precision where the model is confident.

    Attributes:
        notes: D.
        onsets: whether frames say which notes are struck.
        end: whether it predicts when pieces end.
        linear: the layer that reads h. Its first F columns are the numbers' logits, or their biases
            where the logits depend on more; with `end` the last column is the logit of the end.
    """

    discrete = True
    frame_type = np.uint8

    def __init__(
        self, hidden_size: int, notes: int, columns: int, *, end: bool, onsets: bool = False
    ) -> None:
        """`columns` are those of the layer, without the end's."""
        super().__init__()
        self.notes, self.end, self.onsets = notes, end, onsets
        self.frame_size = 2 * notes if onsets else notes
        self.uniforms_per_frame = self.frame_size + 1
        self.linear = nn.Linear(hidden_size, columns + end)

    def start_at(self, train: Split) -> None:
        """Start at the frequency of each note, of each struck again and of ends in train."""
        self.start_at_marginals(train.totals(), train.frames, len(train))
        if self.onsets:
            logits = log_odds(*restrikes(train))
            with torch.no_grad():
                self.linear.bias[self.notes : self.frame_size] = logits

    def start_at_marginals(self, note_counts: NDArray[np.int64], frames: int, pieces: int) -> None:
        """Set the biases to the frequencies of notes (F,) and ends, so that training starts there.

        Half a count is added on either side, so that a note never seen stays possible.
        """
        logits = log_odds(np.append(note_counts, pieces), frames)
        with torch.no_grad():
            self.linear.bias[: self.frame_size] = logits[:-1]
            if self.end:
                self.linear.bias[-1] = logits[-1]

    def forward(self, h: Tensor) -> Tensor:
        """What the layer makes of h (..., H), the end's logit included."""
        outputs: Tensor = self.linear(h)
        return outputs

    @abstractmethod
    def note_logits(self, h: Tensor, frames: Tensor) -> Tensor:
        """The logits (..., F), given h (..., H) and what they depend on in their frames."""

    def onset_nats(self, logits: Tensor, frames: Tensor, past: Tensor) -> Tensor:
        """The part of the nats of frames (..., F) that strikes cost, given the logits (..., F)."""
        return onset_nats(logits[..., : self.frame_size], frames, past)

    @abstractmethod
    def weighted_score(
        self, h: Tensor, frames: Tensor, weights: Tensor, past: Tensor | None = None
    ) -> Tensor:
        """The sum of the frames' nats times weights (T, B), in one fused pass for training.

        `past` (T, B, F) are the frames before, needed with `onsets`.
        """

    def loss(
        self,
        h: Tensor,
        frames: Tensor,
        past: Tensor,
        weights: Tensor,
        lengths: NDArray[np.int64],
    ) -> Loss:
        """See `Output.loss`."""
        nats = self.weighted_score(h, frames, weights, past)
        if not self.end:
            return Loss(nats, nats.detach())
        last = torch.from_numpy(np.arange(len(frames))[:, None] == lengths - 1).to(h)
        ends = self.end_score(h, last)
        return Loss(nats + torch.dot(ends.view(-1), weights.view(-1)), nats.detach())

    def without_end(self) -> tuple[Tensor, Tensor]:
        """The layer's weight and bias, without the end's."""
        weight, bias = self.linear.weight, self.linear.bias
        return (weight[:-1], bias[:-1]) if self.end else (weight, bias)

    def end_score(self, h: Tensor, last: Tensor) -> Tensor:
        """`end_nats(forward(h), last)`, from h (..., H), without the other columns."""
        logit = F.linear(h, self.linear.weight[-1:], self.linear.bias[-1:])
        return self.end_nats(logit, last)

    def end_nats(self, outputs: Tensor, last: Tensor) -> Tensor:
        """-log p(whether the piece ends here) for `last` (...), 1 at a piece's last frame.

        `outputs` are the layer's, the end's logit last.
        """
        return F.binary_cross_entropy_with_logits(outputs[..., -1], last, reduction="none")

    def ends(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        """Draw whether the piece ends (...) with the frame, by the last of the `uniforms`.

        The temperature does not apply: it is about which notes sound, not about a piece's length.
        """
        if not self.end:
            return torch.zeros(uniforms.shape[:-1], dtype=torch.bool)
        return uniforms[..., self.frame_size] < torch.sigmoid(outputs[..., -1])

    def figures(self) -> NoteFigures:
        """Accuracy, precision and recall over all notes; the nats of onsets and ends, if any."""
        return NoteFigures(self)

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        """See `Output.describe`."""
        return describe(figures)
