"""The products after the loops: the gradients of W and U, sums over all frames and rows."""

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, vector_lanes
from seqmodel.kernels.code.jit import compiled_once, function
from seqmodel.kernels.linear.folding import folding, tables_apart
from seqmodel.kernels.linear.packing import PANEL, copy_panel
from seqmodel.kernels.linear.product import ROWS, write_tile
from seqmodel.kernels.run import memory
from seqmodel.kernels.run.team import Job, Kernel, compile_kernels

_SMALL = 1 << 16  # numbers of C, up to which each thread has one of its own
_FEW = 512  # frames, up to which that is not worth the putting together
_SIZES = ("K", "M", "N", "a_stride", "b_stride", "c_stride", "apart")
_ADDRESSES = ("a", "b", "c", "packed")  # packed (threads, packed_size(N)): room for copies
_BLOCK = 128  # k; B's copied block, as wide as all its columns, should fit the second-level cache


def packed_size(columns: int, itemsize: int) -> int:
    """How much room a thread of `outer` needs for its copies of A and B."""
    width = PANEL * vector_lanes(itemsize)
    return _BLOCK * (-(-columns // width) * width + vector_lanes(itemsize))


def outer(a: Tensor, b: Tensor, c: Tensor, threads: int) -> list[Job]:
    """C = A' B, the sum over all frames; A (frames, M), B (frames, N), C (M, N).

    Where C is small, each thread takes a share of the frames, and what they come to is put
    together. Else each takes a share of C's rows.
    """
    M, N = c.shape
    if not len(a):
        c.zero_()
        return []
    if M * N > _SMALL or len(a) <= _FEW:
        return [_job(a, b, c, c.stride(0), 0, threads)]
    tables = tables_apart(c, threads, M * N)  # of B' A, to be turned over
    return [_job(b, a, tables, M, tables.stride(0), threads), folding(tables, c)]


def _job(a: Tensor, b: Tensor, c: Tensor, c_stride: int, apart: int, threads: int) -> Job:
    (K, M), N = a.shape, b.shape[1]
    packed = memory.buffer(b, threads, packed_size(N, b.element_size()))
    fields = (K, M, N, a.stride(0), b.stride(0), c_stride, apart, a, b, c, packed)
    return Job(_kernel(b.element_size()), fields)


@compiled_once
def _kernel(itemsize: int) -> Kernel:
    """The compiled `outer(fields, thread, threads)`.

    Each thread makes a share of C's rows or, where threads have tables `apart`, its own from
    a share of the frames. Blocks of k are copied into panels first: the strides of
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
        by_frames = b.icmp_signed("!=", f["apart"], e.int(0))
        tiles_down = b.sdiv(e.add(f["M"], rows_at_once - 1), e.int(rows_at_once))
        first, last = (e.mul(t, rows_at_once) for t in e.share(tiles_down, thread, threads))
        first_k, last_k = e.share(f["K"], thread, threads)
        first = b.select(by_frames, e.int(0), first)
        last = b.select(b.or_(by_frames, b.icmp_signed(">", last, f["M"])), f["M"], last)
        first_k = b.select(by_frames, first_k, e.int(0))
        last_k = b.select(by_frames, last_k, f["K"])
        own = e.offset(f["c"], e.mul(thread, f["apart"]))
        with e.loop(first_k, last_k, _BLOCK) as k0:
            left = b.sub(last_k, k0)
            k = b.select(b.icmp_signed("<", left, e.int(_BLOCK)), left, e.int(_BLOCK))
            adds = b.icmp_signed(">", k0, first_k)
            block = e.offset(f["b"], e.mul(k0, f["b_stride"]))
            with e.loop(0, padded, width) as j:
                columns = b.sub(f["N"], j)
                to = e.offset(packed_b, e.mul(j, k))
                copy_panel(e, e.offset(block, j), f["b_stride"], columns, k, to, PANEL)
            with e.loop(first, last, e.lanes) as i:
                block = e.offset(f["a"], e.mul(k0, f["a_stride"]), i)
                copy_panel(e, block, f["a_stride"], b.sub(last, i), k, packed_a, 1)
                with e.loop(0, f["N"], width) as j, e.loop(0, e.lanes, rows_at_once) as part:
                    rows = b.sub(last, e.add(i, part))
                    with b.if_then(b.icmp_signed(">", rows, e.int(0))):
                        c = e.offset(own, e.mul(e.add(i, part), f["c_stride"]), j)
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
