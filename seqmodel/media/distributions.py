"""Distributions as counts, value -> count, and the table of samples compared with the data."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Row = tuple[str, str, str]
"""Label, name of the figure, format; None is shown as nothing."""


def total_variation(one: Counter[Any], other: Counter[Any]) -> float:
    """Half the sum of |p - q| over all values, from 0 to 1: one minus two histograms' overlap.

    An empty one overlaps only another empty one.
    """
    if not one or not other:
        return float(bool(one) != bool(other))
    n, m = one.total(), other.total()
    apart = (abs(one[k] / n - other[k] / m) for k in one.keys() | other.keys())
    return math.fsum(apart) / 2  # whatever the order of a set


def shares(counts: Counter[Any]) -> dict[Any, float]:
    """A distribution as value -> share, in ascending order."""
    return {value: counts[value] / counts.total() for value in sorted(counts)}


def comparison_lines(
    values: Mapping[str, Any], split: str, figures: Sequence[Row], distances: Sequence[Row]
) -> list[str]:
    """The table of `Comparison.compare`'s values; `distances` are of "distances" in each set."""
    columns = {"samples": values["drawn"]}
    if "split" in values:
        columns[split] = values["split"]
    columns["training"] = values["train"]
    lines = [" " * 27 + "".join(f"{name:>10}" for name in columns)]
    lines += [_line(row, list(columns.values())) for row in figures]
    apart = [column["distances"] for column in columns.values() if "distances" in column]
    return [*lines, "", "distance from training", *(_line(row, apart) for row in distances)]


def _line(row: Row, columns: Sequence[Mapping[str, Any]]) -> str:
    label, name, form = row
    found = (column.get(name) for column in columns)
    cells = ("" if value is None else format(value, form) for value in found)
    return f"{label:27}{''.join(f'{cell:>10}' for cell in cells)}".rstrip()
