"""Marks of struck notes, such as how hard: a level of each, given the frame and all levels before.

After the strikes of a frame are drawn, the levels of a mark follow from the lowest note to the
highest:

    s = tanh(V [h_n; p_n; e; r] + b)        p(level | ...) = softmax(U [s; r] + c)

h_n is the row of h from which the note itself is drawn, p_n its absolute pitch, e the levels of the
note's earlier marks, one-hot, and r the features of the levels so far, see `write_strike`. As r is
a function of the past and of lower notes in the same frame, likelihoods are exact. Notes do not
depend on levels, so marks do not change the likelihood of frames.
"""

from collections.abc import Mapping
from math import exp, log
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.kernels.code.language import clear
from seqmodel.kernels.device import for_kernels
from seqmodel.kernels.run.signature import NEW, Array, Signature
from seqmodel.kernels.run.threads import Kernel, compile_text, run, thread_count
from seqmodel.media.marks import Levels
from seqmodel.model.notes import PITCH, absolute_pitch
from seqmodel.outputs.notes import OCTAVE

HIDDEN = 32
UNKNOWN, TO_DRAW, HELD = -1, -2, -3
"""Stand for a level (1 to L) of a struck note, or for a held note. 0 is silence."""


Levelled = Mapping[str, Tensor]
"""The levels (T, B, D) of marks, by name."""


