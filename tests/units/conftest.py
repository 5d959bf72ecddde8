"""Which unit runs on which backend, and how: what several files' tests take in turns."""

import pytest
from drawing import PAIRS, WIDE

from seqmodel.units import UNITS
from seqmodel.units.cpu import recurrence


@pytest.fixture(scope="session", params=PAIRS, ids=" on ".join)
def pair(request):
    """A unit's name and a backend's that runs it, each in turn."""
    return request.param


@pytest.fixture(scope="session", params=list(UNITS))
def name(request):
    """A unit's name, each in turn."""
    return request.param


@pytest.fixture(params=WIDE, ids=["in blocks", "step by step"])
def summed(request, monkeypatch):
    """Blocks of many steps and of one, whatever the number of rows."""
    monkeypatch.setattr(recurrence, "ROWS", request.param)
