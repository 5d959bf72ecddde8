"""Untrusted text: strict JSON, with values checked field by field, and flat YAML of settings.

Settings need only YAML's keys and scalars. Only the nodes of a text are composed; anything nested
or tagged is rejected before it costs anything. Values that look like dates, or like the octal and
sexagesimal numbers of YAML 1.1, stay strings: no setting is a date, 010 is not 8, and 1:30 not 90.
"""

import json
import math
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import yaml

MAX_INTEGER = 2**53
"""Every JSON parser reads integers up to this limit exactly."""
MAX_CHARACTERS = 4096
"""Maximum number of characters in a value: no path is longer."""
KINDS = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str")}
"""Types of a value in YAML, determined by its form unless it is quoted."""


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
        if not isinstance(value, dict):
            raise ValueError(f"{name or 'it'} must be an object, not {quoted(value)}")
        return cls(value, name)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def fields(self, key: str) -> "Fields":
        return Fields.of(self._get(key), self._path(key))

    def objects(self, key: str) -> Iterator["Fields"]:
        for k, value in enumerate(self._checked(key, "a list", lambda v: isinstance(v, list))):
            yield Fields.of(value, f"{self._path(key)}[{k}]")

    def text(self, key: str) -> str:
        return str(self._checked(key, "text", lambda v: isinstance(v, str)))

    def flag(self, key: str) -> bool:
        return bool(self._checked(key, "true or false", lambda v: isinstance(v, bool)))

    def integer(self, key: str, least: int = 0, most: int = MAX_INTEGER) -> int:
        expected = f"a whole number from {least} to {most}"
        return int(self._checked(key, expected, lambda v: type(v) is int and least <= v <= most))

    def number(self, key: str) -> float:
        return float(self._checked(key, "a number", _fits_float))

    def _get(self, key: str) -> Any:
        if key not in self.values:
            raise ValueError(f"{self._path(key)} is missing")
        return self.values[key]

    def _checked(self, key: str, expected: str, fits: Callable[[Any], bool]) -> Any:
        value = self._get(key)
        if not fits(value):
            raise ValueError(f"{self._path(key)} must be {expected}, not {quoted(value)}")
        return value

    def _path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key


def _fits_float(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= MAX_INTEGER)


def quoted(value: Any) -> str:
    """A value in an error: its kind, or itself if it is short."""
    kinds = {dict: "an object", list: "a list", type(None): "null"}
    return kinds.get(type(value)) or reprlib.repr(value)


_TEXT = "tag:yaml.org,2002:str", re.compile(r"[-+]?0[\d_]+$|.*:")


class _Loader(yaml.SafeLoader):
    """Resolves a value to one of `KINDS`, by default to a string."""


_Loader.yaml_implicit_resolvers = {
    first: [_TEXT, *((tag, pattern) for tag, pattern in resolvers if tag in KINDS)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse_mapping(text: bytes) -> dict[str, Any]:
    """The keys and values of a YAML text, in order; none if it is empty.

    ValueError, in one line, states what is wrong and where.
    """
    root = _compose(text)
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise ValueError("must hold keys and values, such as `unit: lstm`")
    values: dict[str, Any] = {}
    for key, node in root.value:
        if not isinstance(key, yaml.ScalarNode):
            raise ValueError(f"a key is not a plain word{_line(key)}")
        if key.value in values:
            raise ValueError(f"{key.value} is given twice{_line(key)}")
        values[key.value] = _value(node, key.value)
    return values


def parse_value(text: str) -> Any:
    """The single value of a YAML text, None if it is empty; ValueError if it is anything else."""
    node = _compose(text)
    return None if node is None else _value(node, "it")


def _compose(text: bytes | str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except yaml.composer.ComposerError as error:
        wrong = "holds more than one document" if error.context else error.problem
        raise ValueError(f"{wrong}{_line(error)}") from error
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ValueError(f"not a YAML file: {problem}{_line(error)}") from error
    except OverflowError as error:  # from "\UFFFFFFFF"
        raise ValueError(f"not a YAML file: {error}") from error
    return node


def _value(node: yaml.Node, key: str) -> Any:
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError(f"{key} must be a single value{_line(node)}")
    if node.tag not in KINDS:
        raise ValueError(f"{key} must be a value without a tag{_line(node)}")
    if len(node.value) > MAX_CHARACTERS:
        raise ValueError(f"{key} is longer than {MAX_CHARACTERS:,} characters{_line(node)}")
    try:
        return _Loader("").construct_object(node)
    except ValueError:
        raise ValueError(f"{key} is not a valid number{_line(node)}") from None


def _line(located: Any) -> str:
    mark = getattr(located, "start_mark", None) or getattr(located, "problem_mark", None)
    return "" if mark is None else f" in line {mark.line + 1}"
