"""Per-thread tables and their sum."""

from typing import Any

from torch import Tensor

from seqmodel.kernels.code.emit import Emitter
from seqmodel.kernels.code.jit import compiled_once
from seqmodel.kernels.run.signature import Array, Signature, per_thread
from seqmodel.kernels.run.team import Job, Kernel, compile_kernel

_FOLD = Signature(
    "fold",
    ("count", "I", "N"),
    (per_thread("tables", "I * N"), Array("total", ("N", "I"))),
)


def folding(tables: Tensor, total: Tensor) -> Job:
    """The job that sums tables (I, N), one per thread, and transposes the sum: total (N, I)."""
    N, I = total.shape  # noqa: E741
    threads = tables.shape[0]
    return _kernel(tables.element_size()).job(
        {"count": threads, "I": I, "N": N, "threads": threads, "tables": tables, "total": total}
    )


@compiled_once
def _kernel(itemsize: int) -> Kernel:
    return compile_kernel(_FOLD, itemsize, _write)


def _write(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
    b, I, N = e.builder, f["I"], f["N"]  # noqa: E741
    vectors = b.sdiv(e.add(N, e.lanes - 1), e.int(e.lanes))
    first, last = e.share(vectors, thread, threads)
    with e.loop(first, last) as vector, e.loop(0, I) as i:
        j = e.mul(vector, e.lanes)
        left = b.sub(N, j)
        total = _total(e, f, e.add(e.mul(i, N), j), e.first_lanes(left))
        e.scatter(total, e.offset(f["total"], e.mul(j, I), i), I, left)


def _total(e: Emitter, f: dict[str, Any], place: Any, lanes: Any) -> Any:
    """The sum of a vector over all tables."""
    total, size = [e.zero()], e.padded(e.mul(f["I"], f["N"]))
    with e.carrying(0, f["count"], 1, total) as (k, inside):
        more = e.load(e.offset(f["tables"], e.mul(k, size), place), lanes)
        inside[0] = e.builder.fadd(inside[0], more)
    return total[0]
