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
    split_lines,
)
from seqmodel.cli.media_options import options_of, with_media_options
from seqmodel.errors import UsageError
from seqmodel.media.definitions import Medium, Option
from seqmodel.media.registry import MEDIA, definition_from_json, medium_of_file


def _rows(medium: Medium) -> tuple[Option, ...]:
    return medium.inspect_options


@with_media_options(_rows)
def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A media file, a prepared dataset or a run folder.",
        ),
    ],
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw it too, as PNG.")
    ] = None,
    *,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **media_options: Any,
) -> None:
    """Say what a media file, a dataset or a run holds; --plot draws it.

    Music is drawn as a piano-roll, audio as waveform and spectrogram, a dataset as how often each
    note or sample value comes, a run as its learning curve. A dataset is read in full and compared
    with the hashes of its pieces.
    """
    from seqmodel.files import check_writable, refuse_existing
    from seqmodel.report import inspection

    if plot is not None and plot.suffix.lower() != ".png":
        raise UsageError(f"--plot draws PNG only: {plot} must end in .png")
    if plot is not None:
        refuse_existing(plot, force=force)
        check_writable(plot)
    kind = inspection.kind_of(path)
    if kind == "dataset":
        values, lines = inspection.inspect_dataset(path, plot), _dataset
    elif kind == "run":
        values, lines = inspection.inspect_run(path, plot), _run
    else:
        medium = medium_of_file(path)
        options = options_of(medium, media_options, _rows, f"{path} is {medium.name}")
        values, lines = medium.inspect_file(path, options, plot), medium.file_lines
    if as_json:
        print_json(values)
    else:
        typer.echo("\n".join(lines(values)))
    if plot is not None:
        message(f"drawn to {plot}", quiet=quiet)


def _dataset(values: dict[str, Any]) -> list[str]:
    medium = MEDIA[values["media"]]
    return [
        f"{values['path']}: dataset of {definition_from_json(values['media'], values['frame'])}",
        *split_lines(values["splits"], medium.split_columns(values)),
        *medium.dataset_lines(values),
        "  every piece is as it was prepared",
        *(f"  skipped {skip['source']}: {skip['reason']}" for skip in values["skipped"]),
    ]


def _run(values: dict[str, Any]) -> list[str]:
    lines = [f"{values['path']}: run of {plural(values['epochs'], 'epoch')}"]
    best = values.get("best", {})
    mixture = "valid_nats_per_sample" in best
    if "config" in values:
        config = values["config"]
        lines.append(
            f"  {config['unit']}, {config['hidden']} hidden, {plural(config['layers'], 'layer')}: "
            f"{values['unit_parameters']:,} parameters, {values['parameters']:,} with the output"
        )
        if mixture:  # figures of different outputs do not compare
            components = plural(config["components"], "component")
            lines.append(f"  {values['output']} output, {components}")
        lines.append(f"  trained on {config['data']}, {values['frames']}")
    if best:
        lines.append(
            f"  best valid {best['valid_nats_per_frame']:.4f} nats per frame"
            + (f", {best['valid_nats_per_sample']:.4f} per sample" if mixture else "")
            + f", epoch {best['epoch']}"
            + (f"; accuracy {best['valid_accuracy']:.4f}" if "valid_accuracy" in best else "")
        )
    return lines
