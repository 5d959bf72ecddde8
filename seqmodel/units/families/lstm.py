"""Long short-term memory: with peepholes, and as torch.nn.LSTM computes it, without."""

from seqmodel.units.cells import Backward, Cell, Forward, Projection, Stage
from seqmodel.units.definition import CHUNG, Function, NetInput, State, define


def _step(a: NetInput, state: State, s: Function, phi: Function) -> State:
    h, c = state
    i = s(a("i", h, c))
    f = s(a("f", h, c))
    g = phi(a("c", h))
    c = f * c + i * g
    o = s(a("o", h, c))  # the peephole of the output gate sees the new c
    return o * phi(c), c


def _new_cell(at: Forward) -> None:
    c_old = at.old("c")
    i = at.s(at.net("i", c_old))
    f = at.s(at.net("f", c_old))
    g = at.phi(at.net("c"))
    for slot, value in (("i", i), ("f", f), ("c", g)):
        at.keep(slot, value)
    at.new("c", f * c_old + i * g)


def _output(at: Forward) -> None:
    c = at.now("c")
    o = at.s(at.net("o", c))  # the peephole of the output gate sees the new c
    at.keep("o", o)
    at.new("h", o * at.phi(c))


def _backward(at: Backward) -> None:
    i, f, g, o = (at.kept(slot) for slot in ("i", "f", "c", "o"))
    c_old, c = at.old("c"), at.now("c")
    y = at.phi(c)
    d_h = at.d_now("h")
    d_c = at.d_now("c") + d_h * o * at.phi.slope(y)
    d_c = d_c + at.d_net("o", d_h * y * at.s.slope(o), c)
    at.d_net("c", d_c * i * at.phi.slope(g))
    peepholes = at.d_net("i", d_c * g * at.s.slope(i), c_old)
    peepholes = peepholes + at.d_net("f", d_c * c_old * at.s.slope(f), c_old)
    at.pass_on("c", d_c * f + peepholes)


def _nothing(at: Backward) -> None:
    """The output stage's backward pass is part of `_backward`."""


_CELL = Cell(
    ("i", "f", "c", "o"),
    # Two stages: this halves each column's dependency chain, so that out-of-order execution can
    # overlap it with the next columns.
    (
        Stage((Projection(("i", "f", "c", "o"), "i"),), _new_cell, _backward),
        Stage((), _output, _nothing),
    ),
)

LSTM = define(
    "lstm",
    {"i": "W U V b", "f": "W U V b", "c": "W U b", "o": "W U V b"},
    "h c",
    f"{CHUNG}; Graves 2013",
    "i = s(Wi x + Ui h' + Vi (.) c' + bi)",
    "f = s(Wf x + Uf h' + Vf (.) c' + bf)",
    "g = phi(Wc x + Uc h' + bc)",
    "c = f (.) c' + i (.) g",
    "o = s(Wo x + Uo h' + Vo (.) c + bo)",
    "h = o (.) phi(c)",
    step=_step,
    cell=_CELL,
)

LSTM_NOPEEPHOLE = define(
    "lstm-nopeephole",
    {"i": "W U b", "f": "W U b", "c": "W U b", "o": "W U b"},
    "h c",
    "as torch.nn.LSTM",
    "i = s(Wi x + Ui h' + bi)",
    "f = s(Wf x + Uf h' + bf)",
    "g = phi(Wc x + Uc h' + bc)",
    "c = f (.) c' + i (.) g",
    "o = s(Wo x + Uo h' + bo)",
    "h = o (.) phi(c)",
    step=_step,
    cell=_CELL,
)
