"""Outputs with one unit row per note: their layer, the ends of pieces, and the compiled draw."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from llvmlite import ir
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodel.data.dataset import Split
from seqmodel.kernels.code.emit import INT, Emitter
from seqmodel.kernels.code.jit import call_at, compiled_once
from seqmodel.kernels.code.language import Pointer, clear, copy, translate
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.linear.matmul import matmul, pack
from seqmodel.kernels.run.calls import Call, Slot
from seqmodel.kernels.run.signature import Array, Signature, packed
from seqmodel.outputs.draws import BYTE, DrawField, NotesDraw, NotesWriter
from seqmodel.outputs.ends import log_odds
from seqmodel.outputs.notes import OCTAVE, NotesOutput, needed, restrikes
from seqmodel.outputs.protocol import DrawSetting

WORK = 4 * OCTAVE + 1
"""The size of `work` beyond 2 D."""
_ARRAYS = (
    Array("h", ("notes", "H")),
    Array("weight", ("D // notes", "R")),
    Array("bias", ("D // notes",)),
    Array("end_weight", ("H",), optional=True),
    Array("end_bias", ("1",), optional=True),
)


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

    def end_logits(self, h: Tensor) -> Tensor:
        """See `EndingOutput.end_logits`: the log of the mean odds of the notes, h (..., B D, H).

        Any one note can thus signal the end, however many are silent.
        """
        assert self.ending is not None
        of_notes = torch.mv(h.reshape(-1, h.shape[-1]), self.ending.weight[0])
        of_notes = of_notes.view(*h.shape[:-2], -1, self.notes)
        return of_notes.logsumexp(-1) - math.log(self.notes) + self.ending.bias


# Texts of `kernels.code.language`: a note's inputs from the notes below it in its own frame.
#
# For note n, input k of the first 12 is note n - 12 + k, input k of the next 12 counts the sounding
# notes below n of that note's pitch class, then comes the number of all sounding notes below n,
# divided by 12; with `onsets`, whether note n - 12 + k is struck.
#
# `work` keeps the notes so far after 12 zeros; their counts per pitch class, twice in a row, so
# that those from any class on are contiguous; their count in all; with `onsets` the struck notes so
# far, also after 12 zeros.


def below_size(*, onsets: bool) -> int:
    """How many inputs each note gets."""
    return (3 if onsets else 2) * OCTAVE + 1


def begin_below(work: Any, D: Any) -> None:
    """Before the lowest note."""
    clear(work, 2 * D + WORK)


def read_below(work: Any, D: Any, n: Any, to: Any, onsets: bool) -> None:
    """Write the inputs of note `n`."""
    copy(work[n:], to, OCTAVE)
    copy(work[D + OCTAVE + n % OCTAVE :], to[OCTAVE:], OCTAVE)
    to[2 * OCTAVE] = work[D + 3 * OCTAVE] / OCTAVE
    if onsets:
        copy(work[D + 3 * OCTAVE + 1 + n :], to[2 * OCTAVE + 1 :], OCTAVE)


def add_below(work: Any, D: Any, n: Any, note: Any) -> None:
    """Add note `n`: whether it sounds, 0 or 1."""
    classes = work[D + OCTAVE :]
    work[n + OCTAVE] = note
    classes[n % OCTAVE] += note
    classes[n % OCTAVE + OCTAVE] += note
    work[D + 3 * OCTAVE] += note


def add_struck(work: Any, D: Any, n: Any, struck: Any) -> None:
    """Add whether note `n` is struck, 0 or 1."""
    work[D + 4 * OCTAVE + 1 + n] = struck


class Steps(NamedTuple):
    """A unit that runs over the notes of a frame."""

    weight: Tensor
    """(N, H), by which it multiplies a note's h."""
    product: Slot
    """Their product (1, N)."""
    x: Slot
    """The rest of its input: `notes_below`."""
    calls: Sequence[Call]
    """The calls that advance it by a note."""
    states: Sequence[Slot]
    """Its states, zero before the lowest note."""
    read: Slot
    """Its output."""


class TiedDraw(NotesDraw):
    """A draw of notes one after another."""

    def __init__(
        self, output: TiedOutput, setting: DrawSetting, steps: Steps | None = None
    ) -> None:
        """`steps` read each note's row of h; without them the output layer reads the row itself."""
        h, _, arena, _, temperature, fills = setting
        notes, H = h.shape
        weight, bias = (parameter.double() for parameter in output.linear.parameters())
        fields: dict[str, DrawField] = {
            "H": H, "notes": notes, "R": weight.shape[1], "h": h, "weight": weight, "bias": bias,
        }  # fmt: skip
        if output.ending is not None:
            end_weight, end_bias = (p.double() for p in output.ending.parameters())
            fields |= {"end_weight": end_weight[0], "end_bias": end_bias}
        inner: Sequence[Call] = ()
        states = [] if steps is None else [slot.shape[0] for slot in steps.states]
        if steps is not None:
            inner = steps.calls
            N = len(steps.weight)
            fields |= {"note_x": steps.x, "read": steps.read, "work": arena.take(2 * notes + WORK)}
            fields |= {"of_h": pack(steps.weight.double()), "product": steps.product}
            fields |= {"N": N, "products": arena.take(notes, N)}
            fields |= {f"state{k}": slot for k, slot in enumerate(steps.states)}
            if fills:
                fields |= {f"trail{k}": arena.take(notes, size) for k, size in enumerate(states)}
        signature = _signature(tuple(states), output.onsets)
        addresses = tuple(call.shape for call in inner)
        what = _write_draw, signature, addresses, temperature == 0, output.onsets, output.end
        super().__init__(output, setting, signature, fields, *what, calls=inner)


