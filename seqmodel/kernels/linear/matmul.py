"""The matrix product inside the loops over time: C (+)= A B, with few rows in A and B packed.

A tile of C, a few rows by one panel of columns (several if there are very few rows), is summed in
registers: each number of B is loaded once for all rows of the tile, each number of A once for all
its columns. The outer loop runs over panels, so that a panel stays in the L1 cache while all of the
thread's rows use it.

A packed matrix (K, N) is a row of panels, each with all K rows of a few vectors of columns.
"""

from contextlib import nullcontext
from functools import partial
from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, PANEL, POINTER, Emitter, target
from seqmodel.kernels.code.jit import function, separate
from seqmodel.kernels.run.signature import NEW, Array, KernelFields, Signature, packed
from seqmodel.kernels.run.threads import Job, compile_kernel, parallel_for

_CHAINS = 8  # independent sums needed to hide multiply-add latency; small tiles unroll over k
_ROW_WIDTH = 12  # vectors in the tile of a single row: enough independent sums without unrolling
_MAX_ROWS = 8  # that gain anything
_BIT = ir.IntType(1)


def matmul(e: Emitter, a: Any, a_stride: Any, b: Any, c: Any, c_stride: Any, *sizes: Any) -> None:
    """C (+)= A B, A (rows, k), B packed, C (rows, columns); sizes: rows, k, columns, adds."""
    *counts, adds = sizes
    arguments = [a, a_stride, b, c, c_stride, *counts, _BIT(adds)]
    product(e, *arguments, max_tile=max_rows(), w_bytes=e.precision.itemsize)


def row_matmul(e: Emitter, w_bytes: int, a: Any, b: Any, c: Any, *sizes: Any) -> None:
    """c (+)= a B, a (k,), B packed, c (columns,); sizes: k, columns, adds.

    B's numbers take `w_bytes` bytes: they may be float32 where everything else is float64.
    """
    *counts, adds = sizes
    arguments = [a, e.int(0), b, c, e.int(0), e.int(1), *counts, _BIT(adds)]
    product(e, *arguments, max_tile=1, w_bytes=w_bytes)


