"""The minimal gated unit: a GRU whose only gate both resets and updates."""

from seqmodel.units.cells import Backward, Cell, Forward, Projection, Stage
from seqmodel.units.definition import Function, NetInput, State, define


def _step(a: NetInput, state: State, s: Function, phi: Function) -> State:
    (h,) = state
    f = s(a("f", h))
    n = phi(a("n", f * h))
    return ((1 - f) * h + f * n,)


def _gate(at: Forward) -> None:
    f = at.s(at.net("f"))
    at.keep("f", f)
    at.keep("reset", f * at.old("h"))


def _state(at: Forward) -> None:
    h, f, n = at.old("h"), at.kept("f"), at.phi(at.net("n"))
    at.keep("n", n)
    at.new("h", h + f * (n - h))


def _state_backward(at: Backward) -> None:
    f, n, d_h = at.kept("f"), at.kept("n"), at.d_now("h")
    at.d_net("n", d_h * f * at.phi.slope(n))
    at.pass_on("h", d_h * (1.0 - f))
    at.d_slot("f", d_h * (n - at.old("h")))  # as update gate; as reset gate below


def _gate_backward(at: Backward) -> None:
    f, d_reset = at.kept("f"), at.d_kept("reset")
    at.d_net("f", (at.d_kept("f") + d_reset * at.old("h")) * at.s.slope(f))
    at.pass_on("h", at.passed("h") + d_reset * f)


MGU = define(
    "mgu",
    {"f": "W U b", "n": "W U b"},
    "h",
    "Zhou et al. 2016",
    "f = s(Wf x + Uf h' + bf)",
    "n = phi(W x + U (f (.) h') + b)",
    "h = (1 - f) (.) h' + f (.) n",
    step=_step,
    cell=Cell(
        ("f", "n", "reset"),
        (
            Stage((Projection(("f",), "f"),), _gate, _gate_backward),
            Stage((Projection(("n",), "n", source="reset"),), _state, _state_backward),
        ),
    ),
)
