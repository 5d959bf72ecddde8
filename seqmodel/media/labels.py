"""Labels: named properties of a whole piece, such as its speaker; train's values are known."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from seqmodel.errors import UsageError, did_you_mean
from seqmodel.media.words import listed, plural, some
from seqmodel.plain import Fields

Labels = Mapping[str, str]
"""Name -> value, for one piece; some may be missing."""
KnownLabels = Mapping[str, tuple[str, ...]]
"""Name -> its values in train."""
LABELS = "labels"
"""The key of a piece's labels among its facts, and of known ones in a frame definition."""
SHOWN = 8
"""The most values to list."""


def labels_of(facts: Mapping[str, Any]) -> Labels:
    """The labels among a piece's facts; ValueError for what `prepare` never writes."""
    if LABELS not in facts:
        return {}
    labels = Fields(facts).fields(LABELS)
    return {_name(name): labels.text(name) for name in labels.values}


def known_labels_of(fields: Fields) -> KnownLabels:
    """The known labels of a frame definition; ValueError for what `prepare` never writes."""
    known = dict[str, tuple[str, ...]]()
    if LABELS not in fields:
        return known
    for name, values in fields.fields(LABELS).values.items():
        texts = isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)
        if not texts or not values or len({*values}) < len(values):
            raise ValueError(f"{fields.name}.{LABELS}.{name} must be a list of different texts")
        known[_name(name)] = tuple(values)
    return known


def _name(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"{LABELS} has {name!r:.40}, which is not a name")
    return name


def label_ids(known: KnownLabels, labels: Labels) -> list[int]:
    """The index of each label's value among the known ones, from 1; 0 if missing or unknown."""
    return [
        values.index(labels[name]) + 1 if labels.get(name) in values else 0
        for name, values in known.items()
    ]


def natsorted(values: Collection[str]) -> tuple[str, ...]:
    """Numbers by value, then the rest alphabetically."""
    n = max(map(len, values), default=0)
    return tuple(sorted(values, key=lambda v: (not v.isdecimal(), v.zfill(n * v.isdecimal()), v)))


def combinations(options: Sequence[str], known: KnownLabels, run: object) -> list[Labels]:
    """All combinations of labels that --label options ask for: NAME=VALUE, =FIRST..LAST, =A,B.

    UsageError for unknown ones.
    """
    chosen = dict[str, dict[str, None]]()
    for text in options:
        name, equals, value = text.partition("=")
        values = values_of(name, known, run, f"--label {text}")
        first, dots, last = value.partition("..")
        if value in values:
            selected = [value]
        elif dots and first in values and last in values:
            selected = [*values[values.index(first) : values.index(last) + 1]]
            if not selected:
                raise UsageError(f"--label {text}: {first} comes after {last}; swap them")
        else:
            selected = value.split(",")
        for unknown in (each for each in selected if each not in values):
            wrong = f"there is no {name} {unknown!r}" if equals else "write NAME=VALUE"
            choices = some(values, SHOWN) + did_you_mean(unknown, values)
            raise UsageError(f"--label {text}: {wrong}; choose from {choices}")
        chosen.setdefault(name, {}).update(dict.fromkeys(selected))
    return [dict(zip(chosen, each, strict=True)) for each in product(*chosen.values())]


def values_of(name: str, known: KnownLabels, run: object, option: str) -> tuple[str, ...]:
    """The known values of a label; UsageError, naming the option, if there is no such label."""
    if name not in known:
        none = "none: its data had none, or it was trained with --labels none"
        names = ", ".join(known) or none
        raise UsageError(f"{option}: there is no label {name!r}; {run} knows {names}")
    return known[name]


def column_count(known: KnownLabels) -> int:
    """The number of one-hot columns for a piece's values, one for each known value."""
    return sum(map(len, known.values()))


def unknown_values(labels: Mapping[str, Iterable[str]], known: KnownLabels) -> KnownLabels:
    """The values of labels that are not among the known ones."""
    rest = {name: natsorted({*values} - {*known.get(name, ())}) for name, values in labels.items()}
    return {name: values for name, values in rest.items() if values}


def labels_text(known: KnownLabels) -> str:
    """Text such as "digit (0, 1 and 2), speaker (6 values)"."""
    return ", ".join(
        f"{name} ({listed(values) if len(values) <= SHOWN else plural(len(values), 'value')})"
        for name, values in known.items()
    )
