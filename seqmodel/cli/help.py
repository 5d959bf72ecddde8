"""Options in shells and `--help`: completion, groups, plain words for types and ranges."""

import re
from collections.abc import Callable, Iterable
from textwrap import indent
from typing import Any

import typer
from typer.core import TyperCommand

# Typer's name of a type -> the metavar shown, unless the option has its own.
TYPES = {"int": "N", "float": "NUMBER", "str": "NAME", "path": "PATH"}
UNGROUPED = "Options"


class GroupedCommand(TyperCommand):
    """A command whose help lists its options by their `rich_help_panel`, those without one last.

    Typer groups them only in boxes drawn by rich, which drop text in brackets and load rich.
    """

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the groups in the order of their first options."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            other = "Arguments" if param.param_type_name == "argument" else UNGROUPED
            group = getattr(param, "rich_help_panel", None) or other
            groups.setdefault(group, []).append((_typed(record[0]), _ranged(record[1])))
        groups[UNGROUPED] = groups.pop(UNGROUPED)  # always there: it holds `--help`
        for group, records in groups.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the epilog, which holds examples, line by line."""
        if self.epilog:
            with formatter.section("Examples"):
                formatter.write(indent(self.epilog, "  ") + "\n")


def _typed(name: str) -> str:
    """ "--hidden <int range>" as "--hidden N"; arguments that have a name need no type."""

    def words(match: re.Match[str]) -> str:
        before, kind = match.groups()
        if not before.startswith("-"):
            return before
        kind = kind.removeprefix("list[").removesuffix("]").removesuffix(" range")
        return f"{before} {TYPES.get(kind, kind)}"

    return re.sub(r"(.*) <(.+)>$", words, name)


def _ranged(text: str) -> str:
    """ "x>=1" as "at least 1", "4.0<=x<=1000.0" as "4 to 1000"."""

    def words(match: re.Match[str]) -> str:
        least, most = (limit and f"{float(limit):g}" for limit in match.groups())
        return f"{least} to {most}"

    text = re.sub(r"\b([\d.]+)<=x<=([\d.]+)", words, text)
    return re.sub(r"\bx>=([\d.]+)", lambda match: f"at least {float(match[1]):g}", text)


REWORDED = {
    r"Input should be a valid integer.*": "must be a whole number",
    r"Input should be a valid number.*": "must be a number",
    r"Input should be greater than or equal to (\S+)": r"must be at least \1",
    r"Input should be less than or equal to (\S+)": r"must be at most \1",
}
"""The validating library's wording -> ours."""


def plain(text: str) -> str:
    """An error about an option's value, reworded like our own errors; others unchanged."""
    match = re.fullmatch(r"Invalid value for (?:.* / )?'(-[-\w]+)': (.+)", text)
    for pattern, wording in REWORDED.items():
        if match and re.fullmatch(pattern, match[2]):
            return f"{match[1]} {re.sub(pattern, wording, match[2])}"
    return text


Completion = Callable[[str], list[str]]


def one_of(names: Iterable[str]) -> Completion:
    """A completion for one of `names`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def several_of(names: Iterable[str]) -> Completion:
    """A completion for the last of several comma-separated `names`."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(last)]

    return complete
