"""Sparse binary inputs, such as piano-rolls.

W x is then a sum of a few columns of W, and W's gradient a sum of a few rows of the net inputs'
gradient: with four ones among 88, a twentieth of the dense product's arithmetic. The indices of the
ones are listed once and serve both.
"""

from functools import partial
from typing import Any

import torch
from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, PANEL, Emitter
from seqmodel.kernels.code.jit import call_compiled
from seqmodel.kernels.linear.outer import folding
from seqmodel.kernels.run.signature import NEW, Array, Signature, per_thread
from seqmodel.kernels.run.threads import Job, compile_kernel

DENSITY = 0.2
"""The share of ones up to which summing columns is much faster than the dense product."""

INDEX = ir.IntType(32)
_ADD_ROWS = Signature(
    "add_rows",
    ("T", "B", "I", "N"),
    (
        Array("d", ("T * B", "N"), strides=("d_stride",)),
        per_thread("tables", "I * N"),
        Array("indices", ("T * B", "I"), torch.int32),
        Array("counts", ("T * B",), torch.int32),
    ),
)


def add_rows(
    d: Tensor, x: tuple[Tensor, Tensor], batch: int, threads: int, total: Tensor
) -> list[Job]:
    """total (N, I) = D' X, the gradient of W, for binary X; D (T x B, N).

    Of X these are the indices of each row's ones, ascending, in the first places of (T x B, I), and
    how many they are (T x B,), int32.

    Each thread takes the batch rows it had in the loops over time, which are in its cache.
    """
    (indices, counts), (frames, N) = x, d.shape
    I = indices.shape[1]  # noqa: E741
    adding = compile_kernel(_ADD_ROWS, d.element_size(), _write_add).job(
        {
            "T": frames // batch, "B": batch, "I": I, "N": N, "threads": threads,
            "d": d, "tables": NEW, "indices": indices, "counts": counts,
        }
    )  # fmt: skip
    return [adding, folding(adding.made["tables"], total)]


def list_rows(e: Emitter, x: Any, rows: Any, inputs: Any, indices: Any, counts: Any) -> Any:
    """List the ones in rows of x (rows, inputs); how many there are, or 2^62 if x is not binary."""
    return call_compiled(e, write_list, [x, rows, inputs, indices, counts], returns=INT)


def sum_columns(e: Emitter, stored: int, *arguments: Any) -> None:
    """W x by the listed ones of x, W packed in numbers of `stored` bytes.

    Arguments: indices, counts, rows, W, I, N, target, and the distance between the target's rows.
    """
    call_compiled(e, write_sum, arguments, stored)


def index_at(e: Emitter, indices: Any, n: Any) -> Any:
    """Number n of a list of indices or counts."""
    b = e.builder
    return b.zext(b.load(b.gep(indices, [n], source_etype=INDEX), typ=INDEX), INT)


def _row(e: Emitter, indices: Any, row: Any, inputs: Any) -> Any:
    return e.builder.gep(indices, [e.mul(row, inputs)], source_etype=INDEX)


def write_list(e: Emitter, x: Any, rows: Any, inputs: Any, indices: Any, counts: Any) -> Any:
    """The body of `list_rows`."""
    b, word = e.builder, 64
    mask = ir.IntType(e.lanes)
    of_all = [e.int(0), ir.Constant(mask, 0)]  # how many ones; lanes where x is not binary
    with e.carrying(0, rows, 1, of_all) as (row, inside):
        frame, into = e.offset(x, e.mul(row, inputs)), _row(e, indices, row, inputs)
        of_row = [e.int(0), inside[1]]
        # A word of bits at a time: the exit of the loop over a word's bits is unpredictable, so the
        # fewer words the better.
        with e.carrying(0, inputs, word, of_row) as (j, of_word):
            bits, strange = e.int(0), of_word[1]
            for k in range(0, word, e.lanes):
                place = e.add(j, k)
                values = e.load(e.offset(frame, place), e.first_lanes(b.sub(inputs, place)))
                on = b.fcmp_unordered("!=", values, e.zero())
                other = b.and_(on, b.fcmp_unordered("!=", values, e.constant(1.0)))
                strange = b.or_(strange, b.bitcast(other, mask))
                bits = b.or_(bits, b.shl(b.zext(b.bitcast(on, mask), INT), e.int(k)))
            of_word[:] = _append_bits(e, bits, j, into, of_word[0]), strange
        count = b.trunc(of_row[0], INDEX)
        b.store(count, b.gep(counts, [row], source_etype=INDEX))
        inside[:] = e.add(inside[0], of_row[0]), of_row[1]
    binary = b.icmp_signed("==", of_all[1], ir.Constant(mask, 0))
    return b.select(binary, of_all[0], e.int(2**62))