class Marks(nn.ModuleDict):
    """The `MarkOutput` of each mark, in order; their memories (B, M) lie side by side."""

    def __init__(
        self, h_size: int, marks: Mapping[str, Levels], notes: int, rows: int, *, by_part: bool,
        nearby: bool,
    ) -> None:  # fmt: skip
        """`rows` is the number of rows of h per piece: one, or one for each note.

        With `by_part`, the marks after the part also read the levels of the note's own part; with
        `nearby`, levels without names also read what `write_nearby` gives.
        """
        earlier, outputs, part_mark, size = dict[str, int](), dict[str, MarkOutput](), None, 0
        for name, levels in marks.items():
            mark = outputs[name] = MarkOutput(
                h_size, levels, notes, rows, earlier, part_mark, nearby=nearby and not levels.names
            )
            mark.place = slice(size, size := size + mark.memory_size)
            earlier[name] = len(levels)
            part_mark = name if by_part and levels.names else part_mark
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
        memory_size: M, the numbers stored per piece; all are 0 before its first frame.
        place: where these are in the memory of `Marks`.
    """

    place: slice

    def __init__(
        self, h_size: int, levels: Levels, notes: int, rows: int, earlier: Mapping[str, int],
        part_mark: str | None = None, *, nearby: bool = False,
    ) -> None:  # fmt: skip
        """`rows` and `nearby` are as in `Marks`, `earlier` the number of levels of earlier marks.

        `part_mark` is the one of these whose names each have levels of their own here.
        """
        super().__init__()
        self.levels, self.notes, self._rows = levels, notes, rows
        self._earlier, self._part_mark = dict(earlier), part_mark
        self._names, L = len(levels.names), len(levels)
        self.memory_size = OF_NOTES * notes + OF_PIECE + (OF_NAME + notes) * self._names
        features = SCALARS + 2 * L + OF_NAMES * self._names
        self._spans = len(SPANS) if nearby else 0
        self._span_size = 2 * len(REACHES) * notes + OF_SPAN
        self.memory_size += self._spans * self._span_size
        features += self._spans * NEARBY
        if part_mark is not None:
            self.memory_size += (1 + L) * earlier[part_mark]
            features += 2 * L
        self.hidden = nn.Linear(h_size + PITCH + sum(earlier.values()) + features, HIDDEN)
        self.out = nn.Linear(HIDDEN + features, len(levels))
        for parameter in self.out.parameters():
            nn.init.zeros_(parameter)
        if part_mark is not None:  # begin with the frequencies in the note's part so far
            nn.init.eye_(self.out.weight.data[:, -L:])
        self.edges = torch.tensor(levels.edges, dtype=torch.int64)

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
        row = (t * h.shape[1] + piece * self._rows + note * (self._rows > 1)).to(h.device)
        read = [h.reshape(-1, h.shape[2]).index_select(0, row), absolute_pitch(self.notes)[note]]
        for name, count in self._earlier.items():
            known = torch.zeros(len(note), 1 + count)
            if name in earlier:
                known.scatter_(1, earlier[name][t, piece, note].clamp(min=0).unsqueeze(1), 1.0)
            read.append(known[:, 1:])
        return torch.cat([part.to(h) for part in read], 1)

    def _features(
        self, levels: Tensor, earlier: Levelled, memory: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The features (N, K) of each strike whose level is known, and the memory after."""
        (T, B, _), after = levels.shape, for_kernels(memory).clone()
        counts = (levels > 0).sum((0, 2))
        parts = earlier.get(self._part_mark or "", torch.zeros_like(levels))
        fields = self._tables(after.dtype) | {
            "T": T, "B": B, "N": int(counts.sum()), "memory": after,
            "starts": torch.cumsum(counts, 0) - counts, "above": NEW, "features": NEW,
            "levels": levels.contiguous(), "parts": parts.contiguous(),
        }  # fmt: skip
        kernel = compile_text(_LEVELS, after.element_size(), read_levels, over="B", draws=False)
        return run(kernel, thread_count(B), fields)["features"], after.to(memory)

    def _tables(self, dtype: torch.dtype) -> dict[str, Any]:
        """The kernel's fields that depend on neither notes nor weights."""
        tables = {
            "loud": standard(self.levels), "rates": rates(self.notes),
            "nearness": nearness(self.notes), "kept": np.exp(-1 / np.array(SPANS)),
        }  # fmt: skip
        return {
            "D": self.notes, "L": len(self.levels), "M": self.memory_size, "G": self._names,
            "K": self.out.in_features - HIDDEN, "S": self._spans, "P": self._span_size,
            **{name: torch.tensor(each, dtype=dtype) for name, each in tables.items()},
        }  # fmt: skip

    @torch.no_grad()
    def draw_fields(self, levels: Any) -> dict[str, Any]:
        """The fields of a draw of a piece's levels, a tensor or a slot (Q, T, 1, D), in float64.

        All but what it draws from and where it computes.
        """
        own, sizes = len(self._earlier), [*self._earlier.values()]
        weights = {
            "weight": self.hidden.weight, "shift": self.hidden.bias,
            "out": self.out.weight, "bias": self.out.bias,
            "pitches": absolute_pitch(self.notes),
        }  # fmt: skip
        parts = torch.zeros(*levels.shape[1:], dtype=torch.int64)
        if self._part_mark is not None:
            parts = levels[[*self._earlier].index(self._part_mark)]
        return self._tables(torch.float64) | {
            "T": levels.shape[1], "B": 1, "N": 1, "Q": levels.shape[0], "own": own,
            "J": HIDDEN, "R": self._rows, "E": sum(sizes), "V": PITCH,
            "all_levels": levels, "levels": levels[own], "parts": parts,
            "starts": torch.zeros(1, dtype=torch.int64),
            "offsets": torch.tensor([sum(sizes[:k]) for k in range(levels.shape[0])]),
            **{name: each.detach().double().cpu().contiguous() for name, each in weights.items()},
        }  # fmt: skip

    def draw(
        self, h: Tensor, levels: Tensor, memory: Tensor, uniforms: NDArray[np.float64],
        temperature: float,
    ) -> Tensor:  # fmt: skip
        """Draw the levels of one piece that are TO_DRAW in `levels` (Q, T, 1, D), in float64.

        There are those of this mark, the last but for later ones, and of all before. Each uses the
        uniform of its row of `uniforms` (N, Q); at temperature 0, the most likely is chosen.
        Returns the memory after them.
        """
        after, H = memory.clone(), h.shape[2]
        drawn_from = {
            "H": H, "h": h.reshape(-1, H).contiguous(), "memory": after,
            "U": len(uniforms), "uniforms": torch.from_numpy(uniforms),
            "temperature": torch.tensor([temperature], dtype=torch.float64),
        }  # fmt: skip
        work = dict.fromkeys(("above", "features", "seen", "odds"), NEW)
        run(draw_kernel(), 1, self.draw_fields(levels) | drawn_from | work)
        return after


def standard(levels: Levels) -> list[float]:
    """(L + 1,): 0, then the mean of each level, standardised over the levels."""
    means = np.array(levels.means)
    return [0.0, *((means - means.mean()) / (means.std() or 1.0)).tolist()]


