"""Gradients of weight matrices: outer products summed over all frames and rows; sums of tables."""

import math
from functools import partial
from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import PANEL, POINTER, Emitter
from seqmodel.kernels.code.jit import separate
from seqmodel.kernels.linear.matmul import copy_panel, max_rows, write_tile
from seqmodel.kernels.run.signature import (
    NEW,
    Array,
    Field,
    KernelFields,
    Signature,
    of_thread,
    per_thread,
)
from seqmodel.kernels.run.threads import Job, compile_kernel

BLOCK = 128
"""Frames in a block: a panel of them should fit in the L1 cache, beside a tile's part of A."""
STRIP = 3
"""The most vectors of A's columns that are packed at a time."""

_BIT = ir.IntType(1)


def tables(rows: str, columns: str, name: str = "tables", *, optional: bool = False) -> Array:
    """A table (rows, columns) for each thread, in panels like a packed matrix."""
    return per_thread(name, f"({rows}) * -(-({columns}) // WIDTH) * WIDTH", optional=optional)


def packed_blocks(rows: str, *, optional: bool = False) -> Array:
    """The scratch of each thread in `add_products`, for tables of at most `rows` rows."""
    length = f"{BLOCK} * ({rows} + {STRIP} * LANES + WIDTH)"
    return per_thread("scratch", length, optional=optional)


_OUTER = Signature(
    "outer",
    ("K", "M", "N"),
    (
        Array("a", ("K", "M"), strides=("a_stride",)),
        Array("b", ("K", "N"), strides=("b_stride",)),
        Array("c", ("M", "N"), optional=True),
        tables("M", "N", optional=True),
        packed_blocks("M"),
    ),
)


def outer(a: Tensor, b: Tensor, c: Tensor, threads: int, *, few: bool = False) -> list[Job]:
    """C = A' B, the sum over all frames; A (frames, M), B (frames, N), C (M, N).

    Each thread sums a share of the frames into a table of its own: B' A, which folding transposes.
    For `few` frames the tables would take longer than the product: each thread then computes a
    share of C's rows.
    """
    if few:
        return [_job(a, b, threads, c=c)]
    summing = _job(b, a, threads, tables=NEW)
    return [summing, folding(summing.created["tables"], c)]


def _job(a: Tensor, b: Tensor, threads: int, **target: Field) -> Job:
    sizes: KernelFields = {"K": len(a), "M": a.shape[1], "N": b.shape[1], "threads": threads}
    kernel = compile_kernel(_OUTER, b.element_size(), _write)
    return kernel.job({**sizes, "a": a, "b": b, "scratch": NEW, **target})


