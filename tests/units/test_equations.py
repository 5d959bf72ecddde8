"""The specification computes what the units' texts say, and the texts are those of the papers."""

import re

import numpy as np
import pytest
import torch
from drawing import CHOICES, random_state, random_tensor, random_unit, results, weighted_sum

from seqmodel.units import UNITS, make, zoo


def sigmoid(a):
    return 0.5 * (1.0 + np.tanh(0.5 * a))


def relu(a):
    return np.maximum(a, 0.0)


def norm(a):
    return (a - a.mean()) / np.sqrt(a.var() + 1e-5)


GATE_ACTIVATIONS = {"sigmoid": sigmoid, "hard-sigmoid": lambda a: np.clip(a / 6 + 0.5, 0, 1)}
ACTIVATIONS = {"tanh": np.tanh, "sigmoid": sigmoid, "relu": relu}
# float32 rounds each of a few dozen sums per step by 6e-8, and a step's error feeds the next.
BOUND = {torch.float64: 1e-10, torch.float32: 1e-5}

GATE = "{0} = s(W{0} x + U{0} h' + b{0})"
PEEPHOLE = "{0} = s(W{0} x + U{0} h' + V{0} (.) {1} + b{0})"
NEW = "n = phi(W x + U ({0} (.) h') + b)\nh = (1 - {1}) (.) h' + {1} (.) n"
CELL = "g = phi(Wc x + Uc h' + bc)\nc = f (.) c' + i (.) g\n{0}\nh = o (.) phi(c)\nbf starts at 1"
DESIGN = {
    "tanh": "h = phi(W x + U h' + b)",
    "lstm": f"{PEEPHOLE.format('i', 'c' + chr(39))}\n{PEEPHOLE.format('f', 'c' + chr(39))}\n"
    + CELL.format(PEEPHOLE.format("o", "c")),
    "lstm-nopeephole": f"{GATE.format('i')}\n{GATE.format('f')}\n{CELL.format(GATE.format('o'))}",
    "gru": f"{GATE.format('z')}\n{GATE.format('r')}\n{NEW.format('r', 'z')}",
    "gru1": f"z = s(Uz h' + bz)\nr = s(Ur h' + br)\n{NEW.format('r', 'z')}",
    "gru2": f"z = s(Uz h')\nr = s(Ur h')\n{NEW.format('r', 'z')}",
    "gru3": f"z = s(bz)\nr = s(br)\n{NEW.format('r', 'z')}",
    "mgu": f"{GATE.format('f')}\n{NEW.format('f', 'f')}",
    "gru-reset-after": f"{GATE.format('z')}\n{GATE.format('r')}\n"
    "n = phi(W x + b + r (.) (U h' + bU))\nh = z (.) h' + (1 - z) (.) n",
}


def test_the_units_are_those_of_the_papers():
    """Guards against a text that is changed: weights of runs would mean something else."""
    assert {known: "\n".join(spec.statements) for known, spec in UNITS.items()} == DESIGN


def assert_as_written(unit, x, bound):
    """The specification against the equations, as they are written, run by Python."""
    start, spec = random_state(unit, x.shape[1]), unit.spec
    names = {"tanh": np.tanh, "relu": relu, "exp": np.exp, "sigmoid": sigmoid}
    names |= {"sqrt": np.sqrt, "max": np.maximum, "min": np.minimum, "where": np.where}
    names |= {"mean": np.mean, "norm": norm}
    names |= {"s": GATE_ACTIVATIONS[unit.gate_activation], "phi": ACTIVATIONS[unit.activation]}
    weights = {}
    for gate, terms in unit.gates().items():
        there = {term: 0.0 for term in spec.gates[gate] if term in ("b", "bU")}
        there |= {term: t.detach().numpy() for term, t in terms.items() if t is not None}
        weights[gate] = there
        names |= {f"{term}{gate}": weight for term, weight in there.items()}
    h, final = unit(x, start)
    for row in range(x.shape[1]):
        state = [part[row].numpy() for part in start]
        for frame, output in zip(x[:, row].numpy(), h[:, row], strict=True):
            names |= {"x": frame} | {f"{s}_": v for s, v in zip(spec.state, state, strict=True)}
            for equation in spec.equations:
                target, formula = (
                    equation.written.replace("(.)", "*").replace("'", "_").split(" = ")
                )
                formula = re.sub(r"\b([WU]\w*) (?=[\w(])", r"\1 @ ", formula).replace("^", "**")
                names[target] = eval(formula, names | weights.get(target, {}))
            state = [names[part] for part in spec.state]
            np.testing.assert_allclose(output.detach().numpy(), state[0], rtol=bound, atol=bound)
        for ours, theirs in zip(final, state, strict=True):
            np.testing.assert_allclose(ours[row].detach().numpy(), theirs, rtol=bound, atol=bound)


