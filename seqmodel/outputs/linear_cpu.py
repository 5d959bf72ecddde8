"""What compiled scores of a linear layer's outputs share: all but the likelihood itself.

Rows of h go through the layer a block at a time; a row's nats are computed while its outputs are in
the nearest cache, and the nats' slope is left where the outputs stood. The backward pass, which is
the same for every likelihood, is here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.cpu import memory, team
from seqmodel.cpu.emit import INT, POINTER, Emitter
from seqmodel.cpu.jit import compiled_once, function
from seqmodel.cpu.outer import outer
from seqmodel.cpu.product import Product, pack
from seqmodel.cpu.team import Kernel, compile_kernels, thread_count
from seqmodel.cpu.vectors import Vector

_BLOCK = 16  # rows


def threads_for(rows: int) -> int:
    """How many threads share so many rows."""
    return thread_count(-(-rows // _BLOCK))


@dataclass(frozen=True)
class BlockKernel:
    """A kernel that passes over rows a block at a time, the blocks shared out among threads."""

    name: str
    sizes: tuple[str, ...]
    """Fields that hold a number, "rows" among them."""
    addresses: tuple[str, ...]
    """Fields that hold the address of a tensor."""
    write: Callable[[Emitter, dict[str, Any], Product, Any, Any], None]
    """Writes the body: (emitter, fields, product, the block's first row, how many rows).

    "thread" among the fields is the number of the thread.
    """

    def run(self, itemsize: int, fields: Mapping[str, int | Tensor]) -> None:
        """Run over all rows."""
        values = [fields[name] for name in (*self.sizes, *self.addresses)]
        numbers = [v if isinstance(v, int) else v.data_ptr() for v in values]
        rows = numbers[self.sizes.index("rows")]
        team.share_out(_compiled(self, itemsize), numbers, threads_for(rows))


@compiled_once
def _compiled(kernel: BlockKernel, itemsize: int) -> Kernel:
    module = ir.Module(kernel.name)
    multiply = Product.of(module, itemsize)
    arguments = [POINTER, INT, INT]
    with function(module, kernel.name, arguments, itemsize) as (e, fields, thread, threads):
        b, f = e.builder, e.fields(fields, kernel.sizes, kernel.addresses)
        f["thread"] = thread
        blocks = b.sdiv(e.add(f["rows"], _BLOCK - 1), e.int(_BLOCK))
        first = b.sdiv(e.mul(blocks, thread), threads)
        last = b.sdiv(e.mul(blocks, e.add(thread, 1)), threads)
        with e.loop(first, last) as block:
            start = e.mul(block, _BLOCK)
            left = b.sub(f["rows"], start)
            rows = b.select(b.icmp_signed("<", left, e.int(_BLOCK)), left, e.int(_BLOCK))
            kernel.write(e, f, multiply, start, rows)
    return compile_kernels(module, (kernel.name,))[kernel.name]


def gradients(
    h: Tensor, weight: Tensor, slope: Tensor, d_nats: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of h (..., H), weight (N, H), bias (N,) and of the layer's outputs (rows, N).

    `slope` (rows, N) is the gradient of each row's nats by the outputs.
    """
    rows, (N, H) = len(slope), weight.shape
    d_h = memory.buffer(h, *h.shape)
    scaled = memory.recycled(h, rows, N)
    sums = h.new_zeros(threads_for(rows), N)
    _BACKWARD.run(
        h.element_size(),
        {
            "rows": rows, "H": H, "N": N, "d_h": d_h, "weight": pack(weight), "sums": sums,
            "slope": slope, "scaled": scaled, "d_nats": d_nats.contiguous(),
        },
    )  # fmt: skip
    d_weight = memory.buffer(weight, N, H)
    outer(scaled, h.view(rows, H), d_weight)
    return d_h, d_weight, sums.sum(0), scaled


def _write_backward(
    e: Emitter, f: dict[str, Any], multiply: Product, start: Any, rows: Any
) -> None:
    H, N = f["H"], f["N"]
    sums = e.offset(f["sums"], e.mul(f["thread"], N))
    with e.loop(start, e.add(start, rows)) as r:
        row = e.mul(r, N)
        weight = Vector(e, e.broadcast(e.offset(f["d_nats"], r)))

        def scale(j: Any, lanes: Any, row: Any = row, weight: Vector = weight) -> None:
            scaled = Vector(e, e.load(e.offset(f["slope"], row, j), lanes)) * weight
            e.store(scaled.value, e.offset(f["scaled"], row, j), lanes)
            place = e.offset(sums, j)
            e.store((Vector(e, e.load(place, lanes)) + scaled).value, place, lanes)

        e.columns(N, scale)
    scaled = e.offset(f["scaled"], e.mul(start, N))
    d_h = e.offset(f["d_h"], e.mul(start, H))
    multiply(e, scaled, N, f["weight"], d_h, H, rows, N, H, False)


_BACKWARD = BlockKernel(
    "linear_backward",
    ("rows", "H", "N"),
    (
        "d_h",  # (rows, H)
        "weight",  # packed
        "sums",  # (threads, N)
        "slope", "scaled",  # (rows, N): the gradient of a row's nats, and that of the loss
        "d_nats",  # (rows,)
    ),
    _write_backward,
)  # fmt: skip
