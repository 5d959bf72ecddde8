"""The GRU that torch.nn.GRU computes: the reset acts after the matrix, z weights the old state."""

from seqmodel.units.cells import Backward, Cell, Forward, Projection, Stage
from seqmodel.units.definition import Function, NetInput, State, define


def _step(a: NetInput, state: State, s: Function, phi: Function) -> State:
    (h,) = state
    z = s(a("z", h))
    r = s(a("r", h))
    n = phi(a.reset_after("n", h, r))
    return (z * h + (1 - z) * n,)


def _forward(at: Forward) -> None:
    h, z, r = at.old("h"), at.s(at.net("z")), at.s(at.net("r"))
    inner = at.kept("inner") + at.second_bias("n")
    n = at.phi(at.net("n") + r * inner)
    for slot, value in (("z", z), ("r", r), ("n", n), ("inner", inner)):
        at.keep(slot, value)
    at.new("h", n + z * (h - n))


def _backward(at: Backward) -> None:
    z, r, n, inner = (at.kept(slot) for slot in ("z", "r", "n", "inner"))
    d_h = at.d_now("h")
    d_n = d_h * (1.0 - z) * at.phi.slope(n)
    at.d_net("n", d_n)
    at.d_net("z", d_h * (at.old("h") - n) * at.s.slope(z))
    at.d_net("r", d_n * inner * at.s.slope(r))
    at.d_slot("inner", d_n * r)
    at.d_second_bias("n", d_n * r)
    at.pass_on("h", d_h * z)


GRU_RESET_AFTER = define(
    "gru-reset-after",
    {"z": "W U b", "r": "W U b", "n": "W U b bU"},
    "h",
    "as torch.nn.GRU",
    "z = s(Wz x + Uz h' + bz)",
    "r = s(Wr x + Ur h' + br)",
    "n = phi(W x + b + r (.) (U h' + bU))",
    "h = z (.) h' + (1 - z) (.) n",
    step=_step,
    cell=Cell(
        ("z", "r", "n", "inner"),
        (Stage((Projection(("z", "r"), "z"), Projection(("n",), "inner")), _forward, _backward),),
    ),
)
