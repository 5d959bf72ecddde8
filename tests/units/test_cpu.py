"""The compiled CPU backend against the specification, in several threads and processes."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from drawing import (
    CHOICES,
    WIDE,
    assert_agree,
    assert_backends_agree,
    gradients,
    random_tensor,
    random_unit,
)
from forking import outcome
from guards import guarded
from random_texts import random_text

from seqmodel.kernels import device
from seqmodel.kernels.run import memory
from seqmodel.kernels.run.memory import buffer
from seqmodel.system import native
from seqmodel.units import UNITS, make
from seqmodel.units.cpu import recurrence

__all__ = ["guarded"]  # buffers are guarded in every test here

# In float32, sums of a few thousand terms are added in another order than the specification's,
# more so over 200 steps.
BOUND = {torch.float64: 1e-10, torch.float32: 2e-5}
SIZES = [  # T, B, H, I
    (1, 1, 1, 1),
    (1, 16, 33, 5),
    (63, 1, 46, 20),
    (5, 7, 195, 20),
    (7, 33, 16, 16),
    (200, 7, 36, 33),
    (6, 40, 40, 5),  # in blocks of rows
]
TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("known", "size", "wide"),
    [
        *(("lstm", size, WIDE[k % 2]) for k, size in enumerate(SIZES)),
        *((known, (20, 7, 33, 88), WIDE[k % 2]) for k, known in enumerate(UNITS)),
        ("lstm-layer-norm", SIZES[3], WIDE[1]),
    ],
)
def test_values_and_gradients(known, size, wide, monkeypatch, request):
    """Sizes with one unit, units at one size; both types, in blocks and step by step."""
    if size not in SIZES:
        request.getfixturevalue("unoptimised")
    monkeypatch.setattr(recurrence, "ROWS", wide)
    T, B, H, inputs = size
    dtype = torch.float32 if (wide > 1) == (T % 2 > 0) else torch.float64
    unit, x = random_unit(known, inputs, H, dtype=dtype), random_tensor(T, B, inputs, dtype=dtype)
    assert_backends_agree(unit, x, BOUND[dtype] * (5 if T > 100 else 1))


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("known", "size", "dtype", "wide"),
    [
        ("lstm", (40, 7, 33, 88), torch.float32, WIDE[0]),
        ("gru", (70, 1, 256, 41), torch.float32, WIDE[1]),
        ("gru", (40, 7, 33, 88), torch.float64, WIDE[1]),
        ("lstm", (70, 1, 256, 41), torch.float64, WIDE[0]),
        ("tanh", (40, 3, 9, 64), torch.float32, WIDE[0]),
        ("tanh", (40, 3, 9, 130), torch.float64, WIDE[0]),
    ],
)
def test_sparse_inputs(known, size, dtype, wide, monkeypatch):
    """Sums of columns, also at the end of a word of 64, with a silent frame and a full one among
    them; nan follows short rows."""
    monkeypatch.setattr(recurrence, "ROWS", wide)
    T, B, H, inputs = size
    x = piano_roll(T, B, inputs, dtype) * random_tensor(T, B, inputs, dtype=dtype)
    assert listed(x) is not None
    unit, lengths = random_unit(known, inputs, H, dtype=dtype), torch.arange(B) + T - B + 1
    assert_backends_agree(unit, x, BOUND[dtype], of_x=False)
    x[T - B + 1 :, 0] = torch.nan
    assert_backends_agree(unit, x, BOUND[dtype], of_x=False, lengths=lengths)


@pytest.mark.usefixtures("two_threads")
def test_lists_of_which_one_thread_stopped_are_not_used():
    """Guards gradients from unfinished lists: the rows of one thread are dense."""
    x = piano_roll(40, 8, 88, torch.float32)
    x[:, :4] = random_tensor(40, 4, 88)
    assert listed(x) is None
    assert listed(x[:, 4:].contiguous()) is not None
    unit = random_unit("gru", 88, 9, dtype=torch.float32)
    assert_backends_agree(unit, x, BOUND[torch.float32], of_x=False)


def piano_roll(T, B, inputs, dtype):
    roll = (random_tensor(T, B, inputs) > 1.6).to(dtype)
    roll[1, 0], roll[2, 0] = 0, 1
    return roll


def listed(x):
    """The notes of x (T, B, I) as a unit lists them when it runs over x, or None."""
    h, _ = make("tanh", x.shape[2], 3, backend="cpu").to(x.dtype)(x)
    indices, counts, *_ = h.grad_fn.saved_tensors
    return None if indices is None else (indices, counts)


@TYPES
def test_what_counts_as_sparse(dtype):
    """Whatever its numbers are; a dense beginning ends it soon."""
    x = torch.zeros(40, 2, 90, dtype=dtype)
    x[..., :27] = torch.tensor([1.0, 0.5, torch.nan])[:, None].expand(3, 9).flatten()
    assert listed(x)  # 27 of 90: just few enough
    x[-1, 0, 27] = 1e-30
    assert not listed(x)
    x[1:] = 0
    x[:4] = 1
    assert listed(x)
    x[4] = 1
    assert not listed(x)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    ("known", "s", "phi", "bias", "dtype"),
    [(("lstm", "gru-reset-after")[(k ^ k >> 1) % 2], *some) for k, some in enumerate(CHOICES)],
)
def test_activations_and_biases(known, s, phi, bias, dtype):
    """Every activation of gates with every other on both units, each with and without biases."""
    options = {"gate_activation": s, "activation": phi, "bias": bias}
    unit = random_unit(known, 7, 19, dtype=dtype, **options)
    assert_backends_agree(unit, random_tensor(5, 3, 7, dtype=dtype), BOUND[dtype])


@pytest.mark.parametrize("known", ["lstm", "gru"])
def test_saturation_and_values_that_are_not_finite(known):
    """Guards against exp overflowing, and nan that does not spread as in the specification."""
    unit, x = random_unit(known, 5, 33, dtype=torch.float32), random_tensor(5, 7, 5)
    for scale in (100.0, 1e4):  # whose net inputs are exact to their last digit, not small
        found = assert_backends_agree(unit, (scale * x).float(), BOUND[torch.float32] * scale / 20)
        assert all(tensor.isfinite().all() for tensor in found.values())
    x[2, 1, 0] = float("nan")
    x[3, 2, 0] = -1e30
    found = {}
    for unit.backend in ("cpu", "reference"):
        found[unit.backend] = unit(x.float())[0]
    torch.testing.assert_close(*found.values(), rtol=0, atol=1e-5, equal_nan=True)
    assert found["cpu"].isnan().any()


@pytest.mark.usefixtures("unoptimised")
@TYPES
def test_functions_at_their_limits(dtype):
    """Guards against an exp that saturates, so that a unit diverges unnoticed."""
    values = [-1e9, -800.0, -90.0, -1e-9, 0.0, 1e-9, 9.0, 88.5, 90.0, 800.0, 1e9]
    for function in ("exp", "softplus", "relu", "sigmoid", "tanh", "sqrt"):
        unit = make(f"h = {function}(W x)", 1, 1).to(dtype)
        with torch.no_grad():
            unit.W.fill_(1.0)
        found = []
        for unit.backend in ("cpu", "reference"):
            x = torch.tensor(values, dtype=dtype).view(1, -1, 1).requires_grad_()
            h, _ = unit(x)
            found.append((h, *torch.autograd.grad(h.sum(), x)))
        for ours, theirs in zip(*found, strict=True):
            tiny = 2e-7 if dtype == torch.float32 else 1e-15
            torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=tiny, equal_nan=True)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_of_equals_the_first_has_the_gradient(backend):
    """Guards against backends that share it out, or give it twice."""
    texts = {
        "max(c, W x)": 0, "max(W x, c)": 1, "min(c, W x)": 0, "min(W x, c)": 1,
        "where(W x < c, 1, W1 x)": 1, "where(W x > c, 1, W1 x)": 1,
    }  # fmt: skip
    for text, slope in texts.items():
        unit = make(f"c = b + 2\nh = {text}", 1, 3, backend=backend).double()
        with torch.no_grad():
            unit.W.fill_(1.0)
        x = torch.full((1, 1, 1), 2.0, dtype=torch.float64, requires_grad=True)
        h, _ = unit(x)
        assert h.tolist() == [[[2.0] * 3]]
        assert torch.autograd.grad(h.sum(), x)[0].item() == 3 * slope


@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("H", [1, 7, 100, 1001])
def test_a_mean_is_exact_and_the_same_in_any_batch(H, itemsize):
    """Guards against numbers beyond H in it, and sums whose order depends on batch or window."""
    dtype = {4: torch.float32, 8: torch.float64}[itemsize]
    unit = make("h = mean(V (.) W x)", 1, H, backend="cpu").to(dtype)
    with torch.no_grad():
        unit.V.copy_(random_tensor(1, H))
        unit.W.fill_(1.0)
    x = random_tensor(9, 5, 1, dtype=dtype)
    h, _ = unit(x)
    right = x.double() * unit.V.double().mean()
    assert float((h - right).detach().abs().max()) < {4: 5e-7, 8: 2e-15}[itemsize]
    alone = torch.stack([unit(x[:, row : row + 1])[0][:, 0] for row in range(5)], 1)
    assert torch.equal(h, alone)
    assert torch.equal(h, torch.cat([unit(x[:4])[0], unit(x[4:])[0]]))


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.usefixtures("unoptimised")
def test_values_and_gradients_of_random_units(seed):
    """Guards against a gradient lost between passes, a slot overwritten while it is needed."""
    T, B, H, I = 3 + seed % 4, 1 + seed % 3, 1 + seed % 17, 1 + seed % 5  # noqa: E741
    unit = random_unit(random_text(seed), I, H, seed=seed, bias=seed % 4 > 0)
    lengths = torch.tensor([T, 0, T - 2][:B]) if seed % 2 else None
    assert_backends_agree(unit, random_tensor(T, B, I), lengths=lengths)


@pytest.mark.parametrize(
    "text",
    [
        "h = c'\nc = tanh(W x + U h')",  # c's gradient is that of h as it is
        "h = W x + c'\nc = h'",
        "h = c' + W x\nc = tanh(Wc x + Uc h + bc)",
        "h = m'\nc = h\nm = tanh(W x + U c')",  # so is the sum of two, of one node
        "c = 0.5\nm = b\nh = W x + c' (.) m' + s(h')",
        "c = c'\nh = W x (.) c'",
        "n = W1 x + W2 x\nh = tanh(n - U h') (.) n + U1 (U2 h')",
        "T = s(Wi x + Ui T')\nclass = T (.) in'\nin = s(Wc x)\nh = class + lengths'\nlengths = T",
        "h = exp(W x) / (1 + exp(W1 x + U h'))",
        "h = mean(mean(W x) + V (.) h')",  # a state that is one number, a mean of a mean
        "m = mean(W x + U h')\nh = tanh(U1 (m (.) b - mean(m + Wa x)) + m)",
        "h = mean(tanh(W x)) (.) h' + mean(b) (.) W1 x",  # b's gradient is one number
        "h = tanh(W x + U (norm(h') - 0.5 * h' / mean(exp(h'))))",
        "c = 0.5 * c' + mean(c' (.) h')\nh = tanh(W x) - mean(norm(c) (.) V)",
        "h = 0.9 * h' + norm(W x)",  # h's gradient is read by two passes, and carried by one
        "c = norm(W x)\nh = c - 0 * c'",
        "on = 1\np = h' + (1 - on') (.) bp\nh = phi(W x + U p + b)",  # starts at bp
        "h = tanh(max(W x, min(h', Wa x)) + U where(V (.) h' > b, norm(h'), 0.5))",
    ],
)
@pytest.mark.usefixtures("unoptimised")
def test_values_and_gradients_of_odd_units(text):
    """Guards against a gradient stored over one that is still to be read, and names that clash."""
    for lengths in (None, torch.tensor([5, 0, 2])):
        unit = random_unit(text, 3, 17)
        assert_backends_agree(unit, random_tensor(5, 3, 3), lengths=lengths)


@pytest.mark.parametrize("known", ["lstm", "gru", "lstm-layer-norm"])
def test_ragged_and_dense_loops_are_bit_identical(known):
    """Guards against ragged loops that round differently from the dense ones."""
    unit = random_unit(known, 9, 21, backend="cpu", dtype=torch.float32)
    x, lengths = random_tensor(11, 5, 9).float(), torch.tensor([11, 4, 7, 0, 11])
    inside = (torch.arange(11).unsqueeze(1) < lengths).unsqueeze(2)
    given = random_tensor(11, 5, 21).float() * inside
    dense, ragged = unit(x)[0], unit(x, lengths=lengths)[0]
    assert torch.equal(dense * inside, ragged)
    one, other = (torch.autograd.grad(h, list(unit.parameters()), given) for h in (dense, ragged))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.usefixtures("summed", "two_threads")
@pytest.mark.parametrize("threads", [1, 2, 3, 5, "Python's"])
def test_any_number_of_threads(threads, monkeypatch):
    """OpenMP's, or where there are none, and after a fork, those of Python."""
    if threads == "Python's":
        monkeypatch.setattr("seqmodel.kernels.run.threads.forked", lambda: True)
    for known, (T, B, H, inputs) in (("lstm", (9, 7, 33, 5)), ("gru", (70, 4, 120, 30))):
        torch.set_num_threads(2 if threads == "Python's" else threads)
        unit, x = random_unit(known, inputs, H), random_tensor(T, B, inputs)
        assert_backends_agree(unit, x, 1e-10)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("threads", [1, 3])