def _append_bits(e: Emitter, bits: Any, j: Any, indices: Any, count: Any) -> Any:
    """Append j + the index of each set bit; returns the new count."""
    b = e.builder
    before, head = b.block, b.append_basic_block()
    body, after = b.append_basic_block(), b.append_basic_block()
    b.branch(head)
    b.position_at_end(head)
    rest, place = b.phi(INT), b.phi(INT)
    rest.add_incoming(bits, before)
    place.add_incoming(count, before)
    b.cbranch(b.icmp_signed("!=", rest, e.int(0)), body, after)
    b.position_at_end(body)
    lowest = e.add(j, b.cttz(rest, ir.Constant(ir.IntType(1), 1)))
    b.store(b.trunc(lowest, INDEX), b.gep(indices, [place], source_etype=INDEX))
    rest.add_incoming(b.and_(rest, b.sub(rest, e.int(1))), body)
    place.add_incoming(e.add(place, 1), body)
    b.branch(head)
    b.position_at_end(after)
    return place


def write_sum(
    e: Emitter, indices: Any, counts: Any, rows: Any, table: Any, inputs: Any, columns: Any,
    target: Any, stride: Any, stored: int,
) -> None:  # fmt: skip
    """The body of `sum_columns`."""
    b, of_table = e.builder, Emitter(e.builder, stored)
    width = PANEL * of_table.lanes // e.lanes  # of a panel
    at_once = 2 * PANEL  # vectors

    def block(row: Any, j: Any, vectors: int, lanes: Any) -> None:
        """`vectors` vectors of a row's columns from j on; `lanes` masks the last."""
        of_row, sums = _row(e, indices, row, inputs), [e.zero()] * vectors
        with e.carrying(0, index_at(e, counts, row), 1, sums) as (n, inside):
            index = index_at(e, of_row, n)
            for v in range(vectors):
                panel, within = divmod(v, width)
                start = e.mul(e.add(j, panel * width * e.lanes), inputs)
                place = e.add(start, e.mul(index, width * e.lanes), within * e.lanes)
                number = e.widened(of_table.offset(table, place), of_table)
                inside[v] = b.fadd(inside[v], number)
        for v in range(vectors):
            place = e.offset(target, e.mul(row, stride), j, v * e.lanes)
            e.store(sums[v], place, lanes if v == vectors - 1 else None)

    whole = b.and_(columns, e.int(-at_once * e.lanes))
    left = b.sub(columns, whole)
    with e.loop(0, rows) as row:
        with e.loop(0, whole, at_once * e.lanes) as j:
            block(row, j, at_once, None)

        def last(vectors: int, row: Any = row) -> None:
            lanes = e.first_lanes(b.sub(left, e.int((vectors - 1) * e.lanes)))
            block(row, whole, vectors, lanes)

        some = [partial(last, vectors) for vectors in range(1, at_once + 1)]
        e.choose(e.parts(left, e.lanes), [lambda: None, *some])


def _write_add(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
    """Add each frame's row of D to the table rows of its indices, for the thread's batch rows."""
    b, B, I, N = e.builder, f["B"], f["I"], f["N"]  # noqa: E741
    first, last = e.share(B, thread, threads)
    size = e.mul(I, N)
    table = e.offset(f["tables"], e.mul(thread, e.padded(size)))
    e.clear(table, size)
    with e.loop(0, f["T"]) as t, e.loop(first, last) as row:
        frame = e.add(e.mul(t, B), row)
        indices = _row(e, f["indices"], frame, I)
        source = e.offset(f["d"], e.mul(frame, f["d_stride"]))
        with e.loop(0, index_at(e, f["counts"], frame)) as n:
            target = e.offset(table, e.mul(index_at(e, indices, n), N))

            def add(j: Any, lanes: Any, target: Any = target, source: Any = source) -> None:
                place = e.offset(target, j)
                more = e.load(e.offset(source, j), lanes)
                e.store(b.fadd(e.load(place, lanes), more), place, lanes)

            e.columns(N, add)
