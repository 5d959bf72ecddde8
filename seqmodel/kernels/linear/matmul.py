"""The matrix product inside the loops over time: C (+)= A B, with few rows in A and B packed.

A tile of C, a few rows by one panel of columns (several if there are very few rows), is summed in
registers: each number of B is loaded once for all rows of the tile, each number of A once for all
its columns. The outer loop runs over panels, so that a panel stays in the L1 cache while all of the
thread's rows use it.

A packed matrix (K, N) is a row of panels, each with all K rows of a few vectors of columns.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, PANEL, POINTER, Emitter, target
from seqmodel.kernels.code.jit import call_compiled, function
from seqmodel.kernels.run.signature import NEW, Array, KernelFields, Signature, packed
from seqmodel.kernels.run.threads import Job, compile_kernel, parallel_for

_CHAINS = 8  # independent sums needed to hide multiply-add latency; small tiles unroll over k
_ROW_WIDTH = 12  # vectors in the tile of a single row: enough independent sums without unrolling
_MOST_ROWS = 8  # that gain anything
_BIT = ir.IntType(1)


def matmul(e: Emitter, a: Any, a_stride: Any, b: Any, c: Any, c_stride: Any, *sizes: Any) -> None:
    """C (+)= A B, A (rows, k), B packed, C (rows, columns); sizes: rows, k, columns, adds."""
    *counts, adds = sizes
    arguments = [a, a_stride, b, c, c_stride, *counts, _BIT(adds)]
    call_compiled(e, product, arguments, most_rows(), e.precision.itemsize)


def row_matmul(e: Emitter, stored: int, a: Any, b: Any, c: Any, *sizes: Any) -> None:
    """c (+)= a B, a (k,), B packed, c (columns,); sizes: k, columns, adds.

    B's numbers take `stored` bytes: they may be float32 where everything else is float64.
    """
    *counts, adds = sizes
    arguments = [a, e.int(0), b, c, e.int(0), e.int(1), *counts, _BIT(adds)]
    call_compiled(e, product, arguments, 1, stored)


def most_rows() -> int:
    """The most rows whose rows x PANEL sums, a row of B and a number of A fit in the registers."""
    return min(_MOST_ROWS, (target().registers - PANEL - 1) // PANEL)


def product(
    e: Emitter, a: Any, a_stride: Any, b: Any, c: Any, c_stride: Any, rows: Any, k: Any,
    columns: Any, adds: Any, most: int, stored: int,
) -> None:  # fmt: skip
    """The body of a product in tiles of at most `most` rows; see `matmul` and `row_matmul`."""
    builder, of_b = e.builder, Emitter(e.builder, stored)
    # The width in vectors of tiles of 1, 2, ... rows: those of few rows span several panels.
    widths = [max(PANEL, _CHAINS // n // PANEL * PANEL) for n in range(1, most + 1)]
    widths = [_ROW_WIDTH] if most == 1 else widths
    tiles = [
        [
            write_tile(builder.module, e.precision.itemsize, n, v + 1, stored=stored)
            for v in range(width)
        ]
        for n, width in enumerate(widths, 1)
    ]
    width = e.int(widths[-1] * e.lanes)
    for n, wide in enumerate(widths[:-1], 1):
        if wide > widths[-1]:
            width = builder.select(
                builder.icmp_signed("==", rows, e.int(n)), e.int(wide * e.lanes), width
            )
    # Rows are split evenly over the fewest tiles that hold them: 9 into 5 and 4, not 8 and 1.
    blocks = e.int(1) if most == 1 else e.parts(rows, most)
    of_block = nullcontext(e.int(0)) if most == 1 else e.loop(0, blocks)
    with e.loop(0, columns, width) as j, of_block as block:
        first = builder.sdiv(e.mul(rows, block), blocks)
        count = builder.sub(builder.sdiv(e.mul(rows, e.add(block, 1)), blocks), first)
        # Tiles of few rows could span more than this: 5 rows in tiles of 4 become 2 and 3.
        left = builder.sub(columns, j)
        left = builder.select(builder.icmp_signed("<", left, width), left, width)
        places = [
            e.offset(a, e.mul(first, a_stride)), a_stride,
            of_b.offset(b, e.mul(j, k)),
            e.offset(c, e.mul(first, c_stride), j), c_stride,
            k, left, adds,
        ]  # fmt: skip
        vectors = builder.sub(e.parts(left, e.lanes), e.int(1))

        def of_width(of_rows: list[Any], vectors: Any = vectors, places: Any = places) -> None:
            e.choose(vectors, [partial(builder.call, tile, places) for tile in of_rows])

        e.choose(builder.sub(count, e.int(1)), [partial(of_width, of_rows) for of_rows in tiles])


def write_tile(
    module: Any,
    itemsize: int,
    rows: int,
    vectors: int,
    strip: int = 0,
    *,
    stored: int | None = None,
) -> Any:
    """A function that computes a tile of `rows` x `vectors`, the last vector perhaps partial.

    A is stored by rows, `a_stride` apart; or by columns, `strip` apart, and `a_stride` is then the
    number of rows to write. B's numbers take `stored` bytes (default `itemsize`).
    """
    name = f"{'outer' if strip else 'tile'}_{rows}x{vectors}"
    kinds = [POINTER, INT, POINTER, POINTER, INT, INT, INT, _BIT]
    with function(module, name, kinds, itemsize) as (e, *args):
        a, a_stride, b, c, c_stride, k, columns, adds = args
        builder = e.builder
        row = [e.offset(a, r if strip else e.mul(a_stride, r)) for r in range(rows)]
        a_step = strip or 1
        at_once = max(1, _CHAINS // (rows * vectors))  # k
        of_b = Emitter(builder, stored or itemsize)
        sums = [e.zero()] * (rows * vectors * at_once)
        whole = builder.and_(k, e.int(-at_once))

        def steps(k0: Any, count: int, sums: list[Any]) -> None:
            for step in range(count):
                columns = _row_of_b(e, of_b, b, k, e.add(k0, step), vectors)
                for r in range(rows):
                    factor = e.broadcast(e.offset(row[r], e.mul(e.add(k0, step), a_step)))
                    for v in range(vectors):
                        n = (step * rows + r) * vectors + v
                        sums[n] = e.multiply_add(factor, columns[v], sums[n])

        with e.carrying(0, whole, at_once, sums) as (k0, inside):
            steps(k0, at_once, inside)
        if at_once > 1:
            with e.carrying(whole, k, 1, sums) as (k0, inside):
                steps(k0, 1, inside)
        size = rows * vectors
        total = [_tree(e, sums[n::size]) for n in range(size)]

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
                    place = e.offset(c, e.mul(c_stride, r), v * e.lanes)
                    mask = lanes if v == vectors - 1 else None
                    value = total[r * vectors + v]
                    e.store(
                        builder.fadd(e.load(place, mask), value) if adding else value, place, mask
                    )
            builder.branch(done)
            builder.position_at_end(done)

        full = builder.icmp_signed(">=", columns, e.int(vectors * e.lanes))
        with builder.if_else(full) as (plain, partial):
            with plain:
                finish(None)
            with partial:
                finish(e.first_lanes(builder.sub(columns, e.int((vectors - 1) * e.lanes))))
    made = module.get_global(name)
    made.linkage = "internal"
    return made


def _row_of_b(e: Emitter, of_b: Emitter, b: Any, k: Any, row: Any, vectors: int) -> list[Any]:
    """`vectors` vectors of one row of B, widened from its own type."""
    numbers = PANEL * of_b.lanes  # in a row of a panel
    width, found = numbers // e.lanes, []
    for v in range(vectors):
        panel, within = divmod(v, width)
        place = e.mul(e.add(e.mul(k, panel), row), numbers)
        found.append(e.widened(of_b.offset(b, place, within * e.lanes), of_b))
    return found


def _tree(e: Emitter, values: list[Any]) -> Any:
    while len(values) > 1:
        values = [e.builder.fadd(x, y) for x, y in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def packing(matrix: Tensor, *, transposed: bool = False) -> Job:
    """The job that makes the `panels` (ceil(N / width), K, width) of B (K, N).

    B is the matrix or, if `transposed`, its transpose. The last panel is padded with zeros.
    """
    K, N = reversed(matrix.shape) if transposed else matrix.shape
    fields: KernelFields = {"K": K, "N": N, "matrix": matrix.contiguous(), "panels": NEW}
    kernel = compile_kernel(_PACK[transposed], matrix.element_size(), _write_pack, transposed)
    return kernel.job(fields)


def panels_of(packings: Mapping[str, Job]) -> KernelFields:
    """The panels that these jobs make, by the same names."""
    return {name: job.made["panels"] for name, job in packings.items()}


def pack(weight: Tensor) -> Tensor:
    """The filled panels of a layer's weight (N, K), transposed."""
    job = packing(weight, transposed=True)
    parallel_for([job], 1)
    return job.made["panels"]


