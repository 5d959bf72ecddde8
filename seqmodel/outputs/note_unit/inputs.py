"""The inputs of the unit along pitch, compiled: each note's h, and the notes below it."""

from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.jit import compiled_once
from seqmodel.kernels.code.language import copy
from seqmodel.kernels.device import for_kernels
from seqmodel.kernels.run.signature import NEW, THREADS, Array, Signature
from seqmodel.kernels.run.threads import Kernel, compile_text, parallel_for, thread_count
from seqmodel.outputs.notes.below import (
    WORK,
    add_below,
    add_struck,
    begin_below,
    below_size,
    read_below,
)

_SIZES = ("frames", "N", "D", "H")


class NoteInputs(torch.autograd.Function):
    """The unit's inputs: h (N D, H), notes (N, F) -> (D, N, H + below_size).

    Of the frames `inside` (M,) alone, if they are given.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, notes: Tensor, onsets: bool, inside: Tensor | None) -> Tensor:
        """x (D, N, H + below_size)."""
        frames, F = notes.shape
        D, H = F // 2 if onsets else F, h.shape[1]
        N = frames if inside is None else len(inside)
        threads = thread_count(N)
        job = _kernels(h.element_size(), onsets, inside is not None)["note_inputs"].job(
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
        listed = ctx.inside is not None
        d_h = d_x.new_zeros(frames, D, H) if listed else d_x.new_empty(frames, D, H)
        job = _kernels(d_x.element_size(), ctx.onsets, listed)["note_inputs_backward"].job(
            {
                "frames": frames, "N": N, "D": D, "H": H,
                "h": d_h, "inside": ctx.inside, "x": d_x.contiguous(),
            }
        )  # fmt: skip
        parallel_for([job], thread_count(N))
        return d_h.view(frames * D, H), None, None, None


def read_frames(
    h: Any, notes: Any, inside: Any, x: Any, work: Any, first: Any, last: Any, thread: Any,
    N: Any, D: Any, H: Any, size: int, onsets: bool, listed: bool,
) -> None:  # fmt: skip
    """The inputs of the frames numbered `first` to `last`, of those `listed` inside or of all."""
    kept = work[thread * (2 * D + WORK) :]
    for k in range(first, last):
        frame = inside[k] if listed else k
        own = notes[frame * D * (2 if onsets else 1) :]
        begin_below(kept, D)
        for n in range(D):
            to = x[(n * N + k) * (H + size) :]
            copy(h[(frame * D + n) * H :], to, H)
            read_below(kept, D, n, to[H:], onsets)
            add_below(kept, D, n, own[n])
            if onsets:
                add_struck(kept, D, n, own[D + n])


def read_slopes(
    h: Any, inside: Any, x: Any, first: Any, last: Any, N: Any, D: Any, H: Any, size: int,
    listed: bool,
) -> None:  # fmt: skip
    """The gradient of h from that of x."""
    for k in range(first, last):
        frame = inside[k] if listed else k
        for n in range(D):
            copy(x[(n * N + k) * (H + size) :], h[(frame * D + n) * H :], H)


def notes_below(frames: Tensor, *, onsets: bool) -> Tensor:
    """The part from the notes below alone: frames (N, F), on any device -> (D, N, below_size)."""
    D = frames.shape[1] // 2 if onsets else frames.shape[1]
    notes = for_kernels(frames)
    nothing = notes.new_empty(len(frames) * D, 0)
    x: Tensor = NoteInputs.apply(nothing, notes, onsets, None)  # type: ignore[no-untyped-call]
    return x.to(frames)


@compiled_once
def _kernels(itemsize: int, onsets: bool, listed: bool) -> dict[str, Kernel]:
    size = below_size(onsets=onsets)
    of_h = (
        Array("h", ("frames", "D", "H")),
        Array("inside", ("N",), torch.int64, optional=True),  # the frames that are read
        Array("x", ("D", "N", f"H + {size}")),
    )
    notes = Array("notes", ("frames", "2 * D" if onsets else "D"))
    work = Array("work", (THREADS, f"2 * D + {WORK}"))
    forward = Signature("note_inputs", _SIZES, (*of_h, notes, work))
    backward = Signature("note_inputs_backward", _SIZES, of_h)  # h and x are gradients
    constants = {"size": size, "onsets": onsets, "listed": listed}
    return {
        signature.name: compile_text(signature, itemsize, text, over="N", **constants)
        for signature, text in ((forward, read_frames), (backward, read_slopes))
    }