def rates(notes: int) -> NDArray[np.float64]:
    """(2, D): how far the means around a note move after a strike that many semitones away."""
    away = np.arange(notes)
    return np.stack([0.5 * np.exp(-away / 4), 0.25 * np.exp(-away / 12)])


def nearness(notes: int) -> NDArray[np.float64]:
    """(R, D): the weight, for each of `REACHES`, of strikes that many semitones away."""
    return np.exp(-0.5 * (np.arange(notes) / np.array(REACHES)[:, np.newaxis]) ** 2)


# ---- kernels -------------------------------------------------------------------------------------

_FOR_DRAWING = {
    "h": ("T * R", "H"), "pitches": ("D", "V"), "weight": ("J", "H + V + E + K"), "shift": ("J",),
    "out": ("L", "J + K"), "bias": ("L",), "uniforms": ("U", "Q"), "temperature": ("1",),
    "seen": ("J",), "odds": ("L",),
}  # fmt: skip
_LEVELS = Signature(
    "read_levels",
    ("T", "B", "D", "L", "M", "N", "K", "G", "S", "P"),
    (
        Array("levels", ("T", "B", "D"), torch.int64),
        Array("parts", ("T", "B", "D"), torch.int64),
        Array("memory", ("B", "M")),
        Array("above", ("B", "D")),
        Array("loud", ("L + 1",)),
        Array("rates", ("2", "D")),
        Array("kept", ("3",)),
        Array("nearness", ("3", "D")),
        Array("features", ("N", "K")),
        Array("starts", ("B",), torch.int64),
        *(Array(name, shape, optional=True) for name, shape in _FOR_DRAWING.items()),
        Array("all_levels", ("Q", "T", "B", "D"), torch.int64, optional=True),
        Array("offsets", ("Q",), torch.int64, optional=True),
    ),
    ("H", "R", "V", "E", "J", "U", "Q", "own"),
)


_STRIKES = Signature(
    "list_strikes",
    ("D", "Q"),
    (
        Array("x", ("2 * D",)),
        Array("given", ("1",)),
        Array("levels", ("Q", "1", "1", "D"), torch.int64),
        Array("uniforms", ("1",), torch.int64),
    ),
)


def draw_kernel() -> Kernel:
    """The kernel that draws levels, in float64."""
    return compile_text(_LEVELS, torch.float64.itemsize, read_levels, over="B", draws=True)


def strikes_kernel() -> Kernel:
    """The kernel that begins the levels of a frame."""
    return compile_text(_STRIKES, torch.float64.itemsize, list_strikes, over="Q")


# ---- texts of `kernels.code.language` ------------------------------------------------------------
#
# A piece's memory holds for each note the level of its last strike, the time of that strike, and
# two means around the note, a near and a wide one: of the standardised levels (`loud`) of recent
# strikes, weighted less the farther away they are. Then follow the numbers below; for each name
# that levels have, `OF_NAME` numbers and the name's share of the strikes around each note; and for
# each part, if strikes read the levels of their own, its last level and a count of each level, in
# which old strikes count less. Last, if strikes read what is nearby, come for each of `SPANS` the
# weights of strikes as seen from each note, and their weighted sums of levels, for each of
# `REACHES`; then these two for all notes alike, and the sum of squares.

OF_NOTES = 4
FRAMES = 0
"""The number of frames so far, including this one."""
STRIKES = 1
"""The number of levels so far."""
FAST, SLOW = 2, 3
"""Means of recent levels."""
LATEST = 4
"""The last level."""
STRUCK = 5
"""The last frame with strikes, excluding this one."""
MEAN, BOTTOM, TOP = 6, 7, 8
"""The mean level in that frame, and the levels of its lowest and highest notes."""
SUM, COUNT, LOWER, LOWEST = 9, 10, 11, 12
"""In this frame so far: the levels' sum and count, the nearest note below, the lowest's level."""
OF_PIECE = 13

LAST_NOTE, LAST_FRAME, SOUNDING = 0, 1, 2
"""For each name: where and when it was last struck, and how many of its notes sound so far, held
into the frame or struck below."""
OF_NAME = 3

