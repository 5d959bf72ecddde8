"""Options: those of several commands, those generated from data, checks of what was given, help.

Settings of `Config` and options of a medium are defined only there; commands take them as
`**settings` and `**media_options`, so that adding one, or a medium, changes no command.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, asdict, fields
from inspect import Parameter, signature
from itertools import combinations, starmap
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from typer.core import TyperCommand

from seqmodel.cli.common import be_quiet, from_here, message
from seqmodel.config import GROUPS, SEARCHES, Config, field_types, parse_setting, resolve
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.files import check_writable, refuse_existing
from seqmodel.media.definitions import Medium, Option
from seqmodel.media.registry import MEDIA, presets_of_kind
from seqmodel.outputs.registry import OUTPUTS
from seqmodel.units import DEVICES, UNITS, check_device

if TYPE_CHECKING:
    from seqmodel.runs.folder import Run, StoredRun

Completion = Callable[[str], list[str]]
Command = TypeVar("Command", bound=Callable[..., None])
Rows = Callable[[Medium], tuple[Option, ...]]
"""Which of a medium's options a command takes."""
NAMES: Mapping[str, Iterable[str]] = {
    "unit": UNITS,
    "note_unit": UNITS,
    "output": ("auto", *OUTPUTS),
    "learning_rate": ("search",),
    "epochs": ("auto",),
}
"""For completion: values of settings that `Config` does not list."""
DEFAULTS = {
    kind: asdict(resolve({}, presets=presets_of_kind(medium, kind)))
    for name, medium in MEDIA.items()
    for kind in (name, *medium.kinds)
}


def one_of(names: Iterable[str]) -> Completion:
    """A completion for one of `names`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def several_of(names: Iterable[str]) -> Completion:
    """A completion for the last of several comma-separated `names`."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(last)]

    return complete


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", callback=be_quiet, help="Print only results and errors."),
]
"""Respected by `message` and `display`; commands need not check it."""
Force = Annotated[bool, typer.Option("--force", help="Replace an existing target.")]
Device = Annotated[
    str,
    typer.Option(
        help="Where to compute: auto, cpu or cuda; auto uses a GPU where it should be faster.",
        callback=lambda context, device: context.resilient_parsing or check_device(device),
        autocompletion=one_of(DEVICES),
    ),
]


def check_given(
    context: typer.Context,
    exclusive: Iterable[tuple[str, str]],
    needs: Iterable[tuple[str, str]] = (),
    special: Mapping[str, object] = {},
) -> None:
    """UsageError if both of an exclusive pair are given, or an option without what it needs.

    Given are options with a value other than the default, and the `special` ones that hold; what
    one needs is another, such as "--samples N".
    """
    given = {name for name, holds in special.items() if holds}
    for param in context.command.params:
        value = context.params.get(param.name or "")
        if value and value != param.get_default(context):
            given |= {*param.opts}
    for one, other in exclusive:
        if one in given and other in given:
            raise UsageError(f"{one} and {other} exclude each other: leave one out")
    for option, needed in needs:
        if option in given and needed.split()[0] not in given:
            raise UsageError(f"{option} needs {needed}")


def check_target(path: Path, *, force: bool) -> None:
    """SeqmodelError, before any work, if a file cannot be written or may not be replaced."""
    refuse_existing(path, force=force)
    if not path.parent.exists():
        raise SeqmodelError(f"{path}: there is no folder {path.parent}; create it first")
    check_writable(path)


def check_plot(path: Path, *, force: bool) -> None:
    """`check_target` for --plot."""
    if path.suffix.lower() != ".png":
        raise UsageError(f"--plot draws PNG only: {path} must end in .png")
    check_target(path, force=force)


def chosen_run(
    media: Sequence[str] = (),
    labels: Collection[str] = (),
    say: Callable[[str], None] = message,
) -> Path:
    """The newest trained run, of one of the media if given, or else the bundled one.

    Preferably one that knows these labels. Remarks go to `say`.
    """
    from seqmodel.data.bundled import PRETRAINED, pretrained_run
    from seqmodel.runs.content import newest_run
    from seqmodel.runs.files import RUNS, no_run

    newest = newest_run(media=media, labels=labels)
    if newest is None and labels:
        return chosen_run(media, say=say)
    if newest is not None:
        folder, remark = newest
        say(remark)
        return folder
    suffix = f" of {' or '.join(media)}" if media else ""
    for medium in media or PRETRAINED:
        if medium in PRETRAINED:
            bundled, sample = from_here(pretrained_run(medium)), PRETRAINED[medium]
            choice = f"no run{suffix} in {RUNS}/: using {bundled}, trained on the bundled {sample}"
            say(choice)
            return bundled
    raise no_run(RUNS)


@contextmanager
def about(what: str, *, last: bool = False) -> Iterator[None]:
    """Begin errors of the block with `what` they are about, or end them with it."""
    try:
        yield
    except SeqmodelError as error:
        raise type(error)(f"{error} ({what})" if last else f"{what}: {error}") from error


def stored_runs(paths: Sequence[Path]) -> list["StoredRun"]:
    """Runs that can be averaged, without their models, before torch is loaded."""
    from seqmodel.runs.folder import check_average, stored_run  # loads NumPy

    runs = [stored_run(path) for path in paths]
    check_average(runs)
    return runs


