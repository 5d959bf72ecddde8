"""Flat YAML of keys and scalars, which is all that settings need.

Parsed event by event: nesting, aliases and tags are rejected where they begin, before they can cost
anything. Values that look like dates stay strings, since no setting is a date.
"""

from collections.abc import Iterator
from typing import Any

import yaml

LONGEST = 4096
"""Maximum number of characters in a value: no path is longer."""


KINDS = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float")}
"""Types of an unquoted value, besides string."""


class _Loader(yaml.SafeLoader):
    """Resolves a value to one of `KINDS`, or to a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in KINDS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def mapping(text: bytes) -> dict[str, Any]:
    """The keys and values of a YAML text, in its order; none if it is empty.

    ValueError, in one line, says what is wrong and where.
    """
    values: dict[str, Any] = {}
    events = _events(text)
    event = next(events)
    if isinstance(event, yaml.StreamEndEvent):
        return values
    if not isinstance(event, yaml.MappingStartEvent):
        raise ValueError("must hold keys and values, such as `unit: lstm`")
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        if not isinstance(event, yaml.ScalarEvent):
            raise ValueError(f"a key is not a plain word{_place(event)}")
        key = event.value
        if key in values:
            raise ValueError(f"{key} is given twice{_place(event)}")
        values[key] = _value(next(events), key)
    _expect_end(events)
    return values


def value(text: str) -> Any:
    """The single value of a YAML text, None if it is empty; ValueError if it is anything else."""
    events = _events(text)
    event = next(events)
    if isinstance(event, yaml.StreamEndEvent):
        return None
    found = _value(event, "it")
    _expect_end(events)
    return found


def _events(text: bytes | str) -> Iterator[yaml.Event]:
    """The events of a text, without stream and document starts."""
    try:
        for event in yaml.parse(text, Loader=_Loader):
            if not isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent):
                yield event
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two from "\UFFFFFFFF"
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ValueError(f"not a YAML file: {problem}{_place(error)}") from error


def _value(event: yaml.Event, key: str) -> Any:
    if isinstance(event, yaml.AliasEvent):
        raise ValueError(f"{key} must be a value, not an alias{_place(event)}")
    if not isinstance(event, yaml.ScalarEvent):
        raise ValueError(f"{key} must be a single value{_place(event)}")
    if event.tag is not None:
        raise ValueError(f"{key} must be a value without a tag{_place(event)}")
    if len(event.value) > LONGEST:
        raise ValueError(f"{key} is longer than {LONGEST:,} characters{_place(event)}")
    loader = _Loader("")
    tag = loader.resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
    try:
        return loader.construct_object(yaml.ScalarNode(tag, event.value))
    except ValueError:
        raise ValueError(f"{key} is not a valid number{_place(event)}") from None


def _expect_end(events: Iterator[yaml.Event]) -> None:
    next(events)  # the end of the document
    event = next(events)
    if not isinstance(event, yaml.StreamEndEvent):
        raise ValueError(f"holds more than one document{_place(event)}")


def _place(event: Any) -> str:
    """The position of an event or error, such as " in line 3"; empty if unknown."""
    mark = getattr(event, "start_mark", None) or getattr(event, "problem_mark", None)
    return "" if mark is None else f" in line {mark.line + 1}"
