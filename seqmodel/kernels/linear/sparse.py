"""Sparse inputs: piano-rolls, and the inputs to the tied model's notes, a sixth of them nonzero.

W x is then a sum of a few columns of W, each times its number of x, and W's gradient a sum of a few
rows of the net inputs' gradient: with four ones among 88, a twentieth of the dense product's
arithmetic. The indices of nonzero inputs are listed once and serve both. Where x is zero, W's
infinities and nans are skipped, so a diverged W may be noticed later than by the specification.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from llvmlite import ir

from seqmodel.kernels.code.emit import INT, PANEL, Emitter
from seqmodel.kernels.code.jit import separate

DENSITY = 0.3
"""The share of nonzero numbers up to which sums of columns are faster than products."""
FIRST = 16
"""The first steps, whose share is taken together: music may begin with more than that."""

COLUMNS = 64
"""Columns of W summed at a time: the part used of that many should fit in the L1 cache."""

INDEX = ir.IntType(32)


def index_at(e: Emitter, indices: Any, n: Any) -> Any:
    """Entry n of a list of indices or counts."""
    b = e.builder
    return b.zext(b.load(b.gep(indices, [n], source_etype=INDEX), typ=INDEX), INT)


def _row(e: Emitter, indices: Any, row: Any, inputs: Any) -> Any:
    return e.builder.gep(indices, [e.mul(row, inputs)], source_etype=INDEX)


@partial(separate, returns=INT)
def list_rows(e: Emitter, x: Any, rows: Any, inputs: Any, indices: Any, counts: Any) -> Any:
    """List the nonzero numbers in rows of x (rows, inputs); returns how many are listed."""
    b, word = e.builder, 64
    mask = ir.IntType(e.lanes)
    total = [e.int(0)]
    with e.carrying(0, rows, 1, total) as (row, inside):
        frame, row_indices = e.offset(x, e.mul(row, inputs)), _row(e, indices, row, inputs)
        row_count = [e.int(0)]
        # A word of bits at a time: the loop over a word's bits exits unpredictably, so the
        # fewer words the better.
        with e.carrying(0, inputs, word, row_count) as (j, word_count):
            bits = e.int(0)
            for k in range(0, word, e.lanes):
                column = e.add(j, k)
                values = e.load(e.offset(frame, column), e.first_lanes(b.sub(inputs, column)))
                nonzero = b.fcmp_unordered("!=", values, e.zero())
                bits = b.or_(bits, b.shl(b.zext(b.bitcast(nonzero, mask), INT), e.int(k)))
            word_count[0] = _append_bits(e, bits, j, row_indices, word_count[0])
        count = b.trunc(row_count[0], INDEX)
        b.store(count, b.gep(counts, [row], source_etype=INDEX))
        inside[0] = e.add(inside[0], row_count[0])
    return total[0]


def _append_bits(e: Emitter, bits: Any, j: Any, indices: Any, count: Any) -> Any:
    """Append j + the index of each set bit; returns the new count."""
    b = e.builder
    before, head = b.block, b.append_basic_block()
    body, after = b.append_basic_block(), b.append_basic_block()
    b.branch(head)
    b.position_at_end(head)
    remaining, position = b.phi(INT), b.phi(INT)
    remaining.add_incoming(bits, before)
    position.add_incoming(count, before)
    b.cbranch(b.icmp_signed("!=", remaining, e.int(0)), body, after)
    b.position_at_end(body)
    lowest = e.add(j, b.cttz(remaining, ir.Constant(ir.IntType(1), 1)))
    b.store(b.trunc(lowest, INDEX), b.gep(indices, [position], source_etype=INDEX))
    remaining.add_incoming(b.and_(remaining, b.sub(remaining, e.int(1))), body)
    position.add_incoming(e.add(position, 1), body)
    b.branch(head)
    b.position_at_end(after)
    return position


@separate
def sum_columns(
    e: Emitter, x: Any, indices: Any, counts: Any, rows: Any, table: Any, inputs: Any, columns: Any,
    target: Any, stride: Any, *, w_bytes: int,
) -> None:  # fmt: skip
    """W x from the listed numbers of x, in rows of `target` that are `stride` apart.

    `table` is W (columns, inputs), packed in numbers of `w_bytes` bytes.
    """
    table_emitter = Emitter(e.builder, w_bytes)

    def block(row: Any, j: Any, vectors: int, lanes: Any) -> None:
        sums, target_row = [e.zero()] * vectors, e.offset(target, e.mul(row, stride), j)
        with e.carrying(0, index_at(e, counts, row), 1, sums) as (n, inside):
            index, factor = _listed(e, x, indices, row, inputs, n)
            for v, offset in enumerate(_in_panels(e, table_emitter, j, index, inputs, vectors)):
                number = e.widened(table_emitter.offset(table, offset), table_emitter)
                inside[v] = e.multiply_add(factor, number, inside[v])
        for v in range(vectors):
            e.store(sums[v], e.offset(target_row, v * e.lanes), lanes if v == vectors - 1 else None)

    _for_each_block(e, rows, columns, block)


@separate
def add_outer(
    e: Emitter, x: Any, indices: Any, counts: Any, rows: Any, table: Any, inputs: Any, columns: Any,
    d: Any, stride: Any,
) -> None:  # fmt: skip
    """Add D' X to a table in panels (ceil(columns / width), inputs, width), from listed numbers.

    D's rows, of `columns` numbers, are `stride` apart.
    """

    def block(row: Any, j: Any, vectors: int, lanes: Any) -> None:
        d_row = e.offset(d, e.mul(row, stride), j)
        d_vectors = [
            e.load(e.offset(d_row, v * e.lanes), lanes if v == vectors - 1 else None)
            for v in range(vectors)
        ]
        with e.loop(0, index_at(e, counts, row)) as n:
            index, factor = _listed(e, x, indices, row, inputs, n)
            for value, offset in zip(
                d_vectors, _in_panels(e, e, j, index, inputs, vectors), strict=True
            ):
                sums = e.offset(table, offset)
                e.store(e.multiply_add(factor, value, e.load(sums)), sums)

    _for_each_block(e, rows, columns, block)


def _listed(e: Emitter, x: Any, indices: Any, row: Any, inputs: Any, n: Any) -> tuple[Any, Any]:
    """The index of the row's n-th listed number, and the number in all lanes."""
    index = index_at(e, _row(e, indices, row, inputs), n)
    return index, e.broadcast(e.offset(x, e.mul(row, inputs), index))


