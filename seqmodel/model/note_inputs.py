"""The inputs of the tied model's notes: what `notes.NoteEncoder` describes, frame by frame."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.jit import compiled_once
from seqmodel.kernels.code.language import clear, copy
from seqmodel.kernels.run.calls import Arena, Call
from seqmodel.kernels.run.signature import NEW, Array, Signature
from seqmodel.kernels.run.threads import Kernel, compile_text, parallel_for, thread_count
from seqmodel.model.clock import Clock
from seqmodel.model.echo import STEPS, echo_size, memory_size, remember, words_of, write_echo
from seqmodel.model.encoder import CompiledInputs

REACH = 12
"""Semitones that a note reads one by one on either side; also the number of pitch classes."""
WINDOW = 2 * REACH + 1
HEARD = WINDOW + REACH + 1
"""Numbers that a note reads from a frame: a window, pitch classes, and a count."""
BUMPS = 8
"""The number of smooth functions of absolute pitch."""
PITCH = BUMPS + REACH
"""Numbers that encode the absolute pitch of a note: these functions, and its class."""


def heard_size(*, onsets: bool) -> int:
    """The number of inputs of a note from the previous frame and from its pitch."""
    return HEARD + PITCH + (WINDOW if onsets else 0)


@cache
def absolute_pitch(notes: int) -> Tensor:
    """(D, PITCH): bell curves over the notes, as far apart as they are wide, then pitch classes."""
    note = torch.arange(notes).unsqueeze(1)
    centres = torch.linspace(0, notes - 1, BUMPS, dtype=torch.float64)
    bumps = torch.exp(-0.5 * ((note - centres) * (BUMPS / notes)) ** 2)
    return torch.cat([bumps, (note % REACH == torch.arange(REACH)).double()], 1)


# ---- texts of `kernels.code.language` -----------------------------------------------------------


def read_pieces(
    frames: Any, memory: Any, table: Any, pitch: Any, x: Any, work: Any, first: Any, last: Any,
    T: Any, B: Any, D: Any, K: Any, rows: Any, onsets: bool, echo: bool, clock: int, period: int,
    words: int,
) -> None:  # fmt: skip
    """The inputs x (T, B, D, I) of the pieces `first` to `last` after each of `frames` (T, B, C).

    `clock` and `period` are a `Clock`'s size and period, `table` (rows, clock) its table.
    """
    halves = 2 if onsets else 1
    beside = HEARD + PITCH + (WINDOW if onsets else 0)
    inputs = beside + (len(STEPS) * (1 + halves) if echo else 0) + clock
    for piece in range(first, last):
        own = memory[piece * K :]
        for t in range(T):
            frame = frames[(t * B + piece) * halves * D :]
            to = x[(t * B + piece) * D * inputs :]
            read_frame(frame, pitch, to, work[piece * (6 * REACH + 2 * D) :], D, inputs, onsets)
            if clock:
                until = rows - period + own[0] % period
                row = table[min(own[0], until) * clock :]
                for n in range(D):
                    copy(row, to[(n + 1) * inputs - clock :], clock)
            if echo:
                end = remember(frame, own, halves * D, words)
                for n in range(D):
                    write_echo(to[n * inputs + beside :], own, end, n, D, halves, words)
            elif clock:
                own[0] += 1


def read_frame(
    frame: Any, pitch: Any, x: Any, work: Any, D: Any, inputs: int, onsets: bool
) -> None:
    """What notes read of the previous frame, and their pitch, into the first of x (D, inputs).

    `work` takes the notes that sound, padded with REACH zeros on either side; how many of each
    pitch class do, twice in a row, so that those from any class on are consecutive; and, with
    `onsets`, the notes that are struck, padded likewise.
    """
    classes = work[2 * REACH + D :]
    struck = work[4 * REACH + D :]
    clear(work, 6 * REACH + 2 * D)
    copy(frame, work[REACH:], D)
    if onsets:
        copy(frame[D:], struck[REACH:], D)
    count = 0.0
    for n in range(D):
        count += frame[n]
        classes[n % REACH] += frame[n]
        classes[n % REACH + REACH] += frame[n]
    for n in range(D):
        to = x[n * inputs :]
        copy(work[n:], to, WINDOW)
        copy(classes[n % REACH :], to[WINDOW:], REACH)
        to[WINDOW + REACH] = count / REACH
        copy(pitch[n * PITCH :], to[HEARD:], PITCH)
        if onsets:
            copy(struck[n:], to[HEARD + PITCH :], WINDOW)


# ---- their calls --------------------------------------------------------------------------------


def compiled_inputs(
    frames: Tensor, memory: Tensor | None, clock: Clock | None, *, onsets: bool, echo: bool
) -> tuple[Tensor, Tensor | None]:
    """The inputs (T, B D, I) after each of `frames` (T, B, C), and the new memory (B, K).

    Frames are float32 or float64 on the CPU. The memory, that of `echo.remember` or with a clock
    alone the number of frames so far, is None without either.
    """
    T, B, C = frames.shape
    memory = None if memory is None else memory.clone()
    kernel = _kernel(frames.element_size(), *_kind(C, clock, onsets, echo))
    fields = _fields(T, B, C // 2 if onsets else C, memory, clock, frames.dtype)
    made = {"frames": frames.contiguous(), "x": NEW, "work": NEW}
    job = kernel.job(fields | made)
    parallel_for([job], thread_count(B))
    return job.made["x"], memory


def inputs_call(
    D: int, arena: Arena, *, onsets: bool, echo: bool, clock: Clock | None
) -> CompiledInputs:
    """The same for one frame, in float64."""
    C = 2 * D if onsets else D
    kind = _kind(C, clock, onsets, echo)
    past, x = arena.take(C), arena.take(D, _input_size(onsets, echo, kind[2]))
    memory = None
    if echo or clock:
        memory = arena.take(1, memory_size(C) if echo else 1, dtype=torch.int64)
    fields = _fields(1, 1, D, memory, clock, torch.float64) | {
        "frames": past.reshaped(1, 1, C),
        "x": x.reshaped(1, *x.shape),
        "work": arena.take(1, 2 * D + 6 * REACH),
    }
    step = _kernel(8, *kind).library.address("note_inputs_alone")
    return CompiledInputs(past, x, [Call(step, _signature(*kind[:3]), 8, fields)], memory)


def _fields(
    T: int, B: int, D: int, memory: Any, clock: Clock | None, dtype: torch.dtype
) -> dict[str, Any]:
    table = torch.empty(0, 0) if clock is None else clock.table()
    return {
        "T": T, "B": B, "D": D, "K": 0 if memory is None else memory.shape[1], "rows": len(table),
        "memory": memory, "table": table.to(dtype), "pitch": absolute_pitch(D).to(dtype),
    }  # fmt: skip


def _kind(
    C: int, clock: Clock | None, onsets: bool, echo: bool
) -> tuple[bool, bool, int, int, int]:
    """What is constant in a kernel, besides its numbers' size; see `read_pieces`."""
    size, period = (clock.size, clock.period) if clock else (0, 1)
    return onsets, echo, size, period, words_of(C)


@compiled_once
def _signature(onsets: bool, echo: bool, clock: int) -> Signature:
    frame, size = ("2 * D" if onsets else "D"), _input_size(onsets, echo, clock)
    return Signature(
        "note_inputs",
        ("T", "B", "D", "K", "rows"),
        (
            Array("frames", ("T", "B", frame)),
            Array("memory", ("B", "K"), torch.int64, optional=True),
            Array("table", ("rows", f"{clock}")),
            Array("pitch", ("D", f"{PITCH}")),
            Array("x", ("T", "B * D", f"{size}")),
            Array("work", ("B", f"2 * D + {6 * REACH}")),
        ),
    )


@compiled_once
def _kernel(itemsize: int, onsets: bool, echo: bool, clock: int, period: int, words: int) -> Kernel:
    """Constants, besides its numbers' size, are those of `read_pieces`."""
    signature = _signature(onsets, echo, clock)
    constants = {"onsets": onsets, "echo": echo, "clock": clock, "period": period, "words": words}
    return compile_text(signature, itemsize, read_pieces, over="B", **constants)


def _input_size(onsets: bool, echo: bool, clock: int) -> int:
    return heard_size(onsets=onsets) + echo * echo_size(onsets=onsets) + clock