@compiled_once
def _signature(states: tuple[int, ...], onsets: bool) -> Signature:
    """The fields of a draw whose unit has states of these sizes; with none, without a unit."""
    of_unit = [
        packed("of_h", "H", "N"),
        Array("products", ("notes", "N")),
        Array("product", ("1", "N")),
        Array("note_x", (f"{below_size(onsets=onsets)}",)),
        Array("work", (f"2 * notes + {WORK}",)),
        Array("read", ("R",)),
        *(Array(f"state{k}", (str(size),)) for k, size in enumerate(states)),
        *(Array(f"trail{k}", ("notes", str(size)), optional=True) for k, size in enumerate(states)),
    ]
    arrays = *_ARRAYS, *(of_unit if states else ())
    sizes = "H", "notes", "R"
    return NotesWriter.signature("tied_draw", sizes, arrays, optional_sizes=("N",))


def _write_draw(
    frame: NotesWriter, signature: Signature, calls: tuple[tuple[int, int], ...], at_zero: bool,
    onsets: bool, end: bool,
) -> Any:  # fmt: skip
    """Draw a frame; makes `calls`, addresses and field counts, for each note."""
    e, b, f, fills = frame.e, frame.e.builder, frame.field, frame.fills
    notes, H, factor = f["notes"], f["H"], frame.broadcast("factor", 0)
    unit = _NoteUnit(e, signature, f, frame.fields, calls, onsets=onsets) if calls else None
    if unit is not None:
        unit.begin(frame.n if fills else e.int(0))
    alike = _Alike(frame, frame.n, unit) if fills and unit is not None else None

    def logit(read: Any, column: int) -> Vector:
        """The logit of a number, divided by the temperature, given what is read of its note."""
        weight = e.offset(f["weight"], e.mul(f["R"], column))
        product = Vector(e, e.splat(e.dot(read, weight, f["R"]), e.vector))
        bias = Vector(e, e.broadcast(e.offset(f["bias"], column)))
        return (product + bias) * factor

    def drawn(read: Any, column: int, number: Any) -> Any:
        """Whether this number of the frame is drawn as one."""
        if alike is not None:
            return frame.first(frame.uniforms(number).below(frame.logit_of(number)))
        value = logit(read, column)
        if at_zero:  # the likelier value
            return frame.first(b.fcmp_ordered(">", value.value, e.zero()))
        return frame.first(frame.below(value, number, e.first_lanes(e.int(1))))

    def put(one: Any, number: Any) -> Any:
        """Write this number of the frame, and return it."""
        value = b.uitofp(one, e.real)
        b.store(value, e.offset(f["x"], number))
        b.store(b.zext(one, BYTE), b.gep(frame.bytes, [number], source_etype=BYTE))
        return value

    with e.loop(0, notes) as note:
        numbers = [note, e.add(notes, note)] if onsets else [note]
        read = e.offset(f["h"], e.mul(note, H))
        if alike is not None:
            with alike.unless_known(numbers):
                read = alike.unit.read(note)
                for column, number in enumerate(numbers):
                    frame.put_logits(logit(read, column), number, e.first_lanes(e.int(1)))
        elif unit is not None:
            read = unit.read(note)
        before = b.load(e.offset(f["x"], note), typ=e.real)
        sounds = drawn(read, 0, note)
        sounding, struck = put(sounds, note), None
        if onsets:
            silent = b.fcmp_ordered("==", before, ir.Constant(e.real, 0.0))
            struck = put(b.and_(sounds, b.or_(silent, drawn(read, 1, numbers[1]))), numbers[1])
        if unit is not None:
            unit.add(note, sounding, struck)
        if alike is not None:
            alike.compare(note, numbers)
    return _ends(frame) if end else None


