"""Frames of notes that depend on each other: a unit runs along pitch."""

from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor

from seqmodel import units
from seqmodel.config import Config
from seqmodel.data.dataset import Split
from seqmodel.kernels.device import for_kernels
from seqmodel.kernels.dropout import Dropout
from seqmodel.kernels.run.signature import NEW, THREADS, Array, KernelFields, Signature
from seqmodel.kernels.run.threads import compile_text, run, thread_count
from seqmodel.media.definitions import FrameDefinition
from seqmodel.outputs.first_change import FirstChange
from seqmodel.outputs.notes import note_count, only_hits, require_past
from seqmodel.outputs.notes_tied import (
    JOINING,
    WORK,
    TiedDraw,
    TiedOutput,
    add_note,
    begin_notes,
    below_size,
    read_below,
)
from seqmodel.outputs.protocol import DrawSetting
from seqmodel.units.module import Layer, Stack, Unit, units_of


class NoteUnitOutput(TiedOutput):
    """Notes from low to high, each given the lower ones: p(x_t) = prod_n p(x_tn | x_t,<n, h_tn).

    A unit runs over the notes of a frame, from zero state at the lowest. At note n it reads that
    note's h from the time axis and, of the current frame, which of the 12 notes just below sound,
    how many lower notes of each pitch class sound, relative to n, and how many in all, divided by
    12; with onsets also which of the 12 notes below are struck. Its output gives the logit of note
    n, and of its being struck. This is the note axis of Johnson (2017), "Generating polyphonic
    music using tied parallel networks".

    In training all frames of a window are batched into one run over the notes.
    """

    over_notes = True

    def __init__(
        self,
        hidden_size: int,
        unit: Layer | Stack,
        notes: int,
        *,
        dropout: float = 0.0,
        end: bool = False,
        onsets: bool = False,
        hits: bool = False,
        first_change: bool = False,
    ) -> None:
        """`unit` reads h (..., hidden_size) and `below_size` more numbers.

        `hits`: every sounding note is struck in every frame. With `first_change` the unit is only
        for what follows a note that changes, see `outputs.first_change`.
        """
        super().__init__(hidden_size, notes, end=end, onsets=onsets, read_size=unit.hidden_size)
        self.unit, self.dropout, self.hits = unit, Dropout(dropout), hits
        self.first = None
        if first_change:
            self.first = FirstChange(hidden_size, notes, onsets=onsets, hits=hits)

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition, h_size: int) -> Self:
        assert config.note_unit is not None
        assert config.note_hidden is not None
        sizes = h_size + below_size(onsets=frame.onsets), config.note_hidden
        unit = units.configured(config, config.note_unit, *sizes, config.note_layers or 1)
        return cls(
            h_size,
            unit,
            note_count(frame),
            dropout=config.dropout,
            end=config.end,
            onsets=frame.onsets,
            hits=only_hits(frame),
            first_change=bool(config.first_change),
        )

    def start_at(self, train: Split) -> None:
        super().start_at(train)
        if self.first is not None:
            self.first.start_at(train)

    def layers(self) -> list[Unit]:
        """The layers of the unit, the lowest first."""
        return units_of(self.unit)

    def note_logits(self, h: Tensor, frames: Tensor, past: Tensor | None = None) -> Tensor:
        """See `NotesOutput.note_logits`: of each note given the lower ones."""
        return self._logits(h, frames, past)[0]

    def _logits(
        self, h: Tensor, frames: Tensor, past: Tensor | None, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """`note_logits` and, with `end` and a `first` layer, `end_logits`.

        The unit runs only where `weights` (T, B) is not 0, if it is given, and with a `first` layer
        only in the frames that change. The logits of frames that are not weighed are meaningless.
        """
        flat = frames.reshape(-1, self.frame_size)
        rows, above, ends = h.reshape(len(flat), self.notes, h.shape[-1]), None, None
        runs = (flat.new_ones(len(flat)) if weights is None else weights.flatten()) != 0
        if self.first is not None:
            past = require_past(past).reshape(flat.shape)
            above = self.first.changed_below(flat, past)
            runs = runs & above.any(1)
        (indices,) = torch.nonzero(runs, as_tuple=True)
        if self.first is None or past is None:
            unit_rows, logits = rows.index_select(0, indices), h.new_zeros(flat.shape)
        else:
            a, unit_rows = self.first.read(rows, indices, self.ending)
            logits = self.first.logits(a, past)
            if self.ending is not None:
                ends = self.mean_odds(a[..., -1]).view(frames.shape[:-1])
        if len(indices):
            out, _ = self.unit(note_inputs(unit_rows, flat[indices], onsets=self.onsets))
            unit_logits = self.logits(self.dropout(out).transpose(0, 1))
            if above is not None:
                from_unit = above[indices].repeat(1, self.frame_size // self.notes)
                unit_logits = torch.where(from_unit, unit_logits, logits[indices])
            logits = logits.index_put((indices,), unit_logits)
        return logits.view(frames.shape), ends

    def weighted(
        self, h: Tensor, frames: Tensor, weights: Tensor, past: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """See `Output`; padding is skipped, since a frame costs as many steps as it has notes."""
        logits, ends = self._logits(h, frames, past, weights)
        if self.end and ends is None:
            ends = self.end_logits(h)
        nats = self.nats(logits, frames, past)
        return torch.dot(nats.reshape(-1), weights.reshape(-1)), ends

    def tempered(self, logits: Tensor, frames: Tensor, past: Tensor, temperature: float) -> Tensor:
        """See `NotesOutput.tempered`: l / T + JOINING (1 - T) above the lowest note that begins.

        Notes begin with small probabilities, of which a low temperature leaves next to nothing: if
        all logits were divided, music would thin out and stop. So whether a note begins is drawn at
        T = 1, and notes that join it at T. The second term is only for notes that may begin; it
        makes up for notes that the first term loses or gains. Hits begin wherever they sound.
        """
        held = torch.zeros_like(past) if self.hits else past
        begins = frames[..., self.notes :] if self.onsets else (frames > held).to(frames)
        joins = begins.cumsum(-1) > begins
        silent = (held[..., : self.notes] == 0).to(logits)
        may_begin = torch.cat([silent, torch.ones_like(silent)], -1)[..., : self.frame_size]
        divided = logits / temperature + may_begin * (JOINING * (1 - temperature))
        return torch.where(torch.cat([joins, joins], -1)[..., : self.frame_size], divided, logits)

    def in_turn(self, h: Tensor, frame: Tensor, past: Any) -> Iterator[tuple[Any, Tensor]]:
        """See `NotesOutput`: note by note, from low to high."""
        B, D = len(frame), self.notes
        note_rows, state, first = h.view(B, D, -1), self.unit.zero_state(B), None
        if self.first is not None:
            first = self.first.logits(self.first.read(note_rows, torch.arange(0))[0], past)
        for n in range(D):
            note = slice(n, self.frame_size, D)  # the note's numbers: it sounds, it is struck
            x = torch.cat([note_rows[:, n], notes_below(frame, onsets=self.onsets)[n]], 1)
            out, state = self.unit(x.unsqueeze(0), state)
            logits = self.logits(out.transpose(0, 1))
            if self.first is not None and first is not None:
                above = self.first.changed_below(frame, past)[:, n : n + 1]
                logits = torch.where(above, logits, first[:, note])
            yield note, logits

    def compiled_draw(self, setting: DrawSetting) -> TiedDraw:
        return TiedDraw(self, setting, self.layers(), self.first, hits=self.hits)


def note_inputs(note_rows: Tensor, frames: Tensor, *, onsets: bool = False) -> Tensor:
    """The unit's inputs: h (N, D, H), frames (N, F) -> (D, N, H + below_size)."""
    return torch.cat([note_rows.transpose(0, 1), notes_below(frames, onsets=onsets)], 2)


def notes_below(frames: Tensor, *, onsets: bool) -> Tensor:
    """The inputs from the notes below: frames (N, F), on any device -> (D, N, below_size)."""
    N, F = frames.shape
    notes, threads = for_kernels(frames).contiguous(), thread_count(N)
    kernel = compile_text(_BELOW, notes.element_size(), read_frames, over="N", onsets=onsets)
    fields: KernelFields = {"N": N, "D": F // 2 if onsets else F, "F": F, "threads": threads}
    fields |= {"size": below_size(onsets=onsets), "notes": notes, "x": NEW, "work": NEW}
    return run(kernel, threads, fields)["x"].to(frames)


_WORK = Array("work", (THREADS, f"2 * D + {WORK}"))
_BELOW = Signature(
    "notes_below",
    ("N", "D", "F", "size"),
    (Array("notes", ("N", "F")), Array("x", ("D", "N", "size")), _WORK),
)


def read_frames(f: Any, first: Any, last: Any) -> None:
    """The inputs of the notes of frames `first` to `last` from the notes below them."""
    below = f.work[f.thread * (2 * f.D + WORK) :]
    for frame in range(first, last):
        notes = f.notes[frame * f.F :]
        begin_notes(below, f.D)
        for n in range(f.D):
            read_below(below, f.D, n, f.x[(n * f.N + frame) * f.size :], f.onsets)
            add_note(below, f.D, n, notes, f.onsets)
