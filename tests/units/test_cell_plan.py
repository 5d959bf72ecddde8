"""What the kernels assume about a cell: a made-up cell that violates it is rejected."""

from dataclasses import replace

import pytest

from seqmodel.units import UNITS
from seqmodel.units.cells import Projection, Stage
from seqmodel.units.cpu.cell_plan import CellPlan

GRU = UNITS["gru"].cell


def projecting(*projections):
    """The gru's slots with these projections in one stage."""
    nothing = GRU.stages[0].forward, GRU.stages[0].backward
    return replace(GRU, stages=(Stage(projections, *nothing),))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", UNITS)
def test_every_unit_has_a_plan(name, bias):
    CellPlan(UNITS[name], bias)


GATES, STATE = Projection(("z", "r"), "z"), Projection(("n",), "n", source="reset")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (replace(GRU, slots=("z", "n", "reset")), "gates without a slot: r"),
        (replace(GRU, slots=("z", "r", "reset", "n")), "must be adjacent slots in W's order"),
        (replace(GRU, slots=("r", "z", "n", "reset")), "must be adjacent slots in W's order"),
        (projecting(GATES), "each gate with U must be in one projection"),
        (projecting(GATES, STATE, STATE), "each gate with U must be in one projection"),
        (projecting(GATES, replace(STATE, source="rest")), "reads rest, which is not a slot"),
        (projecting(GATES, replace(STATE, into="gone")), "into gone does not fit"),
        (projecting(replace(GATES, into="reset"), STATE), "into reset does not fit"),
        (projecting(Projection(("r", "z"), "r"), STATE), "stacked in this order"),
        (projecting(Projection(("z", "n"), "z"), Projection(("r",), "r")), "stacked in this order"),
    ],
)
def test_a_cell_that_the_kernels_cannot_run_is_refused(cell, message):
    with pytest.raises(ValueError, match=f"unit gru: .*{message}"):
        CellPlan(replace(UNITS["gru"], cell=cell), True)


def test_some_gates_with_w_and_some_without():
    """The projection adds to W x or replaces it, for all of its gates."""
    gates = {"z": ("U", "b"), "r": ("W", "U", "b"), "n": ("W", "U", "b")}
    with pytest.raises(ValueError, match="all must have W or none"):
        CellPlan(replace(UNITS["gru"], gates=gates), True)


def test_some_gates_with_u_and_some_without():
    gates = {"z": ("W", "b"), "r": ("W", "U", "b"), "n": ("W", "U", "b")}
    with pytest.raises(ValueError, match="all must have U"):
        CellPlan(replace(UNITS["gru"], gates=gates), True)


def test_the_output_is_the_first_state():
    with pytest.raises(ValueError, match="the output h must be the first state"):
        CellPlan(replace(UNITS["lstm"], state=("c", "h")), True)
