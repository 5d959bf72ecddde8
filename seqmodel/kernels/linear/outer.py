"""Sums of outer products over all frames and rows: the gradients of weight matrices."""

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, PANEL, POINTER, vector_lanes
from seqmodel.kernels.code.jit import compiled_once, function
from seqmodel.kernels.linear.folding import folding
from seqmodel.kernels.linear.matmul import ROWS, write_tile
from seqmodel.kernels.linear.packing import copy_panel
from seqmodel.kernels.run.signature import (
    NEW,
    THREADS,
    Array,
    Field,
    Fields,
    Signature,
    per_thread,
)
from seqmodel.kernels.run.team import Job, Kernel, compile_kernels

_SMALL = 1 << 16  # C of at most this many numbers is summed in a table per thread
_FEW_FRAMES = 512  # up to which adding up the tables costs more than it gains
_BLOCK = 128  # frames; B's packed block, all its columns wide, should fit the second-level cache
_OUTER = Signature(
    "outer",
    ("K", "M", "N"),
    (
        Array("a", ("K", "M"), strides=("a_stride",)),
        Array("b", ("K", "N"), strides=("b_stride",)),
        # One of these: C, whose rows the threads share, or a C for each thread.
        Array("c", ("M", "N"), strides=("c_stride",), optional=True),
        per_thread("tables", "M * N", optional=True),
        # A thread's packed blocks of A and B.
        Array("scratch", (THREADS, f"{_BLOCK} * (-(-N // WIDTH) * WIDTH + LANES)")),
    ),
)


def outer(a: Tensor, b: Tensor, c: Tensor, threads: int) -> list[Job]:
    """C = A' B, the sum over all frames; A (frames, M), B (frames, N), C (M, N).

    Where C is small, each thread sums a share of the frames into its own table, and the tables are
    added. Otherwise each thread computes a share of C's rows.
    """
    M, N = c.shape
    if not len(a):
        c.zero_()
        return []
    if M * N > _SMALL or len(a) <= _FEW_FRAMES:
        return [_job(a, b, threads, c=c)]
    summing = _job(b, a, threads, tables=NEW)  # B' A, which folding transposes
    return [summing, folding(summing.made["tables"], c)]


def _job(a: Tensor, b: Tensor, threads: int, **into: Field) -> Job:
    (K, M), N = a.shape, b.shape[1]
    fields: Fields = {"K": K, "M": M, "N": N, "threads": threads, "a": a, "b": b, "scratch": NEW}
    return _kernel(b.element_size()).job(fields | into)


@compiled_once
def _kernel(itemsize: int) -> Kernel:
    """The compiled kernel.

    Blocks of frames are packed first: with strides of a power of two, as A and B often have, their
    rows would evict each other from the cache.
    """
    module = ir.Module("outer")
    rows_at_once = min(ROWS, vector_lanes(itemsize))  # A is copied a vector of columns at a time
    tiles = {
        v: write_tile(module, itemsize, rows_at_once, v, transposed=True)
        for v in range(1, PANEL + 1)
    }
    with function(module, "outer", [POINTER, INT, INT], itemsize) as (e, fields, thread, threads):
        b, width = e.builder, PANEL * e.lanes
        f = _OUTER.load(e, fields)
        padded = e.mul(b.sdiv(e.add(f["N"], width - 1), e.int(width)), width)
        scratch = e.mul(e.add(padded, e.lanes), _BLOCK)
        packed_b = e.offset(f["scratch"], e.mul(thread, scratch))
        packed_a = e.offset(packed_b, e.mul(padded, _BLOCK))
        by_frames = b.icmp_unsigned("!=", f["tables"], POINTER(None))
        tiles_down = b.sdiv(e.add(f["M"], rows_at_once - 1), e.int(rows_at_once))
        first, last = (e.mul(t, rows_at_once) for t in e.share(tiles_down, thread, threads))
        first_k, last_k = e.share(f["K"], thread, threads)
        first = b.select(by_frames, e.int(0), first)
        last = b.select(b.or_(by_frames, b.icmp_signed(">", last, f["M"])), f["M"], last)
        first_k = b.select(by_frames, first_k, e.int(0))
        last_k = b.select(by_frames, last_k, f["K"])
        table = e.offset(f["tables"], e.mul(thread, e.padded(e.mul(f["M"], f["N"]))))
        c = b.select(by_frames, table, f["c"])
        c_stride = b.select(by_frames, f["N"], f["c_stride"])
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
                        tile = e.offset(c, e.mul(e.add(i, part), c_stride), j)
                        columns = b.sub(f["N"], j)
                        places = [
                            e.offset(packed_a, part), rows, e.offset(packed_b, e.mul(j, k)),
                            tile, c_stride, k, columns, adds,
                        ]  # fmt: skip
                        narrow = b.icmp_signed("<=", columns, e.int(e.lanes))
                        with b.if_else(narrow) as (one, all_of_them):
                            with one:
                                b.call(tiles[1], places)
                            with all_of_them:
                                b.call(tiles[PANEL], places)
    return compile_kernels(module, itemsize, [_OUTER])["outer"]
