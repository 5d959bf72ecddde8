"""The matrix kernels around the loops, against torch's own, at sizes that could lose edges."""

import pytest
import torch
from torch.nn import functional as F

from seqmodel.kernels.code.emit import padded, panel_width
from seqmodel.kernels.linear import outer as outer_module
from seqmodel.kernels.linear.matmul import packing
from seqmodel.kernels.linear.outer import folding, outer
from seqmodel.kernels.run import memory
from seqmodel.kernels.run.threads import parallel_for

BOTH_TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
THREADS = pytest.mark.parametrize("threads", [1, 2, 3])
SIZES = [1, 2, 7, 15, 16, 17, 33, 64, 100]


@BOTH_TYPES
@THREADS
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("step", [1, 2])
def test_panels_hold_every_column(
    dtype: torch.dtype, threads: int, step: int, transposed: bool
) -> None:
    for K in SIZES:
        for N in SIZES:
            shape = (N, K) if transposed else (K, N)
            matrix = torch.randn(*(step * n for n in shape), dtype=dtype)[::step, ::step]
            job = packing(matrix, transposed=transposed)
            parallel_for([job], threads)
            width = panel_width(matrix.element_size())
            count = -(-N // width)
            b = matrix.t() if transposed else matrix
            filled = F.pad(b, (0, count * width - N)).view(K, count, width)
            assert torch.equal(job.made["panels"], filled.transpose(0, 1)), (K, N)


@BOTH_TYPES
@THREADS
@pytest.mark.parametrize("small", [0, 1 << 16])
def test_outer_products_over_all_frames(
    dtype: torch.dtype, threads: int, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways to split the work."""
    monkeypatch.setattr(outer_module, "_SMALL", small)
    monkeypatch.setattr(outer_module, "_FEW_FRAMES", 0)
    for M in SIZES:
        for N in (1, 16, 33, 88):
            a, b = torch.randn(300, 2 * M, dtype=dtype)[:, :M], torch.randn(300, N, dtype=dtype)
            c = torch.full((M, N), float("nan"), dtype=dtype)
            parallel_for(outer(a, b, c, threads), threads)
            torch.testing.assert_close(c, a.t() @ b, rtol=1e-4, atol=1e-4)


@BOTH_TYPES
@THREADS
def test_tables_are_added_and_transposed(dtype: torch.dtype, threads: int) -> None:
    for columns in SIZES:
        total = torch.full((columns, 5), float("nan"), dtype=dtype)
        tables = memory.buffer(dtype, threads, padded(5 * columns, dtype.itemsize))
        numbers = torch.randn(threads, 5, columns, dtype=dtype)
        tables[:, : 5 * columns] = numbers.view(threads, -1)
        parallel_for([folding(tables, total)], threads)
        torch.testing.assert_close(total, numbers.sum(0).t())