FAST_RATE, SLOW_RATE = 0.3, 0.03
CHORD = 4
"""Counts of notes are divided by this."""
SCALARS = 20
OF_NAMES = 6
"""Numbers that a strike reads for each name."""
FORGETTING = 0.95
"""What a part's counts of levels are multiplied by after each of its strikes."""
SPANS = 2.0, 16.0, 128.0
"""In frames: how long ago strikes have 1/e of the weight of new ones."""
REACHES = 1.0, 4.0, 12.0
"""In semitones: the deviations of the weights around a note."""
RANGE = len(REACHES)
OF_SPAN = 3
NEARBY = 2 * RANGE + 2
"""Numbers that a strike reads for each of the spans."""
LEAST = 0.02
"""Added to the weights of strikes: of those far away or long ago little is known."""
TINY = 1e-30
"""Added to what is nearby in each frame, so that it does not become denormal in silences."""
BOUND = 20.0
"""Beyond this, tanh is 1 or -1 to the last bit."""


def begins(level: Any) -> Any:
    """Whether a note is struck."""
    return level > HELD and level != 0


def begin_frame(f: Any, levels: Any, memory: Any, above: Any) -> Any:
    """Weaken what is nearby; write how far above each note the next is struck, or 0.

    Returns the number struck.
    """
    nearby = memory[f.M - f.S * f.P :]
    for span in range(f.S):
        for k in range(f.P):
            nearby[span * f.P + k] = f.kept[span] * nearby[span * f.P + k] + TINY
    piece = memory[OF_NOTES * f.D :]
    piece[FRAMES] += 1
    piece[SUM] = 0.0
    piece[COUNT] = 0.0
    for g in range(f.G):
        piece[OF_PIECE + (OF_NAME + f.D) * g + SOUNDING] = 0.0
    nearest = f.D
    struck = 0
    for k in range(f.D):
        n = f.D - 1 - k
        above[n] = float(nearest - n) if nearest < f.D else 0.0
        if begins(levels[n]):
            nearest = n
            struck += 1
        own = int(memory[n])
        if levels[n] == HELD and own > 0 and f.G > 0:
            piece[OF_PIECE + (OF_NAME + f.D) * (own - 1) + SOUNDING] += 1.0
    return struck


def write_strike(f: Any, to: Any, memory: Any, above: Any, n: Any, part: Any, others: Any) -> None:
    """The features (K,) of note `n` before its level: `others` struck above it, and levels.

    Means of recent levels; of those around it; its own last level; the last of all; those of the
    last frame with strikes; those of the notes below in this frame. Then the last level of all and
    its own last, one-hot. Then for each of G names: how far below this note it was last struck, and
    how near; how long ago, and whether in this frame; its share of the strikes around; and whether
    one of its notes already sounds, since a voice sings one note at a time. Then what
    `write_nearby` gives. Then the last level in the note's part (from 1 on, 0 if unknown), one-hot,
    and how much more often than if all were alike it has had each level lately, in nats.
    """
    piece = memory[OF_NOTES * f.D :]
    own = int(memory[n])
    latest = int(piece[LATEST])
    away = piece[FRAMES] - memory[f.D + n] if own > 0 else 0.0
    since = piece[FRAMES] - piece[STRUCK]
    count = piece[COUNT]
    begun = count > 0
    clear(to, f.K)
    to[0] = piece[FAST]
    to[1] = piece[SLOW]
    to[2] = memory[2 * f.D + n]
    to[3] = memory[3 * f.D + n]
    to[4] = f.loud[own]
    to[5] = 1.0 / away if own > 0 else 0.0
    to[6] = 16.0 / (16.0 + away) if own > 0 else 0.0
    to[7] = f.loud[latest]
    to[8] = 1.0 / since
    to[9] = piece[MEAN]
    to[10] = piece[BOTTOM]
    to[11] = piece[TOP]
    to[12] = float(begun)
    to[13] = (n - piece[LOWER]) / OCTAVE if begun else 0.0
    to[14] = piece[SUM] / count if begun else 0.0
    to[15] = count / CHORD
    to[16] = piece[LOWEST] if begun else 0.0
    to[17] = float(others > 0)
    to[18] = above[n] / OCTAVE
    to[19] = float(others) / CHORD
    if latest > 0:
        to[SCALARS + latest - 1] = 1.0
    if own > 0:
        to[SCALARS + f.L + own - 1] = 1.0
    for g in range(f.G):
        of_name = piece[OF_PIECE + (OF_NAME + f.D) * g :]
        mine = to[SCALARS + 2 * f.L + OF_NAMES * g :]
        if of_name[LAST_FRAME] > 0:
            below = n - of_name[LAST_NOTE]
            mine[0] = below / OCTAVE
            mine[1] = 1.0 / (1.0 + max(below, -below))
            mine[2] = 1.0 / (1.0 + piece[FRAMES] - of_name[LAST_FRAME])
            mine[3] = float(of_name[LAST_FRAME] == piece[FRAMES])
        mine[4] = of_name[OF_NAME + n]
        mine[5] = float(of_name[SOUNDING] > 0)
    write_nearby(f, to[SCALARS + 2 * f.L + OF_NAMES * f.G :], memory, n)
    if part > 0:
        write_part(f, to[f.K - 2 * f.L :], piece[OF_PIECE + (OF_NAME + f.D) * f.G :], part)


