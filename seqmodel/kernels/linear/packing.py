"""Packing: copies of matrices in the order in which the matrix product reads them.

A packed matrix (K, N) is a row of panels, each with all K rows of a few vectors of columns.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from seqmodel.kernels.code.emit import PANEL, Emitter
from seqmodel.kernels.code.jit import compiled_once
from seqmodel.kernels.run.signature import NEW, Array, KernelFields, Signature, packed
from seqmodel.kernels.run.team import Job, Kernel, compile_kernel, parallel_for


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