_PACK = {
    transposed: Signature("pack", ("K", "N"), (Array("matrix", shape), packed("panels", "K", "N")))
    for transposed, shape in ((False, ("K", "N")), (True, ("N", "K")))
}


def _write_pack(e: Emitter, f: dict[str, Any], thread: Any, threads: Any, transposed: bool) -> None:
    width, K, N = PANEL * e.lanes, f["K"], f["N"]
    with e.loop(*e.share(e.parts(N, width), thread, threads)) as panel:
        j = e.mul(panel, width)
        to, left = e.offset(f["panels"], e.mul(j, K)), e.builder.sub(N, j)
        if transposed:
            _copy_columns(e, e.offset(f["matrix"], e.mul(j, K)), left, K, to)
        else:
            copy_panel(e, e.offset(f["matrix"], j), N, left, K, to, PANEL)


def copy_panel(
    e: Emitter, source: Any, stride: Any, columns: Any, k: Any, to: Any, vectors: int
) -> None:
    """Copy k rows of `columns` columns into a panel `vectors` wide, padded with zeros."""
    masks = [e.first_lanes(e.builder.sub(columns, e.int(v * e.lanes))) for v in range(vectors)]
    with e.loop(0, k) as n:
        for v in range(vectors):
            value = e.load(e.offset(source, e.mul(n, stride), v * e.lanes), masks[v])
            e.store(value, e.offset(to, e.mul(n, vectors * e.lanes), v * e.lanes))


def _copy_columns(e: Emitter, source: Any, columns: Any, K: Any, to: Any) -> None:
    """`copy_panel` of a transpose: reads a vector down one column at a time, scatters it over rows.

    If read row by row, columns whose stride is a power of two would evict each other from the
    cache.
    """
    b, width = e.builder, PANEL * e.lanes
    with e.loop(0, K, e.lanes) as k, e.loop(0, width) as n:
        left = b.sub(K, k)
        inside = b.select(b.icmp_signed("<", n, columns), left, e.int(0))
        values = e.load(e.offset(source, e.mul(n, K), k), e.first_lanes(inside))
        e.scatter(values, e.offset(to, e.mul(k, width), n), width, left)