def write_part(f: Any, to: Any, parts: Any, part: Any) -> None:
    """The last level in a part (from 1 on), one-hot, and log odds of each level beside 1 / L."""
    of_part = parts[(1 + f.L) * (part - 1) :]
    total = 1.0
    for level in range(f.L):
        total += of_part[1 + level]
    for level in range(f.L):
        to[f.L + level] = log((1.0 + f.L * of_part[1 + level]) / total)
    if of_part[0] > 0:
        to[int(of_part[0]) - 1] = 1.0


def write_nearby(f: Any, to: Any, memory: Any, n: Any) -> None:
    """For each of `SPANS`, what is known of levels in about that time before note `n`.

    For each of `REACHES` their mean, weighted by nearness in time and pitch, and how much weight
    there is, from 0 to 1; then the mean and the variance over all notes alike.
    """
    for span in range(f.S):
        own = memory[f.M - (f.S - span) * f.P :]
        for reach in range(RANGE):
            weight = own[2 * reach * f.D + n]
            to[span * NEARBY + 2 * reach] = own[(2 * reach + 1) * f.D + n] / (weight + LEAST)
            to[span * NEARBY + 2 * reach + 1] = weight / (weight + 1.0)
        total = own[2 * RANGE * f.D :]
        mean = total[1] / (total[0] + LEAST)
        to[span * NEARBY + 2 * RANGE] = mean
        variance = total[2] / (total[0] + LEAST) - mean * mean
        to[span * NEARBY + 2 * RANGE + 1] = max(variance, 0.0)


def add_level(f: Any, memory: Any, level: Any, n: Any, part: Any) -> None:
    """Remember the level (from 1 on) of note `n`, and of its part if that is known."""
    piece = memory[OF_NOTES * f.D :]
    value = f.loud[level]
    memory[n] = float(level)
    memory[f.D + n] = piece[FRAMES]
    for m in range(f.D):
        away = max(m - n, n - m)
        memory[2 * f.D + m] += f.rates[away] * (value - memory[2 * f.D + m])
        memory[3 * f.D + m] += f.rates[f.D + away] * (value - memory[3 * f.D + m])
    piece[STRIKES] += 1
    newest = 1.0 / piece[STRIKES]
    piece[FAST] += max(FAST_RATE, newest) * (value - piece[FAST])
    piece[SLOW] += max(SLOW_RATE, newest) * (value - piece[SLOW])
    piece[LATEST] = float(level)
    if piece[COUNT] == 0:
        piece[LOWEST] = value
    piece[SUM] += value
    piece[COUNT] += 1
    piece[LOWER] = float(n)
    for g in range(f.G):
        of_name = piece[OF_PIECE + (OF_NAME + f.D) * g :]
        struck = float(g + 1 == level)
        if g + 1 == level:
            of_name[LAST_NOTE] = float(n)
            of_name[LAST_FRAME] = piece[FRAMES]
            of_name[SOUNDING] += 1.0
        for m in range(f.D):
            away = max(m - n, n - m)
            of_name[OF_NAME + m] += f.rates[away] * (struck - of_name[OF_NAME + m])
    if part > 0:
        of_part = piece[OF_PIECE + (OF_NAME + f.D) * f.G + (1 + f.L) * (part - 1) :]
        for other in range(f.L):
            of_part[1 + other] *= FORGETTING
        of_part[level] += 1.0
        of_part[0] = float(level)
    for span in range(f.S):
        nearby = memory[f.M - (f.S - span) * f.P :]
        for reach in range(RANGE):
            for m in range(f.D):
                weight = f.nearness[reach * f.D + max(m - n, n - m)]
                nearby[2 * reach * f.D + m] += weight
                nearby[(2 * reach + 1) * f.D + m] += weight * value
        total = nearby[2 * RANGE * f.D :]
        total[0] += 1.0
        total[1] += value
        total[2] += value * value


