"""Inputs that are binary and mostly zero, as piano-rolls are.

W x is then the sum of a few columns of W, and the gradient of W the sum of a few rows of the net
inputs' gradient: at four notes of 88, a twentieth of the dense product's arithmetic. Which notes
sound is listed once, for both.
"""

from dataclasses import dataclass
from typing import Any

import torch
from llvmlite import binding, ir
from torch import Tensor

from seqmodel.cpu import memory, team
from seqmodel.cpu.emit import INT, POINTER, Emitter
from seqmodel.cpu.jit import compiled_once, function
from seqmodel.cpu.team import Kernel, compile_kernels, thread_count

_WORTH_LISTING = 8192  # numbers; below, the dense product is done before the list is
_DENSITY = 0.2  # of ones; up to there the sum of columns is well ahead
_WORTH_A_THREAD = 250_000  # additions
_SIZES = ("frames", "rows", "I", "N", "d_stride", "limit")
_ADDRESSES = ("x", "d", "table", "numbers", "starts")
_KINDS = [POINTER, INT, POINTER, INT, POINTER]
NUMBER = ir.IntType(32)


@dataclass(frozen=True)
class Notes:
    """The places of the ones in binary frames, frame after frame."""

    numbers: Tensor
    """(count or more,) int32: the places within a frame, rising."""
    starts: Tensor
    """(frames + 1,) int64: where in `numbers` each frame begins, the last one ends."""


def list_notes(x: Tensor) -> Notes | None:
    """The notes of x (frames, I), contiguous, if all its numbers are 0 or 1 and few are 1."""
    if x.numel() < _WORTH_LISTING:
        return None
    frames, inputs = x.shape
    limit = int(_DENSITY * x.numel())
    numbers = memory.buffer(x, 1, limit + inputs).view(torch.int32).view(-1)
    starts = torch.empty(frames + 1, dtype=torch.int64)
    fields: dict[str, int | Tensor] = {
        "frames": frames, "I": inputs, "limit": limit,
        "x": x, "numbers": numbers, "starts": starts,
    }  # fmt: skip
    _run(x, "list_notes", 1, fields)
    return Notes(numbers, starts) if starts[-1] >= 0 else None


def notes_of(frame: Tensor) -> Notes:
    """The notes of one frame (I,), in lists with room for those of any other."""
    numbers = torch.zeros(len(frame), dtype=torch.int32)
    places = frame.nonzero().flatten()
    numbers[: len(places)] = places
    return Notes(numbers, torch.tensor([0, len(places)]))


