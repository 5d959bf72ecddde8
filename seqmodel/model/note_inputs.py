"""`notes.heard_inputs`, compiled: for many frames in training, frame by frame in sampling."""

from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, Emitter
from seqmodel.kernels.code.jit import Library, compiled_once, function
from seqmodel.kernels.run.calls import Arena, Call, Slot
from seqmodel.kernels.run.signature import NEW, Array, Signature, per_thread
from seqmodel.kernels.run.team import Kernel, compile_kernels, parallel_for, thread_count
from seqmodel.model.encoder import CompiledInputs
from seqmodel.model.notes import HEARD, PITCH, REACH, WINDOW, absolute_pitch, input_size

_WORK = 6 * REACH
"""Beyond 2 D, the numbers of a thread's work: see `_write_frame`."""
_ITEMSIZE = 8  # bytes of a number in sampling


def compiled_inputs(past: Tensor, *, onsets: bool) -> Tensor:
    """As `notes.heard_inputs`, for float32 or float64 on the CPU."""
    N, C = past.shape
    D = C // 2 if onsets else C
    threads = thread_count(N)
    job = _kernel(past.element_size(), onsets).job(
        {
            "N": N, "D": D, "threads": threads, "past": past.contiguous(),
            "pitch": absolute_pitch(D).to(past), "x": NEW, "work": NEW,
        }
    )  # fmt: skip
    parallel_for([job], threads)
    return job.made["x"]


def inputs_call(D: int, arena: Arena, *, onsets: bool) -> CompiledInputs:
    """As `notes.heard_inputs` of one frame, in float64."""
    past, x = arena.take(2 * D if onsets else D), arena.take(D, input_size(onsets=onsets))
    slots = {"past": past.reshaped(1, *past.shape), "x": x, "work": arena.take(1, 2 * D + _WORK)}
    fields: dict[str, int | Tensor | Slot | None] = {
        "N": 1,
        "D": D,
        "pitch": absolute_pitch(D),
        **slots,
    }
    library = _step(onsets)
    call = Call(library.address("step"), _signature(onsets, step=True), _ITEMSIZE, fields)
    return CompiledInputs(past, x, [call])


@compiled_once
def _signature(onsets: bool, *, step: bool) -> Signature:
    """The fields for many frames on several threads, or for a step: one frame on one."""
    size = f"2 * D + {_WORK}"
    work = Array("work", ("1", size)) if step else per_thread("work", size)
    return Signature(
        "heard_inputs",
        ("N", "D"),
        (
            Array("past", ("N", "2 * D" if onsets else "D")),
            Array("pitch", ("D", f"{PITCH}")),
            Array("x", ("N * D", f"{input_size(onsets=onsets)}")),
            work,
        ),
    )


@compiled_once
def _kernel(itemsize: int, onsets: bool) -> Kernel:
    signature, module = _signature(onsets, step=False), ir.Module("heard_inputs")
    arguments = [POINTER, INT, INT]
    with function(module, signature.name, arguments, itemsize) as (e, fields, thread, threads):
        f = signature.load(e, fields)
        size = e.padded(e.add(e.mul(f["D"], 2), _WORK))
        work = e.offset(f["work"], e.mul(thread, size))
        first, last = e.share(f["N"], thread, threads)
        with e.loop(first, last) as n:
            _write_frame(e, f, n, work, onsets)
    return compile_kernels(module, itemsize, [signature])[signature.name]


@compiled_once
def _step(onsets: bool) -> Library:
    module = ir.Module("heard_step")
    with function(module, "step", [POINTER], _ITEMSIZE) as (e, fields):
        f = _signature(onsets, step=True).load(e, fields)
        _write_frame(e, f, e.int(0), f["work"], onsets)
    return Library(module)


def _write_frame(e: Emitter, f: dict[str, Any], frame: Any, work: Any, onsets: bool) -> None:
    """The inputs of one frame.

    `work` takes the notes between 12 zeros on either side, then the counts per pitch class, twice
    in a row, so that those from any class on are consecutive; with `onsets` then the struck notes
    between 12 zeros on either side.
    """
    b, D, inputs = e.builder, f["D"], input_size(onsets=onsets)
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
