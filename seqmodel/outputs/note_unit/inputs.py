"""The inputs of the unit along pitch, compiled: each note's h, and the notes below it."""

from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, Emitter
from seqmodel.kernels.code.jit import compiled_once
from seqmodel.kernels.run.signature import NEW, Array, Signature, per_thread
from seqmodel.kernels.run.threads import Kernel, compile_kernel, parallel_for, thread_count
from seqmodel.outputs.notes.below import below_size
from seqmodel.outputs.notes.below_writer import WORK, NotesBelow

_SIZES = ("frames", "N", "D", "H")
_H = (
    Array("h", ("frames", "D", "H")),
    Array("inside", ("N",), torch.int64, optional=True),  # the frames that are read; null: all
)


class NoteInputs(torch.autograd.Function):
    """Same as `specification.note_inputs`."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, notes: Tensor, onsets: bool, inside: Tensor | None) -> Tensor:
        """x (D, N, H + below_size)."""
        frames, F = notes.shape
        D, H = F // 2 if onsets else F, h.shape[1]
        N = frames if inside is None else len(inside)
        threads = thread_count(N)
        job = _kernel(h.element_size(), onsets).job(
            {
                "frames": frames, "N": N, "D": D, "H": H, "threads": threads,
                "h": h.contiguous().view(frames, D, H), "notes": notes.contiguous(),
                "inside": inside, "x": NEW, "work": NEW,
            }
        )  # fmt: skip
        parallel_for([job], threads)
        ctx.sizes, ctx.onsets, ctx.inside = (frames, N, D, H), onsets, inside
        return job.made["x"]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_x: Tensor) -> tuple[Tensor, None, None, None]:
        """The gradient of h."""
        frames, N, D, H = ctx.sizes
        d_h = d_x.new_empty(frames, D, H) if ctx.inside is None else d_x.new_zeros(frames, D, H)
        job = _kernel(d_x.element_size(), ctx.onsets, backward=True).job(
            {
                "frames": frames, "N": N, "D": D, "H": H,
                "h": d_h, "inside": ctx.inside, "x": d_x.contiguous(),
            }
        )  # fmt: skip
        parallel_for([job], thread_count(N))
        return d_h.view(frames * D, H), None, None, None


@compiled_once
def _kernel(itemsize: int, onsets: bool, *, backward: bool = False) -> Kernel:
    """`backward` writes h from x, both being gradients."""
    x = Array("x", ("D", "N", f"H + {below_size(onsets=onsets)}"))
    notes = Array("notes", ("frames", "2 * D" if onsets else "D"))
    own = () if backward else (notes, per_thread("work", f"2 * D + {WORK}"))

    def write(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
        f["width"] = e.add(f["H"], below_size(onsets=onsets))
        first, last = e.share(f["N"], thread, threads)
        with e.loop(first, last) as k:
            write_frame = _write_backward if backward else _write_forward
            write_frame(e, f, k, _number(e, f["inside"], k), thread, onsets)

    return compile_kernel(Signature("note_unit_inputs", _SIZES, (*_H, x, *own)), itemsize, write)


def _number(e: Emitter, inside: Any, k: Any) -> Any:
    """The number of the k-th frame that is read."""
    b, number = e.builder, [k]
    with e.when(b.icmp_unsigned("!=", inside, POINTER(None)), number) as listed:
        listed[0] = b.load(b.gep(inside, [k], source_etype=INT), typ=INT)
    return number[0]


def _write_forward(
    e: Emitter, f: dict[str, Any], k: Any, frame: Any, thread: Any, onsets: bool
) -> None:
    b, D, H = e.builder, f["D"], f["H"]
    size = e.padded(e.add(e.mul(D, 2), WORK))
    below = NotesBelow(e, e.offset(f["work"], e.mul(thread, size)), D, onsets=onsets)
    notes = e.offset(f["notes"], e.mul(frame, D, 2 if onsets else 1))
    with e.loop(0, D) as n:
        of_note = e.add(e.mul(frame, D), n)
        x = e.offset(f["x"], e.mul(e.add(e.mul(n, f["N"]), k), f["width"]))
        e.copy(e.offset(f["h"], e.mul(of_note, H)), x, H)
        below.write(n, e.offset(x, H))
        struck = b.load(e.offset(notes, D, n), typ=e.real) if onsets else None
        below.add(n, b.load(e.offset(notes, n), typ=e.real), struck)


def _write_backward(
    e: Emitter, f: dict[str, Any], k: Any, frame: Any, thread: Any, onsets: bool
) -> None:
    with e.loop(0, f["D"]) as n:
        d_x = e.offset(f["x"], e.mul(e.add(e.mul(n, f["N"]), k), f["width"]))
        d_h = e.offset(f["h"], e.mul(e.add(e.mul(frame, f["D"]), n), f["H"]))
        e.copy(d_x, d_h, f["H"])
