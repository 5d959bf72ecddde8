"""The matrix product inside the loops over time: C (+)= A B, with few rows in A and B packed.

A tile of C, a few rows by one panel of columns (several where the rows are very few), is summed in
registers: each number of B is loaded once for all rows of the tile, each number of A once for all
its columns. The outer loop runs over panels, so that a panel stays in the L1 cache while all of the
thread's rows use it.

A packed matrix (K, N) is a row of panels, each with all K rows of a few vectors of columns.
"""

from collections.abc import Mapping
from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, PANEL, POINTER, Emitter, target
from seqmodel.kernels.code.jit import Library, call_at, compiled_once, function
from seqmodel.kernels.run.signature import NEW, Array, KernelFields, Signature, packed
from seqmodel.kernels.run.threads import Job, Kernel, compile_kernel, parallel_for

_CHAINS = 8  # independent sums needed to hide multiply-add latency; small tiles unroll over k
_ROW_WIDTH = 12  # vectors in the tile of a single row: enough independent sums without unrolling
_BIT = ir.IntType(1)
_KINDS = [POINTER, INT, POINTER, POINTER, INT, INT, INT, INT, _BIT]
_ROW_KINDS = [POINTER, POINTER, POINTER, INT, INT, _BIT]


def matmul(e: Emitter, a: Any, a_stride: Any, b: Any, c: Any, c_stride: Any, *sizes: Any) -> None:
    """C (+)= A B, A (rows, k), B packed, C (rows, columns); sizes: rows, k, columns, adds."""
    *counts, adds = sizes
    address = _library(e.precision.itemsize).address("matmul")
    call_at(e.builder, address, ir.VoidType(), [a, a_stride, b, c, c_stride, *counts, _BIT(adds)])


def row_matmul(e: Emitter, stored: int, a: Any, b: Any, c: Any, *sizes: Any) -> None:
    """c (+)= a B, a (k,), B packed, c (columns,); sizes: k, columns, adds.

    B's numbers take `stored` bytes: they may be float32 where everything else is float64.
    """
    *counts, adds = sizes
    address = _row_library(e.precision.itemsize, stored).address("matmul")
    call_at(e.builder, address, ir.VoidType(), [a, b, c, *counts, _BIT(adds)])


def most_rows() -> int:
    """In a tile, whose rows x PANEL sums and a row of B fit in the target's registers."""
    return target().registers // 4


