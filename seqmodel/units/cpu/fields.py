"""The fields that a unit's kernels take."""

import torch

from seqmodel.kernels.linear.outer import BLOCK
from seqmodel.kernels.run.signature import THREADS, Array, Signature, packed, per_thread
from seqmodel.units.cpu.layout import Layout, Projection

_SIZES = ("T", "B", "I", "H")
_LENGTHS = Array("lengths", ("B",), torch.int64, optional=True)
"""Given if some row is shorter than T; `shortest` is the least length, or else above T."""
LISTED = {"indices": ("T * B", "I"), "counts": ("T * B",), "listed": (THREADS,)}
"""Where the forward loops list the ones of a binary x; left out if x cannot be binary."""


def forward(layout: Layout, *, begun: bool = False) -> Signature:
    """The fields of the forward loops; with `begun` also a product that W x is added to."""
    arrays = [Array("x", ("T", "B", "I")), _slots(layout)]
    for state in layout.states:
        arrays.append(Array(f"first_{state}", ("B", "H")))
        arrays.append(Array(f"all_{state}", ("T + 1", "B", "H")))  # the initial state first
        arrays.append(Array(f"final_{state}", ("B", "H"), optional=True))  # given with `lengths`
    arrays += [Array(name, shape, torch.int32, optional=True) for name, shape in LISTED.items()]
    arrays += [packed(p.name, _source(p), _target(p)) for p in layout.projections]
    arrays += [Array("product", ("B", _target(layout.of_input)))] if begun else []
    fields = (*arrays, _LENGTHS, *_vectors(layout))
    return Signature("forward", _SIZES, fields, ("shortest", "sparse_limit"))


def backward(layout: Layout) -> Signature:
    """The fields of the backward loops."""
    width = f"{len(layout.slots)} * H"
    # Either d_slots holds every step, and the matrices' gradients are summed later, or it holds the
    # current step only (d_step = 0), and they are summed along the way.
    arrays = [_slots(layout), Array("d_slots", ("(T if d_step else 1) * B", width))]
    arrays.append(Array("x", ("T", "B", "I"), optional=True))
    for p in layout.projections:  # W only if x needs gradients; a thread's sums are transposed
        arrays.append(packed(p.name, _target(p), _source(p), optional=p.term == "W"))
        arrays.append(per_thread(f"d_{p.name}", f"{_source(p)} * {_target(p)}", optional=True))
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
    fields = (*arrays, _LENGTHS, *_vectors(layout))
    return Signature("backward", (*_SIZES, "d_step"), fields, ("shortest",))


def _slots(layout: Layout) -> Array:
    return Array("slots", ("T * B", f"{len(layout.slots)} * H"))


def _source(p: Projection) -> str:
    return "I" if p.term == "W" else "H"


def _target(p: Projection) -> str:
    return f"{len(p.gates)} * H"


def _vectors(layout: Layout) -> list[Array]:
    counts = {term: len(layout.owners(term)) for term in ("V", "b", "bU")}
    shapes = {term: (f"{n}", "H") if term == "V" else (f"{n} * H",) for term, n in counts.items()}
    return [Array(term, shape) for term, shape in shapes.items() if counts[term]]
