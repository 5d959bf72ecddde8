"""`echo.remember` and `echo.followed`, compiled: frame by frame, over a batch of pieces."""

from typing import Any

import torch
from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, Emitter
from seqmodel.kernels.code.jit import compiled_once
from seqmodel.kernels.run.calls import Arena, Call, Slot, step_call
from seqmodel.kernels.run.signature import NEW, Array, Signature
from seqmodel.kernels.run.threads import Kernel, compile_kernel, parallel_for, thread_count
from seqmodel.model.echo import LONGEST, REACH_BACK, WORD, memory_size, words_of

_SIGNATURE = Signature(
    "echo",
    ("T", "B", "F", "K"),
    (
        Array("frames", ("T", "B", "F")),
        Array("kept", ("B", "K"), torch.int64),
        Array("after", ("T", "B", "F")),
        Array("length", ("T", "B")),
    ),
)


def compiled_echoes(frames: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What followed (T, B, F) and the lengths of the stretches (T, B), after each of `frames`.

    Frames (T, B, F) are float32 or float64 on the CPU; the third result is the memory (B, K) after
    them.
    """
    T, B, size = frames.shape
    memory = memory.clone()
    job = _kernel(frames.element_size(), words_of(size)).job(
        {
            "T": T, "B": B, "F": size, "K": memory.shape[1], "frames": frames.contiguous(),
            "kept": memory, "after": NEW, "length": NEW,
        }
    )  # fmt: skip
    parallel_for([job], thread_count(B))
    return job.made["after"], job.made["length"], memory


def echo_call(frame: Slot, arena: Arena) -> tuple[Slot, Slot, Slot, Call]:
    """The same for one `frame` (F,) of one piece, in float64: memory, what followed, length."""
    (size,) = frame.shape
    memory = arena.take(1, memory_size(size), dtype=torch.int64)
    after, length = arena.take(1, 1, size), arena.take(1, 1)
    call = step_call(
        _SIGNATURE, _write_step, words_of(size), T=1, B=1, F=size, K=memory.shape[1],
        frames=frame.reshaped(1, 1, size), kept=memory, after=after, length=length,
    )  # fmt: skip
    return memory, after.reshaped(1, size), length.reshaped(1), call


@compiled_once
def _kernel(itemsize: int, words: int) -> Kernel:
    def write(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
        first, last = e.share(f["B"], thread, threads)
        with e.loop(first, last) as piece, e.loop(0, f["T"]) as t:
            _write_frame(e, f, e.add(e.mul(t, f["B"]), piece), piece, words)

    return compile_kernel(_SIGNATURE, itemsize, write)


def _write_step(e: Emitter, f: dict[str, Any], words: int) -> None:
    _write_frame(e, f, e.int(0), e.int(0), words)


def _write_frame(e: Emitter, f: dict[str, Any], row: Any, piece: Any, words: int) -> None:
    """Remember a frame of a piece and write what followed the stretch equal to the one it ends."""
    b = e.builder
    memory = _place(e, f["kept"], e.mul(piece, f["K"]))
    runs, frames = _place(e, memory, 1), _place(e, memory, 1 + REACH_BACK)
    heard = b.load(memory, typ=INT)
    here = b.srem(heard, e.int(REACH_BACK))
    frame = _packed(e, f, e.offset(f["frames"], e.mul(row, f["F"])), words)
    for k, word in enumerate(frame):
        b.store(word, _place(e, frames, e.mul(here, words), k))
    # From the latest to the earliest, so that the run before each still has its previous value.
    reach = b.select(b.icmp_signed("<", heard, e.int(REACH_BACK - 1)), heard, e.int(REACH_BACK - 1))
    best = [e.int(0), e.int(0)]  # the length of the longest stretch, and the place of its end
    with e.carrying(1, e.add(reach, 1), 1, best) as (back, inside):
        place = _around(e, b.sub(here, back))
        run = b.load(_place(e, runs, _around(e, b.sub(place, e.int(1)))), typ=INT)
        run = b.add(run, e.int(1))
        run = b.select(b.icmp_signed("<", run, e.int(LONGEST)), run, e.int(LONGEST))
        for k, word in enumerate(frame):
            there = b.load(_place(e, frames, e.mul(place, words), k), typ=INT)
            run = b.select(b.icmp_signed("==", there, word), run, e.int(0))
        b.store(run, _place(e, runs, place))
        longer = b.icmp_signed(">", run, inside[0])
        inside[0] = b.select(longer, run, inside[0])
        inside[1] = b.select(longer, place, inside[1])
    b.store(e.int(0), _place(e, runs, here))
    b.store(e.add(heard, 1), memory)
    length, place = best
    b.store(b.sitofp(length, e.real), e.offset(f["length"], row))
    source = _place(e, frames, e.mul(_around(e, e.add(place, 1)), words))
    some = b.zext(b.icmp_signed(">", length, e.int(0)), INT)
    with e.loop(0, f["F"]) as n:
        word = b.load(_place(e, source, b.sdiv(n, e.int(WORD))), typ=INT)
        bit = b.and_(b.lshr(word, b.srem(n, e.int(WORD))), some)
        to = e.offset(f["after"], e.mul(row, f["F"]), n)
        b.store(b.sitofp(bit, e.real), to)


def _packed(e: Emitter, f: dict[str, Any], frame: Any, words: int) -> list[Any]:
    """The numbers of a frame, as bits of `words` words: 1 where not zero."""
    b, packed = e.builder, []
    for k in range(words):
        left = b.sub(f["F"], e.int(k * WORD))
        count = b.select(b.icmp_signed("<", left, e.int(WORD)), left, e.int(WORD))
        word = [e.int(0)]
        with e.carrying(0, count, 1, word) as (n, inside):
            number = b.load(e.offset(frame, k * WORD, n), typ=e.real)
            one = b.zext(b.fcmp_unordered("!=", number, ir.Constant(e.real, 0.0)), INT)
            inside[0] = b.or_(inside[0], b.shl(one, n))
        packed += word
    return packed


def _place(e: Emitter, address: Any, *numbers: Any) -> Any:
    """`address` advanced by as many integers as the sum of `numbers`."""
    return e.builder.gep(address, [e.add(*numbers)], source_etype=INT)


def _around(e: Emitter, place: Any) -> Any:
    """A place from -REACH_BACK to below 2 REACH_BACK, modulo REACH_BACK, which is a power of 2."""
    return e.builder.and_(place, e.int(REACH_BACK - 1))
