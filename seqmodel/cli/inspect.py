"""`seqmodel inspect`: what a media file, a dataset or a run holds."""

from pathlib import Path
from typing import Annotated, Any

import typer

from seqmodel.cli.common import (
    Force,
    Json,
    Quiet,
    message,
    plural,
    print_json,
    seconds,
    split_lines,
)
from seqmodel.errors import UsageError


def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A MIDI or audio file, a piano-roll (.npy), a prepared dataset or a run folder.",
        ),
    ],
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw it too, as PNG.")
    ] = None,
    steps_per_beat: Annotated[
        int, typer.Option(min=1, help="The grid a MIDI file is shown on.")
    ] = 4,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what a media file, a dataset or a run holds; --plot draws it.

    Music is drawn as a piano-roll, audio as waveform and spectrogram, a dataset as how often each
    note or sample value comes, a run as its learning curve. A dataset is read whole and held
    against the hashes of its pieces.
    """
    from seqmodel.files import check_writable, refuse_existing
    from seqmodel.media.music.grid import Grid
    from seqmodel.report import inspection

    if plot is not None and plot.suffix.lower() != ".png":
        raise UsageError(f"--plot draws PNG only: {plot} must end in .png")
    if plot is not None:
        refuse_existing(plot, force=force)
        check_writable(plot)
    kind = inspection.kind_of(path)
    if kind == "midi":
        values = inspection.inspect_midi(path, Grid.of_beats(steps_per_beat), plot)
    elif kind == "roll":
        values = inspection.inspect_roll(path, plot)
    elif kind == "audio":
        values = inspection.inspect_audio(path, plot)
    elif kind == "dataset":
        values = inspection.inspect_dataset(path, plot)
    else:
        values = inspection.inspect_run(path, plot)
    if as_json:
        print_json(values)
    else:
        say = {"midi": _midi, "roll": _roll, "audio": _audio, "dataset": _dataset, "run": _run}[
            kind
        ]
        typer.echo(say(values))
    if plot is not None:
        message(f"drawn to {plot}", quiet=quiet)


def _midi(values: dict[str, Any]) -> str:
    tempo = "SMPTE time" if values["tempo_bpm"] is None else f"{values['tempo_bpm']:g} bpm"
    changes = values["tempo_changes"]
    lines = [
        f"{values['path']}: MIDI format {values['format']}, {plural(values['tracks'], 'track')}",
        f"  {_notes(values)}"
        + (f", {values['drum_notes']:,} of them drums" if values["drum_notes"] else ""),
        f"  {values['seconds']:.1f} s at {tempo}"
        + (f", {plural(changes, 'tempo change')}" if changes else ""),
        f"  tonic {values['tonic']} (estimated)",
        f"  {plural(values['frames'], 'frame')} at {values['grid']}, "
        f"{values['notes_per_frame']:.2f} notes per frame",
    ]
    return "\n".join(lines + [f"  forgiven: {remark}" for remark in values["remarks"]])


def _roll(values: dict[str, Any]) -> str:
    return (
        f"{values['path']}: piano-roll of {plural(values['frames'], 'frame')}\n"
        f"  {_notes(values)}, {values['notes_per_frame']:.2f} notes per frame"
    )


def _notes(values: dict[str, Any]) -> str:
    span = f" from {values['lowest']} to {values['highest']}" if values["lowest"] else ""
    return plural(values["notes"], "note") + span


def _audio(values: dict[str, Any]) -> str:
    level = "silent" if values["rms_db"] is None else f"RMS {values['rms_db']:.1f} dB"
    lines = [
        f"{values['path']}: {values['container']} {values['subtype']}, {values['rate']:,} Hz, "
        f"{plural(values['channels'], 'channel')}",
        f"  {values['seconds']:,.3f} s, {plural(values['samples'], 'sample')}",
        f"  peak {values['peak']:.4f}, {level}, {values['clipped_samples']:,} clipped",
        f"  {plural(values['frames'], 'frame')} of {values['frame_size']} samples, mono, stored as "
        f"{values['dtype']}",
    ]
    return "\n".join(lines + [f"  forgiven: {remark}" for remark in values["remarks"]])


def _dataset(values: dict[str, Any]) -> str:
    from seqmodel.media.definitions import definition_from_json

    frame = values["frame"]
    lines = [f"{values['path']}: dataset of {definition_from_json(values['media'], frame)}"]
    if values["media"] == "audio":
        lines += split_lines(values["splits"], seconds(values))
        lines += [
            f"  stored as {frame['dtype']}; train has mean {frame['mean']:.4g} and deviation "
            f"{frame['deviation']:.4g}"
        ]
    else:
        densities = values["notes_per_frame"].items()
        more = {name: f"{density:.2f} notes per frame" for name, density in densities}
        lines += split_lines(values["splits"], more)
    lines.append("  every piece is as it was prepared")
    lines += [f"  skipped {skip['source']}: {skip['reason']}" for skip in values["skipped"]]
    return "\n".join(lines)


def _run(values: dict[str, Any]) -> str:
    best = values.get("best", {})
    of_audio = "valid_nats_per_sample" in best
    lines = [f"{values['path']}: run of {plural(values['epochs'], 'epoch')}"]
    if "config" in values:
        config = values["config"]
        lines += [
            f"  {config['unit']}, {config['hidden']} hidden, {plural(config['layers'], 'layer')}: "
            f"{values['unit_parameters']:,} parameters, {values['parameters']:,} with the output",
            f"  trained on {config['data']}, {values['frames']}",
        ]
        if of_audio:  # their figures do not compare
            output = "gaussian" if config["output"] == "auto" else config["output"]
            lines.insert(2, f"  {output} output, {plural(config['components'], 'component')}")
    if best:
        lines.append(
            f"  best valid {best['valid_nats_per_frame']:.4f} nats per frame"
            + (f", {best['valid_nats_per_sample']:.4f} per sample" if of_audio else "")
            + f", epoch {best['epoch']}"
            + (f"; accuracy {best['valid_accuracy']:.4f}" if "valid_accuracy" in best else "")
        )
    return "\n".join(lines)
