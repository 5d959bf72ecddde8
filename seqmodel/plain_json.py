"""Untrusted JSON: parsed strictly, its values checked field by field."""

import json
import math
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Self

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

    Raises:
        ValueError: in one line, naming the field, if it is missing, of the wrong type or out of
            range.
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
        found = self._get(key)
        if not isinstance(found, list):
            self._must(key, "a list")
        for k, value in enumerate(found):
            yield Fields.of(value, f"{self._path(key)}[{k}]")

    def text(self, key: str) -> str:
        """A string."""
        found = self._get(key)
        if not isinstance(found, str):
            self._must(key, "text")
        return str(found)

    def flag(self, key: str) -> bool:
        """True or false."""
        found = self._get(key)
        if not isinstance(found, bool):
            self._must(key, "true or false")
        return bool(found)

    def whole(self, key: str, least: int = 0, most: int = LARGEST) -> int:
        """A whole number from `least` to `most`."""
        found = self._get(key)
        if not (type(found) is int and least <= found <= most):
            self._must(key, f"a whole number from {least} to {most}")
        return int(found)

    def number(self, key: str) -> float:
        """A number, whole or not."""
        found = self._get(key)
        # A whole number may be too large for a float.
        if not (type(found) is float or (type(found) is int and abs(found) <= LARGEST)):
            self._must(key, "a number")
        return float(found)

    def _get(self, key: str) -> Any:
        if key not in self.values:
            raise ValueError(f"{self._path(key)} is missing")
        return self.values[key]

    def _must(self, key: str, be: str) -> NoReturn:
        raise ValueError(f"{self._path(key)} must be {be}, not {_shown(self.values[key])}")

    def _path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key


def _shown(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", type(None): "null"}
    return kinds.get(type(value)) or reprlib.repr(value)
