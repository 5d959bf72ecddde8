"""Every unit again, in NumPy float64, from the design's equations alone, row by row, step by step.

Nothing here depends on seqmodel: weights come as `gates()` returns them, each unit is written out
with the terms that the design gives it, and a missing term is an error, except for biases, which
can be turned off.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace

import numpy as np

Array = np.ndarray
Activation = Callable[[Array], Array]


def sigmoid(a: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * a))


def hard_sigmoid(a: Array) -> Array:
    return np.clip(a / 6.0 + 0.5, 0.0, 1.0)


def relu(a: Array) -> Array:
    return np.maximum(a, 0.0)


GATE_ACTIVATIONS: Mapping[str, Activation] = {"sigmoid": sigmoid, "hard-sigmoid": hard_sigmoid}
ACTIVATIONS: Mapping[str, Activation] = {"tanh": np.tanh, "sigmoid": sigmoid, "relu": relu}


def tanh_step(w, x, h, s, phi):
    return (phi(w.h.W @ x + w.h.U @ h + w.h.b),)


def lstm_step(w, x, h, c, s, phi):
    i = s(w.i.W @ x + w.i.U @ h + w.i.V * c + w.i.b)
    f = s(w.f.W @ x + w.f.U @ h + w.f.V * c + w.f.b)
    g = phi(w.c.W @ x + w.c.U @ h + w.c.b)
    new_c = f * c + i * g
    o = s(w.o.W @ x + w.o.U @ h + w.o.V * new_c + w.o.b)
    return o * phi(new_c), new_c


def gru_step(w, x, h, s, phi):
    z = s(w.z.W @ x + w.z.U @ h + w.z.b)
    r = s(w.r.W @ x + w.r.U @ h + w.r.b)
    n = phi(w.n.W @ x + w.n.U @ (r * h) + w.n.b)
    return ((1.0 - z) * h + z * n,)


def gru1_step(w, x, h, s, phi):
    z = s(w.z.U @ h + w.z.b)
    r = s(w.r.U @ h + w.r.b)
    n = phi(w.n.W @ x + w.n.U @ (r * h) + w.n.b)
    return ((1.0 - z) * h + z * n,)


def gru2_step(w, x, h, s, phi):
    z = s(w.z.U @ h)
    r = s(w.r.U @ h)
    n = phi(w.n.W @ x + w.n.U @ (r * h) + w.n.b)
    return ((1.0 - z) * h + z * n,)


def gru3_step(w, x, h, s, phi):
    z = s(0.0 * h + w.z.b)
    r = s(0.0 * h + w.r.b)
    n = phi(w.n.W @ x + w.n.U @ (r * h) + w.n.b)
    return ((1.0 - z) * h + z * n,)


def mgu_step(w, x, h, s, phi):
    f = s(w.f.W @ x + w.f.U @ h + w.f.b)
    n = phi(w.n.W @ x + w.n.U @ (f * h) + w.n.b)
    return ((1.0 - f) * h + f * n,)


def lstm_nopeephole_step(w, x, h, c, s, phi):
    i = s(w.i.W @ x + w.i.U @ h + w.i.b)
    f = s(w.f.W @ x + w.f.U @ h + w.f.b)
    o = s(w.o.W @ x + w.o.U @ h + w.o.b)
    new_c = f * c + i * phi(w.c.W @ x + w.c.U @ h + w.c.b)
    return o * phi(new_c), new_c


def gru_reset_after_step(w, x, h, s, phi):
    z = s(w.z.W @ x + w.z.U @ h + w.z.b)
    r = s(w.r.W @ x + w.r.U @ h + w.r.b)
    n = phi(w.n.W @ x + w.n.b + r * (w.n.U @ h + w.n.bU))
    return ((1.0 - z) * n + z * h,)


STEPS: Mapping[str, Callable[..., tuple[Array, ...]]] = {
    "tanh": tanh_step,
    "lstm": lstm_step,
    "gru": gru_step,
    "gru1": gru1_step,
    "gru2": gru2_step,
    "gru3": gru3_step,
    "mgu": mgu_step,
    "lstm-nopeephole": lstm_nopeephole_step,
    "gru-reset-after": gru_reset_after_step,
}


def weights_of(gates) -> SimpleNamespace:
    """gates() as w.i.W and so on, in float64; a bias that is turned off is 0."""

    def array(term, value):
        if value is None:
            return 0.0 if term in ("b", "bU") else None
        return value.detach().double().numpy()

    return SimpleNamespace(
        **{
            gate: SimpleNamespace(**{term: array(term, value) for term, value in terms.items()})
            for gate, terms in gates.items()
        }
    )


def recompute(
    name: str, gates, x: Array, state, gate_activation: str, activation: str
) -> tuple[Array, list[Array]]:
    """The output h (T, B, H) over x (T, B, I), and the final state, each tensor (B, H)."""
    w = weights_of(gates)
    s, phi = GATE_ACTIVATIONS[gate_activation], ACTIVATIONS[activation]
    outputs, finals = [], []
    for row in range(x.shape[1]):
        row_state = tuple(np.asarray(tensor, np.float64)[row] for tensor in state)
        hs = []
        for t in range(x.shape[0]):
            row_state = STEPS[name](w, x[t, row].astype(np.float64), *row_state, s, phi)
            hs.append(row_state[0])
        outputs.append(np.stack(hs))
        finals.append(row_state)
    return np.stack(outputs, axis=1), [np.stack(rows) for rows in zip(*finals, strict=True)]
