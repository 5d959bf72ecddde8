"""Frames of notes, each of which depends on the notes below it: a NADE.

The specification comes first, the compiled draw last. The compiled score goes from h to nats in one
pass, and in training back in the same pass. The hidden units change only after a sounding note, of
which a frame has few. So a frame falls into segments of notes that see the same state of the hidden
units: each state is computed once, and stored until the gradients of its segment are known. With
onsets the same holds for the F numbers of a frame, its notes and then its strikes: "note" below
means any of these.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.config import Config
from seqmodel.kernels import device
from seqmodel.kernels.code.emit import PANEL, Emitter, panel_width, vector_lanes
from seqmodel.kernels.code.instructions import Inline
from seqmodel.kernels.code.vectors import ACTIVATIONS, Vector
from seqmodel.kernels.linear.matmul import matmul, packing
from seqmodel.kernels.linear.sparse import INDEX, index_at, list_rows
from seqmodel.kernels.run.calls import ITEMSIZE
from seqmodel.kernels.run.signature import NEW, THREADS, Array, Field, Signature, packed, per_thread
from seqmodel.kernels.run.threads import Job, parallel_for
from seqmodel.media.definitions import FrameDefinition
from seqmodel.outputs.bernoulli import write_frame_nats
from seqmodel.outputs.draws import LinearNotesDraw, NotesWriter
from seqmodel.outputs.linear_score import (
    BLOCK,
    ScoreResult,
    block_kernel,
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

    def nats(self, outputs: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """See `NotesOutput.nats`; `outputs` are the layer's."""
        return super().nats(self.conditional_logits(outputs, frames), frames, past)

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
            self, setting, _write_draw, K=self.width, P=P, V=V, U=U,
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
        "rows": len(rows), "H": weight.shape[1], "D": V.shape[0], "K": V.shape[1],
        "threads": threads_for(len(rows)), "h": rows, "bias": bias.contiguous(),
        "frames": rows_of(frames), "past": None if past is None else rows_of(past),
        "indices": NEW, "counts": NEW,
        "a": NEW, "states": NEW, "outputs": NEW, "nats": NEW,
    }  # fmt: skip
    kernel = _FORWARD if weights is None else _GRADIENT
    return [*packings.values(), kernel(h.element_size()).job(fields)]


