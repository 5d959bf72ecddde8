"""Where buffers come from: freed memory is reused, memory still in use is not."""

import platform
import resource
from typing import Any

import pytest
import torch
from torch import Tensor

from seqmodel.kernels.run import machine, memory
from seqmodel.kernels.run.memory import buffer


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than GNU's")
def test_freed_memory_stays_with_the_process() -> None:
    """Guards against thousands of fresh pages, and the cost of zeroing them, in each step."""

    def fill() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.empty(7 << 20).fill_(1.0)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    machine.keep_freed_memory()
    for _ in range(20):  # aligned blocks settle in the heap after a few rounds
        fill()
    assert fill() < 100


def test_large_blocks_are_reused_but_never_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LARGE", 1 << 20)
    monkeypatch.setattr(memory, "KEEP_BYTES", 1 << 24)
    monkeypatch.setattr(memory, "_spare", [])
    first = buffer(torch.float32, 300, 1000)
    place, part = first.data_ptr(), first[7]
    del first
    other = buffer(torch.float32, 300, 1000)  # `part` still holds the first
    assert other.data_ptr() != place
    del part
    assert buffer(torch.float32, 250, 1100).data_ptr() == place
    # Small buffers never use spare blocks.
    monkeypatch.setattr(memory, "LARGE", 1 << 22)
    assert buffer(torch.float32, 250, 1100).data_ptr() != place


def test_a_block_may_be_returned_while_another_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage collection may return a block, evicting the one just found, at any allocation."""
    wanted = 300_000
    waiting: list[Tensor] = []

    class Spare(list[Tensor]):
        def pop(self, k: Any = -1) -> Tensor:
            waiting.clear()  # as the collector would
            return super().pop(k)

    monkeypatch.setattr(memory, "LARGE", 1 << 20)
    monkeypatch.setattr(memory, "KEEP_BYTES", 3 << 20)
    monkeypatch.setattr(memory, "_spare", Spare())
    small, fitting, large = (buffer(torch.float32, 1, n) for n in (270_000, wanted, 500_000))
    place = fitting.data_ptr()
    del small, fitting
    waiting.append(large)
    del large
    found = buffer(torch.float32, 1, wanted)
    assert found.data_ptr() == place
    assert found.untyped_storage().nbytes() >= 4 * wanted
