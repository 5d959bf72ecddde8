"""Buffers for tests of compiled code: nan inside, guard bytes around, checked after each test."""

import numpy as np
import pytest
import torch
from torch import Tensor

from seqmodel.kernels.run import memory

_GUARD = 256  # bytes on either side; a multiple of any alignment that kernels may prefer
_BYTE = 0xA5


class Guards:
    """Makes buffers, and reports which have been written beyond their ends."""

    def __init__(self):
        self._blocks: list[tuple[Tensor, tuple[int, ...]]] = []

    def buffer(self, dtype, *shape):
        """As `memory.buffer`: floats start as nan, integers as a huge number."""
        size = int(np.prod(shape)) * dtype.itemsize
        block = torch.empty(size + 2 * _GUARD, dtype=torch.uint8)
        block.numpy().fill(_BYTE)  # on one thread: torch's threads hang in a forked child
        self._blocks.append((block, shape))
        made = block[_GUARD : _GUARD + size].view(dtype).view(shape)
        made.numpy().fill(float("nan") if dtype.is_floating_point else 1 << 30)
        return made

    def broken(self):
        """The buffers whose guards have changed."""
        return [
            f"a buffer {shape} was written {side} its numbers"
            for block, shape in self._blocks
            for side, guard in (("before", block[:_GUARD]), ("behind", block[-_GUARD:]))
            if (guard.numpy() != _BYTE).any()
        ]


@pytest.fixture(autouse=True)
def guarded(monkeypatch):
    """Whatever is read before it is written shows as nan; whatever is written outside fails."""
    guards = Guards()
    monkeypatch.setattr(memory, "buffer", guards.buffer)
    yield guards
    assert not guards.broken()
