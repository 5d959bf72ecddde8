"""The compiled CPU backend in several threads and processes, and when the compiler is loaded."""

import multiprocessing
import os
import threading

import pytest
import torch
from drawing import assert_backends_agree, random_tensor, random_unit
from forking import outcome
from guards import guarded

from seqmodel.kernels import device
from seqmodel.system import native
from seqmodel.units import make

__all__ = ["guarded"]  # buffers are guarded in every test here

pytestmark = pytest.mark.usefixtures("two_threads")


def test_fewer_threads_than_requested():
    """OpenMP may provide fewer; the missing threads' shares must still be done."""
    levels = {n: native.loaded(f"omp_{n}_max_active_levels") for n in ("get", "set")}
    if None in levels.values():
        pytest.skip("there is no OpenMP")
    former = native.function(levels["get"], [], native.INT)()
    set_levels = native.function(levels["set"], [native.INT])
    set_levels(0)  # teams of one
    try:
        assert_backends_agree(random_unit("lstm", 8, 20), random_tensor(30, 6, 8))
    finally:
        set_levels(former)


def test_one_thread_affects_only_the_calling_thread():
    """A thread whose first torch operation fell into the block used to keep one thread for good."""
    counts = []

    def work():
        _ = torch.ones(8) + 1
        counts.append(torch.get_num_threads())

    with device.one_thread():
        assert torch.get_num_threads() == 1
        started = threading.Thread(target=work)
        started.start()
        started.join()
    assert counts == [2]
    assert torch.get_num_threads() == 2


def test_callers_in_several_threads():
    unit = make("mgu", 8, 40)
    x = torch.randn(50, 6, 8)
    right = unit(x)[0]
    wrong = []

    def run():
        for _ in range(20):
            if not torch.equal(unit(x)[0], right):
                wrong.append(1)

    callers = [threading.Thread(target=run) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


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
    alive = [child for child in children if child.is_alive()]
    for child in alive:
        child.kill()
    assert not alive, "a forked child hangs"
    assert [child.exitcode for child in children] == [0, 0]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(concurrent, right, strict=True))


def test_compiler_loads_at_first_use():
    code = (
        "import sys, torch; from seqmodel.units import make; unit = make('lstm', 3, 4);"
        "assert 'llvmlite' not in sys.modules;"
        "unit(torch.ones(2, 2, 3)); assert 'llvmlite' in sys.modules"
    )
    assert outcome("-c", code) == (0, "", "")