def end_frame(f: Any, memory: Any) -> None:
    """Update the memory after the highest note."""
    piece = memory[OF_NOTES * f.D :]
    if piece[COUNT] > 0:
        piece[STRUCK] = piece[FRAMES]
        piece[MEAN] = piece[SUM] / piece[COUNT]
        piece[BOTTOM] = piece[LOWEST]
        piece[TOP] = f.loud[int(piece[LATEST])]


def read_levels(f: Any, first: Any, last: Any) -> None:
    """Strike features (N, K) of pieces `first` to `last`; those of each begin at its `starts`.

    They are of strikes whose level is known or, if it `draws`, TO_DRAW: each replaces the last.
    """
    for piece in range(first, last):
        own = f.memory[piece * f.M :]
        over = f.above[piece * f.D :]
        strike = f.starts[piece]
        for t in range(f.T):
            frame = f.levels[(t * f.B + piece) * f.D :]
            part = f.parts[(t * f.B + piece) * f.D :]
            left = begin_frame(f, frame, own, over)
            for n in range(f.D):
                left -= begins(frame[n])
                if frame[n] == TO_DRAW if f.draws else frame[n] > 0:
                    to = f.features[(0 if f.draws else strike) * f.K :]
                    write_strike(f, to, own, over, n, part[n], left)
                    if f.draws:
                        frame[n] = drawn_level(f, to, strike, t, n)
                    strike += 1
                if frame[n] > 0:
                    add_level(f, own, frame[n], n, part[n])
            end_frame(f, own)


def list_strikes(f: Any, first: Any, last: Any) -> None:
    """The levels of a frame x before any is drawn, and how many uniforms they take.

    Those of a `given` frame remain UNKNOWN.
    """
    given = f.given[0] > 0
    for mark in range(first, last):
        count = 0
        for n in range(f.D):
            struck = f.x[f.D + n] > 0
            rest = HELD if f.x[n] > 0 else 0
            f.levels[mark * f.D + n] = (UNKNOWN if given else TO_DRAW) if struck else rest
            count += 0 if given else f.Q * struck
        f.uniforms[0] = count


def drawn_level(f: Any, features: Any, strike: Any, t: Any, n: Any) -> Any:
    """The level drawn for note `n` of frame `t`, the `strike`th to be drawn."""
    h = f.h[(t * f.R + (n if f.R > 1 else 0)) * f.H :]
    for j in range(f.J):
        weight = f.weight[j * (f.H + f.V + f.E + f.K) :]
        total = f.shift[j]
        for k in range(f.H):
            total += weight[k] * h[k]
        for k in range(f.V):
            total += weight[f.H + k] * f.pitches[n * f.V + k]
        for mark in range(f.own):
            known = f.all_levels[(mark * f.T + t) * f.D + n]
            if known > 0:
                total += weight[f.H + f.V + f.offsets[mark] + known - 1]
        for k in range(f.K):
            total += weight[f.H + f.V + f.E + k] * features[k]
        f.seen[j] = 1.0 - 2.0 / (exp(2.0 * min(max(total, -BOUND), BOUND)) + 1.0)
    sharpness = 1.0 / f.temperature[0] if f.temperature[0] > 0 else 1.0
    for level in range(f.L):
        total = f.bias[level]
        for j in range(f.J):
            total += f.out[level * (f.J + f.K) + j] * f.seen[j]
        for k in range(f.K):
            total += f.out[level * (f.J + f.K) + f.J + k] * features[k]
        f.odds[level] = total * sharpness
    return 1 + chosen(f.odds, f.uniforms[strike * f.Q + f.own], f.L, f.temperature[0] == 0)


def chosen(odds: Any, uniform: Any, L: Any, at_zero: Any) -> Any:
    """One of L by its log odds, which are overwritten; the most likely one if `at_zero`."""
    best = 0
    for k in range(1, L):
        best = k if odds[k] > odds[best] else best
    most = odds[best]
    total = 0.0
    for k in range(L):
        odds[k] = exp(odds[k] - most)
        total += odds[k]
    reached = 0.0
    found = 0
    for k in range(L - 1):
        reached += odds[k]
        found += reached <= uniform * total
    return best if at_zero else found
