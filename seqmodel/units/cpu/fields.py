"""The fields that a unit's kernels take."""

import torch

from seqmodel.kernels.linear.outer import BLOCK
from seqmodel.kernels.run.signature import THREADS, Array, Signature, packed, per_thread
from seqmodel.units.cpu.layout import Layout

_SIZES = ("T", "B", "I", "H")
_LENGTHS = Array("lengths", ("B",), torch.int64, optional=True)
"""Given if some row is shorter than T; `shortest` is the least length, or else above T."""
LISTED = ("indices", "counts", "listed")
"""Where the forward loops list the ones of a binary x; left out if x cannot be binary."""


def forward(layout: Layout) -> Signature:
    """The fields of the forward loops."""
    arrays = [Array("x", ("T", "B", "I")), _slots(layout, "slots")]
    for state in layout.states:
        arrays.append(Array(f"first_{state}", ("B", "H")))
        arrays.append(Array(f"all_{state}", ("T + 1", "B", "H")))  # the initial state first
        arrays.append(Array(f"final_{state}", ("B", "H"), optional=True))  # given with `lengths`
    for name, shape in zip(LISTED, (("T * B", "I"), ("T * B",), (THREADS,)), strict=True):
        arrays.append(Array(name, shape, torch.int32, optional=True))
    fields = (*arrays, _LENGTHS, *_vectors(layout), *_matrices(layout, transposed=True))
    return Signature("forward", _SIZES, fields, ("shortest", "sparse_limit"))


def step(layout: Layout) -> Signature:
    """The fields of a single step of one row."""
    arrays = [Array("x", ("I",)), Array("slots", (f"{len(layout.slots)}", "H"))]
    # A state before and after the step; at the end the latter is copied over the former.
    arrays += [Array(f"all_{state}", ("2", "H")) for state in layout.states]
    arrays.append(Array("indices", ("I",), torch.int32, optional=True))
    arrays.append(Array("counts", ("1",), torch.int32, optional=True))
    fields = (*arrays, *_vectors(layout), *_matrices(layout, transposed=True))
    return Signature("step", ("B", "I", "H"), fields, ("sparse_limit",))


def backward(layout: Layout) -> Signature:
    """The fields of the backward loops."""
    width = f"{len(layout.slots)} * H"
    # Either d_slots holds every step, and the matrices' gradients are summed later, or it holds the
    # current step only (d_step = 0), and they are summed along the way.
    arrays = [_slots(layout, "slots"), Array("d_slots", ("(T if d_step else 1) * B", width))]
    arrays.append(Array("x", ("T", "B", "I"), optional=True))
    arrays += [
        per_thread(f"d_{name}", size, optional=True) for name, size in _tables(layout).items()
    ]
    scratch = f"{BLOCK} * (-(-({layout.widest} * H) // WIDTH) * WIDTH + LANES)"
    arrays.append(Array("scratch", (THREADS, scratch), optional=True))
    arrays.append(Array("d_h", ("T", "B", "H"), strides=("d_h_step", "d_h_row")))
    for state in layout.states:
        arrays.append(Array(f"all_{state}", ("T + 1", "B", "H")))
        arrays.append(Array(f"d_final_{state}", ("B", "H"), optional=True))
        # The gradient passed to the previous step; at the end, that of the initial state.
        arrays.append(Array(f"carried_{state}", ("B", "H")))
    arrays.append(Array("d_x", ("T", "B", "I"), optional=True))
    arrays.append(per_thread("sums", f"{len(layout.summed)} * H"))
    fields = (*arrays, _LENGTHS, *_vectors(layout), *_matrices(layout, transposed=False))
    return Signature("backward", (*_SIZES, "d_step"), fields, ("shortest",))


def _tables(layout: Layout) -> dict[str, str]:
    """The sizes of a thread's sums for the gradients of W and of the rows of U, transposed."""
    sizes = {"W": f"I * {len(layout.owners('W'))} * H"}
    return sizes | {f"U{k}": f"H * {len(p.gates)} * H" for k, p in enumerate(layout.projections)}


def _slots(layout: Layout, name: str) -> Array:
    return Array(name, ("T * B", f"{len(layout.slots)} * H"))


def _vectors(layout: Layout) -> list[Array]:
    vectors = []
    for term in ("V", "b", "bU"):
        count = len(layout.owners(term))
        shape = (f"{count}", "H") if term == "V" else (f"{count} * H",)
        vectors += [Array(term, shape)] if count else []
    return vectors


def _matrices(layout: Layout, *, transposed: bool) -> list[Array]:
    """W and each projection's rows of U, packed; backward, W only if x needs gradients."""
    shapes = {"W": (f"{len(layout.owners('W'))} * H", "I")}
    shapes |= {f"U{k}": (f"{len(p.gates)} * H", "H") for k, p in enumerate(layout.projections)}
    return [
        packed(name, *(reversed(shape) if transposed else shape))
        if transposed or name != "W"
        else packed(name, *shape, optional=True)
        for name, shape in shapes.items()
    ]
