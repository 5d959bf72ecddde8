"""Gradients of weight matrices: outer products summed over all frames and rows; sums of tables."""

import math
from functools import partial
from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import PANEL, POINTER, Emitter
from seqmodel.kernels.code.jit import call_compiled
from seqmodel.kernels.linear.matmul import copy_panel, max_rows, write_tile
from seqmodel.kernels.run.signature import (
    NEW,
    THREADS,
    Array,
    Field,
    KernelFields,
    Signature,
    per_thread,
)
from seqmodel.kernels.run.threads import Job, compile_kernel

_MAX_PER_THREAD = 1 << 16  # up to this many numbers in C, each thread sums its own table
_FEW_FRAMES = 512  # up to this many, adding up the tables costs more than it gains
BLOCK = 128
"""Frames in a block; B's packed block, with all its columns, should fit in the L2 cache."""
STRIP = 3
"""The most vectors of A's columns that are packed at a time, alongside B's block."""


def tables(rows: str, columns: str, name: str = "tables", *, optional: bool = False) -> Array:
    """A table (rows, columns) for each thread, with room for panels of a packed matrix."""
    return per_thread(name, f"({rows}) * -(-({columns}) // WIDTH) * WIDTH", optional=optional)


def table_size(e: Emitter, rows: Any, columns: Any) -> Any:
    """The distance between tables, in numbers, as an instruction."""
    width = PANEL * e.lanes
    return e.padded(e.mul(rows, e.parts(columns, width), width))


def packed_blocks(columns: str, *, optional: bool = False) -> Array:
    """The scratch of each thread in `write_outer`: its packed blocks of A and B (k, columns)."""
    length = f"{BLOCK} * (-(-({columns}) // WIDTH) * WIDTH + {STRIP} * LANES)"
    return Array("scratch", (THREADS, length), optional=optional)


def scratch_length(e: Emitter, N: Any) -> Any:
    """The length of one thread's scratch, in numbers, as an instruction."""
    width = PANEL * e.lanes
    return e.mul(e.add(e.mul(e.parts(N, width), width), STRIP * e.lanes), BLOCK)


_OUTER = Signature(
    "outer",
    ("K", "M", "N"),
    (
        Array("a", ("K", "M"), strides=("a_stride",)),
        Array("b", ("K", "N"), strides=("b_stride",)),
        # Either C, its rows divided among the threads, or a C for each thread.
        Array("c", ("M", "N"), strides=("c_stride",), optional=True),
        tables("M", "N", optional=True),
        packed_blocks("N"),
    ),
)


def outer(a: Tensor, b: Tensor, c: Tensor, threads: int) -> list[Job]:
    """C = A' B, the sum over all frames; A (frames, M), B (frames, N), C (M, N).

    If C is small, each thread sums a share of the frames into its own table, and the tables are
    added. Otherwise each thread computes a share of C's rows.
    """
    M, N = c.shape
    if not len(a):
        c.zero_()
        return []
    if M * N > _MAX_PER_THREAD or len(a) <= _FEW_FRAMES:
        return [_job(a, b, threads, c=c)]
    summing = _job(b, a, threads, tables=NEW)  # B' A, which folding transposes
    return [summing, folding(summing.created["tables"], c)]


def _job(a: Tensor, b: Tensor, threads: int, **outputs: Field) -> Job:
    (K, M), N = a.shape, b.shape[1]
    sizes: KernelFields = {"K": K, "M": M, "N": N, "threads": threads}
    kernel = compile_kernel(_OUTER, b.element_size(), _write)
    return kernel.job({**sizes, "a": a, "b": b, "scratch": NEW, **outputs})


def write_outer(
    e: Emitter, k: Any, a: Any, a_stride: Any, b: Any, b_stride: Any, *rest: Any
) -> None:
    """C (+)= A' B, A (k, M), B (k, N), C (M, N), in blocks of `BLOCK` frames.

    The further arguments: C, its stride, M, N, scratch of `scratch_length` numbers, and whether the
    first block adds to C.
    """
    builder, (*others, adds) = e.builder, rest
    with e.loop(0, k, BLOCK) as k0:
        left = builder.sub(k, k0)
        block = builder.select(builder.icmp_signed("<", left, e.int(BLOCK)), left, e.int(BLOCK))
        accumulate = builder.or_(adds, builder.icmp_signed(">", k0, e.int(0)))
        a_k, b_k = (e.offset(x, e.mul(k0, step)) for x, step in ((a, a_stride), (b, b_stride)))
        arguments = [block, a_k, a_stride, b_k, b_stride, *others, accumulate]
        call_compiled(e, outer_block, arguments)


