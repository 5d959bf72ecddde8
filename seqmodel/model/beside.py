"""h joined with what the output reads alongside it, in compiled sampling."""

import torch
from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import POINTER
from seqmodel.kernels.code.jit import Library, compiled_once, function
from seqmodel.kernels.run.calls import Arena, Call, Slot
from seqmodel.kernels.run.signature import Array, Signature

_SIGNATURE = Signature(
    "beside",
    ("R", "H", "I", "E"),
    (Array("h", ("R", "H")), Array("x", ("R", "I")), Array("joined", ("R", "H + E"))),
)


def beside(h: Slot, x: Slot, size: int, arena: Arena) -> tuple[Slot, Call]:
    """The rows of h (R, H) followed by the last `size` numbers of x (R, I): (R, H + size)."""
    (R, H), (_, inputs) = h.shape, x.shape
    joined = arena.take(R, H + size)
    fields: dict[str, int | Tensor | Slot | None] = {
        "R": R, "H": H, "I": inputs, "E": size, "h": h, "x": x, "joined": joined,
    }  # fmt: skip
    address = _step().address("step")
    return joined, Call(address, _SIGNATURE, torch.float64.itemsize, fields)


@compiled_once
def _step() -> Library:
    module = ir.Module("beside")
    with function(module, "step", [POINTER], torch.float64.itemsize) as (e, fields):
        f = _SIGNATURE.load(e, fields)
        H, size, inputs = f["H"], f["E"], f["I"]
        with e.loop(0, f["R"]) as row:
            to = e.offset(f["joined"], e.mul(row, e.add(H, size)))
            e.copy(e.offset(f["h"], e.mul(row, H)), to, H)
            from_x = e.offset(f["x"], e.builder.sub(e.mul(e.add(row, 1), inputs), size))
            e.copy(from_x, e.offset(to, H), size)
    return Library(module)
