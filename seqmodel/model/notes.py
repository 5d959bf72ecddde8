"""The inputs of the tied model's unit: the past as seen from each note."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqmodel.config import Config
from seqmodel.data.dataset import Split
from seqmodel.kernels.code.language import copy
from seqmodel.kernels.device import for_kernels, one_thread
from seqmodel.kernels.run.calls import ITEMSIZE, Arena, kernel_call
from seqmodel.kernels.run.signature import NEW, Array, Signature
from seqmodel.kernels.run.threads import Kernel, compile_text, run, thread_count
from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.music.grid import PIANO
from seqmodel.model.ages import (
    AGES,
    UNCHANGED,
    ages_size,
    count_ages,
    unchanged_before,
    write_ages,
    write_unchanged,
)
from seqmodel.model.bars import BARS, SIGNATURE, write_position
from seqmodel.model.clock import MAX_HELD, ODDS_SCALE, Clock
from seqmodel.model.echo import echo_size, memory_size, remember, words_of, write_echo
from seqmodel.model.encoder import CompiledInputs, Encoded, Encoder, Past, append_frames
from seqmodel.model.motifs import (
    COUNT_SUMS,
    MOTIFS,
    count_scales,
    learn_motifs,
    motifs_size,
    write_motifs,
)
from seqmodel.outputs.notes import OCTAVE, note_count, only_hits, with_forced_strikes
from seqmodel.outputs.notes_tied import WORK, add_note, begin_notes, read_notes, read_struck

WINDOW = 2 * OCTAVE + 1
FRAME_INPUTS = WINDOW + OCTAVE + 1
"""Numbers that a note reads from a frame: a window, pitch classes, and a count."""
BUMPS = 8
"""The number of smooth functions of absolute pitch."""
FROZEN = 48
"""The most frames for which one frame is held when windows are read with noise."""
FREEZE_SHARE = 0.5
"""The share of windows with a held frame, as a multiple of the noise."""


class NoteEncoder(nn.Module, Encoder):
    """One unit row per note, with the same weights for all: R = D notes, C = F.

    The inputs of note n follow Johnson (2017), "Generating polyphonic music using tied parallel
    networks": which of the notes n - 12 to n + 12 sounded in the previous frame; how many notes of
    each pitch class did, counted from n; how many in total, divided by 12; and the note's absolute
    pitch, see `absolute_pitch`. With `onsets` (see `outputs.notes`) also which of the notes n - 12
    to n + 12 were struck. Apart from absolute pitch, transposed music thus gives the same inputs in
    shifted rows.

    The unit and the output also read:

    - with `echo`, what followed the last time the piece was as it is now, see `model.echo`;
    - with `bars` (the metres of pieces by default), the place in the bar, see `model.bars`;
    - with `clock`, how soon a piece of this many frames may end, see `model.clock`;
    - with `ages`, how long each note has sounded or been silent, see `model.ages`;
    - with `motifs`, what came next where the notes around it were the same, see `model.motifs`.

    `memory` covers all frames but the last, which is in `numbers`: the number of frames, which the
    first three share, the memory of echo, ages and motifs, and the metres of the piece. With
    `rests`, which needs ages, the unit makes a step only when something begins, ends or is hit, and
    reads how long nothing had changed before. In between, the output reads the last step's h and
    the current bars, clock, echo and ages.

    In training with `noise`, windows are read with the flaws of samples; the targets do not change.
    In half of the windows a share of the notes, drawn from 0 to `noise`, is missing, and in some a
    frame is held for up to FROZEN frames. Flaws become rarer as the learning rate falls. A model
    that has only read flawless music continues its own flaws as if meant: samples thin out or
    freeze. With `first_change`, where outputs predict changes, changes are relative to the past as
    read: a missing note begins, one held for too long ends.
    """

    sparse = True

    def __init__(
        self,
        notes: int,
        *,
        onsets: bool = False,
        ages: bool = False,
        motifs: bool = False,
        echo: bool = False,
        bars: NDArray[np.int64] | None = None,
        clock: Clock | None = None,
        noise: float = 0.0,
        hits: bool = False,
        rests: bool = False,
        first_change: bool = False,
        drum_keys: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """`hits`: every sounding note is struck in every frame; `first_change`: the output predicts
        changes, see `outputs.first_change`; `drum_keys` are those of the frame definition."""
        super().__init__()
        self.rows, self.onsets, self.pitch = notes, onsets, absolute_pitch(notes, drum_keys)
        self.ages, self.motifs, self.echo = ages, motifs, echo
        self.clock, self.noise, self.hits, self._initial_noise = clock, noise, hits, noise
        self.rests, self.first_change = rests, first_change
        self.bars = np.zeros(0, np.int64) if bars is None else bars
        self.end_odds = ODDS_SCALE if clock and clock.end else 0.0
        has_bars = bars is not None
        time_size = (BARS if has_bars else 0) + (clock.size if clock else 0)
        echo_inputs = echo_size(onsets=onsets) if echo else 0
        # What an end may depend on: ages and motifs identify single pieces, and few pieces end.
        self.end_skip_size = echo_inputs + time_size if ages or motifs else None
        self.skip_size = echo_inputs + time_size + AGES * ages + MOTIFS * motifs
        note_inputs = FRAME_INPUTS + self.pitch.shape[1] + WINDOW * onsets + len(UNCHANGED) * rests
        self.input_size = note_inputs + self.skip_size
        self._frame_size = 2 * notes if onsets else notes
        counts_frames = clock is not None or has_bars
        self._shared = memory_size(self._frame_size) if echo else int(counts_frames)
        ages_memory, motifs_memory = ages_size(notes) * ages, motifs_size(notes) * motifs
        self._memory_size = self._shared + ages_memory + motifs_memory + len(self.bars)

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition) -> Self:
        has_clock = config.clock or config.metre
        held = config.held and config.ages
        return cls(
            note_count(frame),
            onsets=frame.onsets,
            ages=config.ages,
            motifs=config.motifs,
            echo=config.echo,
            bars=frame.metres({}) if config.bars else None,
            clock=Clock(end=config.clock, metre=config.metre, held=held) if has_clock else None,
            noise=config.input_noise,
            hits=only_hits(frame),
            rests=config.rests,
            first_change=bool(config.first_change),
            drum_keys=frame.drum_keys,
        )

    def start_at(self, train: Split) -> None:
        if self.clock is not None:
            self.clock.start_at(train.lengths)
            unchanged = (unchanged_before(piece, self.rows) for piece in train.subsample())
            self.clock.fit_held(unchanged, train.frame.longest_hold or 0)

    def anneal(self, share: float) -> None:
        """See `Encoder`: flaws become rarer in proportion."""
        self.noise = self._initial_noise * share

    def start(self, like: Tensor, batch_size: int) -> Past:
        numbers = like.new_zeros(batch_size, self._frame_size)
        if not self._memory_size:
            return Past(numbers)
        memory = numbers.new_zeros(batch_size, self._memory_size, dtype=torch.int64)
        return self.with_metres(Past(numbers, memory), np.tile(self.bars, (batch_size, 1)))

    def with_metres(self, past: Past, metres: NDArray[np.int64]) -> Past:
        """See `Encoder`: the time signatures of each piece."""
        if past.memory is None or not len(self.bars):
            return past
        memory = past.memory.clone()
        memory[:, -len(self.bars) :] = torch.from_numpy(metres)
        return past._replace(memory=memory)

    def encode(self, frames: Tensor, past: Past, lengths: Tensor | None = None) -> Encoded:
        """See `Encoder`; computed on the CPU."""
        with one_thread():
            frames, before, last = append_frames(frames, past.numbers)
            noisy = self._with_noise(for_kernels(before)).contiguous()
            if self.first_change and self.training:
                before = noisy.to(before)
                frames = with_forced_strikes(frames, before) if self.onsets else frames
        T, B, _ = before.shape
        memory = None if past.memory is None else past.memory.to("cpu", copy=True)
        fields = self._fields(T, B, memory, noisy.dtype)
        fields |= {"frames": noisy, "x": NEW, "work": NEW, "changed": NEW}
        result = run(self._kernel(noisy.element_size()), thread_count(B), fields)
        x = result["x"].to(before)
        skip = x[..., -self.skip_size :] if self.skip_size else None
        memory = None if memory is None else memory.to(before.device)
        changed = result["changed"] > 0 if self.rests else None
        return Encoded(x, skip, frames, before, Past(last, memory), changed)

    def _with_noise(self, frames: Tensor) -> Tensor:
        """Frames (T, B, C) as they are read: with flaws in training."""
        if not (self.training and self.noise):
            return frames
        (T, B, C), D = frames.shape, self.rows
        sounding = frames[..., :D] > 0
        begins = sounding.clone()
        if not self.hits:
            begins[1:] &= ~sounding[:-1]
        if self.onsets:
            begins |= frames[..., D:] > 0
        share = self.noise * torch.rand(B, 1) * (torch.rand(B, 1) < 0.5)
        onset = torch.where(begins, torch.arange(T).view(T, 1, 1), 0).cummax(0).values
        keep = torch.rand(T, B, D).gather(0, onset) >= share  # one draw for all of a note's frames
        frames = frames * torch.cat([keep] * (C // D), 2)
        t, first, n = torch.arange(T).unsqueeze(1), torch.rand(B) * T // 1, FROZEN * torch.rand(B)
        frozen = (t > first) & (t < first + n) & (torch.rand(B) < FREEZE_SHARE * self.noise)
        source = torch.where(frozen, first.long(), t).unsqueeze(2)
        frames = frames.gather(0, source.expand(T, B, C))
        struck = slice(0 if self.hits else D, None)
        frames[..., struck] *= ~frozen.unsqueeze(2)  # a held frame strikes nothing
        return frames

    def compiled(self, arena: Arena) -> CompiledInputs:
        D, C = self.rows, self._frame_size
        past, x = arena.take(C), arena.take(D, self.input_size)
        memory = arena.take(1, self._memory_size, dtype=torch.int64) if self._memory_size else None
        changed = arena.take(1)
        call = kernel_call(
            self._kernel(ITEMSIZE), **self._fields(1, 1, memory, torch.float64),
            frames=past.reshaped(1, 1, C), x=x.reshaped(1, *x.shape),
            work=arena.take(1, 2 * D + WORK), changed=changed.reshaped(1, 1),
        )  # fmt: skip
        return CompiledInputs(past, x, [call], memory, changed if self.rests else None)

    def _fields(self, T: int, B: int, memory: Any, dtype: torch.dtype) -> dict[str, Any]:
        table = torch.empty(0, 0) if self.clock is None else self.clock.table()
        held = None if self.clock is None else self.clock.held
        return {
            "T": T, "B": B, "D": self.rows, "K": self._memory_size, "rows": len(table),
            "memory": memory, "table": table.to(dtype),
            "held": None if held is None else held.to("cpu", dtype),
            "pitch": self.pitch.to(dtype),
            "scales": count_scales().to(dtype) if self.motifs else None,
        }  # fmt: skip

    def _kernel(self, itemsize: int) -> Kernel:
        clock = self.clock
        constants: dict[str, Any] = {
            "onsets": self.onsets, "echo": echo_size(onsets=self.onsets) if self.echo else 0,
            "bars": len(self.bars) // SIGNATURE, "ages": self.ages, "motifs": self.motifs,
            "clock": clock.size if clock else 0, "period": clock.period if clock else 1,
            "use_held": clock is not None and clock.held is not None, "inputs": self.input_size,
            "words": words_of(self._frame_size), "shared": self._shared, "rests": self.rests,
            "hits": self.hits, "pitches": self.pitch.shape[1],
        }  # fmt: skip
        sizes = constants["clock"], self.pitch.shape[1], self.input_size
        signature = _signature(self.onsets, *sizes)
        return compile_text(signature, itemsize, read_pieces, over="B", **constants)


@cache
def _signature(onsets: bool, clock: int, pitches: int, inputs: int) -> Signature:
    return Signature(
        "note_inputs",
        ("T", "B", "D", "K", "rows"),
        (
            Array("frames", ("T", "B", "2 * D" if onsets else "D")),
            Array("memory", ("B", "K"), torch.int64, optional=True),
            Array("table", ("rows", f"{clock}")),
            Array("held", (f"{MAX_HELD}",), optional=True),
            Array("pitch", ("D", f"{pitches}")),
            Array("scales", ("2", f"{COUNT_SUMS}"), optional=True),
            Array("x", ("T", "B * D", f"{inputs}")),
            Array("work", ("B", f"2 * D + {WORK}")),
            Array("changed", ("T", "B")),
        ),
    )


def absolute_pitch(notes: int, drum_keys: Mapping[int, int] = MappingProxyType({})) -> Tensor:
    """(D, V): bell curves over the notes, as far apart as they are wide, then pitch classes.

    With `drum_keys` also how often drums hit the key in train: the logarithm of the number of hits,
    from 0 to 1. Shared weights would otherwise put a kit's rhythms on any keys.
    """
    with torch.device("cpu"):  # on "meta", torch would import its compiler, which takes a second
        note = torch.arange(notes).unsqueeze(1)
        centres = torch.linspace(0, notes - 1, BUMPS, dtype=torch.float64)
        bumps = torch.exp(-0.5 * ((note - centres) * (BUMPS / notes)) ** 2)
        parts = [bumps, (note % OCTAVE == torch.arange(OCTAVE)).double()]
        if drum_keys:
            hits = [[drum_keys.get(key, 0)] for key in PIANO[:notes]]
            logs = torch.tensor(hits, dtype=torch.float64).log1p()
            parts.append(logs / logs.max())
        return torch.cat(parts, 1)


# ---- texts of `kernels.code.language` -----------------------------------------------------------


def read_pieces(f: Any, first: Any, last: Any) -> None:  # noqa: PLR0912
    """The inputs x (T, B, D, I) of the pieces `first` to `last` after each of `frames` (T, B, C).

    `echo` is the number of echo inputs per note; `bars` the most time signatures of a piece, which
    are the last integers of its memory; `clock`, `period`, `table` (rows, clock) and, with
    `use_held`, `held` are the size, period, table and `held` of a `Clock`; `inputs` is I, `words`
    the words per frame of the echo, and `shared` the integers of memory of echo and clock. `scales`
    belongs to the motifs. If the unit `rests`, it makes a step where `changed` (T, B) is not 0;
    `hits` is as in `NoteEncoder`.
    """
    halves = 2 if f.onsets else 1
    unchanged_start = FRAME_INPUTS + f.pitches + (WINDOW if f.onsets else 0)
    echo_start = unchanged_start + (len(UNCHANGED) if f.rests else 0)
    time_start = echo_start + f.echo
    time_size = f.clock + (BARS if f.bars else 0)
    ages_start = time_start + time_size
    motifs_start = ages_start + (AGES if f.ages else 0)
    for piece in range(first, last):
        state = f.memory[piece * f.K :]
        age_state = state[f.shared :]
        motif_state = age_state[ages_size(f.D) :] if f.ages else age_state
        for t in range(f.T):
            frame = f.frames[(t * f.B + piece) * halves * f.D :]
            out = f.x[(t * f.B + piece) * f.D * f.inputs :]
            read_frame(f, frame, out, f.work[piece * (2 * f.D + WORK) :])
            if f.ages:
                if f.rests:
                    for n in range(f.D):
                        write_unchanged(out[n * f.inputs + unchanged_start :], age_state[f.D])
                count_ages(frame, age_state, f.D, f.onsets)
                if f.rests:
                    f.changed[t * f.B + piece] = float(age_state[f.D] == 1)
                    if f.hits:
                        for n in range(f.D):
                            f.changed[t * f.B + piece] += frame[n]
                for n in range(f.D):
                    write_ages(out[n * f.inputs + ages_start :], age_state, n, f.D)
            if f.motifs:
                learn_motifs(frame, motif_state, f.D)
                for n in range(f.D):
                    write_motifs(out[n * f.inputs + motifs_start :], motif_state, f.scales, n, f.D)
            if time_size:
                write_time(f, out[time_start:], state)
                if f.use_held:
                    out[time_start + time_size - 1] += f.held[min(age_state[f.D], MAX_HELD - 1)]
                for n in range(1, f.D):
                    copy(out[time_start:], out[n * f.inputs + time_start :], time_size)
            if f.echo:
                end = remember(frame, state, halves * f.D, f.words)
                for n in range(f.D):
                    to = out[n * f.inputs + echo_start :]
                    write_echo(to, state, end, n, f.D, halves, f.words)
            elif time_size:
                state[0] += 1


def write_time(f: Any, out: Any, memory: Any) -> None:
    """The inputs shared by all notes: the place in the bar, and the row of the clock's table."""
    frames = memory[0]
    if f.bars:
        write_position(out, memory[f.K - SIGNATURE * f.bars :], frames, f.bars)
    if f.clock:
        row = min(frames, f.rows - f.period + frames % f.period)
        copy(f.table[row * f.clock :], out[(BARS if f.bars else 0) :], f.clock)


def read_frame(f: Any, frame: Any, x: Any, work: Any) -> None:
    """The notes' inputs from the previous frame, and their pitch, at the start of x (D, inputs)."""
    begin_notes(work, f.D)
    for n in range(f.D):
        add_note(work, f.D, n, frame, f.onsets)
    for n in range(f.D):
        out = x[n * f.inputs :]
        read_notes(work, f.D, n, out, WINDOW)
        copy(f.pitch[n * f.pitches :], out[FRAME_INPUTS:], f.pitches)
        if f.onsets:
            read_struck(work, f.D, n, out[FRAME_INPUTS + f.pitches :], WINDOW)
