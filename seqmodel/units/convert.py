"""Weights to and from torch.nn.LSTM and torch.nn.GRU."""

import torch
from torch import nn

from seqmodel.errors import UsageError
from seqmodel.units import UNITS
from seqmodel.units.module import Layer, Stack, Unit, units_of
from seqmodel.units.torch_nn import flat_weights, reordered

_KINDS: dict[str, type[nn.LSTM | nn.GRU]] = {"lstm-nopeephole": nn.LSTM, "gru-reset-after": nn.GRU}


@torch.no_grad()
def from_torch(module: nn.LSTM | nn.GRU) -> Unit | Stack:
    """An `lstm-nopeephole` or `gru-reset-after` with the weights of a torch.nn.LSTM or GRU.

    Torch's two biases per gate are added together, except at the GRU's candidate, where the reset
    gate acts between them. UsageError for bidirectional, projected or biasless modules.
    """
    name = next((name for name, kind in _KINDS.items() if isinstance(module, kind)), None)
    if name is None:
        kind = type(module).__name__
        raise UsageError(f"only torch.nn.LSTM and torch.nn.GRU can be converted, not {kind}")
    if module.bidirectional or not module.bias or module.proj_size:
        raise UsageError("only unidirectional torch modules with biases can be converted")
    layers = list[Unit]()
    for w, u, b, b_u in module.all_weights:
        layer = Unit(UNITS[name], w.shape[1], module.hidden_size).to(w)
        b_hh, b_rest = layer.weights()["bU"], b_u.clone()
        if b_hh is not None:
            b_hh.copy_(b_u[-len(b_hh) :])
            b_rest[-len(b_hh) :] = 0
        for term, value in (("W", w), ("U", u), ("b", b + b_rest)):
            layer.get_parameter(term).copy_(reordered(layer.spec, value))
        layers.append(layer)
    unit = layers[0] if len(layers) == 1 else Stack(layers, module.dropout)
    unit.batch_first = module.batch_first
    return unit


@torch.no_grad()
def to_torch(unit: Layer | Stack) -> nn.LSTM | nn.GRU:
    """The torch.nn.LSTM or GRU that computes the same as this unit; the inverse of `from_torch`.

    UsageError unless the unit is `lstm-nopeephole` or `gru-reset-after` with biases and the default
    activations.
    """
    layers = units_of(unit)
    first = layers[0]
    plain = first.bias and (first.gate_activation, first.activation) == ("sigmoid", "tanh")
    if first.spec not in map(UNITS.get, _KINDS) or not plain:
        raise UsageError(f"torch.nn has no layer that computes this {first.spec.name}")
    dropout = unit.dropout.p if isinstance(unit, Stack) else 0.0
    kind = _KINDS[first.spec.name]
    options = {"dropout": dropout, "batch_first": unit.batch_first}
    module = kind(first.input_size, first.hidden_size, len(layers), **options).to(first.W)
    for layer, theirs in zip(layers, module.all_weights, strict=True):
        for weight, ours in zip(theirs, flat_weights(layer.spec, layer.weights()), strict=True):
            weight.copy_(ours)
    return module