def _score(weights: Tensor | None, *arguments: Any) -> ScoreResult:
    """The nats (...) of the arguments of `_scoring`; gradients repeat the pass over the notes."""
    (h, weight, _, V, *_), jobs = arguments, _scoring(weights, *arguments)
    (D, K), width, created, grads = V.shape, panel_width(h.element_size()), jobs[-1].created, None
    rows = rows_of(h)
    threads, size = threads_for(len(rows)), -(-K // width) * width * D
    parallel_for(jobs, threads)
    if weights is not None:
        outputs = created["outputs"].mul_(weights.reshape(-1, 1))
        layer, gradient_jobs = gradients(rows, weight, outputs)
        parallel_for(gradient_jobs, threads)
        panels = (created[name][:, :size].view(threads, -1, D, width) for name in ("d_V", "d_U"))
        sums = (part.sum(0).transpose(0, 1).reshape(D, -1)[:, :K] for part in panels)
        grads = layer[0].view(h.shape), layer[1], outputs.sum(0), *sums
    return created["nats"].view(h.shape[:-1]), grads


class _Row:
    """A row of a block: the addresses of its data and of its thread's."""

    def __init__(self, e: Emitter, f: dict[str, Any], start: Any, n: Any) -> None:
        """Row `n` of the block that begins at row `start`."""
        self._e, self._D, self.number = e, f["D"], e.add(start, n)
        self.width = _padded_width(e, f)
        self.outputs = e.offset(f["outputs"], e.mul(self.number, e.add(f["D"], f["K"])))
        self.a = e.offset(f["a"], e.mul(f["thread"], e.padded(self.width)))
        states = e.mul(e.add(f["D"], 1), self.width)
        first = e.mul(f["thread"], e.padded(e.mul(states, BLOCK)))
        self._states = e.offset(f["states"], first, e.mul(n, states))
        self._indices, counts = _list_addresses(e, f)
        self._indices = e.builder.gep(self._indices, [e.mul(n, f["D"])], source_etype=INDEX)
        self.sounding = index_at(e, counts, n)
        """The number of sounding notes."""

    def note(self, n: Any) -> Any:
        return index_at(self._e, self._indices, n)

    def state(self, n: Any) -> Any:
        """The state of the hidden units after n sounding notes."""
        return self._e.offset(self._states, self._e.mul(n, self.width))

    @contextmanager
    def segment(self, n: Any, values: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
        """A loop over the notes that see state n; it carries `values`."""
        e, b = self._e, self._e.builder
        first, last = [e.int(0)], [self._D]
        with e.when(b.icmp_signed(">", n, e.int(0)), first) as inside:
            inside[0] = e.add(self.note(b.sub(n, e.int(1))), 1)
        with e.when(b.icmp_signed("<", n, self.sounding), last) as inside:
            inside[0] = e.add(self.note(n), 1)
        with e.carrying(first[0], last[0], 1, values) as carried:
            yield carried


def _padded_width(e: Emitter, f: dict[str, Any]) -> Any:
    """K rounded up to whole panels."""
    return e.mul(e.parts(f["K"], PANEL * e.lanes), PANEL * e.lanes)


def _list_addresses(e: Emitter, f: dict[str, Any]) -> tuple[Any, Any]:
    """The addresses of the thread's lists: the sounding notes of each row, and their count."""
    b, thread = e.builder, f["thread"]
    indices = b.gep(f["indices"], [e.mul(thread, f["D"], BLOCK)], source_etype=INDEX)
    return indices, b.gep(f["counts"], [e.mul(thread, BLOCK)], source_etype=INDEX)


def _write_rows(e: Emitter, f: dict[str, Any], start: Any, rows: Any, *, gradient: bool) -> None:
    H, D = f["H"], f["D"]
    N = e.add(D, f["K"])
    outputs, h = e.offset(f["outputs"], e.mul(start, N)), e.offset(f["h"], e.mul(start, H))
    matmul(e, h, H, f["weight"], outputs, N, rows, H, N, False)
    list_rows(e, e.offset(f["frames"], e.mul(start, D)), rows, D, *_list_addresses(e, f))
    with e.loop(0, rows) as n:
        row = _Row(e, f, start, n)
        _write_logits(e, f, row)
        slopes = row.outputs if gradient else None
        nats = write_frame_nats(e, f, row.number, D, row.outputs, slopes=slopes)
        e.builder.store(nats, e.offset(f["nats"], row.number))
    if gradient:  # by panels: one of each matrix stays in the L1 cache for all rows
        with e.loop(0, f["K"], PANEL * e.lanes) as k, e.loop(0, rows) as n:
            _write_gradient(e, f, _Row(e, f, start, n), k)


def _write_logits(e: Emitter, f: dict[str, Any], row: _Row) -> None:
    """Turn a row's W_v h into its notes' logits, and store the states."""
    b, D = e.builder, f["D"]

    def activate(a: Vector, state: Any, k: Any) -> None:
        e.store(a.value, e.offset(row.a, k))
        e.store(ACTIVATIONS["sigmoid"](a).value, e.offset(state, k))

    with e.loop(0, row.width, e.lanes) as k:
        lanes = e.first_lanes(b.sub(f["K"], k))
        product = e.load(e.offset(row.outputs, D, k), lanes)
        bias = e.load(e.offset(f["bias"], D, k), lanes)
        activate(Vector(e, product) + Vector(e, bias), row.state(0), k)
    with e.loop(0, e.add(row.sounding, 1)) as n:
        state = row.state(n)
        with row.segment(n, []) as (d, _):
            dot = [e.zero()] * PANEL
            with e.carrying(0, row.width, PANEL * e.lanes, dot) as (k, total):
                for v in range(PANEL):
                    weight = e.load(_at(e, f, f["U"], d, k, v))
                    hidden = e.load(e.offset(state, k, v * e.lanes))
                    total[v] = e.multiply_add(weight, hidden, total[v])
            address = e.offset(row.outputs, d)
            b_v = b.fadd(b.load(address, typ=e.real), b.load(e.offset(f["bias"], d), typ=e.real))
            b.store(b.fadd(e.sum(reduce(b.fadd, dot)), b_v), address)
        with b.if_then(b.icmp_signed("<", n, row.sounding)):
            note, following = row.note(n), row.state(e.add(n, 1))
            with e.loop(0, row.width, PANEL * e.lanes) as k:
                for v in range(PANEL):
                    column = e.add(k, v * e.lanes)
                    a, step = e.load(e.offset(row.a, column)), e.load(_at(e, f, f["V"], note, k, v))
                    activate(Vector(e, a) + Vector(e, step), following, column)


def _write_gradient(e: Emitter, f: dict[str, Any], row: _Row, k: Any) -> None:
    """Backpropagate from the logits to b_h, V and U, for one panel of hidden units.

    The gradient of b_h is that of the row's nats, like that of b_v; the gradients of V and U are
    multiplied by the row's weight and added to the thread's tables.
    """
    b, vectors = e.builder, range(PANEL)
    size = e.padded(e.mul(f["D"], row.width))
    V, U = (e.offset(f[name], e.mul(f["thread"], size)) for name in ("d_V", "d_U"))
    weight = Vector(e, e.broadcast(e.offset(f["weights"], row.number)))

    def add(term: Vector, address: Any) -> None:
        e.store((term + Vector(e, e.load(address))).value, address)

    by_a = [e.zero()] * PANEL
    with e.carrying(0, e.add(row.sounding, 1), 1, by_a) as (above, d_a):
        n = b.sub(row.sounding, above)
        state = [Vector(e, e.load(e.offset(row.state(n), k, v * e.lanes))) for v in vectors]
        weighted = [weight * s for s in state]
        by_state = [e.zero()] * PANEL
        with row.segment(n, by_state) as (d, d_s):
            slope = Vector(e, e.broadcast(e.offset(row.outputs, d)))
            for v in vectors:
                d_hidden = slope * Vector(e, e.load(_at(e, f, f["U"], d, k, v)))
                d_s[v] = (d_hidden + Vector(e, d_s[v])).value
                add(slope * weighted[v], _at(e, f, U, d, k, v))
        for v, s in enumerate(state):
            d_pre = Vector(e, by_state[v]) * (s * (1.0 - s))
            d_a[v] = (d_pre + Vector(e, d_a[v])).value
        with b.if_then(b.icmp_signed(">", n, e.int(0))):
            note = row.note(b.sub(n, e.int(1)))
            for v in vectors:
                add(weight * Vector(e, d_a[v]), _at(e, f, V, note, k, v))
    for v in vectors:
        column = e.add(k, v * e.lanes)
        remaining = b.sub(f["K"], column)
        with b.if_then(b.icmp_signed(">", remaining, e.int(0))):
            address = e.offset(row.outputs, f["D"], column)
            e.store(by_a[v], address, e.first_lanes(remaining))


def _at(e: Emitter, f: dict[str, Any], panels: Any, d: Any, k: Any, v: int) -> Any:
    """The address of vector v of note d in the panel that begins with hidden unit k."""
    return e.offset(panels, e.mul(k, f["D"]), e.mul(d, PANEL * e.lanes), v * e.lanes)


def _clear_gradients(e: Emitter, f: dict[str, Any]) -> None:
    size = e.mul(f["D"], _padded_width(e, f))
    for name in ("d_V", "d_U"):
        e.clear(e.offset(f[name], e.mul(f["thread"], e.padded(size))), size)


_SIZES = ("rows", "H", "D", "K")
_PADDED_WIDTH = "-(-K // WIDTH) * WIDTH"
_ARRAYS = (
    Array("h", ("rows", "H")),
    packed("weight", "H", "D + K"),
    Array("bias", ("D + K",)),
    packed("V", "D", "K"),
    packed("U", "D", "K"),
    Array("frames", ("rows", "D")),
    Array("past", ("rows", "D"), optional=True),  # with onsets
    Array("indices", (THREADS, f"{BLOCK} * D"), torch.int32),
    Array("counts", (THREADS, f"{BLOCK}"), torch.int32),
    per_thread("a", _PADDED_WIDTH),
    per_thread("states", f"{BLOCK} * (D + 1) * ({_PADDED_WIDTH})"),
    Array("outputs", ("rows", "D + K")),
    Array("nats", ("rows",)),
)
_FORWARD = block_kernel(
    Signature("nade_forward", _SIZES, _ARRAYS),  # leaves the notes' logits in `outputs`
    partial(_write_rows, gradient=False),
)
_GRADIENT = block_kernel(
    Signature(
        "nade_gradient",  # leaves the gradient of a row's nats in `outputs`
        _SIZES,
        (
            *_ARRAYS,
            Array("weights", ("rows",)),
            per_thread("d_V", f"D * ({_PADDED_WIDTH})"),
            per_thread("d_U", f"D * ({_PADDED_WIDTH})"),
        ),
    ),
    partial(_write_rows, gradient=True),
    _clear_gradients,
)


def _padded(matrix: Tensor) -> Tensor:
    """A matrix in float64, each row zero-padded to whole vectors."""
    return F.pad(matrix.detach().double(), (0, -matrix.shape[1] % vector_lanes(ITEMSIZE)))


def _write_draw(frame: NotesWriter, at_zero: bool, onsets: bool) -> None:
    e, b, f = frame.e, frame.e.builder, frame.field
    D, P = f["D"], f["P"]
    if onsets:
        e.copy(f["x"], f["past"], D)

    def limit(j: Any, lanes: Any) -> None:
        """Store log(u / (1 - u)); logits above it have u < s(logit). log(0) comes out as -709."""
        u = frame.uniforms(j)
        limits = u.log() - (1.0 - u).log()
        if frame.fills:
            limits = limits.replaced(u, "<", 0.0, -math.inf).replaced(u, ">", 1.0, math.inf)
        e.store(e.zero() if at_zero else limits.value, e.offset(f["limits"], j), lanes)

    def activate(a: Vector, k: Any) -> None:
        e.store(a.value, e.offset(f["a"], k))
        e.store(ACTIVATIONS["sigmoid"](a).value, e.offset(f["state"], k))

    def add(d: Any) -> None:
        """Update the hidden units after number `d`, which is one."""
        with e.loop(0, P, e.lanes) as k:
            step = Vector(e, e.load(e.offset(f["V"], e.mul(d, P), k)))
            activate(Vector(e, e.load(e.offset(f["a"], k))) + step, k)

    e.columns(D, limit)
    e.columns(f["K"], lambda k, lanes: activate(frame.output(e.add(D, k), lanes), k))
    frame.translate(
        draw_numbers, notes=b.lshr(D, e.int(1)) if onsets else D, logits=frame.logits,
        fills=frame.fills, dot=Inline(e.dot), add=Inline(add),
    )  # fmt: skip


def draw_numbers(f: Any) -> None:
    """Draw each number given those before it; see `notes` for which strikes are free."""
    for d in range(f.D):
        logit = (f.dot(f.state, f.U[d * f.P :], f.P) + (f.product[d] + f.bias[d])) * f.factor[0]
        if f.fills:
            f.logits[d] = logit
        one = logit > f.limits[d]
        if d >= f.notes:
            one = f.x[d - f.notes] > 0 and (one or f.past[d - f.notes] == 0)
        f.x[d] = float(one)
        if one:
            f.add(d)
