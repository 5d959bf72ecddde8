"""Shared by the outputs over frames of notes that read h through one layer."""

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.data.dataset import Split
from seqmodel.kernels import device
from seqmodel.outputs.ends import log_odds
from seqmodel.outputs.notes.onsets import needed, restrikes
from seqmodel.outputs.notes.output import NotesOutput


class LinearNotesOutput(NotesOutput):
    """An output over frames of notes, from h (..., H) of a single row. The end depends on h alone.

    Attributes:
        linear: the layer that reads h. Its first F columns are the numbers' logits, or their biases
            where the logits depend on more; with `end` the last column is the logit of the end.
    """

    def __init__(
        self, hidden_size: int, notes: int, columns: int, *, end: bool, onsets: bool = False
    ) -> None:
        """`columns` is the number of the layer's columns, without the end's."""
        super().__init__(notes, end=end, onsets=onsets)
        self.linear = nn.Linear(hidden_size, columns + end)

    def start_at(self, train: Split) -> None:
        """Start at the frequencies in train of each note, of its restrikes and of ends."""
        self.start_at_marginals(train.totals(), train.frames, len(train))
        if self.onsets:
            logits = log_odds(*restrikes(train))
            with torch.no_grad():
                self.linear.bias[self.notes : self.frame_size] = logits

    def start_at_marginals(self, note_counts: NDArray[np.int64], frames: int, pieces: int) -> None:
        """Set the biases to the frequencies of notes (F,) and ends, so that training starts there.

        Half a count is added to both outcomes, so that a note never seen stays possible.
        """
        logits = log_odds(np.append(note_counts, pieces), frames)
        with torch.no_grad():
            self.linear.bias[: self.frame_size] = logits[:-1]
            if self.end:
                self.linear.bias[-1] = logits[-1]

    def forward(self, h: Tensor) -> Tensor:
        """The layer's outputs from h (..., H), including the end's logit."""
        outputs: Tensor = self.linear(h)
        return outputs

    def without_end(self) -> tuple[Tensor, Tensor]:
        """The layer's weight and bias, without the end's."""
        weight, bias = self.linear.weight, self.linear.bias
        return (weight[:-1], bias[:-1]) if self.end else (weight, bias)

    def weights(self) -> tuple[Tensor, ...]:
        """The weights that compiled scores take: by default the layer's, without the end's."""
        return self.without_end()

    @abstractmethod
    def compiled_nats(self) -> Callable[..., Tensor]:
        """The function of h, `weights()`, frames and past, if onsets need it; loads the compiler.

        It gives the nats of frames or, if it gets weights of these too, their weighted sum.
        """

    def score(self, h: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """`nats(forward(h), frames, past)`: h (T, B, H), frames (T, B, F) -> (T, B)."""
        given = h, *self.weights(), frames, needed(past) if self.onsets else None
        if not h.numel() or device.unsupported_reason(given) is not None:
            return self.nats(self(h), frames, past)
        return self.compiled_nats()(*given)

    def weighted_score(
        self, h: Tensor, frames: Tensor, weights: Tensor, past: Tensor | None = None
    ) -> Tensor:
        """See `NotesOutput.weighted_score`."""
        given = h, *self.weights(), frames, needed(past) if self.onsets else None, weights
        if not h.numel() or device.unsupported_reason(given) is not None:
            return (self.nats(self(h), frames, past) * weights).sum()
        return self.compiled_nats()(*given)

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

        The temperature does not apply: it governs which notes sound, not a piece's length.
        """
        if not self.end:
            return torch.zeros(uniforms.shape[:-1], dtype=torch.bool)
        return uniforms[..., self.frame_size] < torch.sigmoid(outputs[..., -1])
