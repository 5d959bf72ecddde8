"""A tenth unit, written the way a contributor would; seqmodel/units/README.md explains it.

An LSTM whose forget gate is 1 - i (the coupled gates of Greff et al. 2015), with peepholes.
"""

from seqmodel.units.cells import Backward, Cell, Forward, Projection, Stage
from seqmodel.units.definition import Function, NetInput, State, define


def _step(a: NetInput, state: State, s: Function, phi: Function) -> State:
    h, c = state
    i = s(a("i", h, c))
    g = phi(a("c", h))
    c = c + i * (g - c)
    o = s(a("o", h, c))
    return o * phi(c), c


def _forward(at: Forward) -> None:
    c_old = at.old("c")
    i, g = at.s(at.net("i", c_old)), at.phi(at.net("c"))
    at.keep("i", i)
    at.keep("c", g)
    c = c_old + i * (g - c_old)
    at.new("c", c)
    o = at.s(at.net("o", c))
    at.keep("o", o)
    at.new("h", o * at.phi(c))


def _backward(at: Backward) -> None:
    i, g, o = (at.kept(gate) for gate in ("i", "c", "o"))
    c_old, c, d_h = at.old("c"), at.now("c"), at.d_now("h")
    y = at.phi(c)
    d_c = at.d_now("c") + d_h * o * at.phi.slope(y)
    d_c = d_c + at.d_net("o", d_h * y * at.s.slope(o), c)
    at.d_net("c", d_c * i * at.phi.slope(g))
    peephole = at.d_net("i", d_c * (g - c_old) * at.s.slope(i), c_old)
    at.pass_on("c", d_c * (1.0 - i) + peephole)


LSTM_COUPLED = define(
    "lstm-coupled",
    {"i": "W U V b", "c": "W U b", "o": "W U V b"},
    "h c",
    "Greff et al. 2015, coupled gates",
    "i = s(Wi x + Ui h' + Vi (.) c' + bi)",
    "g = phi(Wc x + Uc h' + bc)",
    "c = (1 - i) (.) c' + i (.) g",
    "o = s(Wo x + Uo h' + Vo (.) c + bo)",
    "h = o (.) phi(c)",
    step=_step,
    cell=Cell(
        ("i", "c", "o"),
        (Stage((Projection(("i", "c", "o"), "i"),), _forward, _backward),),
    ),
)
