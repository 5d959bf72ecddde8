"""What outputs are given, and what they tell."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from seqmodel.export.onnx.graph import BOOL, FLOAT, Graph, Symbol
from seqmodel.export.onnx.units import array

COLDEST = 1e-6
"""Temperatures below count as this: the likeliest is drawn."""


class Reading(NamedTuple):
    """What an output is given for each of the rows."""

    h: Symbol
    """(rows, R, H + E)"""
    past: Symbol
    """(rows, C), the numbers before the frame."""
    given: Symbol
    """(rows, F), the frame's numbers where they are known, nan where they are to be drawn."""
    uniforms: Symbol
    """(rows, U), for the draw."""
    temperature: Symbol
    """(), at least `COLDEST`."""
    last: Symbol | None
    """(rows,), whether the row is its frame's last, if a frame has several."""


class Telling(NamedTuple):
    """An output of the graph."""

    value: Symbol
    shape: Sequence[int]
    """Without the rows."""
    kind: int = FLOAT


Told = dict[str, Telling]
"""All that an output tells, by name: "drawn", and the distribution's parameters."""


def linear(g: Graph, layer: nn.Linear, x: Symbol) -> Symbol:
    """A layer's outputs from x (..., H)."""
    product = x @ g.constant(array(layer.weight).T, "weight")
    return product if layer.bias is None else product + array(layer.bias)


def unless_given(g: Graph, drawn: Symbol, given: Symbol) -> Symbol:
    """What was drawn, except where it is given."""
    return g("Where", g("IsNaN", given), drawn, given)


def ending(g: Graph, logits: Symbol, reading: Reading) -> Told:
    """Whether the piece ends with a frame, from logits (rows, 1) and the last of the uniforms."""
    logits = g.reshape(logits, -1)
    ended = g("Less", g.reshape(reading.uniforms[:, -1:], -1), g("Sigmoid", logits))
    if reading.last is not None:
        ended = g("And", ended, reading.last)
    return {"end_logits": Telling(logits, []), "ended": Telling(ended, [], BOOL)}
