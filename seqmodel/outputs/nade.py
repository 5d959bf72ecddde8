"""Frames of notes, each of which depends on the notes below it: a NADE.

The specification comes first, the compiled draw last. The compiled score goes from h to nats in one
pass, and in training back in the same pass. The hidden units change only after a sounding note, of
which a frame has few. So notes up to the next that sounds see the same state of the hidden units,
which is computed once, and stored until their gradients are known. With onsets the same holds for
the F numbers of a frame, its notes and then its strikes: "note" below means any of these.
"""

import math
from collections.abc import Iterator
from math import log
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.config import Config
from seqmodel.kernels import device
from seqmodel.kernels.code.emit import Emitter, panel_width, vector_lanes
from seqmodel.kernels.code.instructions import Inline, dot, of_vectors
from seqmodel.kernels.code.language import clear, copy, side_by_side
from seqmodel.kernels.code.vectors import ACTIVATIONS
from seqmodel.kernels.linear.matmul import matmul, packing
from seqmodel.kernels.run.calls import ITEMSIZE
from seqmodel.kernels.run.signature import NEW, THREADS, Array, Field, Signature, packed
from seqmodel.kernels.run.threads import Job, compile_text, parallel_for
from seqmodel.media.definitions import FrameDefinition
from seqmodel.outputs.bernoulli import write_frame_nats
from seqmodel.outputs.draws import LinearNotesDraw
from seqmodel.outputs.linear_score import (
    BLOCK,
    ScoreResult,
    gradients,
    nats_of,
    rows_of,
    threads_for,
)
from seqmodel.outputs.notes import LinearNotesOutput, note_count, require_past
from seqmodel.outputs.protocol import DrawSetting