def _write(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
    K, M, N, one = f["K"], f["M"], f["N"], e.int(1)
    scratch = of_thread(e, f, "scratch", thread)

    def side(name: str, *before: Any) -> Rows:
        return e.offset(f[name], *before), f[f"{name}_stride"], e.int(0)

    whole = e.builder.icmp_unsigned("!=", f["c"], POINTER(None))
    with e.builder.if_else(whole) as (by_rows, by_frames):
        with by_rows:
            first, last = e.share(M, thread, threads)
            c, rows = (e.offset(f["c"], e.mul(first, N)), N, one, N), e.builder.sub(last, first)
            add_products(e, one, K, side("a", first), side("b", 0), c, rows, N, scratch, adds=False)
        with by_frames:
            first, last = e.share(K, thread, threads)
            table = of_thread(e, f, "tables", thread)
            e.clear(table, f["tables_step"])
            a, b = (side(name, e.mul(first, f[f"{name}_stride"])) for name in ("a", "b"))
            rows, target = e.builder.sub(last, first), in_panels(e, table, M, N)
            add_products(e, one, rows, a, b, target, M, N, scratch)


Rows = tuple[Any, Any, Any]
"""An address, the distance between rows, and the distance between spans of rows."""
Target = tuple[Any, Any, Any, Any]
"""An address, the distances between rows and between columns of panels, how many columns fit."""


def in_panels(e: Emitter, table: Any, rows: Any, columns: Any) -> Target:
    """A table in panels as the target of `add_products`."""
    width = PANEL * e.lanes
    return table, e.int(width), rows, e.mul(e.parts(columns, width), width)


def add_products(
    e: Emitter, spans: Any, rows: Any, a: Rows, b: Rows, c: Target, *rest: Any, adds: bool = True
) -> None:
    """C (+)= A' B, A (k, M), B (k, N), C (M, N); A and B are in spans of so many rows each.

    The further arguments: M, N, and scratch of `packed_blocks`. Several spans may have up
    to `BLOCK` rows in all.
    """
    with e.loop(0, e.maximum(rows, e.int(1)), BLOCK) as first:  # without rows, C is still written
        count = e.minimum(e.builder.sub(rows, first), e.int(BLOCK))
        sides = ((e.offset(start, e.mul(first, step)), step, span) for start, step, span in (a, b))
        arguments = [number for side in sides for number in side]
        more = e.builder.or_(_BIT(adds), e.builder.icmp_signed(">", first, e.int(0)))
        block_products(e, spans, count, *arguments, *c, *rest, more)


@separate
def block_products(
    e: Emitter, spans: Any, rows: Any, a: Any, a_step: Any, a_span: Any, b: Any, b_step: Any,
    b_span: Any, c: Any, c_step: Any, c_column: Any, c_columns: Any, M: Any, N: Any, scratch: Any,
    adds: Any,
) -> None:  # fmt: skip
    """One block of `add_products`.

    What a tile reads is packed first: with strides of a power of two, as A and B often have, their
    rows would evict each other from the cache.
    """
    builder, width, tile_rows = e.builder, PANEL * e.lanes, min(max_rows(), e.lanes)
    module, itemsize = builder.module, e.precision.itemsize
    strip_vectors = math.lcm(e.lanes, tile_rows) // e.lanes  # a whole number of tiles
    assert strip_vectors <= STRIP
    strip, k = strip_vectors * e.lanes, e.mul(spans, rows)
    tiles = [write_tile(module, itemsize, tile_rows, v + 1, strip) for v in range(PANEL)]
    panel, packed_a = scratch, e.offset(scratch, BLOCK * width)

    def pack(source: Any, step: Any, span: Any, columns: Any, target: Any, vectors: int) -> None:
        with e.loop(0, spans) as n:
            start, row = e.offset(source, e.mul(n, span)), e.mul(n, rows, vectors * e.lanes)
            copy_panel(e, start, step, columns, rows, e.offset(target, row), vectors)

    with e.loop(0, M, strip) as i:
        target = e.offset(packed_a, e.mul(i, k))
        pack(e.offset(a, i), a_step, a_span, builder.sub(M, i), target, strip_vectors)
    with e.loop(0, N, width) as j:
        columns = builder.sub(N, j)
        pack(e.offset(b, j), b_step, b_span, columns, panel, PANEL)
        vectors = builder.sub(e.parts(columns, e.lanes), e.int(1))
        c_panel, fitting = e.offset(c, e.mul(j, c_column)), builder.sub(c_columns, j)
        with e.loop(0, M, strip) as i, e.loop(0, strip, tile_rows) as part:
            row = e.add(i, part)
            remaining = builder.sub(M, row)
            with builder.if_then(builder.icmp_signed(">", remaining, e.int(0))):
                arguments = [
                    e.offset(packed_a, e.mul(i, k), part), remaining, panel,
                    e.offset(c_panel, e.mul(row, c_step)), c_step, k, fitting, adds,
                ]  # fmt: skip
                e.choose(vectors, [partial(builder.call, tile, arguments) for tile in tiles])


_FOLD = Signature("fold", ("count", "I", "N"), (tables("I", "N"), Array("total", ("N", "I"))))


def folding(tables: Tensor, total: Tensor) -> Job:
    """The job that sums tables (I, N), one per thread, and transposes the sum: total (N, I)."""
    N, I = total.shape  # noqa: E741
    threads = tables.shape[0]
    return compile_kernel(_FOLD, tables.element_size(), write_fold).job(
        {"count": threads, "I": I, "N": N, "threads": threads, "tables": tables, "total": total}
    )


def write_fold(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
    """The body of `folding`."""
    b, I, N, width = e.builder, f["I"], f["N"], PANEL * e.lanes  # noqa: E741
    with (
        e.loop(*e.share(e.parts(N, e.lanes), thread, threads)) as vector,
        e.loop(0, I) as i,
    ):
        j, total = e.mul(vector, e.lanes), [e.zero()]
        remaining = b.sub(N, j)
        lanes = e.first_lanes(remaining)
        within = b.srem(j, e.int(width))
        row = e.add(e.mul(b.sub(j, within), I), within, e.mul(i, width))
        with e.carrying(0, f["count"], 1, total) as (k, inside):
            table = of_thread(e, f, "tables", k, row)
            inside[0] = b.fadd(inside[0], e.load(table, lanes))
        e.scatter(total[0], e.offset(f["total"], e.mul(j, I), i), I, remaining)