class _NoteUnit:
    """The unit over the notes of a frame, at its first note."""

    def __init__(
        self, e: Emitter, signature: Signature, field: dict[str, Any], fields: Any,
        calls: Sequence[tuple[int, int]], *, onsets: bool,
    ) -> None:  # fmt: skip
        self._e, self._field, self._fields, self._calls = e, field, fields, calls
        self._start = len(signature.fields)
        self._onsets = onsets
        self._below = {"work": Pointer(field["work"], e.real), "D": field["notes"]}
        translate(e, begin_below, **self._below)
        sizes = {array.name: array.shape[0] for array in signature.arrays}
        self._states = [
            (field[name], field[name.replace("state", "trail")], e.int(int(size)))
            for name, size in sizes.items()
            if name.startswith("state")
        ]

    def begin(self, candidate: Any) -> None:
        """Clear the states; before the first candidate also multiply all rows of h."""
        e, f = self._e, self._field
        with e.builder.if_then(e.builder.icmp_signed("==", candidate, e.int(0))):
            sizes = f["notes"], f["H"], f["N"]
            matmul(e, f["h"], f["H"], f["of_h"], f["products"], f["N"], *sizes, False)
        for state, _, size in self._states:
            e.clear(state, size)

    def read(self, note: Any) -> Any:
        """Advance by a note, and return the address of its output."""
        e, f = self._e, self._field
        e.copy(e.offset(f["products"], e.mul(note, f["N"])), f["product"], f["N"])
        x = Pointer(f["note_x"], e.real)
        translate(e, read_below, **self._below, n=note, to=x, onsets=self._onsets)
        start = self._start
        for address, size in self._calls:
            place = e.builder.gep(self._fields, [e.int(start)], source_etype=INT)
            call_at(e.builder, address, ir.VoidType(), [place])
            start += size
        return self._field["read"]

    def add(self, note: Any, sounding: Any, struck: Any) -> None:
        """Add what is drawn of a note to those below the next."""
        translate(self._e, add_below, **self._below, n=note, note=sounding)
        if self._onsets:
            translate(self._e, add_struck, **self._below, n=note, struck=struck)

    def leave_trail(self, note: Any) -> None:
        """Keep the state after this note."""
        for state, trail, size in self._states:
            self._e.copy(state, self._e.offset(trail, self._e.mul(note, size)), size)

    def take_trail(self, note: Any) -> None:
        """Return to the state that was kept after this note."""
        for state, trail, size in self._states:
            self._e.copy(self._e.offset(trail, self._e.mul(note, size)), state, size)


class _Alike:
    """Whether candidate `n` for a frame is so far like the first, whose logits then hold for it.

    Many candidates are alike throughout, as where all notes are held.
    """

    def __init__(self, frame: NotesWriter, n: Any, unit: _NoteUnit) -> None:
        self._frame, self.unit, b = frame, unit, frame.e.builder
        self._first = b.icmp_signed("==", n, frame.e.int(0))
        self._alike = b.alloca(ir.IntType(1))
        b.store(b.not_(self._first), self._alike)

    @contextmanager
    def unless_known(self, numbers: Sequence[Any]) -> Iterator[None]:
        """What computes the logits of these numbers, unless they are those of the first."""
        b, frame = self._frame.e.builder, self._frame
        with b.if_else(b.load(self._alike, typ=ir.IntType(1))) as (known, unknown):
            with known:
                for number in numbers:
                    one = frame.e.first_lanes(frame.e.int(1))
                    frame.put_logits(frame.logit_of(number, of_first=True), number, one)
            with unknown:
                yield

    def compare(self, note: Any, numbers: Sequence[Any]) -> None:
        """Compare the numbers of a note, once they are drawn."""
        b = self._frame.e.builder
        with b.if_then(self._first):
            self.unit.leave_trail(note)
        alike = b.load(self._alike, typ=ir.IntType(1))
        with b.if_then(alike):
            same = ir.Constant(ir.IntType(1), 1)
            for number in numbers:
                ours, theirs = (
                    b.load(b.gep(place, [number], source_etype=BYTE), typ=BYTE)
                    for place in (self._frame.bytes, self._frame.field["frames"])
                )
                same = b.and_(same, b.icmp_signed("==", ours, theirs))
            with b.if_then(b.not_(same)):
                b.store(ir.Constant(ir.IntType(1), 0), self._alike)
                self.unit.take_trail(note)


def _ends(frame: NotesWriter) -> Any:
    """Whether the piece ends with the frame."""
    e, b, f = frame.e, frame.e.builder, frame.field
    total = [e.zero()]
    with e.carrying(0, f["notes"], 1, total) as (note, inside):
        row = e.offset(f["h"], e.mul(note, f["H"]))
        of_note = e.splat(e.dot(row, f["end_weight"], f["H"]), e.vector)
        inside[0] = (Vector(e, inside[0]) + Vector(e, of_note).exp()).value
    notes = Vector(e, e.splat(b.sitofp(f["notes"], e.real), e.vector))
    logit = (Vector(e, total[0]).log() - notes.log()) + frame.broadcast("end_bias", 0)
    return frame.first(frame.below(logit, f["D"], e.first_lanes(e.int(1))))