def max_rows() -> int:
    """The most rows whose rows x PANEL sums, a row of B and a number of A fit in the registers."""
    return min(_MAX_ROWS, (target().registers - PANEL - 1) // PANEL)


@separate
def product(
    e: Emitter, a: Any, a_stride: Any, b: Any, c: Any, c_stride: Any, rows: Any, k: Any,
    columns: Any, adds: Any, *, max_tile: int, w_bytes: int,
) -> None:  # fmt: skip
    """A product in tiles of at most `max_tile` rows; see `matmul` and `row_matmul`."""
    builder, b_emitter = e.builder, Emitter(e.builder, w_bytes)
    # The width in vectors of tiles of 1, 2, ... rows: those of few rows span several panels.
    widths = [max(PANEL, _CHAINS // n // PANEL * PANEL) for n in range(1, max_tile + 1)]
    widths = [_ROW_WIDTH] if max_tile == 1 else widths
    tiles = [
        [
            write_tile(builder.module, e.precision.itemsize, n, v + 1, w_bytes=w_bytes)
            for v in range(width)
        ]
        for n, width in enumerate(widths, 1)
    ]
    width = e.int(widths[-1] * e.lanes)
    for n, vectors_wide in enumerate(widths[:-1], 1):
        if vectors_wide > widths[-1]:
            width = builder.select(
                builder.icmp_signed("==", rows, e.int(n)), e.int(vectors_wide * e.lanes), width
            )
    # Rows are split evenly over the fewest tiles that hold them: 9 into 5 and 4, not 8 and 1.
    blocks = e.int(1) if max_tile == 1 else e.parts(rows, max_tile)
    block_loop = nullcontext(e.int(0)) if max_tile == 1 else e.loop(0, blocks)
    with e.loop(0, columns, width) as j, block_loop as block:
        first = builder.sdiv(e.mul(rows, block), blocks)
        count = builder.sub(builder.sdiv(e.mul(rows, e.add(block, 1)), blocks), first)
        # Tiles of few rows could span more than this: 5 rows in tiles of 4 become 2 and 3.
        remaining = e.minimum(builder.sub(columns, j), width)
        args = [
            e.offset(a, e.mul(first, a_stride)), a_stride,
            b_emitter.offset(b, e.mul(j, k)),
            e.offset(c, e.mul(first, c_stride), j), c_stride,
            k, remaining, adds,
        ]  # fmt: skip
        vectors = builder.sub(e.parts(remaining, e.lanes), e.int(1))

        def run_tile(choices: list[Any], vectors: Any = vectors, args: Any = args) -> None:
            e.choose(vectors, [partial(builder.call, tile, args) for tile in choices])

        e.choose(builder.sub(count, e.int(1)), [partial(run_tile, choices) for choices in tiles])


def write_tile(
    module: Any,
    itemsize: int,
    rows: int,
    vectors: int,
    strip: int = 0,
    *,
    w_bytes: int | None = None,
) -> Any:
    """A function that computes a tile of `rows` x `vectors`, the last vector perhaps partial.

    A is stored by rows, `a_stride` apart; or by columns, `strip` apart, and `a_stride` is then the
    number of rows to write. B's numbers take `w_bytes` bytes (default `itemsize`).
    """
    name = f"{'outer' if strip else 'tile'}_{rows}x{vectors}"
    kinds = [POINTER, INT, POINTER, POINTER, INT, INT, INT, _BIT]
    with function(module, name, kinds, itemsize) as (e, *args):
        a, a_stride, b, c, c_stride, k, columns, adds = args
        builder = e.builder
        row = [e.offset(a, r if strip else e.mul(a_stride, r)) for r in range(rows)]
        a_step = strip or 1
        unroll = max(1, _CHAINS // (rows * vectors))  # k
        b_emitter = Emitter(builder, w_bytes or itemsize)
        sums = [e.zero()] * (rows * vectors * unroll)
        full_k = builder.and_(k, e.int(-unroll))

        def steps(k0: Any, count: int, sums: list[Any]) -> None:
            for step in range(count):
                columns = _row_of_b(e, b_emitter, b, k, e.add(k0, step), vectors)
                for r in range(rows):
                    factor = e.broadcast(e.offset(row[r], e.mul(e.add(k0, step), a_step)))
                    for v in range(vectors):
                        n = (step * rows + r) * vectors + v
                        sums[n] = e.multiply_add(factor, columns[v], sums[n])

        with e.carrying(0, full_k, unroll, sums) as (k0, inside):
            steps(k0, unroll, inside)
        if unroll > 1:
            with e.carrying(full_k, k, 1, sums) as (k0, inside):
                steps(k0, 1, inside)
        size = rows * vectors
        total = [_tree_sum(e, sums[n::size]) for n in range(size)]

        def finish(lanes: Any) -> None:
            with builder.if_else(adds) as (adding, writing):
                with adding:
                    write(lanes, True)
                with writing:
                    write(lanes, False)

        def write(lanes: Any, adding: bool) -> None:
            done = builder.append_basic_block()
            for r in range(rows):
                if strip and r:
                    another = builder.append_basic_block()
                    builder.cbranch(builder.icmp_signed(">", a_stride, e.int(r)), another, done)
                    builder.position_at_end(another)
                for v in range(vectors):
                    out = e.offset(c, e.mul(c_stride, r), v * e.lanes)
                    mask = lanes if v == vectors - 1 else None
                    value = total[r * vectors + v]
                    e.store(builder.fadd(e.load(out, mask), value) if adding else value, out, mask)
            builder.branch(done)
            builder.position_at_end(done)

        full = builder.icmp_signed(">=", columns, e.int(vectors * e.lanes))
        with builder.if_else(full) as (plain, partial):
            with plain:
                finish(None)
            with partial:
                finish(e.first_lanes(builder.sub(columns, e.int((vectors - 1) * e.lanes))))
    tile = module.get_global(name)
    tile.linkage = "internal"
    return tile


def _row_of_b(e: Emitter, b_emitter: Emitter, b: Any, k: Any, row: Any, vectors: int) -> list[Any]:
    """`vectors` vectors of one row of B, widened from its own type."""
    numbers = PANEL * b_emitter.lanes  # in a row of a panel
    width, row_vectors = numbers // e.lanes, []
    for v in range(vectors):
        panel, within = divmod(v, width)
        start = e.mul(e.add(e.mul(k, panel), row), numbers)
        row_vectors.append(e.widened(b_emitter.offset(b, start, within * e.lanes), b_emitter))
    return row_vectors


def _tree_sum(e: Emitter, values: list[Any]) -> Any:
    while len(values) > 1:
        values = [e.builder.fadd(x, y) for x, y in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def packing(matrix: Tensor, *, transposed: bool = False) -> Job:
    """The job that makes the `panels` (ceil(N / width), K, width) of B (K, N).

    B is the matrix or, if `transposed`, its transpose. The last panel is padded with zeros.
    """
    K, N = reversed(matrix.shape) if transposed else matrix.shape
    fields: KernelFields = {"K": K, "N": N, "matrix": matrix.contiguous(), "panels": NEW}
    kernel = compile_kernel(_PACK[transposed], matrix.element_size(), write_pack, transposed)
    return kernel.job(fields)


def pack(weight: Tensor) -> Tensor:
    """The filled panels of a layer's weight (N, K), transposed."""
    job = packing(weight, transposed=True)
    parallel_for([job], 1)
    return job.created["panels"]


_PACK = {
    transposed: Signature("pack", ("K", "N"), (Array("matrix", shape), packed("panels", "K", "N")))
    for transposed, shape in ((False, ("K", "N")), (True, ("N", "K")))
}


def write_pack(e: Emitter, f: dict[str, Any], thread: Any, threads: Any, transposed: bool) -> None:
    """The body of `packing`."""
    width, K, N = PANEL * e.lanes, f["K"], f["N"]
    with e.loop(*e.share(e.parts(N, width), thread, threads)) as panel:
        j = e.mul(panel, width)
        panel_start, columns = e.offset(f["panels"], e.mul(j, K)), e.builder.sub(N, j)
        if transposed:
            _copy_columns(e, e.offset(f["matrix"], e.mul(j, K)), columns, K, panel_start)
        else:
            copy_panel(e, e.offset(f["matrix"], j), N, columns, K, panel_start, PANEL)


def copy_panel(
    e: Emitter, source: Any, stride: Any, columns: Any, k: Any, panel: Any, vectors: int
) -> None:
    """Copy k rows of `columns` columns into a panel `vectors` wide, padded with zeros."""
    masks = [e.first_lanes(e.builder.sub(columns, e.int(v * e.lanes))) for v in range(vectors)]
    with e.loop(0, k) as n:
        for v in range(vectors):
            value = e.load(e.offset(source, e.mul(n, stride), v * e.lanes), masks[v])
            e.store(value, e.offset(panel, e.mul(n, vectors * e.lanes), v * e.lanes))


def _copy_columns(e: Emitter, source: Any, columns: Any, K: Any, panel: Any) -> None:
    """`copy_panel` of a transpose: reads a vector down one column at a time, scatters it over rows.

    If read row by row, columns whose stride is a power of two would evict each other from the
    cache.
    """
    b, width = e.builder, PANEL * e.lanes
    with e.loop(0, K, e.lanes) as k, e.loop(0, width) as n:
        remaining = b.sub(K, k)
        count = b.select(b.icmp_signed("<", n, columns), remaining, e.int(0))
        values = e.load(e.offset(source, e.mul(n, K), k), e.first_lanes(count))
        e.scatter(values, e.offset(panel, e.mul(k, width), n), width, remaining)
