"""Flat YAML of keys and scalars, which is all that settings need.

Only the nodes of a text are composed; what is nested or tagged is rejected before it could cost
anything. Values that look like dates stay strings, since no setting is a date.
"""

from typing import Any

import yaml

LONGEST = 4096
"""Maximum number of characters in a value: no path is longer."""


KINDS = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str")}
"""Types of a value; unless it is quoted, what it looks like decides."""


class _Loader(yaml.SafeLoader):
    """Resolves a value to one of `KINDS`, by default to a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in KINDS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def mapping(text: bytes) -> dict[str, Any]:
    """The keys and values of a YAML text, in its order; none if it is empty.

    ValueError, in one line, says what is wrong and where.
    """
    root = _composed(text)
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


def value(text: str) -> Any:
    """The single value of a YAML text, None if it is empty; ValueError if it is anything else."""
    node = _composed(text)
    return None if node is None else _value(node, "it")


def _composed(text: bytes | str) -> yaml.Node | None:
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
    if len(node.value) > LONGEST:
        raise ValueError(f"{key} is longer than {LONGEST:,} characters{_line(node)}")
    try:
        return _Loader("").construct_object(node)
    except ValueError:
        raise ValueError(f"{key} is not a valid number{_line(node)}") from None


def _line(place: Any) -> str:
    """The position of a node or error, such as " in line 3"; empty if unknown."""
    mark = getattr(place, "start_mark", None) or getattr(place, "problem_mark", None)
    return "" if mark is None else f" in line {mark.line + 1}"
