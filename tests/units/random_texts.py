"""Texts of units drawn from the grammar: several states, any slot multiplied, every function."""

from itertools import count
from random import Random

from seqmodel.units.definition import define
from seqmodel.units.language import UnitError

MIXED = (
    "q = s({gate})\n{name} = q (.) {name}' + (1 - q) (.) phi({value})",
    "q = s({gate})\n{name} = {name}' / (1 + q) + q (.) phi({value})",
    "{name} = phi({value} + {name}')",
    "{name} = {other}'",  # a delay, whose gradient is another state's as it is
    "{name} = {other}' + phi({value})",
)
EXPRESSIONS = (  # with places for further ones
    "{0} + {1}", "{0} + {1} + {2}", "{0} - ({1})", "({0}) (.) s({1})", "{U} s({0})",
    "s({0}) / (1.5 + softplus({1}))", "{U} ({0})", "phi({0})", "tanh(relu({0}))",
    "exp(-softplus({0}))", "sigmoid({0}) * {old}", "sqrt(1 + softplus({0}))", "norm({0})",
    "tanh({0}) - mean({1})", "mean({0}) (.) s({1})", "{U} ({old} - mean({old}))", "max({0}, {1})",
    "min({0}, {1})", "tanh({0})^3", "where({old} < {0}, {1}, {2})",
    "where({0} > 0.1, {known}, mean({old}))",
)  # fmt: skip
LEAVES = (
    "{W} x", "{W} x + {U} {old}", "{W} x + {U} {old} + {b}", "{W} x + {V} (.) {old} + {U} {old}",
    "{U} {old} + {bU}", "{V} (.) {old}", "{b}", "{old}", "{known}", "{known}", "0.5",
)  # fmt: skip


def random_text(seed):
    """A text that defines a unit whose values stay bounded over time."""
    draw = Random(seed)
    while True:
        text = _drawn(draw)
        try:
            define(text, "drawn")
        except UnitError:  # no W x, or an equation without effect on h
            continue
        return text


def _drawn(draw):
    states = ["h", *draw.sample(["c", "m"], draw.randint(0, 2))]
    names = [*states[1:], *(f"p{k}" for k in range(draw.randint(0, 3)))]
    draw.shuffle(names)
    weights, known, lines = count(), list[str](), list[str]()

    def expression(depth):
        form = draw.choice(EXPRESSIONS if depth else LEAVES)
        inner = [expression(depth - 1) for _ in range(3)] if depth else []
        places = {term: f"{term}{next(weights)}" for term in ("W", "U", "V", "b", "bU")}
        old = f"{draw.choice(states)}'"
        return form.format(*inner, **places, old=old, known=draw.choice(known or [old]))

    for name in [*names, "h"]:
        value, gate = expression(draw.randint(0, 3)), expression(1)
        mixed = draw.choice(MIXED) if name in states else "{name} = {value}"
        lines.append(
            mixed.replace("q", f"q{name}").format(
                name=name, value=value, gate=gate, other=draw.choice([*states[1:], name])
            )
        )
        known.append(name)
    return "\n".join(lines)