def _wide(rows: int) -> int:
    """The width in vectors of a tile of `rows` rows: tiles of few rows span several panels."""
    return max(PANEL, _CHAINS // rows // PANEL * PANEL)


@compiled_once
def _library(itemsize: int) -> Library:
    module, most = ir.Module("matmul"), most_rows()
    tiles = {
        rows: [write_tile(module, itemsize, rows, v + 1) for v in range(_wide(rows))]
        for rows in range(1, most + 1)
    }
    with function(module, "matmul", _KINDS, itemsize) as (e, *args):
        a, a_stride, b, c, c_stride, rows, k, columns, adds = args
        builder, width = e.builder, e.int(PANEL * e.lanes)
        for low in range(1, most):
            if _wide(low) > PANEL:
                is_low = builder.icmp_signed("==", rows, e.int(low))
                width = builder.select(is_low, e.int(_wide(low) * e.lanes), width)
        # Rows are split evenly over the fewest tiles that hold them: 9 into 5 and 4, not 8 and 1.
        blocks = builder.sdiv(e.add(rows, most - 1), e.int(most))
        with e.loop(0, columns, width) as j, e.loop(0, blocks) as block:
            first = builder.sdiv(e.mul(rows, block), blocks)
            count = builder.sub(builder.sdiv(e.mul(rows, e.add(block, 1)), blocks), first)
            # A tile of few rows could span more than this: rows of 5 in tiles of 4 are 2 and 3.
            left = builder.sub(columns, j)
            left = builder.select(builder.icmp_signed("<", left, width), left, width)
            places = [
                e.offset(a, e.mul(first, a_stride)), a_stride,
                e.offset(b, e.mul(j, k)),
                e.offset(c, e.mul(first, c_stride), j), c_stride,
                k, left, adds,
            ]  # fmt: skip
            vectors = builder.sdiv(e.add(left, e.lanes - 1), e.int(e.lanes))
            done = builder.append_basic_block()
            by_rows = builder.switch(count, done)
            for n, of_rows in tiles.items():
                case = builder.append_basic_block()
                by_rows.add_case(e.int(n), case)
                builder.position_at_end(case)
                _call_by_width(e, of_rows, vectors, places)
                builder.branch(done)
            builder.position_at_end(done)
    return Library(module)


@compiled_once
def _row_library(itemsize: int, stored: int) -> Library:
    module = ir.Module("row_matmul")
    tiles = [write_tile(module, itemsize, 1, v + 1, stored=stored) for v in range(_ROW_WIDTH)]
    with function(module, "matmul", _ROW_KINDS, itemsize) as (e, a, b, c, k, columns, adds):
        builder, none = e.builder, e.int(0)
        of_b = Emitter(builder, stored)
        with e.loop(0, columns, _ROW_WIDTH * e.lanes) as j:
            left = builder.sub(columns, j)
            places = [a, none, of_b.offset(b, e.mul(j, k)), e.offset(c, j), none, k, left, adds]
            vectors = builder.sdiv(e.add(left, e.lanes - 1), e.int(e.lanes))
            _call_by_width(e, tiles, vectors, places)
    return Library(module)


def _call_by_width(e: Emitter, tiles: list[Any], vectors: Any, places: list[Any]) -> None:
    """Call the tile that is `vectors` wide, or the last if none is wide enough."""
    b = e.builder
    widest, done = b.append_basic_block(), b.append_basic_block()
    switch = b.switch(vectors, widest)
    for width, tile in enumerate(tiles, 1):
        of_width = widest if tile is tiles[-1] else b.append_basic_block()
        if tile is not tiles[-1]:
            switch.add_case(e.int(width), of_width)
        b.position_at_end(of_width)
        b.call(tile, places)
        b.branch(done)
    b.position_at_end(done)


def write_tile(
    module: Any,
    itemsize: int,
    rows: int,
    vectors: int,
    transposed: bool = False,
    *,
    stored: int | None = None,
) -> Any:
    """A function that computes a tile of `rows` x `vectors`, the last vector perhaps partial.

    A is stored by rows, `a_stride` apart; if `transposed`, by columns, a vector apart, and
    `a_stride` is then the number of rows to write. B's numbers take `stored` bytes (default
    `itemsize`).
    """
    name = f"{'outer' if transposed else 'tile'}_{rows}x{vectors}"
    kinds = [POINTER, INT, POINTER, POINTER, INT, INT, INT, _BIT]
    with function(module, name, kinds, itemsize) as (e, *args):
        a, a_stride, b, c, c_stride, k, columns, adds = args
        builder = e.builder
        row = [e.offset(a, r if transposed else e.mul(a_stride, r)) for r in range(rows)]
        a_step = e.lanes if transposed else 1
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
                if transposed and r:
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
    return _kernel(matrix.element_size(), transposed).job(fields)


def panels_of(packings: Mapping[str, Job]) -> KernelFields:
    """The panels that these jobs make, by the same names."""
    return {name: job.made["panels"] for name, job in packings.items()}


def pack(weight: Tensor) -> Tensor:
    """The filled panels of a layer's weight (N, K), transposed."""
    job = packing(weight, transposed=True)
    parallel_for([job], 1)
    return job.made["panels"]


@compiled_once
def _kernel(itemsize: int, transposed: bool) -> Kernel:
    shape, copy = (("N", "K"), _copy_columns) if transposed else (("K", "N"), _copy_rows)
    signature = Signature("pack", ("K", "N"), (Array("matrix", shape), packed("panels", "K", "N")))

    def write(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
        width = PANEL * e.lanes
        panels = e.builder.sdiv(e.add(f["N"], width - 1), e.int(width))
        first, last = e.share(panels, thread, threads)
        with e.loop(first, last) as panel:
            copy(e, f, panel)

    return compile_kernel(signature, itemsize, write)


def _copy_rows(e: Emitter, f: dict[str, Any], panel: Any) -> None:
    j = e.mul(panel, PANEL * e.lanes)
    to, source = e.offset(f["panels"], e.mul(j, f["K"])), e.offset(f["matrix"], j)
    copy_panel(e, source, f["N"], e.builder.sub(f["N"], j), f["K"], to, PANEL)


def copy_panel(
    e: Emitter, source: Any, stride: Any, columns: Any, k: Any, to: Any, vectors: int
) -> None:
    """Copy k rows of `columns` columns into a panel `vectors` wide, padded with zeros."""
    masks = [e.first_lanes(e.builder.sub(columns, e.int(v * e.lanes))) for v in range(vectors)]
    with e.loop(0, k) as n:
        for v in range(vectors):
            value = e.load(e.offset(source, e.mul(n, stride), v * e.lanes), masks[v])
            e.store(value, e.offset(to, e.mul(n, vectors * e.lanes), v * e.lanes))


def _copy_columns(e: Emitter, f: dict[str, Any], panel: Any) -> None:
    """Read a vector down a column of B at a time and scatter it over the panel's rows.

    If read row by row, columns whose stride is a power of two would evict each other from the
    cache.
    """
    b, width = e.builder, PANEL * e.lanes
    first = e.mul(panel, width)
    with e.loop(0, f["K"], e.lanes) as k, e.loop(0, width) as n:
        j, left = e.add(first, n), b.sub(f["K"], k)
        inside = b.icmp_signed("<", j, f["N"])
        source = e.offset(f["matrix"], e.mul(j, f["K"]), k)
        to = e.offset(f["panels"], e.mul(first, f["K"]), e.mul(k, width), n)
        values = e.load(source, e.first_lanes(b.select(inside, left, e.int(0))))
        e.scatter(values, to, width, left)