def load_runs(stored: Sequence["StoredRun"], device: str, batch_size: int) -> list["Run"]:
    """These runs with their models, each where `--device` places it for batches of this size."""
    import torch

    from seqmodel.runs.checkpoint import model_tensors
    from seqmodel.runs.folder import load_run

    runs = [load_run(run.folder) for run in stored]
    weights = [[*model_tensors(run.model).values()] for run in runs]
    if any(all(map(torch.equal, *pair)) for pair in combinations(weights, 2)):
        message("a run, or a copy of it, is given more than once; each counts in the average")
    for run in runs:
        message(run.remark)
        run.model.to(run.model.choose_device(device, batch_size))
    return runs


def with_parameters(command: Command, parameters: Iterable[Parameter]) -> Command:
    """Give `command` these parameters, for Typer to read, in place of its `**` one."""
    existing = [p for p in signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    first = [p for p in existing if p.kind is not p.KEYWORD_ONLY]
    last = [p for p in existing if p.kind is p.KEYWORD_ONLY]
    whole = signature(command).replace(parameters=[*first, *parameters, *last])
    command.__signature__ = whole  # type: ignore[attr-defined]
    return command


def _parameter(name: str, kind: Any, *flags: str, **options: Any) -> Parameter:
    """A keyword-only parameter of a command, None unless its option is given."""
    info: Any = typer.Option(*flags, show_default=False, **options)
    annotation = Annotated[kind | None, info]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def with_settings(command: Command) -> Command:
    """Give `command` an option for each setting, None unless given, in place of `**settings`."""
    setting_fields = [f for group in GROUPS for f in fields(Config) if f.metadata["group"] == group]
    return with_parameters(command, map(_of_setting, setting_fields))


def _of_setting(field: Field[Any]) -> Parameter:
    name, metadata = field.name, field.metadata
    (kind, *_), option = field_types(name), name.replace("_", "-")
    flags, metavar, parser = [f"--{option}"], None, None
    if kind is bool:
        flags = [f"--{option}/--no-{option}"]
    if name == "learning_rate":  # or "search"
        flags, kind, metavar = [*flags, "--lr"], str, "NUMBER"
    if name == "epochs":  # or "auto"
        metavar, parser = "NUMBER", lambda text: parse_setting(name, text, "--epochs")
    names = NAMES.get(name, metadata["among"])
    return _parameter(
        name,
        kind,
        *flags,
        help=metadata["help"] + _default(name),
        rich_help_panel=metadata["group"],
        autocompletion=one_of(names) if names else None,
        metavar=metavar,
        parser=parser,
    )


def _default(name: str) -> str:
    """Text such as "  [default: 2; audio: 8]"; "" without a default."""
    values = [(kind, str(values[name]).lower()) for kind, values in DEFAULTS.items()]
    first, *others = values
    if first[1] == "none":
        return ""
    differ = [f"; {kind}: {value}" for kind, value in others if value != first[1]]
    return f"  [default: {first[1]}{''.join(differ)}]"


def with_media_options(rows: Rows) -> Callable[[Command], Command]:
    """Give a command the options of all media, listed before its keyword-only parameters."""
    return lambda command: with_parameters(command, starmap(_of_medium, _owners(rows).items()))


def options_of(
    medium: Medium, given: Mapping[str, Any], rows: Rows, because: str
) -> dict[str, Any]:
    """The given options that belong to the medium; UsageError for one that only others have.

    `because` completes the message, such as "a.wav is audio".
    """
    for option, owners in _owners(rows).items():
        value = given.get(option.name)
        unset = value is None or (value is False and not option.negated)  # 0 is a value
        if medium.name not in owners and not unset:
            flag = option.no_flag if value is False else option.flag
            raise UsageError(f"{flag} is for {' or '.join(owners)}, and {because}")
    return {option.name: given.get(option.name) for option in rows(medium)}


def _owners(rows: Rows) -> dict[Option, list[str]]:
    """The options of all media, each with the names of those that have one of its name."""
    first, owners = dict[str, Option](), defaultdict[Option, list[str]](list)
    for medium in MEDIA.values():
        for option in rows(medium):
            owners[first.setdefault(option.name, option)].append(medium.name)
    return owners


def _of_medium(option: Option, owners: Sequence[str]) -> Parameter:
    return _parameter(
        option.name,
        Literal[option.choices] if option.choices else option.kind,
        f"{option.flag}/{option.no_flag}" if option.negated else option.flag,
        metavar=option.metavar,
        help=option.help,
        min=option.least,
        max=option.most,
        rich_help_panel=" and ".join(owners).capitalize(),
    )


# ---- help ----------------------------------------------------------------------------------------

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


def plain(text: str, command: str) -> str:
    """A usage error of `command`, reworded like our own errors if it is about an option."""
    if match := re.match(r"No such option: --([-\w]+)", text):
        name = match[1].replace("-", "_")
        # Users of `sample` and `train` expect these; Typer would suggest similar names instead.
        if name == "run" and command in ("eval", "report", "export", "inspect"):
            return f"{match[0]}; name a run without it"
        others = {"data", "unit", "seed", "minutes", *SEARCHES.values()}  # it has no such setting
        if command == "compare" and name in {field.name for field in fields(Config)} - others:
            return f"{match[0]}; write --set {name}=VALUE"
    if command == "sample" and text.startswith("Got unexpected extra argument"):
        return f"{text}: it takes the file to write; name a run with --run"
    match = re.fullmatch(r"Invalid value for (?:.* / )?'(-[-\w]+)': (.+)", text)
    for pattern, wording in REWORDED.items():
        if match and re.fullmatch(pattern, match[2]):
            return f"{match[1]} {re.sub(pattern, wording, match[2])}"
    return text
