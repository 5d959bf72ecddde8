"""Options that several commands have, and checks of what was given for them."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from seqmodel.cli.common import from_here, message
from seqmodel.cli.help import DEVICES, one_of
from seqmodel.errors import SeqmodelError, UsageError

Command = TypeVar("Command", bound=Callable[..., None])

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only results and errors.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing target.")]
Device = Annotated[
    str,
    typer.Option(
        help="Where to compute: auto, cpu or cuda; auto takes a GPU where it should be faster.",
        autocompletion=one_of(DEVICES),
    ),
]


def check_temperature(temperature: float) -> None:
    """UsageError unless it is a number; the option has checked that it is not negative."""
    if not math.isfinite(temperature):
        raise UsageError(f"--temperature must be finite, not {temperature}")


def exclude(options: Mapping[str, object]) -> None:
    """UsageError if all of these options are given."""
    if all(value not in (None, False) for value in options.values()):
        raise UsageError(f"{' and '.join(options)} exclude each other")


def check_target(path: Path, *, force: bool) -> None:
    """SeqmodelError, before any work, if a file cannot be written here or may not be replaced."""
    from seqmodel.files import check_writable, refuse_existing

    refuse_existing(path, force=force)
    if not path.parent.exists():
        raise SeqmodelError(f"{path}: there is no folder {path.parent}; make it first")
    check_writable(path)


def check_plot(path: Path, *, force: bool) -> None:
    """As `check_target`, for --plot."""
    if path.suffix.lower() != ".png":
        raise UsageError(f"--plot draws PNG only: {path} must end in .png")
    check_target(path, force=force)


def chosen_run(run: Path | None, media: Collection[str] | None = None, *, quiet: bool) -> Path:
    """The run that was named, or the newest that is trained, of one of the media if given.

    If there is none, the bundled run of the first of these media.
    """
    if run is not None:
        return run
    from seqmodel.data.bundled import PRETRAINED, pretrained_run
    from seqmodel.runs.folder import RUNS, newest_run, no_run

    newest = newest_run(media=media)
    if newest is not None:
        folder, remark = newest
        message(remark, quiet=quiet or not remark)
        return folder
    of = f" of {' or '.join(media)}" if media else ""
    for medium in media or PRETRAINED:
        if medium in PRETRAINED:
            taken, sample = from_here(pretrained_run(medium)), PRETRAINED[medium]
            told = f"no run{of} in {RUNS}/: taking {taken}, trained on the bundled {sample}"
            message(told, quiet=quiet)
            return taken
    raise no_run(RUNS)


def with_parameters(command: Command, parameters: Iterable[Parameter]) -> Command:
    """Give `command` these parameters in place of its `**` one, before its keyword-only ones.

    Typer reads a command's options from its signature.
    """
    own = [p for p in signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    first = [p for p in own if p.kind is not p.KEYWORD_ONLY]
    last = [p for p in own if p.kind is p.KEYWORD_ONLY]
    whole = signature(command).replace(parameters=[*first, *parameters, *last])
    command.__signature__ = whole  # type: ignore[attr-defined]
    return command
