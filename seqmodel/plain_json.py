"""Untrusted JSON: parsed strictly, its values checked field by field."""

import json
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

LARGEST = 2**53
"""Every JSON parser reads integers up to this exactly."""


def parse(text: str | bytes, *, constants: bool = False) -> Any:
    """The value of a JSON text, with nan and inf only if `constants` are allowed.

    ValueError, in one line, if it is not valid JSON.
    """
    try:
        return json.loads(text, parse_constant=float if constants else _refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not valid JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is out of range")
    return number


@dataclass(frozen=True)
class Fields:
    """The fields of a JSON object, with a getter for each type of value.

    ValueError, in one line, names a field that is missing, of the wrong type or out of range.
    """

    values: Mapping[str, Any]
    name: str = ""
    """The path to the object, such as "splits.train"; empty for the top level."""

    @classmethod
    def of(cls, value: Any, name: str = "") -> Self:
        """The fields of `value`, if it is an object."""
        if not isinstance(value, dict):
            raise ValueError(f"{name or 'it'} must be an object, not {_shown(value)}")
        return cls(value, name)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def fields(self, key: str) -> "Fields":
        """An object."""
        return Fields.of(self._get(key), self._path(key))

    def objects(self, key: str) -> Iterator["Fields"]:
        """A list of objects."""
        for k, value in enumerate(self._checked(key, "a list", lambda v: isinstance(v, list))):
            yield Fields.of(value, f"{self._path(key)}[{k}]")

    def text(self, key: str) -> str:
        """A string."""
        return str(self._checked(key, "text", lambda v: isinstance(v, str)))

    def flag(self, key: str) -> bool:
        """True or false."""
        return bool(self._checked(key, "true or false", lambda v: isinstance(v, bool)))

    def whole(self, key: str, least: int = 0, most: int = LARGEST) -> int:
        """A whole number from `least` to `most`."""
        be = f"a whole number from {least} to {most}"
        return int(self._checked(key, be, lambda v: type(v) is int and least <= v <= most))

    def number(self, key: str) -> float:
        """A number, whole or not."""
        return float(self._checked(key, "a number", _fits_float))

    def _get(self, key: str) -> Any:
        if key not in self.values:
            raise ValueError(f"{self._path(key)} is missing")
        return self.values[key]

    def _checked(self, key: str, be: str, fits: Callable[[Any], bool]) -> Any:
        found = self._get(key)
        if not fits(found):
            raise ValueError(f"{self._path(key)} must be {be}, not {_shown(found)}")
        return found

    def _path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key


def _fits_float(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= LARGEST)


def _shown(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", type(None): "null"}
    return kinds.get(type(value)) or reprlib.repr(value)
