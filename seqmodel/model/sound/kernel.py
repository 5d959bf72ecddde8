"""Hearing and telling, compiled: many samples of a batch in training, one by one in drawing.

A vector holds one number of several pieces, one per lane, so that the recursions along a lattice
and along time run side by side. Drawing has one lane.
"""

from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.emit import INT, Emitter, vector_lanes
from seqmodel.kernels.code.jit import compiled_once
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.run.calls import ITEMSIZE, Arena, step_call
from seqmodel.kernels.run.signature import NEW, Array, Signature, per_thread
from seqmodel.kernels.run.threads import Kernel, compile_kernel, parallel_for, thread_count
from seqmodel.model.encoder import CompiledInputs
from seqmodel.model.sound.ear import Ear, lanes_of
from seqmodel.model.sound.known import Known, nothing_known
from seqmodel.model.sound.predictors import FULL, Predictors


def compiled_inputs(
    predictors: Predictors,
    known: Known,
    samples: Tensor,
    memory: Tensor,
    ends: Tensor | None = None,
    noise: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The features (T, B, I) after each of `samples` (T, B), in [-1, 1), and the new memory (B, K).

    The predictors hear the samples through `noise` (T, B), times the level `slow` of the samples
    without noise, and rounded to the grid. The levels themselves are of the samples, and of what is
    missing to them, without noise too: if noise were in them, what follows would seem softer than
    what was heard, and free running would fade. Each piece ends after as many samples as `ends`
    (B,) says, by default all; its memory is that at its end. Features after it mean nothing, and
    are zeros after the ends of all pieces. Samples and features are float32 or float64 on the CPU.
    """
    (T, B), memory, dtype = samples.shape, memory.clone(), samples.dtype
    groups = -(-B // vector_lanes(ITEMSIZE))
    threads = thread_count(groups)
    job = _kernel(predictors, dtype).job(
        {
            "T": T, "B": B, "G": groups, "S": predictors.memory_size + T * len(predictors.lines),
            "threads": threads, "samples": samples.contiguous(), "kept": memory, "x": NEW,
            "noise": None if noise is None else noise.to(dtype), "known": known.packed(),
            "ends": torch.full((B,), T) if ends is None else ends, "work": NEW,
        }
    )  # fmt: skip
    parallel_for([job], threads)
    return job.made["x"], memory


def sound_call(predictors: Predictors, known: Known, arena: Arena) -> CompiledInputs:
    """The same for one sample of one piece, in float64."""
    sample, x = arena.take(1), arena.take(1, predictors.input_size)
    memory = arena.take(1, predictors.memory_size)
    call = step_call(
        _signature(predictors, torch.float64), _write_step, predictors, T=1, B=1,
        samples=sample.reshaped(1, 1), kept=memory, known=known.packed(),
        x=x.reshaped(1, *x.shape), threads=1,
    )  # fmt: skip
    return CompiledInputs(sample, x, [call], memory)


@compiled_once
def _signature(predictors: Predictors, dtype: torch.dtype) -> Signature:
    """The fields for many samples on several threads; those for one leave some out."""
    memory, inputs = f"{predictors.memory_size}", f"{predictors.input_size}"
    known = f"{len(nothing_known(predictors.told_stages).packed())}"
    return Signature(
        "sound",
        ("T", "B"),
        (
            Array("samples", ("T", "B"), dtype),
            Array("noise", ("T", "B"), dtype, optional=True),
            Array("kept", ("B", memory), torch.float64),
            Array("known", (known,), torch.float64),
            Array("ends", ("B",), torch.int64, optional=True),
            Array("x", ("T", "B", inputs), dtype),
            per_thread("work", "S * LANES", optional=True),
        ),
        ("G", "S"),
    )


@compiled_once
def _kernel(predictors: Predictors, dtype: torch.dtype) -> Kernel:
    signature = _signature(predictors, dtype)

    def write(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
        work = e.offset(f["work"], e.mul(thread, e.padded(e.mul(f["S"], e.lanes))))
        first, last = e.share(f["G"], thread, threads)
        with e.loop(first, last) as group:
            _write_group(e, predictors, f, group, work, Emitter(e.builder, dtype.itemsize))

    return compile_kernel(signature, ITEMSIZE, write)


def _write_step(wide: Emitter, f: dict[str, Any], predictors: Predictors) -> None:
    e, starts = Emitter(wide.builder, ITEMSIZE, lanes=1), predictors.starts
    for line, size in predictors.lines.items():
        start = e.offset(f["kept"], starts[line])
        with e.loop(0, size - 1) as n:
            e.store(e.load(e.offset(start, n, 1)), e.offset(start, n))

    def place(part: str) -> Any:
        back = predictors.lines.get(part, 1) - 1
        return e.offset(f["kept"], starts[part], back)

    ear = Ear(e, predictors, f["known"], place)
    ear.hear(Vector(e, e.load(f["samples"])) * FULL)
    ear.tell(e, [f["x"]])


def _write_group(
    e: Emitter, predictors: Predictors, f: dict[str, Any], group: Any, work: Any, told: Emitter
) -> None:
    """All samples of as many pieces as there are lanes.

    Lanes without a piece repeat the last one: they write the same again. `work` holds the memories
    of the pieces, transposed, with each line followed by T places for what is to come. `told` has
    the type of samples and features.
    """
    b, T, K, size = e.builder, f["T"], predictors.memory_size, predictors.input_size
    starts, lines = predictors.starts, list(predictors.lines)
    end = b.sub(f["B"], e.int(1))

    def piece_in(lane: Any) -> Any:
        piece = e.add(e.mul(group, e.lanes), lane)
        return b.select(b.icmp_signed("<", piece, end), piece, end)

    def start(part: str) -> Any:
        """The number of places before a part in `work`."""
        return e.add(starts[part], e.mul(T, lines.index(part) if part in lines else 0))

    def transpose(lane: Any, first: int, count: int, at: Any, *, back: bool) -> None:
        """A piece's numbers from the `first` on, to or from the place `at` in `work`."""
        memory = e.offset(f["kept"], e.mul(piece_in(lane), K), first)
        with e.loop(0, count) as n:
            outside = e.offset(memory, n)
            inside = e.offset(work, e.mul(e.add(at, n), e.lanes), lane)
            source, target = (inside, outside) if back else (outside, inside)
            b.store(b.load(source, typ=e.real), target)

    def end_of(lane: Any) -> Any:
        return b.load(b.gep(f["ends"], [piece_in(lane)], source_etype=INT), typ=INT)

    fixed = min(starts[line] for line in lines)
    pieces = [piece_in(lane) for lane in range(e.lanes)]
    stop = [e.int(0)]
    with e.carrying(0, e.lanes, 1, stop) as (lane, inside):
        transpose(lane, 0, fixed, 0, back=False)
        for line, count in predictors.lines.items():
            transpose(lane, starts[line], count, start(line), back=False)
        until = end_of(lane)
        inside[0] = b.select(b.icmp_signed(">", until, inside[0]), until, inside[0])
    with e.loop(0, stop[0]) as t:

        def place(part: str) -> Any:
            newest = e.add(t, predictors.lines[part]) if part in lines else 0
            return e.offset(work, e.mul(e.add(start(part), newest), e.lanes))

        def gather(array: Any) -> Vector:
            places = [told.offset(array, e.mul(t, f["B"]), piece) for piece in pieces]
            numbers = [b.load(place, typ=told.real) for place in places]
            wide = told.real == e.real
            return lanes_of(e, numbers if wide else [b.fpext(n, e.real) for n in numbers])

        ear = Ear(e, predictors, f["known"], place)
        noisy = b.icmp_unsigned("!=", b.ptrtoint(f["noise"], INT), e.int(0))
        ear.hear(gather(f["samples"]) * FULL, (noisy, lambda: gather(f["noise"])))
        row = e.mul(t, f["B"])
        ear.tell(told, [told.offset(f["x"], e.mul(e.add(row, p), size)) for p in pieces])
        heard = e.add(t, 1)
        with e.loop(0, e.lanes) as lane, b.if_then(b.icmp_signed("==", end_of(lane), heard)):
            transpose(lane, 0, fixed, 0, back=True)
            for line, count in predictors.lines.items():
                transpose(lane, starts[line], count, e.add(start(line), heard), back=True)
    with e.loop(stop[0], T) as t, e.loop(0, e.lanes) as lane:
        row = e.add(e.mul(t, f["B"]), piece_in(lane))
        told.clear(told.offset(f["x"], e.mul(row, size)), e.int(size))
