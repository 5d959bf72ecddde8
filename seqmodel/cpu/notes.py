"""Inputs that are binary and mostly zero, as piano-rolls are.

W x is then the sum of a few columns of W, and the gradient of W the sum of a few rows of the net
inputs' gradient: at four notes of 88, a twentieth of the dense product's arithmetic.
"""

from typing import Any

import torch
from llvmlite import binding, ir
from torch import Tensor

from seqmodel.cpu import team
from seqmodel.cpu.emit import INT, POINTER, Emitter
from seqmodel.cpu.jit import compiled_once, function
from seqmodel.cpu.team import Kernel, compile_kernels, thread_count

_WORTH_LOOKING = 8192  # numbers; below, the dense product is done before the look is
_DENSITY = 0.2  # of ones; up to there the sum of columns is well ahead
_WORTH_A_THREAD = 1_000_000  # additions
_FIELDS = ("frames", "I", "N", "d_stride", "x", "d", "table", "list", "count")
_KINDS = [POINTER, INT, POINTER, INT, POINTER, POINTER]


def few_notes(x: Tensor) -> bool:
    """Whether every number of x, which is contiguous, is 0 or 1, and few are 1. Exact and quick."""
    if x.numel() < _WORTH_LOOKING:
        return False
    count = torch.zeros(1, dtype=torch.int64)
    _run(x, "count_ones", 1, {"frames": 1, "I": x.numel(), "x": x, "count": count})
    return 0 <= int(count) <= _DENSITY * x.numel()


def room(threads: int, inputs: int) -> Tensor:
    """A list for each thread, as long as a frame has notes at most."""
    return torch.empty(threads, inputs, dtype=torch.int64)


