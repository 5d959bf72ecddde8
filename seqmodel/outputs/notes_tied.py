"""Outputs with one unit row per note: their layer, the ends of pieces, and the compiled draw."""

import math
from collections.abc import Sequence
from math import exp, log
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqmodel.data.dataset import Split
from seqmodel.kernels.code.instructions import dot
from seqmodel.kernels.code.language import clear, copy, unrolled
from seqmodel.kernels.linear.matmul import pack
from seqmodel.kernels.run.calls import Call, Value, make_calls
from seqmodel.media.music.frames import count_restrikes
from seqmodel.outputs.draws import NotesDraw, below, ends, multiply
from seqmodel.outputs.first_change import HIDDEN, POOLED, FirstChange, begin_first, first_logit
from seqmodel.outputs.notes import OCTAVE, NotesOutput
from seqmodel.outputs.protocol import DrawSetting, log_odds
from seqmodel.units.cpu.stepping import steps
from seqmodel.units.module import Unit

JOINING = 3.5
"""Keeps about as many notes in a frame at any temperature: see `NoteUnitOutput.tempered`."""
WORK = 6 * OCTAVE + 1
"""The size of `work` beyond 2 D."""


class TiedOutput(NotesOutput):
    """An output over frames of D notes, all with the same weights.

    h (T, B D, H) holds the notes of a piece side by side.

    Attributes:
        linear: a note's layer, which reads `read_size` numbers, by default those of h, and gives
            the logit that it sounds and, with `onsets`, that it is struck.
        ending: with `end`, the layer that gives a note's odds that the piece ends, from the first
            numbers of its h, by default all.
    """

    def __init__(
        self, hidden_size: int, notes: int, *, end: bool = False, onsets: bool = False,
        read_size: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(notes, end=end, onsets=onsets)
        self.linear = nn.Linear(read_size or hidden_size, 2 if onsets else 1)
        self.ending = nn.Linear(hidden_size, 1) if end else None

    def start_at(self, train: Split) -> None:
        """Start at the shares in train of sounding notes, of restrikes and of ends."""
        sounding = train.totals()[: self.notes].sum(keepdims=True)
        logits = [log_odds(sounding, train.frames * self.notes)]
        if self.onsets:
            struck, chances = count_restrikes(train)
            logits.append(log_odds(struck.sum(keepdims=True), chances.sum()))
        with torch.no_grad():
            self.linear.bias.copy_(torch.cat(logits))
            if self.ending is not None:
                self.ending.bias.copy_(log_odds(np.array([len(train)]), train.frames))

    def start_ends_at(self, scale: float) -> None:
        if self.ending is not None:
            with torch.no_grad():
                self.ending.weight[0, -1] = scale
                self.ending.bias.zero_()

    def limit_ends(self, h_size: int) -> None:
        if self.ending is not None:
            self.ending = nn.Linear(h_size, 1)

    def logits(self, read: Tensor) -> Tensor:
        """The logits (..., F) of frames, from what their notes read (..., D, read_size)."""
        rows = read.reshape(-1, read.shape[-1])
        # Not `linear` itself: with so many rows, a matrix product is far slower at 1 or 2 columns.
        columns = [
            torch.mv(rows, weight).view(read.shape[:-1]) + bias
            for weight, bias in zip(self.linear.weight, self.linear.bias, strict=True)
        ]
        return torch.cat(columns, -1)

    def plain_nats(self, h: Tensor, frames: Tensor, past: Any) -> Tensor:
        return self.nats(self.note_logits(h, frames, past), frames, past)

    def end_logits(self, h: Tensor) -> Tensor:
        """The log of the mean odds of notes, h (..., B D, H), so any note can signal the end."""
        assert self.ending is not None
        read = h[..., : self.ending.in_features].reshape(-1, self.ending.in_features)
        note_logits = torch.mv(read, self.ending.weight[0]).view(*h.shape[:-2], -1, self.notes)
        return self.mean_odds(note_logits + self.ending.bias)

    def mean_odds(self, logits: Tensor) -> Tensor:
        """The log of the mean odds of notes, from their logits (..., D)."""
        return logits.logsumexp(-1) - math.log(self.notes)


# Texts of `kernels.code.language`: what a note reads of the notes around it in a frame.
#
# `work` holds which notes have been added, with OCTAVE zeros on either side; their counts per pitch
# class, twice in a row, so that those from any class on are contiguous; their total count; with
# `onsets` which are struck, with zeros like the first.


def begin_notes(work: Any, D: Any) -> None:
    """Reset `work` before the lowest note."""
    clear(work, 2 * D + WORK)


def add_note(work: Any, D: Any, n: Any, frame: Any, onsets: bool) -> None:
    """Add note `n` of a frame of zeros and ones."""
    classes = work[D + 2 * OCTAVE :]
    note = frame[n]
    work[n + OCTAVE] = note
    classes[n % OCTAVE] += note
    classes[n % OCTAVE + OCTAVE] += note
    work[D + 4 * OCTAVE] += note
    if onsets:
        work[D + 5 * OCTAVE + 1 + n] = frame[D + n]


def read_notes(work: Any, D: Any, n: Any, out: Any, window: int) -> None:
    """Which of the `window` notes from n - 12 on sound; the notes of each pitch class; all notes.

    Only those that have been added count. Classes are relative to n; the total is divided by 12.
    """
    copy(work[n:], out, window)
    copy(work[D + 2 * OCTAVE + n % OCTAVE :], out[window:], OCTAVE)
    out[window + OCTAVE] = work[D + 4 * OCTAVE] / OCTAVE


def read_struck(work: Any, D: Any, n: Any, out: Any, window: int) -> None:
    """Which of the `window` notes from n - 12 on are struck."""
    copy(work[D + 4 * OCTAVE + 1 + n :], out, window)


def below_size(*, onsets: bool) -> int:
    """The number of inputs of each note from the notes below it in its own frame."""
    return (3 if onsets else 2) * OCTAVE + 1


def read_below(work: Any, D: Any, n: Any, out: Any, onsets: bool) -> None:
    """Write these inputs of note `n`, after the notes below it have been added."""
    read_notes(work, D, n, out, OCTAVE)
    if onsets:
        read_struck(work, D, n, out[2 * OCTAVE + 1 :], OCTAVE)


class TiedDraw(NotesDraw):
    """A draw of notes one after another."""

    def __init__(
        self, output: TiedOutput, setting: DrawSetting, layers: Sequence[Unit] = (),
        first: FirstChange | None = None, *, hits: bool = False,
    ) -> None:  # fmt: skip
        """`layers` run over the notes; without them, the output's layer reads a note's h itself.

        `hits` as in `NoteUnitOutput`.
        """
        h, _, arena, _, temperature, fills = setting
        notes, H = h.shape
        weight, bias = (parameter.double() for parameter in output.linear.parameters())
        shift = JOINING * (1 - temperature) if layers and temperature else 0.0
        fields: dict[str, Value] = {
            "H": H, "notes": notes, "R": weight.shape[1], "h": h, "weight": weight, "bias": bias,
            # The logits, unless they are asked for; the first of a frame's candidates.
            "scores": arena.take(output.frame_size), "first_frame": arena.take(output.frame_size),
            # Added to the logits of notes that may join, see `NoteUnitOutput.tempered`.
            "shift": torch.tensor([shift], dtype=torch.float64),
        }  # fmt: skip
        if output.ending is not None:
            end_weight, end_bias = (p.double() for p in output.ending.parameters())
            fields |= {"E": output.ending.in_features}
            fields |= {"end_weight": end_weight[0], "end_bias": end_bias}
        calls, sizes = list[Call](), tuple[int, ...]()
        if layers:  # the first one's W times h is computed for all notes at once
            matrix = layers[0].weights()["W"]
            assert matrix is not None  # a unit without W would not read the notes below
            N, x = len(matrix), arena.take(layers[0].input_size - H)
            product = arena.take(1, N)
            calls, states = steps(layers, x, arena, product=product)
            sizes = tuple(slot.shape[0] for slot in states)
            read = states[-len(layers[-1].spec.state)]  # a layer's first state
            fields |= {"note_x": x, "read": read, "work": arena.take(2 * notes + WORK)}
            fields |= {"h_matrix": pack(matrix[:, :H].double()), "product": product}
            fields |= {"N": N, "products": arena.take(notes, N)}
            fields |= {f"state{k}": slot for k, slot in enumerate(states)}
            if fills:
                fields |= {f"trail{k}": arena.take(notes, size) for k, size in enumerate(sizes)}
        if first is not None:
            K = first.odds.out_features
            fields |= {"K": K, "own": pack(first.own.weight.double())}
            fields |= {"own_bias": first.own.bias.double(), "joint": first.joint.weight.double()}
            fields |= {"odds": first.odds.weight.double()}
            fields |= {"projected": arena.take(notes, HIDDEN + POOLED + K)}
            fields |= {"pooled": arena.take(POOLED), "joint_hidden": arena.take(HIDDEN)}
            fields |= {"hidden": arena.take(HIDDEN)}
        how = {
            "sizes": sizes, "hits": hits, "waits": first is not None, "onsets": output.onsets,
            "states": tuple(f"state{k}" for k in range(len(sizes))),
            "trails": tuple(f"trail{k}" for k in range(len(sizes))),
        }  # fmt: skip
        super().__init__(output, setting, draw_in_turn, fields, calls=calls, **how)


def draw_in_turn(f: Any) -> Any:  # noqa: PLR0912
    """Draw notes from low to high, by a unit if it has states of `sizes`, or from h alone.

    With a unit, the temperature is only for notes that may join one that begins: see
    `NoteUnitOutput.tempered`.

    Candidates for a frame are often alike, for example if all notes are held. As long as one is
    like the first, it shares the first's logits; then the unit continues from the first's `trails`.

    If the unit `waits` for a note that changes, see `outputs.first_change`, it then catches up.

    `f` has the fields of the draw, whose calls move the unit on by a note.
    """
    runs = len(f.sizes) > 0
    compares = f.fills and runs
    candidate = f.stream[1] if f.fills else 0
    logits = f.logits[candidate * f.numbers :] if f.fills else f.scores
    if candidate == 0:
        if f.waits:
            begin_first(f)
        if runs and (f.fills or not f.waits):
            multiply_rows(f)
    if runs and not f.waits:
        begin_unit(f)
    alike = candidate > 0
    begun = not runs
    waits = f.waits
    for note in range(f.notes):
        strike = f.notes + note
        before = 0.0 if f.hits else f.x[note]
        if compares and alike:
            for k in unrolled(2 if f.onsets else 1):
                logits[k * f.notes + note] = f.logits[k * f.notes + note]
        else:
            if runs and not waits:
                advance_unit(f, note)
            for k in unrolled(2 if f.onsets else 1):
                if f.waits and waits:
                    logits[k * f.notes + note] = first_logit(f, note, k)
                else:
                    product = dot(f.read if runs else f.h[note * f.H :], f.weight[f.R * k :], f.R)
                    factor = f.factor[0] if begun else 1.0
                    joins = begun and (k == 1 or before == 0)
                    shift = f.shift[0] if joins else 0.0
                    logits[k * f.notes + note] = (product + f.bias[k]) * factor + shift
        f.x[note] = float(is_one(f, note, logits[note]))
        if f.onsets:
            struck = before == 0 or is_one(f, strike, logits[strike])
            f.x[strike] = float(f.x[note] > 0 and struck)
        begun = begun or (f.x[strike] > 0 if f.onsets else f.x[note] > before)
        diverges = compares and alike and differs(f, note)
        alike = alike and not diverges
        if f.waits and waits:
            waits = f.x[note] == before and not (f.onsets and f.x[strike] > 0)
            if not waits:
                catch_up(f, note, alike)
        elif runs:
            add_note(f.work, f.notes, note, f.x, f.onsets)
            if compares and diverges:
                for k in unrolled(len(f.sizes)):
                    copy(trail(f, k)[note * f.sizes[k] :], state(f, k), f.sizes[k])
        if compares and candidate == 0:
            for k in unrolled(len(f.sizes)):
                copy(state(f, k), trail(f, k)[note * f.sizes[k] :], f.sizes[k])
    if compares and candidate == 0:
        copy(f.x, f.first_frame, f.D)
    return ends(f, mean_odds(f)) if f.end else False


def is_one(f: Any, number: Any, logit: Any) -> Any:
    """Whether a number is drawn as one; at temperature 0 its likelier value."""
    return logit > 0.0 if f.at_zero else below(f.uniforms[number], logit)


def differs(f: Any, note: Any) -> Any:
    """Whether a note of this candidate is unlike that of the first."""
    strike = f.notes + note
    same = f.x[note] == f.first_frame[note]
    return not (same and (not f.onsets or f.x[strike] == f.first_frame[strike]))


def state(f: Any, k: int) -> Any:
    """The unit's state number `k`."""
    return f.fields[f.states[k]]


def trail(f: Any, k: int) -> Any:
    """What that state was after each note of the first candidate."""
    return f.fields[f.trails[k]]


def multiply_rows(f: Any) -> None:
    """Compute `products`, what the unit's first layer reads of all notes' h."""
    multiply(f.h, f.H, f.h_matrix, f.products, f.N, f.notes, f.H, f.N)


def begin_unit(f: Any) -> None:
    """Reset the unit before the lowest note."""
    for k in unrolled(len(f.sizes)):
        clear(state(f, k), f.sizes[k])
    begin_notes(f.work, f.notes)


def advance_unit(f: Any, note: Any) -> None:
    """Advance the unit to `note`, after those below it."""
    copy(f.products[note * f.N :], f.product, f.N)
    read_below(f.work, f.notes, note, f.note_x, f.onsets)
    make_calls(f)


def catch_up(f: Any, last: Any, alike: Any) -> None:
    """Advance a waiting unit to the `last` note, but not its state if it will be the first's."""
    if not f.fills:
        multiply_rows(f)
    begin_unit(f)
    for note in range(last + 1):
        if not alike:
            advance_unit(f, note)
        add_note(f.work, f.notes, note, f.x, f.onsets)


def mean_odds(f: Any) -> Any:
    """The log of the notes' mean odds that the piece ends."""
    total = 0.0
    for note in range(f.notes):
        total += exp(dot(f.h[note * f.H :], f.end_weight, f.E))
    return log(total) - log(float(f.notes)) + f.end_bias[0]