def _in_panels(
    e: Emitter, table_emitter: Emitter, j: Any, index: Any, inputs: Any, vectors: int
) -> Iterator[Any]:
    """Offsets in a packed matrix of row `index`'s vectors from column j, a panel's first, on."""
    width = PANEL * table_emitter.lanes // e.lanes  # of a panel
    for v in range(vectors):
        panel, within = divmod(v, width)
        start = e.mul(e.add(j, panel * width * e.lanes), inputs)
        yield e.add(start, e.mul(index, width * e.lanes), within * e.lanes)


def _for_each_block(e: Emitter, rows: Any, columns: Any, block: Callable[..., None]) -> None:
    """Call `block(row, j, vectors, lanes)` for all rows, then for the next columns.

    A block has `vectors` vectors from column j on; `lanes` masks the last.
    """
    b, block_vectors = e.builder, max(2 * PANEL, min(4 * PANEL, COLUMNS // e.lanes))  # vectors
    full_width = b.and_(columns, e.int(-block_vectors * e.lanes))
    remaining = b.sub(columns, full_width)
    with e.loop(0, full_width, block_vectors * e.lanes) as j, e.loop(0, rows) as row:
        block(row, j, block_vectors, None)

    def last(vectors: int) -> None:
        lanes = e.first_lanes(b.sub(remaining, e.int((vectors - 1) * e.lanes)))
        with e.loop(0, rows) as row:
            block(row, full_width, vectors, lanes)

    partial_blocks = [partial(last, vectors) for vectors in range(1, block_vectors + 1)]
    e.choose(e.parts(remaining, e.lanes), [lambda: None, *partial_blocks])
