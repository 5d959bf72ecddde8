"""The options of `seqmodel train` that set something: one for each field of `Config`."""

from collections.abc import Iterable, Mapping
from dataclasses import Field, asdict, fields
from inspect import Parameter
from typing import Annotated, Any

import typer

from seqmodel.cli.help import one_of
from seqmodel.cli.options import Command, with_parameters
from seqmodel.config import GROUPS, Config, field_types, resolve
from seqmodel.media.registry import MEDIA
from seqmodel.outputs.registry import OUTPUTS
from seqmodel.units import UNITS

NAMES: Mapping[str, Iterable[str]] = {
    "unit": UNITS,
    "note_unit": UNITS,
    "output": ("auto", *OUTPUTS),
    "learning_rate": ("search",),
}
"""For completion, the values of settings that `Config` does not list."""
DEFAULTS = {name: asdict(resolve({}, presets=medium.presets)) for name, medium in MEDIA.items()}


def with_settings(command: Command) -> Command:
    """Give `command` an option for each setting, in place of its `**settings`.

    They are None unless given, and listed before the command's keyword-only parameters.
    """
    shown = [f for group in GROUPS for f in fields(Config) if f.metadata["group"] == group]
    return with_parameters(command, map(_parameter, shown))


def _parameter(field: Field[Any]) -> Parameter:
    name, stated = field.name, field.metadata
    (kind, *_), option = field_types(name), name.replace("_", "-")
    flags, metavar = [f"--{option}"], None
    if kind is bool:
        flags = [f"--{option}/--no-{option}"]
    if name == "learning_rate":  # or "search"
        flags, kind, metavar = [*flags, "--lr"], str, "NUMBER"
    names = NAMES.get(name, stated["among"])
    info = typer.Option(
        *flags,
        help=stated["help"] + _default(name),
        rich_help_panel=stated["group"],
        autocompletion=one_of(names) if names else None,
        metavar=metavar,
    )
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
    )


def _default(name: str) -> str:
    """Such as "  [default: 2; audio: 8]"; "" for none."""
    told = [(medium, str(values[name]).lower()) for medium, values in DEFAULTS.items()]
    first, *others = told
    if first[1] == "none":
        return ""
    differ = [f"; {medium}: {value}" for medium, value in others if value != first[1]]
    return f"  [default: {first[1]}{''.join(differ)}]"
