"""The inputs of notes, compiled: for many frames in training, frame by frame in sampling."""

from typing import Any

import torch
from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, Emitter, padded
from seqmodel.kernels.code.jit import compiled_once
from seqmodel.kernels.run.calls import ITEMSIZE, Arena, Slot, step_call
from seqmodel.kernels.run.signature import NEW, Array, Signature, per_thread
from seqmodel.kernels.run.threads import Kernel, compile_kernel, parallel_for, thread_count
from seqmodel.model.clock import Clock
from seqmodel.model.echo import STEPS, echo_size
from seqmodel.model.echo_kernel import compiled_echoes, echo_call
from seqmodel.model.encoder import CompiledInputs
from seqmodel.model.heard import HEARD, PITCH, REACH, WINDOW, absolute_pitch, heard_size

_WORK = 6 * REACH
"""The size of a thread's `work`, beyond 2 D; see `_write_frame`."""


def compiled_inputs(
    heard: Tensor, memory: Tensor | None, clock: Tensor | None, *, onsets: bool
) -> tuple[Tensor, Tensor | None]:
    """The inputs of notes (T B D, I) after frames `heard` (T, B, C), and the new memory (B, K).

    For float32 or float64 on the CPU; `memory` is None without echo. `clock` (T B, size) holds
    each frame's row of the clock, if there is one.
    """
    T, B, C = heard.shape
    N, D = T * B, C // 2 if onsets else C
    heard, threads = heard.contiguous(), thread_count(N)
    more = {} if clock is None else {"clock": clock}
    if memory is not None:
        after, length, memory = compiled_echoes(heard, memory)
        more |= {"after": after.view(N, C), "length": length.view(N)}
    size = 0 if clock is None else clock.shape[1]
    kernel = _kernel(heard.element_size(), onsets, memory is not None, size)
    job = kernel.job(
        {
            "N": N, "D": D, "C": C, "I": _input_size(onsets, memory is not None, size),
            "rows": N, "E": size, "threads": threads, "past": heard.view(N, C),
            "pitch": absolute_pitch(D).to(heard), "x": NEW, "work": NEW, **more,
        }
    )  # fmt: skip
    parallel_for([job], threads)
    return job.made["x"], memory


def inputs_call(
    D: int, arena: Arena, *, onsets: bool, echo: bool, clock: Clock | None
) -> CompiledInputs:
    """The same for one frame, in float64."""
    C = 2 * D if onsets else D
    size, period = (clock.size, clock.period) if clock else (0, 1)
    inputs, past = _input_size(onsets, echo, size), arena.take(C)
    x, work = arena.take(D, inputs), arena.take(1, padded(2 * D + _WORK, ITEMSIZE))
    fields: dict[str, int | Tensor | Slot | None] = {
        "N": 1, "D": D, "C": C, "I": inputs, "E": size, "threads": 1,
        "past": past.reshaped(1, C), "pitch": absolute_pitch(D), "x": x, "work": work,
    }  # fmt: skip
    calls, memory = [], None
    if echo:
        memory, after, length, call = echo_call(past, arena)
        fields |= {"after": after, "length": length}
        calls.append(call)
    if clock is not None:
        table = clock.table()
        memory = memory or arena.take(1, 1, dtype=torch.int64)
        heard = Slot(memory.start, (1,), memory.dtype)
        fields |= {"rows": len(table), "clock": table, "heard": heard}
    calls.append(step_call(_SIGNATURE, _write_step, onsets, echo, size, period, **fields))
    return CompiledInputs(past, x, calls, memory)


def _input_size(onsets: bool, echo: bool, clock: int) -> int:
    return heard_size(onsets=onsets) + echo * echo_size(onsets=onsets) + clock


_SIGNATURE = Signature(
    "note_inputs",
    ("N", "D", "C", "I"),
    (
        Array("past", ("N", "C")),
        Array("pitch", ("D", f"{PITCH}")),
        Array("x", ("N * D", "I")),
        per_thread("work", f"2 * D + {_WORK}"),
        Array("after", ("N", "C"), optional=True),  # with echo
        Array("length", ("N",), optional=True),
        Array("clock", ("rows", "E"), optional=True),  # a row for each frame; in a step, the table
        Array("heard", ("1",), torch.int64, optional=True),  # in a step, the frames so far
    ),
    ("rows", "E"),
)


