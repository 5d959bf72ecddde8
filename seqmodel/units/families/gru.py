"""The gated recurrent unit, and its variants whose gates lack terms."""

from seqmodel.units.cells import Backward, Cell, Forward, Projection, Stage
from seqmodel.units.definition import CHUNG, Function, NetInput, State, define

_VARIANT = "Dey, Salem 2017"
_CANDIDATE = ("n = phi(W x + U (r (.) h') + b)", "h = (1 - z) (.) h' + z (.) n")


def _step(a: NetInput, state: State, s: Function, phi: Function) -> State:
    (h,) = state
    z = s(a("z", h))
    r = s(a("r", h))
    n = phi(a("n", r * h))  # the reset acts before the matrix
    return ((1 - z) * h + z * n,)


def _gates(at: Forward) -> None:
    z, r = at.s(at.net("z")), at.s(at.net("r"))
    at.keep("z", z)
    at.keep("r", r)
    at.keep("reset", r * at.old("h"))  # the reset acts before the matrix


def _state(at: Forward) -> None:
    h, z, n = at.old("h"), at.kept("z"), at.phi(at.net("n"))
    at.keep("n", n)
    at.new("h", h + z * (n - h))


def _state_backward(at: Backward) -> None:
    z, n, d_h = at.kept("z"), at.kept("n"), at.d_now("h")
    at.d_net("n", d_h * z * at.phi.slope(n))
    at.d_net("z", d_h * (n - at.old("h")) * at.s.slope(z))
    at.pass_on("h", d_h * (1.0 - z))


def _gates_backward(at: Backward) -> None:
    r, d_reset = at.kept("r"), at.d_kept("reset")
    at.d_net("r", d_reset * at.old("h") * at.s.slope(r))
    at.pass_on("h", at.passed("h") + d_reset * r)


_CELL = Cell(
    ("z", "r", "n", "reset"),
    (
        Stage((Projection(("z", "r"), "z"),), _gates, _gates_backward),
        Stage((Projection(("n",), "n", source="reset"),), _state, _state_backward),
    ),
)

GRU = define(
    "gru",
    {"z": "W U b", "r": "W U b", "n": "W U b"},
    "h",
    f"{CHUNG}; Cho et al. 2014",
    "z = s(Wz x + Uz h' + bz)",
    "r = s(Wr x + Ur h' + br)",
    *_CANDIDATE,
    step=_step,
    cell=_CELL,
)

GRU1 = define(
    "gru1",
    {"z": "U b", "r": "U b", "n": "W U b"},
    "h",
    f"{_VARIANT}, GRU1",
    "z = s(Uz h' + bz)",
    "r = s(Ur h' + br)",
    *_CANDIDATE,
    step=_step,
    cell=_CELL,
)

GRU2 = define(
    "gru2",
    {"z": "U", "r": "U", "n": "W U b"},
    "h",
    f"{_VARIANT}, GRU2",
    "z = s(Uz h')",
    "r = s(Ur h')",
    *_CANDIDATE,
    step=_step,
    cell=_CELL,
)

GRU3 = define(
    "gru3",
    {"z": "b", "r": "b", "n": "W U b"},
    "h",
    f"{_VARIANT}, GRU3",
    "z = s(bz)",
    "r = s(br)",
    *_CANDIDATE,
    step=_step,
    cell=_CELL,
)
