"""Copies of matrices as the product reads them: panels of columns a few vectors wide."""

from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, Emitter, vector_lanes
from seqmodel.kernels.code.jit import compiled_once, function
from seqmodel.kernels.run import memory, team
from seqmodel.kernels.run.team import Job, Kernel, compile_kernels

PANEL = 2  # vectors

_SIZES = ("K", "N", "row_stride", "column_stride")
_ADDRESSES = ("matrix", "panels")


def packing(b: Tensor) -> tuple[Tensor, Job]:
    """B (K, N) as panels (N / width, K, width), zeros behind the last column, and their filling."""
    b = b if 1 in b.stride() else b.contiguous()
    (K, N), lanes = b.shape, vector_lanes(b.element_size())
    width = PANEL * lanes
    panels = memory.buffer(b, -(-N // width), K, width)
    return panels, Job(_kernel(b.element_size()), [K, N, *b.stride(), b, panels])


def pack(b: Tensor) -> Tensor:
    """The panels of `packing`, filled."""
    panels, job = packing(b)
    team.share_out([job], 1)
    return panels


@compiled_once
def _kernel(itemsize: int) -> Kernel:
    module = ir.Module("pack")
    with function(module, "pack", [POINTER, INT, INT], itemsize) as (e, fields, thread, threads):
        b, f = e.builder, e.fields(fields, _SIZES, _ADDRESSES)
        width = PANEL * e.lanes
        panels = b.sdiv(e.add(f["N"], width - 1), e.int(width))
        first, last = e.share(panels, thread, threads)
        by_rows = b.icmp_signed("==", f["column_stride"], e.int(1))
        with b.if_else(by_rows) as (rows, columns):
            with rows, e.loop(first, last) as panel:
                _copy_rows(e, f, panel)
            with columns, e.loop(first, last) as panel:
                _copy_columns(e, f, panel)
    return compile_kernels(module, ("pack",))["pack"]


def _copy_rows(e: Emitter, f: dict[str, Any], panel: Any) -> None:
    j = e.mul(panel, PANEL * e.lanes)
    to, source = e.offset(f["panels"], e.mul(j, f["K"])), e.offset(f["matrix"], j)
    copy_panel(e, source, f["row_stride"], e.builder.sub(f["N"], j), f["K"], to, PANEL)


def copy_panel(
    e: Emitter, source: Any, stride: Any, columns: Any, k: Any, to: Any, vectors: int
) -> None:
    """Copy k rows of so many columns into a panel that many vectors wide, zeros behind the last."""
    masks = [e.first_lanes(e.builder.sub(columns, e.int(v * e.lanes))) for v in range(vectors)]
    with e.loop(0, k) as n:
        for v in range(vectors):
            value = e.load(e.offset(source, e.mul(n, stride), v * e.lanes), masks[v])
            e.store(value, e.offset(to, e.mul(n, vectors * e.lanes), v * e.lanes))


def _copy_columns(e: Emitter, f: dict[str, Any], panel: Any) -> None:
    """A vector of a column at a time, whose numbers then go to as many rows of the panel.

    Row by row, the columns' strides, often a power of two, would keep what is read again for the
    next row in a few places of the cache.
    """
    b, width = e.builder, PANEL * e.lanes
    first = e.mul(panel, width)
    with e.loop(0, f["K"], e.lanes) as k, e.loop(0, width) as n:
        j, left = e.add(first, n), b.sub(f["K"], k)
        inside = b.icmp_signed("<", j, f["N"])
        source = e.offset(f["matrix"], e.mul(j, f["column_stride"]), k)
        to = e.offset(f["panels"], e.mul(first, f["K"]), e.mul(k, width), n)
        values = e.load(source, e.first_lanes(b.select(inside, left, e.int(0))))
        e.scatter(values, to, width, left)