class NadeOutput(LinearNotesOutput):
    """Notes from the lowest to the highest, each given the notes below it and the past.

    A NADE (Larochelle and Murray 2011) whose biases are affine in h, as in the RNN-NADE of
    Boulanger-Lewandowski et al. 2012:

        b_v = W_v h + c_v,  b_h = W_h h + c_h
        a_d = b_h + sum_{e<d} x_e V_e
        p(x_d = 1 | x_<d, h) = s(b_v,d + U_d . s(a_d))

    s is the logistic sigmoid, b_v has F numbers, b_h and each row of V and U (F, K) have K. The
    layer `linear` computes b_v, then b_h, then the logit of the end, if there is one.

    With `onsets` the strikes follow the notes in the same chain, from the lowest to the highest, so
    that a chord is struck again as a whole. Strikes that are not free cost nothing, but later ones
    depend on them; see `outputs.notes`.
    """

    def __init__(
        self, hidden_size: int, notes: int, width: int, *, end: bool = False, onsets: bool = False
    ) -> None:
        """`width` is K."""
        super().__init__(hidden_size, notes, width, end=end, onsets=onsets)
        self.width = width
        # At zero the notes start out independent, with logits b_v. The random rows of W_h break the
        # symmetry of the hidden units.
        self.V = nn.Parameter(torch.zeros(self.frame_size, width))
        self.U = nn.Parameter(torch.zeros(self.frame_size, width))

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition, h_size: int) -> Self:
        size = h_size, note_count(frame), config.nade_hidden
        return cls(*size, end=config.end, onsets=frame.onsets)

    def conditional_logits(self, outputs: Tensor, frames: Tensor) -> Tensor:
        """The logit of each number given those before it (..., F), from the layer's outputs."""
        b_v, b_h = self._biases(outputs)
        steps = frames.unsqueeze(-1) * self.V
        a = torch.cat([b_h.unsqueeze(-2), steps[..., :-1, :]], -2).cumsum(-2)
        return b_v + (self.U * a.sigmoid()).sum(-1)

    def _biases(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """b_v (..., F) and b_h (..., K)."""
        b_v, b_h, _ = outputs.tensor_split([self.frame_size, self.frame_size + self.width], -1)
        return b_v, b_h

    def plain_nats(self, h: Tensor, frames: Tensor, past: Any) -> Tensor:
        return self.nats(self.conditional_logits(self(h), frames), frames, past)

    def note_logits(self, h: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """See `NotesOutput.note_logits`; given the frame's lower notes, without a gradient."""
        with torch.no_grad():
            given = h, *self.without_end(), self.V, self.U, frames
            if not h.numel() or device.unsupported_reason(given) is not None:
                return self.conditional_logits(self(h), frames)
            jobs = _scoring(None, *given)
            parallel_for(jobs, threads_for(h[..., 0].numel()))
            return jobs[-1].created["outputs"][:, : self.frame_size].view(frames.shape)

    def compiled_nats(
        self, h: Tensor, frames: Tensor, past: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        before = require_past(past) if self.onsets else None
        return nats_of(_score, weights, h, *self.without_end(), self.V, self.U, frames, before)

    def in_turn(self, h: Tensor, frame: Tensor, past: Any) -> Iterator[tuple[Any, Tensor]]:
        """See `NotesOutput`: from the lowest note to the highest, then the strikes."""
        b_v, a = self._biases(self(h))
        for d in range(self.frame_size):
            yield d, b_v[:, d] + a.sigmoid() @ self.U[d]
            a = a + frame[:, d : d + 1] * self.V[d]

    def compiled_draw(self, setting: DrawSetting) -> LinearNotesDraw:
        V, U, arena = _padded(self.V), _padded(self.U), setting.arena
        P = V.shape[1]
        return LinearNotesDraw(
            self, setting, draw_numbers, K=self.width, P=P, V=V, U=U,
            a=arena.take(P), state=arena.take(P), limits=arena.take(self.frame_size),
            past=arena.take(self.frame_size) if self.onsets else None,
        )  # fmt: skip


def _scoring(
    weights: Tensor | None, h: Tensor, weight: Tensor, bias: Tensor, V: Tensor, U: Tensor,
    frames: Tensor, past: Tensor | None = None,
) -> list[Job]:  # fmt: skip
    """The jobs that score frames (..., D), given h (..., H) and, with onsets, the frames before.

    `weight` (D + K, H) and `bias` are the layer's. The last job makes `nats` (rows,) and `outputs`
    (rows, D + K), which begin with the notes' logits or, with weights (...) of the frames, are the
    slopes of the layer's outputs; then also the gradients of V and U (D, K), as panels.
    """
    rows, gradient_fields = rows_of(h), dict[str, Field]()
    if weights is not None:
        gradient_fields = {"weights": weights.reshape(-1).contiguous(), "d_V": NEW, "d_U": NEW}
    packings = {"weight": packing(weight, transposed=True), "V": packing(V), "U": packing(U)}
    panels = {name: job.created["panels"] for name, job in packings.items()}
    fields = panels | gradient_fields | {
        "rows": len(rows), "blocks": -(-len(rows) // BLOCK), "H": weight.shape[1], "D": V.shape[0],
        "K": V.shape[1], "P": panels["V"][:, 0].numel(), "threads": threads_for(len(rows)),
        "h": rows, "bias": bias.contiguous(), "frames": rows_of(frames),
        "past": None if past is None else rows_of(past), "states": NEW, "ends": NEW,
        "outputs": NEW, "nats": NEW,
    }  # fmt: skip
    kernel = compile_text(
        _SCORE, h.element_size(), score_blocks, over="blocks", lanes=panel_width(h.element_size()),
        gradient=weights is not None,
    )  # fmt: skip
    return [*packings.values(), kernel.job(fields)]


def _score(weights: Tensor | None, *arguments: Any) -> ScoreResult:
    """The nats (...) of the arguments of `_scoring`; gradients repeat the pass over the notes."""
    (h, weight, _, V, *_), jobs = arguments, _scoring(weights, *arguments)
    (D, K), width, created, grads = V.shape, panel_width(h.element_size()), jobs[-1].created, None
    rows = rows_of(h)
    threads = threads_for(len(rows))
    parallel_for(jobs, threads)
    if weights is not None:
        outputs = created["outputs"].mul_(weights.reshape(-1, 1))
        layer, gradient_jobs = gradients(rows, weight, outputs)
        parallel_for(gradient_jobs, threads)
        panels = (created[name].view(threads, -1, D, width) for name in ("d_V", "d_U"))
        sums = (part.sum(0).transpose(0, 1).reshape(D, -1)[:, :K] for part in panels)
        grads = layer[0].view(h.shape), layer[1], outputs.sum(0), *sums
    return created["nats"].view(h.shape[:-1]), grads


_SCORE = Signature(
    "nade",
    ("rows", "blocks", "H", "D", "K", "P"),
    (
        Array("h", ("rows", "H")),
        packed("weight", "H", "D + K"),
        Array("bias", ("D + K",)),
        packed("V", "D", "K"),
        packed("U", "D", "K"),
        Array("frames", ("rows", "D")),
        Array("past", ("rows", "D"), optional=True),  # with onsets
        Array("states", (THREADS, f"({BLOCK} * (D + 1) + 1) * P")),  # of a block's rows; then `a`
        Array("ends", (THREADS, f"{BLOCK} * (D + 3)"), torch.int64),  # of states, see below
        # The notes' logits or, with weights, the gradient of a row's nats.
        Array("outputs", ("rows", "D + K")),
        Array("nats", ("rows",)),
        Array("weights", ("rows",), optional=True),
        Array("d_V", (THREADS, "D * P"), optional=True),
        Array("d_U", (THREADS, "D * P"), optional=True),
    ),
)


def _write_nats(e: Emitter, f: Any, row: Any, logits: Any) -> Any:
    fields = {name: f.fields[name].address for name in ("frames", "past")}
    narrow = Emitter(e.builder, e.precision.itemsize)
    slopes = logits if f.gradient else None
    return write_frame_nats(narrow, fields, row, f.D, logits, slopes=slopes)


add_product: Any = Inline(lambda e, *product: matmul(e, *product, True))
nats_of_row: Any = Inline(_write_nats)
sum_of_lanes: Any = Inline(Emitter.sum)
sigmoid = of_vectors(ACTIVATIONS["sigmoid"])


# Texts of `kernels.code.language`. A vector has as many lanes as a panel has columns, P is K
# rounded up to whole panels, and `a` what the hidden units of the present note's state add up.


def score_blocks(f: Any, first: Any, last: Any, lane: Any) -> None:
    """Score blocks of rows; with `gradient` their slopes replace the outputs."""
    N = f.D + f.K
    zero = float(lane) * 0.0
    states = f.states[f.thread * (BLOCK * (f.D + 1) + 1) * f.P :]
    ends = f.ends[f.thread * BLOCK * (f.D + 3) :]
    a = states[BLOCK * (f.D + 1) * f.P :]
    clear(a, f.P)
    if f.gradient:
        clear(f.d_V[f.thread * f.D * f.P :], f.D * f.P)
        clear(f.d_U[f.thread * f.D * f.P :], f.D * f.P)
    for block in range(first, last):
        start = block * BLOCK
        rows = min(BLOCK, f.rows - start)
        for n in range(rows):
            copy(f.bias, f.outputs[(start + n) * N :], N)
        add_product(f.h[start * f.H :], f.H, f.weight, f.outputs[start * N :], N, rows, f.H, N)
        for n in range(rows):
            frame = f.frames[(start + n) * f.D :]
            outputs = f.outputs[(start + n) * N :]
            of_row = states[n * (f.D + 1) * f.P :]
            write_logits(f, frame, outputs, a, of_row, ends[n * (f.D + 3) :], zero)
            f.nats[start + n] = nats_of_row(f, start + n, outputs)
        if f.gradient:  # by panels: one of each matrix stays in the L1 cache for all rows
            for k in range(0, f.P, f.lanes):
                for n in range(rows):
                    of_panel = states[n * (f.D + 1) * f.P + k :]
                    write_gradient(f, start + n, k, of_panel, ends[n * (f.D + 3) :], a, zero)


def write_logits(
    f: Any, frame: Any, outputs: Any, a: Any, states: Any, ends: Any, zero: Any
) -> None:
    """Turn a row's b_v into its notes' logits, and store the states.

    State n is that of the notes from `ends[n]` to `ends[n + 1]`; the last number of `ends` is that
    of the sounding notes.
    """
    copy(outputs[f.D :], a, f.K)
    activate(f, a, states)
    n = 0
    ends[0] = 0
    for d in range(f.D):
        total = zero
        for k in range(0, f.P, f.lanes):
            weight = side_by_side(f.U[k * f.D + d * f.lanes :])[0]
            total += weight * side_by_side(states[n * f.P + k :])[0]
        outputs[d] = sum_of_lanes(total) + outputs[d]
        if frame[d] != 0:
            for k in range(0, f.P, f.lanes):
                side_by_side(a[k:])[0] += side_by_side(f.V[k * f.D + d * f.lanes :])[0]
            n += 1
            ends[n] = d + 1
            activate(f, a, states[n * f.P :])
    ends[n + 1] = f.D
    ends[f.D + 2] = n


def activate(f: Any, a: Any, state: Any) -> None:
    """The state of the hidden units."""
    for k in range(0, f.P, f.lanes):
        side_by_side(state[k:])[0] = sigmoid(side_by_side(a[k:])[0])


def write_gradient(
    f: Any, row: Any, k: Any, states: Any, ends: Any, scratch: Any, zero: Any
) -> None:
    """Backpropagate from the logits to b_h, V and U, for the panel of hidden units from k on.

    The gradient of b_h is that of the row's nats, like that of b_v; the gradients of V and U are
    multiplied by the row's weight and added to the thread's tables.
    """
    outputs = f.outputs[row * (f.D + f.K) :]
    d_V = f.d_V[f.thread * f.D * f.P + k * f.D :]
    d_U = f.d_U[f.thread * f.D * f.P + k * f.D :]
    U = f.U[k * f.D :]
    weight = f.weights[row]
    sounding = ends[f.D + 2]
    d_a = zero
    for above in range(sounding + 1):
        n = sounding - above
        s = side_by_side(states[n * f.P :])[0]
        weighted = weight * s
        d_s = zero
        for d in range(ends[n], ends[n + 1]):
            slope = outputs[d]
            d_s += slope * side_by_side(U[d * f.lanes :])[0]
            side_by_side(d_U[d * f.lanes :])[0] += slope * weighted
        d_a += d_s * (s * (1.0 - s))
        if n > 0:
            side_by_side(d_V[(ends[n] - 1) * f.lanes :])[0] += weight * d_a
    side_by_side(scratch[k:])[0] = d_a
    copy(scratch[k:], outputs[f.D + k :], min(f.lanes, f.K - k))


def _padded(matrix: Tensor) -> Tensor:
    """A matrix in float64, each row zero-padded to whole vectors."""
    return F.pad(matrix.detach().double(), (0, -matrix.shape[1] % vector_lanes(ITEMSIZE)))


def draw_numbers(f: Any) -> None:
    """Draw each number given those before it; see `notes` for which strikes are free.

    A text of `kernels.code.language`. Logits above log(u / (1 - u)) have u < s(logit); log(0)
    comes out as -709.
    """
    if f.onsets:
        copy(f.x, f.past, f.D)
    for j in range(0, f.D, f.lanes):
        u = side_by_side(f.uniforms[j:])[0]
        limit = log(u) - log(1.0 - u)
        if f.fills:
            limit = -math.inf if u < 0.0 else limit
            limit = math.inf if u > 1.0 else limit
        side_by_side(f.limits[j:])[0] = 0.0 if f.at_zero else limit
    clear(f.a, f.P)
    copy(f.product[f.D :], f.a, f.K)
    activate(f, f.a, f.state)
    for d in range(f.D):
        logit = (dot(f.state, f.U[d * f.P :], f.P) + f.product[d]) * f.factor[0]
        if f.fills:
            f.logits[f.stream[1] * f.numbers + d] = logit
        one = logit > f.limits[d]
        if d >= f.notes:
            one = f.x[d - f.notes] > 0 and (one or f.past[d - f.notes] == 0)
        f.x[d] = float(one)
        if one:
            for k in range(0, f.P, f.lanes):
                side_by_side(f.a[k:])[0] += side_by_side(f.V[d * f.P + k :])[0]
            activate(f, f.a, f.state)