def outer_notes(d: Tensor, notes: Notes, inputs: int, rows: int) -> Tensor:
    """D' X, the gradient of W, for binary X as `notes`; d (T x rows, N), the result (N, inputs).

    Each thread takes the rows of the batch that were its own in the loops: they are near it.
    """
    frames, columns = d.shape
    work = int(notes.starts[-1]) * columns
    threads = min(thread_count(rows), 1 + work // _WORTH_A_THREAD)
    tables = d.new_zeros(threads, inputs, columns)
    fields: dict[str, int | Tensor] = {
        "frames": frames, "rows": rows, "I": inputs, "N": columns, "d_stride": d.stride(0),
        "d": d, "table": tables, "numbers": notes.numbers, "starts": notes.starts,
    }  # fmt: skip
    _run(d, "add_rows", threads, fields)
    return tables.sum(0).t().contiguous()


def _run(x: Tensor, kernel: str, threads: int, fields: dict[str, int | Tensor]) -> None:
    values = [fields.get(name, 0) for name in (*_SIZES, *_ADDRESSES)]
    numbers = [v if isinstance(v, int) else v.data_ptr() for v in values]
    team.share_out(_kernels(x.element_size())[kernel], numbers, threads)


def declare_sum(module: Any, itemsize: int) -> Any:
    """`sum_columns(numbers, count, W', N, target)`, for `module` to call: target = W x."""
    name = f"seqmodel_sum_columns_{itemsize}"
    address = _kernels(itemsize)["add_rows"].library.address("sum_columns")
    binding.add_symbol(name, address)
    return ir.Function(module, ir.FunctionType(ir.VoidType(), _KINDS), name)


def span(e: Emitter, numbers: Any, starts: Any, frame: Any) -> tuple[Any, Any]:
    """Where the list of a frame begins, and its count."""
    b = e.builder
    first, last = (
        b.load(b.gep(starts, [e.add(frame, k)], source_etype=INT), typ=INT) for k in (0, 1)
    )
    return b.gep(numbers, [first], source_etype=NUMBER), b.sub(last, first)


@compiled_once
def _kernels(itemsize: int) -> dict[str, Kernel]:
    module = ir.Module("notes")
    with function(module, "sum_columns", _KINDS, itemsize) as (e, *args):
        _write_sum(e, *args)
    for name, write in (("add_rows", _write_rows), ("list_notes", _write_list)):
        with function(module, name, [POINTER, INT, INT], itemsize) as (e, fields, *share):
            write(e, e.fields(fields, _SIZES, _ADDRESSES), *share)
    return compile_kernels(module, ("add_rows", "list_notes"))


def _number(e: Emitter, numbers: Any, n: Any) -> Any:
    b = e.builder
    return b.zext(b.load(b.gep(numbers, [n], source_etype=NUMBER), typ=NUMBER), INT)


def _write_list(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
    """List the ones of all frames; starts[frames] is -1 where that makes no sense."""
    b, word = e.builder, 64
    mask = ir.IntType(e.lanes)
    give_up, done = b.append_basic_block(), b.append_basic_block()
    starts = f["starts"]
    b.store(e.int(0), starts)
    counts = [e.int(0)]
    with e.carrying(0, f["frames"], 1, counts) as (frame, of_frame):
        row = e.offset(f["x"], e.mul(frame, f["I"]))
        of_word = [of_frame[0]]
        # Bits by the word: the loop over the bits of one ends when it likes, which the processor
        # cannot foresee, so there should be few such loops.
        with e.carrying(0, f["I"], word, of_word) as (j, inside):
            bits, strange = e.int(0), ir.Constant(mask, 0)
            for k in range(0, word, e.lanes):
                place = e.add(j, k)
                values = e.load(e.offset(row, place), e.first_lanes(b.sub(f["I"], place)))
                on = b.fcmp_unordered("!=", values, e.zero())
                other = b.and_(on, b.fcmp_unordered("!=", values, e.constant(1.0)))
                strange = b.or_(strange, b.bitcast(other, mask))
                bits = b.or_(bits, b.shl(b.zext(b.bitcast(on, mask), INT), e.int(k)))
            good = b.append_basic_block()
            b.cbranch(b.icmp_signed("!=", strange, ir.Constant(mask, 0)), give_up, good)
            b.position_at_end(good)
            inside[0] = append_bits(e, bits, j, f["numbers"], inside[0])
        of_frame[0] = of_word[0]
        b.store(of_frame[0], b.gep(starts, [e.add(frame, 1)], source_etype=INT))
        few = b.append_basic_block()
        b.cbranch(b.icmp_signed(">", of_frame[0], f["limit"]), give_up, few)
        b.position_at_end(few)
    b.branch(done)
    b.position_at_end(give_up)
    b.store(e.int(-1), b.gep(starts, [f["frames"]], source_etype=INT))
    b.branch(done)
    b.position_at_end(done)


def append_bits(e: Emitter, bits: Any, j: Any, numbers: Any, count: Any) -> Any:
    """Append j + the place of each bit to the numbers; returns their new count."""
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
    b.store(b.trunc(lowest, NUMBER), b.gep(numbers, [place], source_etype=NUMBER))
    rest.add_incoming(b.and_(rest, b.sub(rest, e.int(1))), body)
    place.add_incoming(e.add(place, 1), body)
    b.branch(head)
    b.position_at_end(after)
    return place


def _write_sum(e: Emitter, numbers: Any, count: Any, table: Any, columns: Any, target: Any) -> None:
    b, at_once = e.builder, 4  # vectors

    def block(j: Any, vectors: int, lanes: Any) -> None:
        sums = [e.zero()] * vectors
        with e.carrying(0, count, 1, sums) as (n, inside):
            row = e.offset(table, e.mul(_number(e, numbers, n), columns), j)
            for v in range(vectors):
                inside[v] = b.fadd(inside[v], e.load(e.offset(row, v * e.lanes), lanes))
        for v in range(vectors):
            e.store(sums[v], e.offset(target, j, v * e.lanes), lanes)

    whole = b.and_(columns, e.int(-at_once * e.lanes))
    with e.loop(0, whole, at_once * e.lanes) as j:
        block(j, at_once, None)
    e.columns(b.sub(columns, whole), lambda j, lanes: block(e.add(whole, j), 1, lanes))


def _write_rows(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
    """Add up each note's rows of D, over the thread's share of the batch, in its own table."""
    b, N = e.builder, f["N"]
    first = b.sdiv(e.mul(f["rows"], thread), threads)
    last = b.sdiv(e.mul(f["rows"], e.add(thread, 1)), threads)
    table = e.offset(f["table"], e.mul(thread, f["I"], N))
    with e.loop(0, f["frames"], f["rows"]) as step, e.loop(first, last) as row:
        frame = e.add(step, row)
        numbers, count = span(e, f["numbers"], f["starts"], frame)
        source = e.offset(f["d"], e.mul(frame, f["d_stride"]))
        with e.loop(0, count) as n:
            target = e.offset(table, e.mul(_number(e, numbers, n), N))

            def add(j: Any, lanes: Any, target: Any = target, source: Any = source) -> None:
                place = e.offset(target, j)
                more = e.load(e.offset(source, j), lanes)
                e.store(b.fadd(e.load(place, lanes), more), place, lanes)

            e.columns(N, add)
