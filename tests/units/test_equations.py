"""What units' texts define and compute, those of the papers, and what is said of wrong ones."""

import copy
import pickle
import re

import numpy as np
import pytest
import torch
from drawing import CHOICES, random_state, random_tensor, random_unit, results, weighted_sum

from seqmodel.units import UNITS, make, unit_spec, zoo
from seqmodel.units.definition import define
from seqmodel.units.language import Start, UnitError, Weight
from seqmodel.units.trial import try_unit

TEXT = """\
# Two states, one of them read only by itself.
source: nobody 1999
unit: pair

a = 0.5 * s(Wa x + Ua c') / (1 + softplus(b))  # of the cell
c = (1 - a) ⊙ c′ + a (.) φ(Wc x + U3 (a (.) h') + bU3)
h = -c (.) σ(V (.) c + W x)
V starts at -1.5e0
"""  # noqa: RUF001


def test_what_a_text_defines():
    """Guards against a weight with the wrong gate, and a state that is forgotten."""
    spec = define(TEXT, "file")
    assert (spec.name, spec.source) == ("pair", "nobody 1999")
    assert spec.about == "Two states, one of them read only by itself."
    assert spec.state == ("h", "c")
    assert dict(spec.gates) == {
        "a": ("W", "U", "b"), "c": ("W",), "3": ("U", "bU"), "h": ("W", "V"),
    }  # fmt: skip
    assert dict(spec.starts) == {Weight("V", "h"): Start("uniform", -1.5, -1.5)}
    assert spec.statements == (
        "a = 0.5 * s(Wa x + Ua c') / (1 + softplus(b))",
        "c = (1 - a) (.) c' + a (.) phi(Wc x + U3 (a (.) h') + bU3)",
        "h = -c (.) s(V (.) c + W x)",
        "V starts at -1.5e0",
    )
    assert spec.parameter_count(3, 5) == 3 * 15 + 2 * 25 + 3 * 5
    assert spec.parameter_count(3, 5, bias=False) == 3 * 15 + 2 * 25 + 5


@pytest.mark.parametrize(
    ("text", "message", "below"),
    [
        ("h = phi(W x + U h + b)", "h is not defined yet; h' is that of the previous step", "U ^"),
        ("a = W x\nh = a + q", "q is not defined yet, only a", "a + ^"),
        ("h = phi(W x", "expected an operator or ), not the end of the line", "W x^"),
        ("h = W x + U h' b", "expected an operator or the end of the line, not 'b'", "h' ^"),
        ("h = phi W x", "expected ( after phi, not 'W'", "phi ^"),
        ("h = U x", "expected a state after U, not 'x': a matrix that multiplies x is a W", "U ^"),
        ("h = W x + U (1 + 1)", "U needs a vector to multiply, not a number", "+ ^"),
        ("h = 2 h' + W x", "expected an operator or the end of the line, not 'h': a prod", "= 2 ^"),
        ("h = W x + x", "x has as many numbers as a frame: project it, as in W x", "+ ^"),
        ("h = W x\nh = W1 x", "h has two equations", "^"),
        ("s = W x", "s cannot be defined: x, s, phi, tanh, sigmoid, relu", "^"),
        ("W x", "expected an equation, such as h = phi(W x + U h' + b)", "W ^"),
        ("h = W x + q'", "q' is the previous q, which has no equation", "+ ^"),
        ("a = Wz x\nz = Wz x", "Wz stands in line 1 already: give it an index of its own", "= ^"),
        ("h = W x\nz = s(W2 x)", "z has no effect on h", "^"),
        ("h = phi(h')", "h does not depend on x: some equation needs a W x", "^"),
        ("h = W x + b\nh starts at 0.5", "expected b before 'starts at', not 'h': a state", "^"),
        ("h = max(W x)", "expected an operator or a comma, not ')'", "x^"),
        ("h = where(W x, b, 0)", "expected an operator or < or >, not ','", "x^"),
        ("h = W x > b", "expected an operator or the end of the line, not '>': a choice is", "x ^"),
        ("h = W x + U mean(h')", "U needs a vector to multiply, not a number", "+ ^"),
        ("h = W x - var(h')", "var is not a function: over the H numbers there are mean(a)", "- ^"),
        ("h = W x + h'^1", "expected a power from 2 to 9, not '1'", "^"),
        ("h = W x + h' ** 2", "unexpected '*': the square of a is a^2, its root sqrt(a)", "*^"),
        ("h = W x if b", "expected an operator or the end of the line, not 'if': a choice", "x ^"),
        ("h = U [x, h']", "unexpected '[': the previous h is h', and products are added", "U ^"),
        ("h = W x + sin(W1 x)", "sin is not a function: there are s, phi, tanh, sigmoid", "+ ^"),
        ("h = W x + b\nb starts at logspace(0, 1)", "logspace goes between two numbers", "at ^"),
        ("h = W x + b\nb starts at uniform(1e999, 2)", "too large a number to start at", "at ^"),
        ("h = W x + b\nb starts at 1\nb starts at 2", "b starts twice", "^"),
        ("z = W x + b\nh = z + b\nb starts at 1", "b stands in several equations: say bz", "^"),
        ("h = W x + U h'\nU has rank 0", "expected rank 16, as in U has rank 16", "has ^"),
        ("h = W x + U h'\nU has rank 1\nU has 2 heads", "U has two forms", "^"),
        ("unit: a\nunit: b\nh = W x", "unit is given twice", "^"),
        ("h = " + "(" * 9999 + "W x", "too long: give a part of it a name", "((^"),
        ("\n".join(f"p{k} = {k}" for k in range(200)) + "\nh = W x", "p0 has no effect on h", "^"),
        (
            "h0 = W x\n" + "\n".join(f"h{k + 1} = {'norm(' * 60}h{k}{')' * 60}" for k in range(9)),
            "more than 256 equations, with the parts of norm, max and powers",
            "^",
        ),
    ],
)
def test_a_mistake_is_shown_where_it_is(text, message, below):
    """Guards against a traceback, and a caret under another place than the message is about."""
    with pytest.raises(UnitError) as caught:
        define(text, "mine")
    said, (shown, caret) = str(caught.value), caught.value.shown
    file, line, rest = said.split(":", 2)
    assert (file, rest.strip()[: len(message)]) == ("mine.unit", message)
    assert shown.strip() in text.splitlines()[int(line) - 1]
    column = caret.index("^")
    assert caret == " " * column + "^"
    before = below.partition("^")[0]
    assert (shown[:column] + "^").endswith(f"{before}^")
    assert len(said) < 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "mine.unit: no equation defines h, the output, such as h = phi(W x)"),
        ("c = W x", "mine.unit: no equation defines h, the output, such as h = phi(W x)"),
        ("unit: a/b\nh = W x", "a/b.unit: 'a/b' cannot name a unit: use a to z, digits, . - "),
    ],
)
def test_a_text_without_a_place_to_show(text, message):
    with pytest.raises(UnitError) as caught:
        define(text, "mine")
    assert str(caught.value).startswith(message)
    assert caught.value.shown == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h = W x + 0 (.) U h'", "mine.unit:1: U has no effect on h: its gradient stays zero"),
        ("z = relu(-exp(W x))\nh = W x + z", "mine.unit:1: W has no effect on h"),
        ("c = c' (.) s(Wc x)\nh = s(W x) (.) c", "mine.unit:1: Wc has no effect on h"),
        ("h = h' + V1 (.) V2 (.) phi(W x)", "mine.unit:1: V1 has no effect on h"),
        ("c = s(Wc x)\nh = W x / c'", "mine.unit:2: the gradient of W is not finite"),
        ("h = W x / 0", "mine.unit:1: the gradient of W is not finite"),
        ("h = exp(exp(exp(exp(9 * W x))))", "mine.unit:1: the gradient of W is not finite"),
    ],
)
def test_a_unit_that_cannot_learn_is_refused(text, message):
    """Guards against hours of training that move nothing."""
    with pytest.raises(UnitError, match=f"^{message}") as caught:
        try_unit(define(text, "mine"))
    shown, caret = caught.value.shown
    weight = re.search(r"(\w+) (has no|is not)", message)[1]
    assert re.match(rf"{weight}\b", shown[caret.index("^") :])