def test_other_threads_going_back(threads):
    """What the forward loops kept is in memory as their number of threads divided it."""
    found, x = [], random_tensor(20, 7, 5)
    for backend in ("cpu", "reference"):
        unit = random_unit("lstm", 5, 33, backend=backend)
        torch.set_num_threads(2)
        run = unit(x)
        torch.set_num_threads(threads)
        found.append({str(n): slope for n, slope in enumerate(gradients(unit, *run))})
    assert_agree(*found, 1e-10)


def test_several_graphs_at_once(monkeypatch):
    """Guards against a call that takes buffers that another still needs."""
    monkeypatch.setattr(memory, "buffer", buffer)
    monkeypatch.setattr(memory, "MMAP_BYTES", 1)
    unit, x, found = random_unit("lstm", 8, 60), random_tensor(100, 7, 8), []
    for unit.backend in ("cpu", "reference"):
        runs = [unit(x * k) for k in range(3)]  # three graphs alive at once
        for k in (1, 0, 2):
            slopes = gradients(unit, *runs[k])
            found.append({str(n): slope for n, slope in enumerate(slopes)})
    for ours, right in zip(found[:3], found[3:], strict=True):
        assert_agree(ours, right, 1e-10)


@pytest.mark.usefixtures("two_threads")
def test_fewer_threads_than_requested():
    """OpenMP may provide fewer; the missing threads' shares must still be done."""
    levels = {n: native.address_of(f"omp_{n}_max_active_levels") for n in ("get", "set")}
    if None in levels.values():
        pytest.skip("there is no OpenMP")
    former = native.function(levels["get"], [], native.INT)()
    set_levels = native.function(levels["set"], [native.INT])
    set_levels(0)  # teams of one
    try:
        assert_backends_agree(random_unit("lstm", 8, 20), random_tensor(30, 6, 8))
    finally:
        set_levels(former)


