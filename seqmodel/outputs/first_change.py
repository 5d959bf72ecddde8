"""Notes up to the first that changes, drawn without a unit: most frames change little or nothing.

Frames are drawn from low to high. Until some note has begun, ended or been struck anew, a small
layer computes the next note's logits from its row of h and the mean over all rows. Above the first
changed note, a unit along pitch computes them. Either way they are probabilities given the lower
notes, so the likelihood is exact. The unit need not run in frames without changes, and learns only
from frames with some. The layer learns from each note of each frame up to the first change: a
single number per frame, whether anything changes, is learned more slowly.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.data.dataset import Split
from seqmodel.kernels import device
from seqmodel.kernels.code.instructions import dot
from seqmodel.outputs.draws import multiply
from seqmodel.outputs.linear_score import Layer
from seqmodel.outputs.protocol import log_odds

HIDDEN = 32
"""Hidden units of each note."""
POOLED = 16
"""Numbers of each note whose mean over the notes is read by all hidden units."""


class FirstChange(nn.Module):
    """The logits of D notes below which nothing has changed, from a row of h for each.

    With a = U h_n + c, of HIDDEN + POOLED + K columns, they are the last K of a, plus W relu(a's
    first HIDDEN + V m), where m is the mean over the notes of relu(a's next POOLED). The first is
    that a silent note begins; the next, except for hits, that a sounding one ends; with onsets, the
    last is that a continuing one is struck.
    """

    def __init__(self, h_size: int, notes: int, *, onsets: bool, hits: bool) -> None:
        """`hits` as in `NoteUnitOutput`."""
        super().__init__()
        self.notes, self.onsets, self.hits = notes, onsets, hits
        K = 1 + (not hits) + onsets
        self.own = nn.Linear(h_size, HIDDEN + POOLED + K)
        self.joint = nn.Linear(POOLED, HIDDEN, bias=False)
        self.odds = nn.Linear(HIDDEN, K, bias=False)

    def start_at(self, train: Split) -> None:
        """Start at the shares in train of beginnings, ends and strikes with no change below."""
        counts = np.zeros((2, self.odds.out_features), np.int64)  # how often, out of how many
        for piece in train:
            frames = torch.from_numpy(piece)
            past = torch.cat([torch.zeros_like(frames[:1]), frames[:-1]])
            unchanged_below = ~self.changed_below(frames, past)
            sounds, held = frames[:, : self.notes] > 0, past[:, : self.notes] > 0
            outcomes = [(sounds, unchanged_below if self.hits else unchanged_below & ~held)]
            if not self.hits:
                outcomes.append((~sounds, unchanged_below & held))
            if self.onsets:
                outcomes.append((frames[:, self.notes :] > 0, unchanged_below & held & sounds))
            counts += np.array([[int((c & n).sum()), int(n.sum())] for c, n in outcomes]).T
        with torch.no_grad():
            self.own.weight[HIDDEN + POOLED :] = 0
            self.own.bias[HIDDEN + POOLED :] = log_odds(*counts)
            self.odds.weight.zero_()

    def changed_below(self, frames: Tensor, past: Tensor) -> Tensor:
        """For each note, whether a lower one begins, ends or is struck anew: booleans (..., D)."""
        D, changes = self.notes, frames > 0
        if not self.hits:
            changes = frames[..., :D] != past[..., :D]
        if self.onsets:
            changes = changes | (frames[..., D:] > 0)
        return changes.cumsum(-1) > changes.long()

    def read(
        self, h: Tensor, frames: Tensor, ending: nn.Linear | None = None
    ) -> tuple[Tensor, Tensor]:
        """a (N, D, K) from h (N, D, H), and h at the distinct indices `frames` (M,): (M, D, H).

        With `ending`, a layer that reads the first numbers of each row, its column is a's last.
        """
        weight: Tensor = self.own.weight
        bias: Tensor = self.own.bias
        if ending is not None:
            padded = F.pad(ending.weight, (0, h.shape[2] - ending.in_features))
            weight, bias = torch.cat([weight, padded]), torch.cat([bias, ending.bias])
        if device.transformed() or device.unsupported_reason((h, weight)) is not None:
            return F.linear(h, weight, bias), h.index_select(0, frames)
        a, chosen = Layer.apply(h, frames, weight, bias)  # type: ignore[no-untyped-call]
        return a, chosen

    def logits(self, a: Tensor, past: Tensor) -> Tensor:
        """The logits (N, F) after `past` (N, F), from `read`'s a."""
        K = self.odds.out_features
        sizes = HIDDEN, POOLED, K, a.shape[2] - HIDDEN - POOLED - K
        own, pooled, direct, _ = a.split_with_sizes(sizes, 2)
        joint_hidden = self.joint(torch.relu(pooled).mean(-2, keepdim=True))
        odds = direct + self.odds(torch.relu(own + joint_hidden))
        sounds = odds[..., 0]
        if not self.hits:
            sounds = torch.where(past[..., : self.notes] > 0, -odds[..., 1], sounds)
        return torch.cat([sounds, odds[..., -1]], -1) if self.onsets else sounds


# ---- texts of `kernels.code.language`, for the draw `f` of `outputs.notes_tied`


def begin_first(f: Any) -> None:
    """Compute what `first_logit` reads."""
    width = HIDDEN + POOLED + f.K
    multiply(f.h, f.H, f.own, f.projected, width, f.notes, f.H, width)
    for k in range(POOLED):
        total = 0.0
        for note in range(f.notes):
            total += max(f.projected[note * width + HIDDEN + k] + f.own_bias[HIDDEN + k], 0.0)
        f.pooled[k] = total / float(f.notes)
    for k in range(HIDDEN):
        f.joint_hidden[k] = f.own_bias[k] + dot(f.pooled, f.joint[k * POOLED :], POOLED)


def first_logit(f: Any, note: Any, k: int) -> Any:
    """See `FirstChange.logits`: that the note sounds if `k` is 0, else that it is struck."""
    row = f.projected[note * (HIDDEN + POOLED + f.K) :]
    ends = k == 0 and not f.hits and f.x[note] > 0
    column = 1 if ends else (f.K - 1) * k
    for j in range(HIDDEN):
        f.hidden[j] = max(row[j] + f.joint_hidden[j], 0.0)
    index = HIDDEN + POOLED + column
    logit = row[index] + f.own_bias[index] + dot(f.hidden, f.odds[column * HIDDEN :], HIDDEN)
    return -logit if ends else logit
