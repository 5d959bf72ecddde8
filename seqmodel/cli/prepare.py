"""`seqmodel prepare`: music or audio to a prepared dataset."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seqmodel.cli.common import (
    Force,
    Json,
    Quiet,
    counter,
    how_to_split,
    message,
    plural,
    print_json,
    seconds,
    split_lines,
)
from seqmodel.errors import UsageError

if TYPE_CHECKING:
    from seqmodel.data.sources import Source
    from seqmodel.media.music.grid import Grid

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
            help="MIDI files, published rolls (.mat .pickle .npz .npy) or audio (.wav .flac .mp3 "
            "...), folders, globs, or - for paths on stdin.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The dataset's folder.")],
    steps_per_beat: Annotated[
        int | None,
        typer.Option(help="MIDI: frames in a quarter note.  [default: 4; published rolls have 2]"),
    ] = None,
    step_seconds: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="MIDI: frames of so many seconds instead.")
    ] = None,
    restrike: Annotated[
        Literal["close", "discard"] | None,
        typer.Option(
            help="MIDI: a note struck again while it sounds ends there, or never was.  "
            "[default: close]"
        ),
    ] = None,
    drums: Annotated[
        Literal["drop", "keep"] | None,
        typer.Option(help="MIDI: what to do with channel 10.  [default: drop]"),
    ] = None,
    transpose_to_c: Annotated[
        bool, typer.Option("--transpose-to-c", help="MIDI: move each piece's estimated tonic to C.")
    ] = False,
    rate: Annotated[
        int | None,
        typer.Option(
            metavar="HZ", help="Audio: samples a second.  [default: the files', where all agree]"
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(help="Audio: samples that a frame is predicted from.  [default: 20]"),
    ] = None,
    frame: Annotated[
        int | None, typer.Option(help="Audio: samples in a frame.  [default: 10]")
    ] = None,
    clip_seconds: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Audio: cut longer recordings into such pieces."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail at the first file that cannot be used.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn MIDI, published rolls or audio into a dataset.

    Folders named train, valid and test decide the splits; all other pieces are split 80/10/10 by a
    hash of their content. A file that cannot be used is skipped and explained.
    """
    from seqmodel.data.prepare import prepare as prepare_dataset
    from seqmodel.data.sources import find_sources, the_media
    from seqmodel.media.definitions import AudioSettings, PianoRollFrames

    music_options = {
        "--steps-per-beat": steps_per_beat,
        "--step-seconds": step_seconds,
        "--restrike": restrike,
        "--drums": drums,
        "--transpose-to-c": transpose_to_c or None,
    }
    audio_options = {
        "--rate": rate,
        "--context": context,
        "--frame": frame,
        "--clip-seconds": clip_seconds,
    }
    names = [name for source in sources for name in (_stdin() if source == "-" else [source])]
    found = find_sources(names)
    wanted: PianoRollFrames | AudioSettings
    note = ""
    if the_media(found) == "audio":
        _refuse(music_options, f"is for music, and {found[0].path} is audio")
        sizes = {"rate": rate, "context": context, "frame_size": frame}
        given = {name: value for name, value in sizes.items() if value is not None}
        wanted = AudioSettings(clip_seconds=clip_seconds, **given)
    else:
        _refuse(audio_options, f"is for audio, and {found[0].path} is none")
        grid, note = _grid(found, steps_per_beat, step_seconds)
        wanted = PianoRollFrames(grid, restrike or "close", drums == "keep", transpose_to_c)
    with counter("reading", quiet=quiet) as progress:
        manifest = prepare_dataset(
            names, out, wanted, force=force, strict=strict, progress=progress
        )
    if as_json:
        print_json(manifest)
    elif not quiet:
        typer.echo(_summary(out, manifest))
    for line in [note, *_warnings(manifest)]:
        if line:
            message(line, quiet=quiet)


def _refuse(options: Mapping[str, object], why: str) -> None:
    """UsageError where one of the options was given."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} {why}")


def _grid(
    sources: Sequence["Source"], steps_per_beat: int | None, step_seconds: str | None
) -> tuple["Grid", str]:
    """The grid of music, and what there is to say of it."""
    from seqmodel.data.sources import ROLL_SUFFIXES
    from seqmodel.media.music.grid import Grid

    if steps_per_beat is not None and step_seconds is not None:
        raise UsageError("--steps-per-beat and --step-seconds exclude each other")
    if step_seconds is not None:
        return Grid.of_seconds(step_seconds), ""
    if steps_per_beat is not None:
        return Grid.of_beats(steps_per_beat), ""
    suffixes = {source.path.suffix.lower() for source in sources}
    if suffixes <= ROLL_SUFFIXES:
        return Grid.of_beats(PUBLISHED_STEPS_PER_BEAT), ""
    mixed = not suffixes.isdisjoint(ROLL_SUFFIXES)
    note = "rolls state no grid of their own: that of the MIDI files is taken" if mixed else ""
    return Grid.of_beats(STEPS_PER_BEAT), note


def _stdin() -> list[str]:
    names = [line.rstrip("\n") for line in sys.stdin]
    names = [name for name in names if name]
    if not names:
        raise UsageError("- stands for paths on stdin, one a line, and there are none")
    return names


def _summary(out: Path, manifest: dict[str, Any]) -> str:
    from seqmodel.media.definitions import definition_from_json

    frame = definition_from_json(manifest["media"], manifest["frame"])
    if manifest["media"] == "music":
        return "\n".join([f"{out}: {frame}", *split_lines(manifest["splits"])])
    head = f"{out}: {frame}, stored as {manifest['frame']['dtype']}"
    return "\n".join([head, *split_lines(manifest["splits"], seconds(manifest))])


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
            f"{plural(len(straddling), 'piece')} stood in two splits, such as "
            f"{straddling[0]}; figures on those splits are a little too good"
        )
    splits = manifest["splits"]
    empty = [split for split in ("train", "valid") if not splits[split]["pieces"]]
    if empty:
        advice = how_to_split(manifest) or (
            "add files, or put them into folders named train and valid"
        )
        lines.append(f"no piece fell to {' and '.join(empty)}: {advice}")
    return lines
