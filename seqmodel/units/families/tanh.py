"""The plain recurrent unit."""

from seqmodel.units.cells import Backward, Cell, Forward, Projection, Stage
from seqmodel.units.definition import CHUNG, Function, NetInput, State, define


def _step(a: NetInput, state: State, s: Function, phi: Function) -> State:
    (h,) = state
    return (phi(a("h", h)),)


def _forward(at: Forward) -> None:
    at.new("h", at.phi(at.net("h")))


def _backward(at: Backward) -> None:
    at.d_net("h", at.d_now("h") * at.phi.slope(at.now("h")))


TANH = define(
    "tanh",
    {"h": "W U b"},
    "h",
    CHUNG,
    "h = phi(W x + U h' + b)",
    step=_step,
    cell=Cell(("h",), (Stage((Projection(("h",), "h"),), _forward, _backward),)),
)
