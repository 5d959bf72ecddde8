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


class NotesOutput(Output):
    """An output over frames of D notes, zeros and ones.

    With `end` it also gives the probability that the piece ends with the frame, from h alone.
    Everything is computed from logits: log(sigmoid) and log(1 - sigmoid) lose all precision where
    the model is confident.

    Attributes:
        notes: D.
        end: whether it predicts when pieces end.
        linear: the layer that reads h. Its first D columns are the notes' logits, or their biases
            where the logits depend on more; with `end` the last column is the logit of the end.
    """

    discrete = True
    frame_type = np.uint8

    def __init__(self, hidden_size: int, notes: int, columns: int, *, end: bool) -> None:
        """`columns` are those of the layer, without the end's."""
        super().__init__()
        self.notes, self.end = notes, end
        self.frame_size, self.uniforms_per_frame = notes, notes + 1
        self.linear = nn.Linear(hidden_size, columns + end)

    def start_at(self, train: Split) -> None:
        """Start at the frequency of each note and of ends in the training split."""
        self.start_at_marginals(train.totals(), train.frames, len(train))

    def start_at_marginals(self, note_counts: NDArray[np.int64], frames: int, pieces: int) -> None:
        """Set the biases to the frequencies of notes (D,) and ends, so that training starts there.

        Half a count is added on either side, so that a note never seen stays possible.
        """
        counts = np.append(note_counts, pieces)
        logits = torch.from_numpy(np.log(counts + 0.5) - np.log(frames - counts + 0.5))
        with torch.no_grad():
            self.linear.bias[: self.notes] = logits[:-1]
            if self.end:
                self.linear.bias[-1] = logits[-1]

    def forward(self, h: Tensor) -> Tensor:
        """What the layer makes of h (..., H), the end's logit included."""
        outputs: Tensor = self.linear(h)
        return outputs

    @abstractmethod
    def note_logits(self, h: Tensor, frames: Tensor) -> Tensor:
        """The notes' logits (..., D), given h (..., H) and what they depend on in their frames."""

    @abstractmethod
    def weighted_score(self, h: Tensor, frames: Tensor, weights: Tensor) -> Tensor:
        """The sum of the frames' nats times weights (T, B), in one fused pass for training."""

    def loss(
        self,
        h: Tensor,
        frames: Tensor,
        past: Tensor,
        weights: Tensor,
        lengths: NDArray[np.int64],
    ) -> Loss:
        """See `Output.loss`."""
        nats = self.weighted_score(h, frames, weights)
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
        return uniforms[..., self.notes] < torch.sigmoid(outputs[..., -1])

    def figures(self) -> NoteFigures:
        """Accuracy, precision and recall over all notes; the nats of ends, where they are known."""
        return NoteFigures(self)

    def describe(self, figures: Mapping[str, float]) -> list[str]:
        """See `Output.describe`."""
        return describe(figures)
