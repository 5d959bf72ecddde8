"""Whether a unit can learn, so that a user's text is refused before training, not after."""

from dataclasses import replace
from functools import cache
from typing import NoReturn

import torch

from seqmodel.unit_setting import SUFFIX
from seqmodel.units.definition import UnitSpec
from seqmodel.units.language import Lines, Weight
from seqmodel.units.module import Unit
from seqmodel.units.specification import by_gate


@cache
def try_unit(
    spec: UnitSpec, gate_activation: str = "sigmoid", activation: str = "tanh", *, bias: bool = True
) -> None:
    """Run the unit over a few random frames, as initialised and then with weights moved.

    Weights can wait for others, as all do behind a V that starts at zero on purpose (ReZero,
    Bachlechner et al. 2020): those with a gradient are moved until each has had one.

    Raises:
        UnitError: if a gradient is not finite initially, or that of a weight stays zero.
    """

    def fail(weight: Weight, message: str) -> NoReturn:
        written, line, column = spec.weights[weight]
        Lines(spec.text, f"{spec.name}{SUFFIX}").fail(line, column, message.format(written))

    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(0)
        full = replace(spec, forms={})  # forms make no gradient zero or infinite
        unit = Unit(
            full, 3, 5, backend="reference", gate_activation=gate_activation,
            activation=activation, bias=bias,
        ).double()  # fmt: skip
        x = 5 * torch.randn(16, 32, 3, dtype=torch.float64)
        pending: list[Weight] | None = None  # all of them
        while pending is None or pending:
            h, _ = unit(x)
            unit.zero_grad()
            (h * torch.randn_like(h)).sum().backward()
            stacked = {term: None if w is None else w.grad for term, w in unit.weights().items()}
            gates, gradients = unit.gates(), by_gate(spec, stacked)
            pairs = {
                weight: (w, gradient)
                for weight in pending or spec.weights
                if (w := gates[weight.gate].get(weight.term)) is not None
                and (gradient := gradients[weight.gate].get(weight.term)) is not None
            }
            for weight, (_, gradient) in pairs.items():
                if pending is None and not torch.isfinite(gradient).all():
                    fail(weight, "the gradient of {} is not finite")
            pending = [weight for weight, (_, gradient) in pairs.items() if not gradient.any()]
            if len(pending) == len(pairs):
                fail(pending[0], "{} has no effect on h: its gradient stays zero")
            with torch.no_grad():
                for w, gradient in pairs.values():
                    w.add_(0.1 * torch.randn_like(w) * gradient.any())
