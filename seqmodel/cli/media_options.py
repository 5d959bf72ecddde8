"""Options that only some media have, in a command that knows none of them by name.

A command takes the options of all media as `**media_options`, so that adding a medium changes no
command.
"""

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import Annotated, Any, Literal

import typer

from seqmodel.cli.options import Command, with_parameters
from seqmodel.errors import UsageError
from seqmodel.media.definitions import Medium, Option
from seqmodel.media.registry import MEDIA

Rows = Callable[[Medium], tuple[Option, ...]]
"""Which of a medium's options a command takes."""


def with_media_options(rows: Rows) -> Callable[[Command], Command]:
    """Give a command the options of all media, listed before its keyword-only parameters."""
    return lambda command: with_parameters(command, [_parameter(o, rows) for o in _distinct(rows)])


def options_of(
    medium: Medium, given: Mapping[str, Any], rows: Rows, why_not: str
) -> dict[str, Any]:
    """The given options that belong to the medium.

    UsageError for one that is set but belongs to other media; `why_not` completes the message, such
    as "a.wav is audio".
    """
    known = {option.name for option in rows(medium)}
    for option in _distinct(rows):
        unset = given.get(option.name) is None or given[option.name] is False  # 0 is a value
        if option.name not in known and not unset:
            owners = [other.name for other in MEDIA.values() if option in rows(other)]
            raise UsageError(f"{option.flag} is for {' or '.join(owners)}, and {why_not}")
    return {name: given.get(name) for name in known}


def _distinct(rows: Rows) -> Iterable[Option]:
    found: dict[str, Option] = {}
    for medium in MEDIA.values():
        for option in rows(medium):
            found.setdefault(option.name, option)
    return found.values()


def _parameter(option: Option, rows: Rows) -> Parameter:
    owners = [medium.name for medium in MEDIA.values() if option in rows(medium)]
    kind: Any = Literal[option.choices] if option.choices else option.kind
    info: Any = typer.Option(
        option.flag,
        metavar=option.metavar,
        help=option.help,
        min=option.least,
        max=option.most,
        show_default=False,
        rich_help_panel=" and ".join(owners).capitalize(),
    )
    return Parameter(
        option.name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
    )
