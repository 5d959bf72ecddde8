"""Where buffers come from: freed memory is reused, memory still in use is not."""

from collections import deque

import torch

from seqmodel.kernels.run import memory
from seqmodel.kernels.run.memory import buffer


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