@compiled_once
def _kernel(itemsize: int, onsets: bool, echo: bool, clock: int) -> Kernel:
    def write(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
        size = e.padded(e.add(e.mul(f["D"], 2), _WORK))
        work = e.offset(f["work"], e.mul(thread, size))
        first, last = e.share(f["N"], thread, threads)
        with e.loop(first, last) as n:
            now = e.offset(f["clock"], e.mul(n, clock)) if clock else None
            _write_frame(e, f, n, work, onsets, echo, now, clock)

    return compile_kernel(_SIGNATURE, itemsize, write)


def _write_step(
    e: Emitter, f: dict[str, Any], onsets: bool, echo: bool, clock: int, period: int
) -> None:
    now = None
    if clock:
        b, heard = e.builder, e.builder.load(f["heard"], typ=INT)
        if echo:  # whose call has counted this frame already
            heard = b.sub(heard, e.int(1))
        else:
            b.store(e.add(heard, 1), f["heard"])
        last = e.add(b.sub(f["rows"], e.int(period)), b.srem(heard, e.int(period)))
        row = b.select(b.icmp_signed("<", heard, last), heard, last)
        now = e.offset(f["clock"], e.mul(row, clock))
    _write_frame(e, f, e.int(0), f["work"], onsets, echo, now, clock)


def _write_frame(
    e: Emitter,
    f: dict[str, Any],
    frame: Any,
    work: Any,
    onsets: bool,
    echo: bool,
    row: Any,
    clock: int,
) -> None:
    """The inputs of one frame; `row` is the address of its `clock` numbers, if there are any.

    `work` holds the notes, padded with 12 zeros on either side; then the counts per pitch class,
    twice in a row, so that those from any class on are consecutive; then, with `onsets`, the struck
    notes, padded with 12 zeros on either side.
    """
    b, D, inputs = e.builder, f["D"], _input_size(onsets, echo, clock)
    past = e.offset(f["past"], e.mul(frame, D, 2 if onsets else 1))
    x = e.offset(f["x"], e.mul(frame, D, inputs))
    classes, struck = e.offset(work, D, 2 * REACH), e.offset(work, D, 4 * REACH)
    e.clear(work, e.add(e.mul(D, 2), _WORK))
    e.copy(past, e.offset(work, REACH), D)
    if onsets:
        e.copy(e.offset(past, D), e.offset(struck, REACH), D)
    count = [ir.Constant(e.real, 0.0)]
    with e.carrying(0, D, 1, count) as (n, inside):
        note = b.load(e.offset(past, n), typ=e.real)
        inside[0] = b.fadd(inside[0], note)
        for again in (0, REACH):
            place = e.offset(classes, b.srem(n, e.int(REACH)), again)
            b.store(b.fadd(b.load(place, typ=e.real), note), place)
    share = b.fdiv(count[0], ir.Constant(e.real, REACH))
    with e.loop(0, D) as n:
        to = e.offset(x, e.mul(n, inputs))
        e.copy(e.offset(work, n), to, e.int(WINDOW))
        from_note = e.offset(classes, b.srem(n, e.int(REACH)))
        e.copy(from_note, e.offset(to, WINDOW), e.int(REACH))
        b.store(share, e.offset(to, HEARD - 1))
        e.copy(e.offset(f["pitch"], e.mul(n, PITCH)), e.offset(to, HEARD), e.int(PITCH))
        if onsets:
            e.copy(e.offset(struck, n), e.offset(to, HEARD + PITCH), e.int(WINDOW))
        if echo:
            behind = e.offset(to, heard_size(onsets=onsets))
            _write_echo(e, f, frame, n, behind, 2 if onsets else 1)
        if clock:
            e.copy(row, e.offset(to, inputs - clock), e.int(clock))


def _write_echo(e: Emitter, f: dict[str, Any], frame: Any, n: Any, to: Any, halves: int) -> None:
    """`echo.echo_inputs` for a note."""
    b, one = e.builder, ir.Constant(e.real, 1.0)
    length = b.load(e.offset(f["length"], frame), typ=e.real)
    told = [one]
    for half in range(halves):
        number = e.add(e.mul(frame, f["D"], halves), e.mul(f["D"], half), n)
        told.append(b.load(e.offset(f["after"], number), typ=e.real))
    for k, number in enumerate(told):
        for j, step in enumerate(STEPS):
            known = b.fcmp_ordered(">=", length, ir.Constant(e.real, float(step)))
            value = b.select(known, number, ir.Constant(e.real, 0.0))
            b.store(value, e.offset(to, k * len(STEPS) + j))
