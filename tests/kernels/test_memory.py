"""Where buffers come from: freed memory is reused, memory still in use is not."""

import platform
import resource
from collections import deque

import pytest
import torch

from seqmodel.kernels.run import memory
from seqmodel.kernels.run.memory import buffer
from seqmodel.system import machine


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than GNU's")
def test_freed_memory_stays_with_the_process():
    """Guards against thousands of fresh pages, and the cost of zeroing them, in each step."""

    def fill() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.empty(7 << 20).fill_(1.0)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    machine.keep_freed_memory()
    for _ in range(20):  # aligned blocks settle in the heap after a few rounds
        fill()
    assert fill() < 100


def test_large_blocks_are_reused_but_never_too_early(monkeypatch):
    monkeypatch.setattr(memory, "LARGE", 1 << 20)
    monkeypatch.setattr(memory, "KEEP_BYTES", 1 << 24)
    monkeypatch.setattr(memory, "_spare", deque())
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
