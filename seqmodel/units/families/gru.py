"""The gated recurrent unit, and its variants whose gates lack terms."""

from seqmodel.units.cells import Backward, Cell, Forward, Projection, Stage
from seqmodel.units.definition import CHUNG, Function, NetInput, State, UnitSpec, define


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


def _gru(name: str, terms: str, source: str) -> UnitSpec:
    """A GRU whose gates z and r have these terms."""
    net = " + ".join({"W": "W{0} x", "U": "U{0} h'", "b": "b{0}"}[term] for term in terms.split())
    return define(
        name,
        {"z": terms, "r": terms, "n": "W U b"},
        "h",
        source,
        *(f"{gate} = s({net.format(gate)})" for gate in "zr"),
        "n = phi(W x + U (r (.) h') + b)",
        "h = (1 - z) (.) h' + z (.) n",
        step=_step,
        cell=_CELL,
    )


GRU = _gru("gru", "W U b", f"{CHUNG}; Cho et al. 2014")
GRU1 = _gru("gru1", "U b", "Dey, Salem 2017, GRU1")
GRU2 = _gru("gru2", "U", "Dey, Salem 2017, GRU2")
GRU3 = _gru("gru3", "b", "Dey, Salem 2017, GRU3")