def _write(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
    b, M, N = e.builder, f["M"], f["N"]
    by_frames = b.icmp_unsigned("!=", f["tables"], POINTER(None))
    rows = _tile_rows(e)
    first, last = (e.mul(t, rows) for t in e.share(e.parts(M, rows), thread, threads))
    first_k, last_k = e.share(f["K"], thread, threads)
    first = b.select(by_frames, e.int(0), first)
    last = b.select(b.or_(by_frames, b.icmp_signed(">", last, M)), M, last)
    first_k = b.select(by_frames, first_k, e.int(0))
    last_k = b.select(by_frames, last_k, f["K"])
    table = e.offset(f["tables"], e.mul(thread, table_size(e, M, N)))
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


def _tile_rows(e: Emitter) -> int:
    """Rows in a tile."""
    return min(max_rows(), e.lanes)


def outer_block(
    e: Emitter, k: Any, a: Any, a_stride: Any, b: Any, b_stride: Any, c: Any, c_stride: Any,
    M: Any, N: Any, scratch: Any, adds: Any,
) -> None:  # fmt: skip
    """The body of one block of `write_outer`.

    Blocks of frames are packed first: with strides of a power of two, as A and B often have, their
    rows would evict each other from the cache.
    """
    builder, width, tile_rows = e.builder, PANEL * e.lanes, _tile_rows(e)
    module, itemsize = builder.module, e.precision.itemsize
    strip_vectors = math.lcm(e.lanes, tile_rows) // e.lanes  # vectors, a whole number of tiles
    assert strip_vectors <= STRIP
    strip = strip_vectors * e.lanes
    tiles = [write_tile(module, itemsize, tile_rows, v + 1, strip) for v in range(PANEL)]
    padded = e.mul(e.parts(N, width), width)
    packed_a = e.offset(scratch, e.mul(padded, BLOCK))
    with e.loop(0, padded, width) as j:
        target = e.offset(scratch, e.mul(j, k))
        copy_panel(e, e.offset(b, j), b_stride, builder.sub(N, j), k, target, PANEL)
    with e.loop(0, M, strip) as i:
        copy_panel(e, e.offset(a, i), a_stride, builder.sub(M, i), k, packed_a, strip_vectors)
        with e.loop(0, N, width) as j, e.loop(0, strip, tile_rows) as part:
            rows = builder.sub(M, e.add(i, part))
            with builder.if_then(builder.icmp_signed(">", rows, e.int(0))):
                columns = builder.sub(N, j)
                arguments = [
                    e.offset(packed_a, part), rows, e.offset(scratch, e.mul(j, k)),
                    e.offset(c, e.mul(e.add(i, part), c_stride), j), c_stride, k, columns, adds,
                ]  # fmt: skip
                vectors = builder.sub(e.parts(columns, e.lanes), e.int(1))
                e.choose(vectors, [partial(builder.call, tile, arguments) for tile in tiles])


_FOLD = Signature("fold", ("count", "I", "N"), (tables("I", "N"), Array("total", ("N", "I"))))


def folding(tables: Tensor, total: Tensor, *, panels: bool = False) -> Job:
    """The job that sums tables, one per thread, and transposes the sum: total (N, I).

    Each table is (I, N), or in `panels` as a packed matrix (I, N).
    """
    N, I = total.shape  # noqa: E741
    threads = tables.shape[0]
    return compile_kernel(_FOLD, tables.element_size(), _write_fold, panels).job(
        {"count": threads, "I": I, "N": N, "threads": threads, "tables": tables, "total": total}
    )


def _write_fold(e: Emitter, f: dict[str, Any], thread: Any, threads: Any, panels: bool) -> None:
    b, I, N = e.builder, f["I"], f["N"]  # noqa: E741
    size = table_size(e, I, N)
    with (
        e.loop(*e.share(e.parts(N, e.lanes), thread, threads)) as vector,
        e.loop(0, I) as i,
    ):
        j, total = e.mul(vector, e.lanes), [e.zero()]
        remaining = b.sub(N, j)
        lanes = e.first_lanes(remaining)
        row, stride = j, N
        if panels:
            stride = e.int(PANEL * e.lanes)
            within = b.srem(j, stride)
            row = e.add(e.mul(b.sub(j, within), I), within)
        with e.carrying(0, f["count"], 1, total) as (k, inside):
            address = e.offset(f["tables"], e.mul(k, size), row, e.mul(i, stride))
            inside[0] = b.fadd(inside[0], e.load(address, lanes))
        e.scatter(total[0], e.offset(f["total"], e.mul(j, I), i), I, remaining)
