"""Every test here runs with guarded buffers."""

import pytest
import torch
from guards import guarded

__all__ = ["guarded"]


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
