"""The products after the loops: the gradients of W and U, sums over all frames and rows."""

from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.cpu import memory, team
from seqmodel.cpu.emit import INT, POINTER, Emitter, vector_lanes
from seqmodel.cpu.jit import compiled_once, function
from seqmodel.cpu.product import PANEL, ROWS, write_tile
from seqmodel.cpu.team import Kernel, compile_kernels, thread_count

_WORTH_A_THREAD = 8_000_000  # multiplications; below, waking a second one costs more than it saves
_SIZES = ("K", "M", "N", "a_stride", "b_stride", "c_stride")
_ADDRESSES = ("a", "b", "c", "packed")  # packed (threads, packed_size(N)): room for copies
_BLOCK = 128  # k; B's copied block, as wide as all its columns, should fit the second-level cache


def packed_size(columns: int, itemsize: int) -> int:
    """How much room a thread of `outer` needs for its copies of A and B."""
    width = PANEL * vector_lanes(itemsize)
    return _BLOCK * (-(-columns // width) * width + vector_lanes(itemsize))


def outer(a: Tensor, b: Tensor, c: Tensor) -> None:
    """C = A' B, the sum over all frames; A (frames, M), B (frames, N), C (M, N)."""
    (K, M), N = a.shape, b.shape[1]
    threads = thread_count(M) if K * M * N > _WORTH_A_THREAD else 1
    packed = memory.buffer(b, threads, packed_size(N, b.element_size()))
    values = [
        K, M, N, a.stride(0), b.stride(0), c.stride(0),
        a.data_ptr(), b.data_ptr(), c.data_ptr(), packed.data_ptr(),
    ]  # fmt: skip
    team.share_out(_kernel(b.element_size()), values, threads)


@compiled_once
def _kernel(itemsize: int) -> Kernel:
    """The compiled `outer(fields, thread, threads)`.

    Each thread makes a share of C's rows. Blocks of k are copied into panels first: the strides of
    A and B, often a power of two, would keep all their numbers in a few places of the cache.
    """
    module = ir.Module("outer")
    rows_at_once = min(ROWS, vector_lanes(itemsize))  # A is copied a vector of columns at a time
    tiles = {
        v: write_tile(module, itemsize, rows_at_once, v, transposed=True)
        for v in range(1, PANEL + 1)
    }
    with function(module, "outer", [POINTER, INT, INT], itemsize) as (e, fields, thread, threads):
        b, width = e.builder, PANEL * e.lanes
        f = e.fields(fields, _SIZES, _ADDRESSES)
        padded = e.mul(b.sdiv(e.add(f["N"], width - 1), e.int(width)), width)
        room = e.mul(e.add(padded, e.lanes), _BLOCK)
        packed_b = e.offset(f["packed"], e.mul(thread, room))
        packed_a = e.offset(packed_b, e.mul(padded, _BLOCK))
        vectors = b.sdiv(e.add(f["M"], e.lanes - 1), e.int(e.lanes))  # of A's columns, shared out
        first = e.mul(b.sdiv(e.mul(vectors, thread), threads), e.lanes)
        last = e.mul(b.sdiv(e.mul(vectors, e.add(thread, 1)), threads), e.lanes)
        with e.loop(0, f["K"], _BLOCK) as k0:
            left = b.sub(f["K"], k0)
            k = b.select(b.icmp_signed("<", left, e.int(_BLOCK)), left, e.int(_BLOCK))
            adds = b.icmp_signed(">", k0, e.int(0))
            block = e.offset(f["b"], e.mul(k0, f["b_stride"]))
            with e.loop(0, padded, width) as j:
                _copy(e, block, f["b_stride"], j, f["N"], k, e.offset(packed_b, e.mul(j, k)), PANEL)
            with e.loop(first, last, e.lanes) as i:
                block = e.offset(f["a"], e.mul(k0, f["a_stride"]))
                _copy(e, block, f["a_stride"], i, f["M"], k, packed_a, 1)
                with e.loop(0, f["N"], width) as j, e.loop(0, e.lanes, rows_at_once) as part:
                    rows = b.sub(f["M"], e.add(i, part))
                    with b.if_then(b.icmp_signed(">", rows, e.int(0))):
                        c = e.offset(f["c"], e.mul(e.add(i, part), f["c_stride"]), j)
                        columns = b.sub(f["N"], j)
                        places = [
                            e.offset(packed_a, part), rows, e.offset(packed_b, e.mul(j, k)),
                            c, f["c_stride"], k, columns, adds,
                        ]  # fmt: skip
                        narrow = b.icmp_signed("<=", columns, e.int(e.lanes))
                        with b.if_else(narrow) as (one, all_of_them):
                            with one:
                                b.call(tiles[1], places)
                            with all_of_them:
                                b.call(tiles[PANEL], places)
    return compile_kernels(module, ("outer",))["outer"]


def _copy(
    e: Emitter, source: Any, stride: Any, j: Any, columns: Any, k: Any, to: Any, vectors: int
) -> None:
    """Copy k rows of columns j.. into a panel so many vectors wide, zeros behind the last one."""
    masks = [e.first_lanes(e.builder.sub(columns, e.add(j, v * e.lanes))) for v in range(vectors)]
    with e.loop(0, k) as n:
        for v in range(vectors):
            value = e.load(e.offset(source, e.mul(n, stride), j, v * e.lanes), masks[v])
            e.store(value, e.offset(to, e.mul(n, vectors * e.lanes), v * e.lanes))
