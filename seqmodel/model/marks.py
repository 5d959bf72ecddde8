"""Marks of struck notes, such as how hard: a level of each, given the frame and all levels before.

After the strikes of a frame are drawn, the levels of a mark follow from the lowest note to the
highest:

    s = tanh(V [h_n; p_n; e; r] + b)        p(level | ...) = softmax(U [s; r] + c)

h_n is the row of h from which the note itself is drawn, p_n its absolute pitch, e the levels of the
note's earlier marks, one-hot, and r the features of the levels so far, see `marks_kernel`. As r is
a function of the past and of lower notes in the same frame, likelihoods are exact. Notes do not
depend on levels, so marks do not change the likelihood of frames.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.kernels.device import for_kernels
from seqmodel.kernels.run.signature import NEW
from seqmodel.kernels.run.threads import run, thread_count
from seqmodel.media.marks import Levels
from seqmodel.model.marks_kernel import HELD, UNKNOWN, levels_kernel, sizes, tables

HIDDEN = 32
Levelled = Mapping[str, Tensor]
"""The levels (T, B, D) of marks, by name."""


class Marks(nn.ModuleDict):
    """The `MarkOutput` of each mark, in order; their memories (B, M) lie side by side."""

    def __init__(
        self, h_size: int, marks: Mapping[str, Levels], pitch: Tensor, rows: int, *, by_part: bool,
        nearby: bool, drums: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """`rows` is the number of rows of h per piece: one, or one for each note.

        `pitch` (D, V) encodes each note's absolute pitch. With parts that are `drums`, from 0 on,
        its last column says how often drums hit the key.

        With `by_part`, the marks after the part also read the levels of the note's own part; with
        `nearby`, levels without names also read what `marks_kernel.write_nearby` gives.
        """
        earlier, outputs, part_mark, size = dict[str, int](), dict[str, MarkOutput](), None, 0
        for name, levels in marks.items():
            mark = outputs[name] = MarkOutput(
                h_size, levels, pitch, rows, earlier, part_mark, nearby=nearby and not levels.names
            )
            mark.place = slice(size, size := size + mark.memory_size)
            earlier[name] = len(levels)
            part_mark = name if by_part and levels.names else part_mark
            if drums and levels.names:
                mark.start_drums_on_keys(drums)
        super().__init__(outputs)
        self.memory_size = size

    def start(self, like: Tensor, batch_size: int) -> Tensor:
        """The memory before the first frame: (B, M)."""
        return like.new_zeros(batch_size, self.memory_size)

    def levels_of(self, frames: Tensor, marks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`MarkOutput.levels_of` for each mark whose numbers (T, B, D) are in `marks`."""
        known = [(name, mark) for name, mark in self.outputs().items() if name in marks]
        return {name: mark.levels_of(frames, marks[name]) for name, mark in known}

    def score(
        self, h: Tensor, levels: Levelled, memory: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """`MarkOutput.score` for each mark in `levels`, and the memory after."""
        nats, after = dict[str, Tensor](), memory.clone()
        for name, own in levels.items():
            mark = self.outputs()[name]
            nats[name], after[:, mark.place] = mark.score(h, own, levels, memory[:, mark.place])
        return nats, after

    def remember(self, levels: Levelled, memory: Tensor) -> Tensor:
        after = memory.clone()
        for name, own in levels.items():
            mark = self.outputs()[name]
            after[:, mark.place] = mark.remember(own, levels, memory[:, mark.place])
        return after

    def outputs(self) -> "dict[str, MarkOutput]":
        return cast(dict[str, MarkOutput], dict(self.items()))


class MarkOutput(nn.Module):
    """p(levels of a mark of a frame's strikes | strikes, h, earlier marks, levels before).

    Attributes:
        levels: what the levels stand for.
        notes: D.
        rows: the number of rows of h per piece.
        earlier: the number of levels of each earlier mark.
        part_mark: the one of these whose names each have levels of their own here, if any.
        sizes: the kernel's.
        memory_size: M, the numbers stored per piece; all are 0 before its first frame.
        place: where these are in the memory of `Marks`.
    """

    place: slice

    def __init__(
        self, h_size: int, levels: Levels, pitch: Tensor, rows: int, earlier: Mapping[str, int],
        part_mark: str | None = None, *, nearby: bool = False,
    ) -> None:  # fmt: skip
        """`pitch`, `rows` and `nearby` are as in `Marks`.

        `earlier` is the number of levels of each earlier mark, `part_mark` the one of these whose
        names each have levels of their own here.
        """
        super().__init__()
        self.levels, self.pitch, self.notes, self.rows = levels, pitch, len(pitch), rows
        self.earlier, self.part_mark = dict(earlier), part_mark
        parts, L = 0 if part_mark is None else earlier[part_mark], len(levels)
        self.sizes = sizes(levels, self.notes, parts, nearby=nearby)
        self.memory_size, K = self.sizes["M"], self.sizes["K"]
        self.hidden = nn.Linear(h_size + pitch.shape[1] + sum(earlier.values()) + K, HIDDEN)
        self.out = nn.Linear(HIDDEN + K, L)
        for parameter in self.out.parameters():
            nn.init.zeros_(parameter)
        if parts:  # begin with the frequencies in the note's part so far
            nn.init.eye_(self.out.weight.data[:, -L:])
        self.edges = torch.tensor(levels.edges, dtype=torch.int64)

    @torch.no_grad()
    def start_drums_on_keys(self, drums: Sequence[int]) -> None:
        """Begin with parts of drums on keys that drums hit, as the last pitch column says."""
        keys = self.hidden.in_features - self.sizes["K"] - sum(self.earlier.values()) - 1
        self.hidden.weight[0] = 0
        self.hidden.weight[0, keys], self.hidden.bias[0] = 10.0, -1.0  # off them this unit is -0.8
        self.out.weight[[*drums], 0] = 3.0

    def levels_of(self, frames: Tensor, numbers: Tensor) -> Tensor:
        """(T, B, D) int64 on the CPU: the level, from 1 on, of each struck note.

        `HELD` if the note sounds on, else 0. Frames are (T, B, 2 D), numbers (T, B, D), 0 where
        they are unknown.
        """
        sounds, struck = torch.split(frames.cpu() > 0, self.notes, -1)
        numbers = numbers.cpu()
        level = 1 + torch.bucketize(numbers.to(torch.int64), self.edges)
        return torch.where(numbers > 0, level, UNKNOWN).where(struck, HELD * sounds)

    def score(
        self, h: Tensor, levels: Tensor, earlier: Levelled, memory: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The exact -log p of each known level of `levels_of`, and the memory (B, M) after.

        The nats are (N,), piece by piece, then in order; h is as in `Output`. Differentiable except
        in h: the unit learns from frames alone. `memory` (B, M) is that before the window.
        """
        piece, t, note = torch.nonzero(levels.permute(1, 0, 2) > 0, as_tuple=True)
        features, after = self._features(levels, earlier, memory)
        chosen, features = levels[t, piece, note] - 1, features.to(h)
        given = self._given(h.detach(), earlier, t, piece, note)
        seen = torch.tanh(self.hidden(torch.cat([given, features], 1)))
        logits = self.out(torch.cat([seen, features], 1))
        return F.cross_entropy(logits, chosen.to(h.device), reduction="none"), after

    def remember(self, levels: Tensor, earlier: Levelled, memory: Tensor) -> Tensor:
        return self._features(levels, earlier, memory)[1]

    def _given(
        self, h: Tensor, earlier: Levelled, t: Tensor, piece: Tensor, note: Tensor
    ) -> Tensor:
        """What notes (N,) read besides features: rows of h (T, B R, H), pitches, earlier marks."""
        row = (t * h.shape[1] + piece * self.rows + note * (self.rows > 1)).to(h.device)
        read = [h.reshape(-1, h.shape[2]).index_select(0, row), self.pitch[note]]
        for name, count in self.earlier.items():
            known = torch.zeros(len(note), 1 + count)
            if name in earlier:
                known = F.one_hot(earlier[name][t, piece, note].clamp(min=0), 1 + count)
            read.append(known[:, 1:])
        return torch.cat([part.to(h) for part in read], 1)

    def _features(self, levels: Tensor, earlier: Levelled, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The features (N, K) of each strike whose level is known, and the memory after."""
        (T, B, _), after = levels.shape, for_kernels(memory).clone()
        counts = (levels > 0).sum((0, 2))
        parts = earlier.get(self.part_mark or "", torch.zeros_like(levels))
        fields = self._constants(after.dtype) | {
            "T": T, "B": B, "N": int(counts.sum()), "memory": after,
            "starts": torch.cumsum(counts, 0) - counts, "features": NEW,
            "levels": levels.contiguous(), "parts": parts.contiguous(),
        }  # fmt: skip
        kernel = levels_kernel(after.element_size())
        return run(kernel, thread_count(B), fields)["features"], after.to(memory)

    def _constants(self, dtype: torch.dtype) -> dict[str, Any]:
        """The kernel's fields that depend on neither notes nor weights."""
        arrays = tables(self.levels, self.notes).items()
        return self.sizes | {name: torch.tensor(each, dtype=dtype) for name, each in arrays}

    @torch.no_grad()
    def draw_fields(self, levels: Any) -> dict[str, Any]:
        """The kernel's fields for `draw`, except what is drawn from and where it is computed.

        `levels` is a tensor or a slot.
        """
        own, counts = len(self.earlier), [*self.earlier.values()]
        weights = {
            "weight": self.hidden.weight, "shift": self.hidden.bias,
            "out": self.out.weight, "bias": self.out.bias,
            "pitches": self.pitch,
        }  # fmt: skip
        parts = torch.zeros(*levels.shape[1:], dtype=torch.int64)
        if self.part_mark is not None:
            parts = levels[[*self.earlier].index(self.part_mark)]
        return self._constants(torch.float64) | {
            "T": levels.shape[1], "B": 1, "N": 1, "Q": levels.shape[0], "own": own,
            "J": HIDDEN, "R": self.rows, "E": sum(counts), "V": self.pitch.shape[1],
            "all_levels": levels, "levels": levels[own], "parts": parts,
            "starts": torch.zeros(1, dtype=torch.int64),
            "offsets": torch.tensor([sum(counts[:k]) for k in range(levels.shape[0])]),
            **{name: each.detach().double().cpu().contiguous() for name, each in weights.items()},
        }  # fmt: skip

    def draw(
        self, h: Tensor, levels: Tensor, memory: Tensor, uniforms: NDArray[np.float64],
        temperature: float,
    ) -> Tensor:  # fmt: skip
        """Replace this mark's levels that are TO_DRAW in one piece's, (Q, T, 1, D), in float64.

        `levels` has all marks, or at least those up to this one. Each level uses the uniform of its
        row of `uniforms` (N, Q); at temperature 0, the most likely is chosen. Returns the memory
        after them.
        """
        after, H = memory.clone(), h.shape[2]
        drawn_from = {
            "H": H, "h": h.reshape(-1, H).contiguous(), "memory": after,
            "U": len(uniforms), "uniforms": torch.from_numpy(uniforms),
            "temperature": torch.tensor([temperature], dtype=torch.float64),
        }  # fmt: skip
        work = dict.fromkeys(("features", "seen", "odds"), NEW)
        kernel = levels_kernel(after.element_size(), draws=True)
        run(kernel, 1, self.draw_fields(levels) | drawn_from | work)
        return after
