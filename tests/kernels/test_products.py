"""Matrix products and what is around them, against torch's own, with vectors of every width."""

import ctypes
from itertools import cycle, product

import pytest
import torch
from llvmlite import binding, ir

from seqmodel.kernels.code import emit
from seqmodel.kernels.code.emit import INT, POINTER, Target
from seqmodel.kernels.code.jit import Library, compiled_once, function
from seqmodel.kernels.linear.matmul import matmul, pack, row_matmul
from seqmodel.kernels.linear.outer import outer
from seqmodel.kernels.run.threads import parallel_for

GUARD = 3
"""Columns beside a product that must stay as they are."""
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
THREADS = pytest.mark.parametrize("threads", [1, 3])
SIZES = [1, 2, 7, 16, 17, 33, 100]


LACKS = {"own": (), "avx2": ("avx512",), "sse": ("avx512", "avx2"), "neon": ("avx",)}


@pytest.fixture(scope="module", params=LACKS)
def processor(request):
    """This one, and as if it had narrower vectors: which tiles there are depends on registers.

    Code of NEON's shape, whose registers are twice as many as SSE's, runs without AVX.
    """
    features, own = binding.get_host_cpu_features(), emit._host()
    features |= {name: False for name in features if name.startswith(LACKS[request.param])}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding, "get_host_cpu_features", lambda: features)
        target = Target(16, 32) if request.param == "neon" else emit._host()
        if request.param != "own" and target.vector_bytes == own.vector_bytes:
            pytest.skip("it has no wider vectors")
        yield target


@pytest.fixture(autouse=True)
def _emitting(processor, unoptimised):
    with emit.emitting_for(processor):
        yield


@compiled_once
def library(itemsize, adds):
    """The products, each of its sizes as an argument."""
    module = ir.Module("products")
    kinds = [POINTER, INT, POINTER, POINTER, INT, INT, INT, INT]
    with function(module, "matmul", kinds, itemsize) as (e, *arguments):
        matmul(e, *arguments, adds)
    with function(module, "row_matmul", kinds, itemsize) as (e, a, _, b, c, *sizes):
        row_matmul(e, itemsize, a, b, c, *sizes[2:], adds)
    return Library(module)


def check(name, dtype, rows, k, columns, *, adds):
    a, b = torch.randn(rows, k + GUARD, dtype=dtype), torch.randn(columns, k, dtype=dtype)
    c = torch.randn(rows, columns + GUARD, dtype=dtype)
    expected = c.clone()
    expected[:, :columns] = a[:, :k] @ b.t() + (c[:, :columns] if adds else 0)
    kinds = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
    call = ctypes.CFUNCTYPE(None, *kinds, *[ctypes.c_int64] * 4)
    packed = pack(b)
    call(library(dtype.itemsize, adds).address(name))(
        a.data_ptr(), k + GUARD, packed.data_ptr(), c.data_ptr(), columns + GUARD, rows, k, columns
    )
    torch.testing.assert_close(c, expected, msg=lambda m: f"{rows} x {k} x {columns}: {m}")


@DTYPES
def test_products_of_any_size(dtype):
    """Any split of rows into tiles; wide tiles that reach into the next panel once added twice."""
    sizes = product([*range(1, 20), 33], [1, 8, 9, 31, 67])
    kinds = cycle(product([1, 5], [False, True]))
    for (k, adds), (rows, columns) in zip(kinds, sizes, strict=False):
        check("matmul", dtype, rows, k, columns, adds=adds)


@DTYPES
def test_products_of_a_row(dtype):
    sizes = product([1, 2, 5, 17], [1, 4, 8, 9, 31, 67, 96, 100, 201])
    for adds, (k, columns) in product([False, True], sizes):
        check("row_matmul", dtype, 1, k, columns, adds=adds)


@DTYPES
@THREADS
@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("frames", [0, 2, 300])
def test_outer_products_over_all_frames(dtype, threads, frames, few):
    """Tables, even of a thread without frames, are added and transposed; blocks are added up."""
    for M, N in product(SIZES, (1, 16, 33, 88)):
        a, b = torch.randn(frames, 2 * M, dtype=dtype)[:, :M], torch.randn(frames, N, dtype=dtype)
        c = torch.full((M, N), float("nan"), dtype=dtype)
        parallel_for(outer(a, b, c, threads, few=few), threads)
        torch.testing.assert_close(c, a.t() @ b, rtol=1e-4, atol=1e-4)


@THREADS
def test_subnormal_numbers_are_zero_within_kernels_alone(processor, threads):
    """Guards training against numbers that Intel's processors take a hundred times as long for."""
    if not binding.get_host_cpu_features().get("sse"):
        pytest.skip("not an x86 processor")
    for factors in (1e-30, 1e-12), (1e-40, 1e3):  # the product is subnormal, or a factor
        a, b = (torch.full((9, n), factor) for n, factor in zip((3, 5), factors, strict=True))
        c = torch.full((3, 5), float("nan"))
        parallel_for(outer(a, b, c, threads), threads)
        assert not c.any()
        assert (a.t() @ b).all()
        assert (torch.full((3,), 1e-40) * 2).all()
