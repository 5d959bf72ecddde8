"""`seqmodel prepare`: media to a prepared dataset."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from seqmodel.cli.common import (
    Force,
    Json,
    Quiet,
    counter,
    message,
    plural,
    print_json,
    split_lines,
)
from seqmodel.errors import UsageError

STEPS_PER_BEAT = 4
# What the published rolls of Boulanger-Lewandowski et al. 2012 were made with: eighth notes.
PUBLISHED_STEPS_PER_BEAT = 2
# Skipped files that the summary names; the manifest has them all.
NAMED = 5


def prepare(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="MIDI files, published rolls (.mat .pickle .npz .npy), folders, globs, or - for "
            "paths on stdin.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The dataset's folder.")],
    steps_per_beat: Annotated[
        int | None,
        typer.Option(help="Frames in a quarter note.  [default: 4; published rolls have 2]"),
    ] = None,
    step_seconds: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Frames of so many seconds instead.")
    ] = None,
    restrike: Annotated[
        Literal["close", "discard"],
        typer.Option(help="A note struck again while it sounds ends there, or never was."),
    ] = "close",
    drums: Annotated[
        Literal["drop", "keep"], typer.Option(help="What to do with channel 10.")
    ] = "drop",
    transpose_to_c: Annotated[
        bool, typer.Option("--transpose-to-c", help="Move each piece's estimated tonic to C.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail at the first file that cannot be used.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn MIDI files or published rolls into a dataset of frames.

    Folders named train, valid and test decide the splits; all other pieces are split 80/10/10 by a
    hash of their content. A file that cannot be used is skipped and explained.
    """
    from seqmodel.dataset import FrameDefinition
    from seqmodel.frames.grid import Grid
    from seqmodel.prepare import ROLL_SUFFIXES, find_sources
    from seqmodel.prepare import prepare as prepare_dataset

    if steps_per_beat is not None and step_seconds is not None:
        raise UsageError("--steps-per-beat and --step-seconds exclude each other")
    names = [name for source in sources for name in (_stdin() if source == "-" else [source])]
    mixed = False
    if step_seconds is not None:
        grid = Grid.of_seconds(step_seconds)
    elif steps_per_beat is not None:
        grid = Grid.of_beats(steps_per_beat)
    else:
        suffixes = {source.path.suffix.lower() for source in find_sources(names)}
        published = suffixes <= ROLL_SUFFIXES
        mixed = not published and not suffixes.isdisjoint(ROLL_SUFFIXES)
        grid = Grid.of_beats(PUBLISHED_STEPS_PER_BEAT if published else STEPS_PER_BEAT)
    frame = FrameDefinition(grid, restrike, drums == "keep", transpose_to_c)
    with counter("reading", quiet=quiet) as progress:
        manifest = prepare_dataset(names, out, frame, force=force, strict=strict, progress=progress)
    if as_json:
        print_json(manifest)
    elif not quiet:
        typer.echo(_summary(out, manifest, str(grid)))
    if mixed:
        message("rolls state no grid of their own: that of the MIDI files is taken", quiet=quiet)
    for warning in _warnings(manifest):
        message(warning, quiet=quiet)


def _stdin() -> list[str]:
    names = [line.rstrip("\n") for line in sys.stdin]
    names = [name for name in names if name]
    if not names:
        raise UsageError("- stands for paths on stdin, one a line, and there are none")
    return names


def _summary(out: Path, manifest: dict[str, Any], grid: str) -> str:
    return "\n".join([f"{out}: 88 notes, {grid}", *split_lines(manifest["splits"])])


def _warnings(manifest: dict[str, Any]) -> list[str]:
    lines = []
    skipped = manifest["skipped"]
    if skipped:
        lines.append(f"skipped {plural(len(skipped), 'file')}:")
        lines += [f"  {skip['source']}: {skip['reason']}" for skip in skipped[:NAMED]]
        if len(skipped) > NAMED:
            lines.append(f"  ... and {len(skipped) - NAMED} more, all in the manifest")
    if manifest["repaired"]:
        files = plural(len(manifest["repaired"]), "file")
        lines.append(f'read {files} with something to forgive; see "repaired" in the manifest')
    straddling = manifest["also_in_another_split"]
    if straddling:
        lines.append(
            f"{plural(len(straddling), 'piece')} stood in folders of two splits, such as "
            f"{straddling[0]}; figures on those splits are a little too good"
        )
    splits = manifest["splits"]
    empty = [split for split in ("train", "valid") if not splits[split]["pieces"]]
    if empty:
        lines.append(
            f"no piece fell to {' and '.join(empty)}: add files, or put them into folders named "
            "train and valid"
        )
    return lines
