"""Packing: copies of matrices in the order in which the matrix product reads them.

A packed matrix (K, N) is a row of panels, each all K rows of a few vectors of columns.
"""

from typing import Any

from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, PANEL, POINTER, Emitter, panel_width
from seqmodel.kernels.code.jit import compiled_once, function
from seqmodel.kernels.run import memory
from seqmodel.kernels.run.signature import STORED, Array, Signature, packed
from seqmodel.kernels.run.team import Job, Kernel, compile_kernels, parallel_for

_PACK = Signature(
    "pack",
    ("K", "N"),
    (
        Array("matrix", ("K", "N"), STORED, strides=("row_stride", "column_stride")),
        packed("panels", "K", "N"),
    ),
)


def packing(b: Tensor) -> tuple[Tensor, Job]:
    """Panels (ceil(N / width), K, width) for B (K, N), and the job that fills them.

    The last panel is padded with zeros.
    """
    b = b if 1 in b.stride() else b.contiguous()
    (K, N), itemsize = b.shape, b.element_size()
    width = panel_width(itemsize)
    panels = memory.buffer(b, -(-N // width), K, width)
    return panels, _kernel(itemsize).job({"K": K, "N": N, "matrix": b, "panels": panels})


def pack(b: Tensor) -> Tensor:
    """The panels of `packing`, filled."""
    panels, job = packing(b)
    parallel_for([job], 1)
    return panels


@compiled_once
def _kernel(itemsize: int) -> Kernel:
    module = ir.Module("pack")
    with function(module, "pack", [POINTER, INT, INT], itemsize) as (e, fields, thread, threads):
        b, f = e.builder, _PACK.load(e, fields)
        width = PANEL * e.lanes
        panels = b.sdiv(e.add(f["N"], width - 1), e.int(width))
        first, last = e.share(panels, thread, threads)
        by_rows = b.icmp_signed("==", f["column_stride"], e.int(1))
        with b.if_else(by_rows) as (rows, columns):
            with rows, e.loop(first, last) as panel:
                _copy_rows(e, f, panel)
            with columns, e.loop(first, last) as panel:
                _copy_columns(e, f, panel)
    return compile_kernels(module, itemsize, [_PACK])["pack"]


def _copy_rows(e: Emitter, f: dict[str, Any], panel: Any) -> None:
    j = e.mul(panel, PANEL * e.lanes)
    to, source = e.offset(f["panels"], e.mul(j, f["K"])), e.offset(f["matrix"], j)
    copy_panel(e, source, f["row_stride"], e.builder.sub(f["N"], j), f["K"], to, PANEL)


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
    """Read a vector down a column at a time and scatter it over the panel's rows.

    Read row by row, columns whose stride is a power of two would evict each other from the cache.
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
