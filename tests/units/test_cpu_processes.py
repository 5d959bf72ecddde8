"""The compiled CPU backend in several threads and processes, and when the compiler is loaded."""

import multiprocessing
import os
import subprocess
import sys
import threading

import pytest
import torch
from forking import outcome
from guards import guarded
from torch import Tensor

from seqmodel.kernels import device
from seqmodel.units import make
from seqmodel.units.module import Unit

__all__ = ["guarded"]  # buffers are guarded in every test here

pytestmark = pytest.mark.usefixtures("two_threads")


def test_fewer_threads_than_requested() -> None:
    """OpenMP may provide fewer; the missing threads' shares must still be done."""
    code = """
import torch
from seqmodel.units import make
torch.set_num_threads(2)
torch.manual_seed(0)
unit, plain = make("lstm", 8, 20, "cpu"), make("lstm", 8, 20, "reference")
plain.load_state_dict(unit.state_dict())
x = (torch.rand(30, 6, 8) < 0.1).float()
for one in (unit, plain):
    one(x)[0].sum().backward()
for ours, right in zip(unit.parameters(), plain.parameters()):
    torch.testing.assert_close(ours.grad, right.grad, rtol=1e-4, atol=1e-4)
"""
    limited = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    subprocess.run([sys.executable, "-c", code], env=limited, check=True)


def test_one_thread_affects_only_the_calling_thread() -> None:
    """A thread whose first torch operation fell into the block used to keep one thread for good."""
    counts = []

    def work() -> None:
        _ = torch.ones(8) + 1
        counts.append(torch.get_num_threads())

    with device.one_thread():
        assert torch.get_num_threads() == 1
        started = threading.Thread(target=work)
        started.start()
        started.join()
    assert counts == [2]
    assert torch.get_num_threads() == 2


def test_callers_in_several_threads() -> None:
    unit = make("mgu", 8, 40)
    x = torch.randn(50, 6, 8)
    right = unit(x)[0]
    wrong = []

    def run() -> None:
        for _ in range(20):
            if not torch.equal(unit(x)[0], right):
                wrong.append(1)

    callers = [threading.Thread(target=run) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def _child(unit: Unit, right: list[Tensor]) -> None:
    """Torch's own products hang here (GNU OpenMP after a fork); ours must not."""
    assert torch.get_num_threads() == 2
    for ours, theirs in zip(_step(unit), right, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def _step(unit: Unit) -> list[Tensor]:
    h, _ = unit(torch.ones(30, 6, 8))
    weights = list(unit.parameters())
    return [h.detach(), *torch.autograd.grad(h.sum(), weights)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_children() -> None:
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


def test_compiler_loads_at_first_use() -> None:
    code = (
        "import sys, torch; from seqmodel.units import make; unit = make('lstm', 3, 4);"
        "assert 'llvmlite' not in sys.modules;"
        "unit(torch.ones(2, 2, 3)); assert 'llvmlite' in sys.modules"
    )
    assert outcome("-c", code) == (0, "", "")
