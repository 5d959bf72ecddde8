"""Weights to and from torch.nn.LSTM and torch.nn.GRU."""

from typing import cast

import torch
from torch import Tensor, nn

from seqmodel.errors import UsageError
from seqmodel.units.module import Stack, Unit
from seqmodel.units.registry import UNITS


def from_torch(module: nn.LSTM | nn.GRU) -> Unit | Stack:
    """An `lstm-nopeephole` or `gru-reset-after` with the weights of a torch.nn.LSTM or GRU.

    Torch's two biases per gate are added into one, except at the GRU's candidate, where the reset
    gate acts between them. UsageError for bidirectional, projected or biasless modules.
    """
    if not isinstance(module, nn.LSTM | nn.GRU):
        kind = type(module).__name__
        raise UsageError(f"only torch.nn.LSTM and torch.nn.GRU can be converted, not {kind}")
    if module.bidirectional or not module.bias or module.proj_size:
        raise UsageError("only unidirectional torch modules with biases can be converted")
    name = "lstm-nopeephole" if isinstance(module, nn.LSTM) else "gru-reset-after"
    layers = []
    for k in range(module.num_layers):
        w, u, b, b_u = (
            cast(Tensor, getattr(module, f"{part}_l{k}"))
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        unit = Unit(name, w.shape[1], module.hidden_size).to(w)
        parts = zip(*(tensor.chunk(len(unit.spec.gates)) for tensor in (w, u, b, b_u)), strict=True)
        for gate, (gate_w, gate_u, gate_b, gate_bu) in zip(_torch_order(unit), parts, strict=True):
            terms = unit.gates()[gate]
            inner = terms.get("bU")
            _copy(terms["W"], gate_w)
            _copy(terms["U"], gate_u)
            _copy(terms["b"], gate_b if inner is not None else gate_b + gate_bu)
            _copy(inner, gate_bu)
        layers.append(unit)
    return layers[0] if len(layers) == 1 else Stack(layers, module.dropout)


def to_torch(unit: Unit | Stack) -> nn.LSTM | nn.GRU:
    """The torch.nn.LSTM or GRU that computes the same as this unit; the inverse of `from_torch`.

    UsageError unless the unit is `lstm-nopeephole` or `gru-reset-after` with biases and the default
    activations.
    """
    layers = unit.units() if isinstance(unit, Stack) else [unit]
    first = layers[0]
    known = {UNITS["lstm-nopeephole"]: nn.LSTM, UNITS["gru-reset-after"]: nn.GRU}
    kind = known.get(first.spec)
    plain = first.bias and (first.gate_activation, first.activation) == ("sigmoid", "tanh")
    if kind is None or not plain:
        raise UsageError(f"torch.nn has no layer that computes this {first.spec.name}")
    dropout = unit.dropout.p if isinstance(unit, Stack) else 0.0
    module: nn.LSTM | nn.GRU = kind(
        first.input_size, first.hidden_size, len(layers), dropout=dropout
    )
    module = module.to(first.W)
    for k, layer in enumerate(layers):
        gates = [layer.gates()[gate] for gate in _torch_order(layer)]
        for part, term in (("weight_ih", "W"), ("weight_hh", "U"), ("bias_ih", "b")):
            _copy(
                getattr(module, f"{part}_l{k}"), torch.cat([cast(Tensor, g[term]) for g in gates])
            )
        zero = layer.W.new_zeros(layer.hidden_size)
        inner = [g.get("bU") for g in gates]
        _copy(
            getattr(module, f"bias_hh_l{k}"), torch.cat([zero if b is None else b for b in inner])
        )
    return module


def _torch_order(unit: Unit) -> tuple[str, ...]:
    return ("i", "f", "c", "o") if "c" in unit.spec.state else ("r", "z", "n")


def _copy(target: Tensor | None, source: Tensor) -> None:
    if target is not None:
        with torch.no_grad():
            target.copy_(source)
