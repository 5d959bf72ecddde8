"""The battery's two axes: a test that asks for `name` and `backend` runs for every pair."""

import pytest

from seqmodel.units import UNITS
from seqmodel.units.backends import BACKENDS


@pytest.fixture(scope="session", params=list(UNITS))
def name(request) -> str:
    """A unit's name, each in turn."""
    return request.param


@pytest.fixture(scope="session", params=list(BACKENDS))
def backend(request) -> str:
    """A backend's name, each in turn."""
    return request.param
