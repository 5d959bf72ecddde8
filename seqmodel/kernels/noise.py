"""Compiled random numbers for whole tensors: normals, and dropout factors.

Torch's generator is sequential and takes a large part of a small model's training step. Here 16
generators run in the lanes of a vector: SFC32 (Doty-Humphrey, PractRand), seeded from torch's
generator. Torch's seed thus determines every draw, for any number of threads and any vector width.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, Emitter
from seqmodel.kernels.code.jit import Library, compiled_once, function
from seqmodel.kernels.code.vectors import Vector, polynomial
from seqmodel.kernels.run import memory

_LANES = 16
_STATE = 4  # words in a generator's state: three that are mixed, and a counter
_PAIR = 2 * _LANES  # numbers written per iteration
_SIGN = 1 << 31
_EIGHTH_TURN = float(np.pi / 4)


def normals(count: int) -> Tensor:
    """Independent standard normals (count,), float32."""
    return _draw(_write_normals, count)


def dropout_factors(count: int, keep_count: int) -> Tensor:
    """2^16 / kept with probability kept / 2^16, else 0; (count,) float32."""
    return _draw(_write_factors, count, keep_count)


def _draw(write: Callable[..., None], count: int, keep_count: int = 0) -> Tensor:
    states = torch.empty(_STATE, _LANES, dtype=torch.int32).random_(-_SIGN, _SIGN)
    out = memory.buffer(torch.float32, -(-count // _PAIR) * _PAIR)
    _drawing(write)(states.data_ptr(), out.data_ptr(), len(out), keep_count)
    return out[:count]


@compiled_once
def _drawing(write: Callable[..., None]) -> Callable[..., None]:
    """draws(states, out, count, kept), called without the checks of a job, which take longer."""
    module, kinds = ir.Module("draws"), [POINTER, POINTER, INT, INT]
    with function(module, "draws", kinds, 4) as (e, *arguments):
        write(_Lanes(e.builder), *arguments)
    return Library(module).function("draws", kinds)


class _Lanes(Emitter):
    """An emitter of 16-lane vectors, which LLVM splits if registers are narrower."""

    def __init__(self, builder: Any) -> None:
        super().__init__(builder, 4, _LANES)

    def uniform(self, words: Any, bits: int) -> Vector:
        """Numbers in (0, 1] from words below 2^bits."""
        return (Vector(self, self.builder.uitofp(words, self.vector)) + 0.5) * 2.0**-bits

    def load_states(self, states: Any) -> list[Any]:
        """The generators' states, to be carried through a loop."""
        addresses = [self.offset(states, k * _LANES) for k in range(_STATE)]
        return [self.builder.load(place, align=4, typ=self.integers) for place in addresses]

    def draw(self, state: list[Any]) -> Any:
        """The generators' next 32 bits; advances `state`."""
        b, bits = self.builder, self.integer
        x, y, z, counter = state
        drawn = b.add(b.add(x, y), counter)
        rotated = b.or_(b.shl(z, bits(21)), b.lshr(z, bits(11)))
        state[:] = [
            b.xor(y, b.lshr(y, bits(9))),
            b.add(z, b.shl(z, bits(3))),
            b.add(rotated, drawn),
            b.add(counter, bits(1)),
        ]
        return drawn


def _write_normals(e: _Lanes, states: Any, out: Any, count: Any, _: Any) -> None:
    """Box-Muller: a point on a circle of radius sqrt(-2 log u) has two normal coordinates."""
    b = e.builder
    sine = polynomial(lambda q: np.sin(_EIGHTH_TURN * np.sqrt(q)) / np.sqrt(q), 0.0, 1.0, 3)
    cosine = polynomial(lambda q: np.cos(_EIGHTH_TURN * np.sqrt(q)), 0.0, 1.0, 3)
    with e.carrying(0, count, _PAIR, e.load_states(states)) as (i, state):
        radius = (e.uniform(e.draw(state), 32).log() * -2.0).sqrt()
        # 29 bits give the angle within an octant, three more the octant.
        word = e.draw(state)
        angle = e.uniform(b.and_(word, e.integer((1 << 29) - 1)), 29)
        square = angle * angle
        s, c = angle * _series(square, sine), _series(square, cosine)
        swapped = b.icmp_signed("<", word, e.integer(0))
        for k, (one, other) in enumerate([(s, c), (c, s)]):
            size = b.select(swapped, one.value, other.value)
            sign = b.and_(b.shl(word, e.integer(1 + k)), e.integer(_SIGN))
            signed = b.bitcast(b.xor(b.bitcast(size, e.integers), sign), e.vector)
            e.store((radius * Vector(e, signed)).value, e.offset(out, i, k * _LANES))


def _series(x: Vector, coefficients: list[float]) -> Vector:
    *lower, last = coefficients
    total = x * last + lower.pop()
    while lower:
        total = total * x + lower.pop()
    return total


def _write_factors(e: _Lanes, states: Any, out: Any, count: Any, keep_count: Any) -> None:
    b = e.builder
    limit = e.splat(b.trunc(keep_count, e.integers.element), e.integers)
    exact = ir.DoubleType()
    factor = b.fdiv(ir.Constant(exact, 2.0**16), b.sitofp(keep_count, exact))
    factors = e.splat(b.fptrunc(factor, e.real), e.vector)
    with e.carrying(0, count, _PAIR, e.load_states(states)) as (i, state):
        word = e.draw(state)
        for k, half in enumerate((b.and_(word, e.integer(2**16 - 1)), b.lshr(word, e.integer(16)))):
            chosen = b.select(b.icmp_unsigned("<", half, limit), factors, e.zero())
            e.store(chosen, e.offset(out, i, k * _LANES))