def outer_notes(d: Tensor, x: Tensor) -> Tensor:
    """D' X, the gradient of W, for binary x (frames, I); d (frames, N), the result (N, I)."""
    (frames, inputs), columns = x.shape, d.shape[1]
    threads = min(thread_count(columns), 1 + frames * columns // _WORTH_A_THREAD)
    table = d.new_zeros(inputs, columns)
    fields: dict[str, int | Tensor] = {
        "frames": frames, "I": inputs, "N": columns, "d_stride": d.stride(0),
        "x": x, "d": d, "table": table, "list": room(threads, inputs),
    }  # fmt: skip
    _run(x, "add_rows", threads, fields)
    return table.t().contiguous()


def _run(x: Tensor, kernel: str, threads: int, fields: dict[str, int | Tensor]) -> None:
    values = [fields.get(name, 0) for name in _FIELDS]
    numbers = [v if isinstance(v, int) else v.data_ptr() for v in values]
    team.share_out(_kernels(x.element_size())[kernel], numbers, threads)


def declare_sum(module: Any, itemsize: int) -> Any:
    """`sum_columns(x, I, W', N, list, target)` for `module` to call: target = W x for one frame."""
    name = f"seqmodel_sum_columns_{itemsize}"
    address = _kernels(itemsize)["add_rows"].library.address("sum_columns")
    binding.add_symbol(name, address)
    return ir.Function(module, ir.FunctionType(ir.VoidType(), _KINDS), name)


@compiled_once
def _kernels(itemsize: int) -> dict[str, Kernel]:
    module = ir.Module("notes")
    with function(module, "sum_columns", _KINDS, itemsize) as (e, *args):
        _write_sum(e, *args)
    for name, write in (("add_rows", _write_rows), ("count_ones", _write_count)):
        with function(module, name, [POINTER, INT, INT], itemsize) as (e, fields, *share):
            f = {}
            for k, field in enumerate(_FIELDS):
                place = e.builder.gep(fields, [e.int(k)], source_etype=INT)
                f[field] = e.builder.load(place, typ=INT if k < 4 else POINTER)
            write(e, f, *share)
    return compile_kernels(module, ("add_rows", "count_ones"))


def _write_list(e: Emitter, x: Any, inputs: Any, numbers: Any) -> Any:
    """List the places where the frame is not zero; their count."""
    b = e.builder
    counts = [e.int(0)]
    with e.carrying(0, inputs, e.lanes, counts) as (j, inside):
        frame = e.load(e.offset(x, j), e.first_lanes(b.sub(inputs, j)))
        on = b.fcmp_unordered("!=", frame, e.zero())
        bits = b.zext(b.bitcast(on, ir.IntType(e.lanes)), INT)
        before, head = b.block, b.append_basic_block()
        body, after = b.append_basic_block(), b.append_basic_block()
        b.branch(head)
        b.position_at_end(head)
        rest, count = b.phi(INT), b.phi(INT)
        rest.add_incoming(bits, before)
        count.add_incoming(inside[0], before)
        b.cbranch(b.icmp_signed("!=", rest, e.int(0)), body, after)
        b.position_at_end(body)
        lowest = e.add(j, b.cttz(rest, ir.Constant(ir.IntType(1), 1)))
        b.store(lowest, b.gep(numbers, [count], source_etype=INT))
        rest.add_incoming(b.and_(rest, b.sub(rest, e.int(1))), body)
        count.add_incoming(e.add(count, 1), body)
        b.branch(head)
        b.position_at_end(after)
        inside[0] = count
    return counts[0]


def _write_sum(
    e: Emitter, x: Any, inputs: Any, table: Any, columns: Any, numbers: Any, target: Any
) -> None:
    b, at_once = e.builder, 4  # vectors
    count = _write_list(e, x, inputs, numbers)

    def block(j: Any, vectors: int, lanes: Any) -> None:
        sums = [e.zero()] * vectors
        with e.carrying(0, count, 1, sums) as (n, inside):
            number = b.load(b.gep(numbers, [n], source_etype=INT), typ=INT)
            row = e.offset(table, e.mul(number, columns), j)
            for v in range(vectors):
                inside[v] = b.fadd(inside[v], e.load(e.offset(row, v * e.lanes), lanes))
        for v in range(vectors):
            e.store(sums[v], e.offset(target, j, v * e.lanes), lanes)

    whole = b.and_(columns, e.int(-at_once * e.lanes))
    with e.loop(0, whole, at_once * e.lanes) as j:
        block(j, at_once, None)
    e.columns(b.sub(columns, whole), lambda j, lanes: block(e.add(whole, j), 1, lanes))


def _write_rows(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
    """Each thread adds up a share of the columns, over all frames."""
    b = e.builder
    vectors = b.sdiv(e.add(f["N"], e.lanes - 1), e.int(e.lanes))
    first = e.mul(b.sdiv(e.mul(vectors, thread), threads), e.lanes)
    last = e.mul(b.sdiv(e.mul(vectors, e.add(thread, 1)), threads), e.lanes)
    last = b.select(b.icmp_signed("<", last, f["N"]), last, f["N"])
    numbers = b.gep(f["list"], [e.mul(thread, f["I"])], source_etype=INT)
    with e.loop(0, f["frames"]) as frame:
        count = _write_list(e, e.offset(f["x"], e.mul(frame, f["I"])), f["I"], numbers)
        source = e.offset(f["d"], e.mul(frame, f["d_stride"]), first)
        with e.loop(0, count) as n:
            number = b.load(b.gep(numbers, [n], source_etype=INT), typ=INT)
            row = e.offset(f["table"], e.mul(number, f["N"]), first)

            def add(j: Any, lanes: Any, row: Any = row, source: Any = source) -> None:
                place = e.offset(row, j)
                more = e.load(e.offset(source, j), lanes)
                e.store(b.fadd(e.load(place, lanes), more), place, lanes)

            e.columns(b.sub(last, first), add)


def _write_count(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
    """The count of ones, or -1 at the first number that is neither 0 nor 1."""
    b = e.builder
    whole = ir.IntType(e.lanes)
    stop, done = b.append_basic_block(), b.append_basic_block()
    counts = [e.int(0)]
    with e.carrying(0, f["I"], e.lanes, counts) as (j, inside):
        values = e.load(e.offset(f["x"], j), e.first_lanes(b.sub(f["I"], j)))
        on = b.fcmp_unordered("!=", values, e.zero())
        other = b.and_(on, b.fcmp_unordered("!=", values, e.constant(1.0)))
        good = b.append_basic_block()
        strange = b.icmp_signed("!=", b.bitcast(other, whole), ir.Constant(whole, 0))
        b.cbranch(strange, stop, good)
        b.position_at_end(good)
        inside[0] = e.add(inside[0], b.ctpop(b.zext(b.bitcast(on, whole), INT)))
    b.store(counts[0], f["count"])
    b.branch(done)
    b.position_at_end(stop)
    b.store(e.int(-1), f["count"])
    b.branch(done)
    b.position_at_end(done)
