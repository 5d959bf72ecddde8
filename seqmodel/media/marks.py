"""Marks of struck notes, such as velocity: numbers from 1 to 127, grouped into a few levels."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.plain import Fields

MARKS = ("part", "velocity", "timing")
"""Their names, in the order in which a model draws them, each given the note's previous ones."""
MARK_FIGURES = {name: f"{name}_nats_per_note" for name in MARKS}
"""The names of their nats among figures."""
MAX_LEVELS = 16
NUMBERS = "edges", "means"
MAX_NUMBER = 127
"""The largest number; 0 means unknown."""
UNKNOWN_MEAN = 80.0
"""The mean of the only level if train has no such number."""


@dataclass(frozen=True)
class Levels:
    """Numbers from 1 to 127 in at most 16 levels, each about as common as the others in train.

    Level k holds those above `edges[k - 1]` and up to `edges[k]`; `means[k]` is their mean. With
    `names`, each number is a level of its own, with that name.
    """

    edges: tuple[int, ...] = ()
    means: tuple[float, ...] = (UNKNOWN_MEAN,)
    names: tuple[str, ...] = ()

    @classmethod
    def of_names(cls, names: Sequence[str]) -> "Levels":
        numbers = range(1, len(names) + 1)
        return cls(tuple(numbers[:-1]), tuple(map(float, numbers)), tuple(names))

    @classmethod
    def of(cls, counts: NDArray[np.int64]) -> "Levels":
        """Levels from the counts of each number in train, (128,): one each if there are few."""
        counts = counts * (np.arange(MAX_NUMBER + 1) > 0)
        values, total = np.flatnonzero(counts), int(counts.sum())
        if not total:
            return cls()
        if len(values) > MAX_LEVELS:
            share = np.arange(1, MAX_LEVELS) / MAX_LEVELS
            quantiles = np.searchsorted(np.cumsum(counts), np.ceil(share * total))
            edges = np.unique(quantiles[quantiles < values[-1]])
        else:
            edges = values[:-1]
        level = np.searchsorted(edges, values)
        sums = np.bincount(level, counts[values] * values)
        means = sums / np.bincount(level, counts[values])
        return cls(tuple(edges.tolist()), tuple(np.round(means, 2).tolist()))

    def __len__(self) -> int:
        return len(self.means)

    def numbers(self) -> NDArray[np.uint8]:
        """(L + 1,), the number that a drawn note has for each level, from 0, which is unknown."""
        return np.rint([0, *self.means]).astype(np.uint8)

    def to_json(self) -> dict[str, Any]:
        if self.names:
            return {"names": [*self.names]}
        return {name: [*getattr(self, name)] for name in NUMBERS}

    @classmethod
    def from_json(cls, fields: Fields, key: str) -> "Levels":
        """The inverse of `to_json`, from the field `key`; ValueError names it if it is damaged."""
        fields = fields.fields(key)
        name, values = fields.name, fields.values
        if "names" in fields:
            names = values["names"]
            valid = isinstance(names, list) and all(isinstance(each, str) for each in names)
            if not valid or not 0 < len(set(names)) == len(names) <= MAX_LEVELS:
                raise ValueError(f"{name}.names must be 1 to {MAX_LEVELS} different texts")
            return cls.of_names(names)
        edges, means = (values[n] if isinstance(values.get(n), list) else [-1] for n in NUMBERS)
        whole = all(type(edge) is int for edge in edges)
        if not whole or not all(a < b for a, b in pairwise([0, *edges, MAX_NUMBER])):
            raise ValueError(f"{name}.edges must be whole numbers that increase, from 1 to 126")
        intervals = zip(means, [0, *edges], [*edges, MAX_NUMBER], strict=False)
        within = (isinstance(mean, int | float) and a < mean <= b for mean, a, b in intervals)
        if len(means) != len(edges) + 1 or not all(within):
            raise ValueError(f"{name}.means must be a number between each two edges")
        return cls(tuple(edges), tuple(map(float, means)))