CHOOSING = """m = mean(W1 x + U1 h')
c = max(W2 x, c') - min(b + c', m) / sqrt(1 + h' (.) h')
h = where(norm(c) < V (.) c^3, tanh(U4 c^2 - (W4 x)^2), where(h' > 0, norm(W3 x + b3), 0.5))"""


@pytest.mark.parametrize("known", [*UNITS, *zoo(), CHOOSING])
def test_each_text_is_what_is_computed(known):
    """Guards against a text that is read otherwise than it is written."""
    unit = random_unit(known, 2, 3, backend="reference")
    assert_as_written(unit, random_tensor(5, 2, 2), 1e-12)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_low_rank_and_heads_are_products_of_their_parts(backend):
    """Factors that are transposed, blocks in the wrong place, a gradient outside of them."""
    text = "a = s(Wa x + Ua h')\nh = a (.) h' + phi(W x + U (a (.) h') + Ub a)\n"
    unit = random_unit(f"{text}Ua has rank 2\nU has 3 heads", 3, 7, backend=backend)
    assert unit.parameter_count() == 2 * 21 + 2 * 14 + (9 + 4 + 4) + 49
    assert unit.parameter_count() == sum(weight.numel() for weight in unit.parameters())
    x, state = random_tensor(6, 2, 3), random_state(unit, 2)
    W, U = unit.W.detach().requires_grad_(), unit.U.detach().requires_grad_()
    down, up = U[14:28].view(2, 7), U[:14].view(7, 2)
    blocks, whole = [U[28:37].view(3, 3), U[37:41].view(2, 2), U[41:45].view(2, 2)], U[45:]
    outputs, h = [], state.h
    for frame in x:
        a = torch.sigmoid(frame @ W[:7].T + (h @ down.T) @ up.T)
        parts = zip((a * h).split([3, 2, 2], 1), blocks, strict=True)
        read = torch.cat([part @ block.T for part, block in parts], 1) + a @ whole.view(7, 7).T
        h = a * h + torch.tanh(frame @ W[7:].T + read)
        outputs.append(h)
    found, right = weighted_sum(*unit(x, state)), weighted_sum(torch.stack(outputs), (h,))
    torch.testing.assert_close(found, right, rtol=1e-12, atol=0)
    found.backward()
    slopes = torch.autograd.grad(right, [W, U])
    torch.testing.assert_close((unit.W.grad, unit.U.grad), slopes, rtol=0, atol=1e-11)
    fresh = make(f"{text}Ua has rank 2\nU has 3 heads", 3, 7).gates()
    low, (block, *_) = fresh["a"]["U"], fresh["h"]["U"].split([3, 4])
    lengths = torch.tensor([1.0, 1, 0, 0, 0, 0, 0])
    torch.testing.assert_close(torch.linalg.svdvals(low), lengths, rtol=0, atol=1e-5)
    torch.testing.assert_close(block @ block.T, torch.eye(3), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("gate_activation", "activation", "bias", "dtype"), CHOICES)
@pytest.mark.parametrize("known", ["lstm", "gru-reset-after"])
def test_every_activation_with_and_without_bias(known, gate_activation, activation, bias, dtype):
    """Guards against an activation hard-wired in a gate, and exp overflowing, also in a slope."""
    options = {"gate_activation": gate_activation, "activation": activation, "bias": bias}
    unit = random_unit(known, 2, 5, dtype=dtype, backend="reference", **options)
    assert_as_written(unit, random_tensor(9, 3, 2, dtype=dtype), BOUND[dtype])
    saturating = 1e4 * random_tensor(6, 3, 2, dtype=dtype).sign()
    # Where a gate lets 1e4 through, its own slope can magnify float32's rounding.
    assert_as_written(unit, saturating, 1e-3)
    assert all(found.isfinite().all() for found in results(unit, saturating).values())