@pytest.mark.usefixtures("two_threads")
def test_one_thread_affects_only_the_calling_thread():
    """A thread whose first torch operation fell into the block used to keep one thread for good."""

    def work():
        _ = torch.ones(8) + 1
        return torch.get_num_threads()

    with device.one_thread(), ThreadPoolExecutor() as pool:
        assert torch.get_num_threads() == 1
        assert pool.submit(work).result() == 2
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_callers_in_several_threads():
    unit, x = make("mgu", 8, 40), torch.randn(50, 6, 8)
    right = unit(x)[0]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda _: unit(x)[0], range(80))
    assert all(torch.equal(h, right) for h in found)


def _child(unit, right):
    """Torch's own products hang here (GNU OpenMP after a fork); ours must not."""
    assert torch.get_num_threads() == 2
    for ours, theirs in zip(_step(unit), right, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def _step(unit):
    h, _ = unit(torch.ones(30, 6, 8))
    weights = list(unit.parameters())
    return [h.detach(), *torch.autograd.grad(h.sum(), weights)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.usefixtures("two_threads")
def test_forked_children():
    """After the parent has used its threads: two children and the parent run concurrently."""
    unit = make("lstm", 8, 40)
    right = _step(unit)
    _ = torch.ones(600, 600) @ torch.ones(600, 600)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_child, args=(unit, right)) for _ in range(2)]
    for child in children:
        child.start()
    concurrent = _step(unit)
    for child in children:
        child.join(60)
        child.kill()
        child.join()
    assert [child.exitcode for child in children] == [0, 0], "a forked child hangs, or is wrong"
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(concurrent, right, strict=True))


def test_compiler_loads_at_first_use():
    code = (
        "import sys, torch; from seqmodel.units import make; unit = make('lstm', 3, 4);"
        "compiler = 'seqmodel.kernels.code.jit'; assert compiler not in sys.modules;"
        "unit(torch.ones(2, 2, 3)); assert compiler in sys.modules"
    )
    assert outcome("-c", code) == (0, "", "")
