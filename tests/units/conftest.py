"""The test matrix: a test that takes `name` and `backend` runs for every pair."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from seqmodel.units import UNITS
from seqmodel.units.backends import BACKENDS
from seqmodel.units.specification import Case


@pytest.fixture(scope="session", params=list(UNITS))
def name(request) -> str:
    """A unit's name, each in turn."""
    return request.param


@pytest.fixture(scope="session", params=list(BACKENDS))
def backend(request) -> str:
    """A backend's name, each in turn."""
    return request.param


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Two torch threads, whatever the environment says."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop the cases that a backend declines; test_backends checks which it must run."""
    here = Path(__file__).parent
    items[:] = [item for item in items if here not in item.path.parents or can_run(item)]


def can_run(item: pytest.Item) -> bool:
    params = getattr(item, "callspec", None) and item.callspec.params
    if not params or not {"name", "backend"} <= set(params) or params["backend"] not in BACKENDS:
        return True
    options = {key: params[key] for key in ("gate_activation", "activation") if key in params}
    case = Case(UNITS[params["name"]], torch.float32, torch.device("cpu"), 1, 1, 1, **options)
    return BACKENDS[params["backend"]].unsupported_reason(case) is None
