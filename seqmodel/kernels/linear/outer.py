"""Sums of outer products over all frames and rows, the gradients of weight matrices; of tables."""

from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, PANEL, POINTER, Emitter, vector_lanes
from seqmodel.kernels.code.jit import Library, call_at, compiled_once, function
from seqmodel.kernels.linear.matmul import copy_panel, most_rows, write_tile
from seqmodel.kernels.run.signature import (
    NEW,
    THREADS,
    Array,
    Field,
    KernelFields,
    Signature,
    per_thread,
)
from seqmodel.kernels.run.threads import Job, Kernel, compile_kernel

_SMALL = 1 << 16  # C of at most this many numbers is summed in a table per thread
_FEW_FRAMES = 512  # up to this many, adding up the tables costs more than it gains
BLOCK = 128
"""In frames; B's packed block, which spans all its columns, should fit in the L2 cache."""
_KINDS = [INT, POINTER, INT, POINTER, INT, POINTER, INT, INT, INT, POINTER, ir.IntType(1)]
_OUTER = Signature(
    "outer",
    ("K", "M", "N"),
    (
        Array("a", ("K", "M"), strides=("a_stride",)),
        Array("b", ("K", "N"), strides=("b_stride",)),
        # One of these: C, its rows divided among the threads, or a C for each thread.
        Array("c", ("M", "N"), strides=("c_stride",), optional=True),
        per_thread("tables", "M * N", optional=True),
        # A thread's packed blocks of A and B.
        Array("scratch", (THREADS, f"{BLOCK} * (-(-N // WIDTH) * WIDTH + LANES)")),
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
    sizes: KernelFields = {"K": K, "M": M, "N": N, "threads": threads}
    return _kernel(b.element_size()).job({**sizes, "a": a, "b": b, "scratch": NEW, **into})


def write_outer(
    e: Emitter, k: Any, a: Any, a_stride: Any, b: Any, b_stride: Any, *rest: Any
) -> None:
    """C (+)= A' B, A (k, M), B (k, N), C (M, N), in blocks of `BLOCK` frames.

    The rest: C, its stride, M, N, scratch of `scratch_length` numbers, and whether the first block
    adds to C.
    """
    builder, (*others, adds) = e.builder, rest
    address = _library(e.precision.itemsize).address("block")
    with e.loop(0, k, BLOCK) as k0:
        left = builder.sub(k, k0)
        block = builder.select(builder.icmp_signed("<", left, e.int(BLOCK)), left, e.int(BLOCK))
        again = builder.or_(adds, builder.icmp_signed(">", k0, e.int(0)))
        of_a, of_b = (e.offset(x, e.mul(k0, by)) for x, by in ((a, a_stride), (b, b_stride)))
        arguments = [block, of_a, a_stride, of_b, b_stride, *others, again]
        call_at(builder, address, ir.VoidType(), arguments)


@compiled_once
def _kernel(itemsize: int) -> Kernel:
    return compile_kernel(_OUTER, itemsize, _write)


def _write(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
    b, M, N = e.builder, f["M"], f["N"]
    by_frames = b.icmp_unsigned("!=", f["tables"], POINTER(None))
    rows_at_once = min(most_rows(), e.lanes)
    tiles_down = b.sdiv(e.add(M, rows_at_once - 1), e.int(rows_at_once))
    first, last = (e.mul(t, rows_at_once) for t in e.share(tiles_down, thread, threads))
    first_k, last_k = e.share(f["K"], thread, threads)
    first = b.select(by_frames, e.int(0), first)
    last = b.select(b.or_(by_frames, b.icmp_signed(">", last, M)), M, last)
    first_k = b.select(by_frames, first_k, e.int(0))
    last_k = b.select(by_frames, last_k, f["K"])
    table = e.offset(f["tables"], e.mul(thread, e.padded(e.mul(M, N))))
    c = b.select(by_frames, table, f["c"])
    c_stride = b.select(by_frames, N, f["c_stride"])
    write_outer(
        e, b.sub(last_k, first_k),
        e.offset(f["a"], e.mul(first_k, f["a_stride"]), first), f["a_stride"],
        e.offset(f["b"], e.mul(first_k, f["b_stride"])), f["b_stride"],
        e.offset(c, e.mul(first, c_stride)), c_stride,
        b.sub(last, first), N,
        e.offset(f["scratch"], e.mul(thread, scratch_length(e, N))),
        ir.Constant(ir.IntType(1), 0),
    )  # fmt: skip


def scratch_length(e: Emitter, N: Any) -> Any:
    """The length of one thread's scratch, in numbers, as an instruction; see `scratch`."""
    width = PANEL * e.lanes
    panels = e.builder.sdiv(e.add(N, width - 1), e.int(width))
    return e.mul(e.add(e.mul(panels, width), e.lanes), BLOCK)


@compiled_once
def _library(itemsize: int) -> Library:
    """The compiled block.

    Blocks of frames are packed first: with strides of a power of two, as A and B often have, their
    rows would evict each other from the cache.
    """
    module = ir.Module("outer_block")
    rows_at_once = min(
        most_rows(), vector_lanes(itemsize)
    )  # A is copied a vector of columns at a time
    tiles = {
        v: write_tile(module, itemsize, rows_at_once, v, transposed=True)
        for v in range(1, PANEL + 1)
    }
    with function(module, "block", _KINDS, itemsize) as (e, *args):
        k, a, a_stride, b_matrix, b_stride, c, c_stride, M, N, scratch, adds = args
        b, width = e.builder, PANEL * e.lanes
        padded = e.mul(b.sdiv(e.add(N, width - 1), e.int(width)), width)
        packed_a = e.offset(scratch, e.mul(padded, BLOCK))
        with e.loop(0, padded, width) as j:
            to = e.offset(scratch, e.mul(j, k))
            copy_panel(e, e.offset(b_matrix, j), b_stride, b.sub(N, j), k, to, PANEL)
        with e.loop(0, M, e.lanes) as i:
            copy_panel(e, e.offset(a, i), a_stride, b.sub(M, i), k, packed_a, 1)
            with e.loop(0, N, width) as j, e.loop(0, e.lanes, rows_at_once) as part:
                rows = b.sub(M, e.add(i, part))
                with b.if_then(b.icmp_signed(">", rows, e.int(0))):
                    tile = e.offset(c, e.mul(e.add(i, part), c_stride), j)
                    columns = b.sub(N, j)
                    places = [
                        e.offset(packed_a, part), rows, e.offset(scratch, e.mul(j, k)),
                        tile, c_stride, k, columns, adds,
                    ]  # fmt: skip
                    narrow = b.icmp_signed("<=", columns, e.int(e.lanes))
                    with b.if_else(narrow) as (one, all_of_them):
                        with one:
                            b.call(tiles[1], places)
                        with all_of_them:
                            b.call(tiles[PANEL], places)
    return Library(module)


_FOLD = Signature(
    "fold",
    ("count", "I", "N"),
    (per_thread("tables", "I * N"), Array("total", ("N", "I"))),
)


def folding(tables: Tensor, total: Tensor) -> Job:
    """The job that sums tables (I, N), one per thread, and transposes the sum: total (N, I)."""
    N, I = total.shape  # noqa: E741
    threads = tables.shape[0]
    return _fold(tables.element_size()).job(
        {"count": threads, "I": I, "N": N, "threads": threads, "tables": tables, "total": total}
    )


@compiled_once
def _fold(itemsize: int) -> Kernel:
    return compile_kernel(_FOLD, itemsize, _write_fold)


def _write_fold(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
    b, I, N = e.builder, f["I"], f["N"]  # noqa: E741
    vectors = b.sdiv(e.add(N, e.lanes - 1), e.int(e.lanes))
    first, last = e.share(vectors, thread, threads)
    with e.loop(first, last) as vector, e.loop(0, I) as i:
        j = e.mul(vector, e.lanes)
        left = b.sub(N, j)
        total = _total(e, f, e.add(e.mul(i, N), j), e.first_lanes(left))
        e.scatter(total, e.offset(f["total"], e.mul(j, I), i), I, left)


def _total(e: Emitter, f: dict[str, Any], place: Any, lanes: Any) -> Any:
    """The sum of a vector over all tables."""
    total, size = [e.zero()], e.padded(e.mul(f["I"], f["N"]))
    with e.carrying(0, f["count"], 1, total) as (k, inside):
        more = e.load(e.offset(f["tables"], e.mul(k, size), place), lanes)
        inside[0] = e.builder.fadd(inside[0], more)
    return total[0]