def test_units_that_can_learn_are_not_refused():
    """Guards against a trial whose inputs leave a unit unmoved that others would move."""
    for spec in (*UNITS.values(), *zoo().values()):
        try_unit(spec)
        assert spec.source
    zero_on_purpose = "h = 0.9 * h' + V (.) tanh(W x + U h' + b)", "h = V (.) (V1 (.) W x + Wa x)"
    for text in (*zero_on_purpose, "h = relu(W x + U h' - 3)", "h = exp(W x - 9)"):
        try_unit(define(text, "mine"))


def test_names_of_later_functions_are_names_in_older_texts():
    spec = define("norm = s(W x)\nmean = norm (.) mean' + norm(norm)\nh = max(mean, norm)", "old")
    assert spec.state == ("h", "mean")
    assert [e.name for e in spec.equations] == ["norm", "mean.1", "mean", "h"]


def test_there_is_one_unit_of_each_text():
    """Guards against a unit that is compiled again for each copy of a model."""
    spec = unit_spec(TEXT)
    assert spec is unit_spec(TEXT) is copy.deepcopy(spec)
    assert pickle.loads(pickle.dumps(spec)) is spec  # noqa: S301
    assert unit_spec(TEXT.replace("0.5", "0.4")) is not spec


def test_vectors_start_at_a_number_or_between_two():
    """Decays of all lengths: against numpy.geomspace; a draw is new for each seed."""
    text = """h = Va (.) h' + W x + b
Va starts at logspace(0.9, 0.999)  # decays
b starts at uniform( -2, 1e-1 )"""
    torch.manual_seed(1)
    unit, again = (make(text, 3, 400) for _ in range(2))
    np.testing.assert_allclose(unit.V[0].detach(), np.geomspace(0.9, 0.999, 400), rtol=1e-6)
    drawn = unit.b.detach()
    assert -2 <= drawn.min() < -1.9
    assert 0 < drawn.max() <= 0.1
    assert abs(drawn.mean() + 0.95) < 0.2
    assert not torch.equal(drawn, again.b)
    assert define(text, "u").starts[Weight("b", "h")].text() == "uniform(-2, 0.1)"


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
