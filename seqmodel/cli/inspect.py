"""`seqmodel inspect`: what a media file, a dataset or a run holds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from seqmodel.cli.common import message, print_json, show, split_lines
from seqmodel.cli.options import (
    Force,
    Json,
    Quiet,
    check_plot,
    check_target,
    options_of,
    with_media_options,
)
from seqmodel.cli.prepare import label_lines
from seqmodel.cli.progress import display, partial_note
from seqmodel.errors import UsageError
from seqmodel.media.definitions import Medium, Option
from seqmodel.media.registry import MEDIA, definition_from_json, medium_of_file
from seqmodel.media.words import epochs_text

RENDERED = " or ".join(medium.name for medium in MEDIA.values() if medium.listen_formats)
KINDS = dict.fromkeys(kind for medium in MEDIA.values() for kind in medium.listen_formats)
SOUNDS = ", ".join(f".{kind}" for kind in KINDS)
"""All formats that --listen writes."""


def _rows(medium: Medium) -> tuple[Option, ...]:
    return (*medium.inspect_options, *medium.listen_options)


@with_media_options(_rows)
def inspect(
    path: Path = typer.Argument(
        ..., metavar="PATH", help="A media file, a prepared dataset or a run."
    ),
    plot: Path | None = typer.Option(None, metavar="FILE.png", help="Also draw it, as PNG."),
    listen: Path | None = typer.Option(
        None, metavar="FILE.wav", help=f"Also render a file of {RENDERED} as sound: {SOUNDS}."
    ),
    *,
    verify: bool = typer.Option(
        False,
        "--verify",
        help="Check all bytes against their hashes, as is always done for datasets.",
    ),
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **media_options: Any,
) -> None:
    """Describe a media file, a dataset or a run; --plot draws it.

    Music is drawn as a piano-roll, audio as waveform and spectrogram, a dataset as a histogram of
    notes or sample values, a run as its learning curve. A dataset is read in full and checked
    against the hashes of its pieces. --listen renders music with a small synthesizer as a model
    sees it, on the grid of the drawing.
    """
    from seqmodel.report import inspection

    kind = inspection.kind_of(path)
    _check_listen(listen, path, kind, media_options)
    if verify and kind not in ("dataset", "run"):
        raise UsageError(f"--verify is for datasets and runs, which store hashes, not for {path}")
    if plot is not None:
        check_plot(plot, force=force)
    if listen is not None:
        check_target(listen, force=force)
    if kind == "dataset":
        values, lines = inspection.inspect_dataset(path, plot), _dataset
    elif kind == "run":
        values, lines = inspection.inspect_run(path, plot, verify=verify), _run
    else:
        medium = medium_of_file(path)
        options = options_of(medium, media_options, _rows, f"{path} is {medium.name}")
        with display("reading"):
            values, lines = medium.inspect_file(path, options, plot), medium.file_lines
        if listen is not None:
            with display("rendering"):
                medium.listen(path, options, listen)
    if as_json:
        print_json(values)
    else:
        show(*lines(values))
    if plot is not None:
        message(f"drawn to {plot}")
    if listen is not None:
        message(f"rendered to {listen}")


def _check_listen(
    listen: Path | None, path: Path, kind: str, media_options: Mapping[str, Any]
) -> None:
    """UsageError if --listen is impossible, or missing for an option that requires it."""
    if listen is None:
        for option in (option for medium in MEDIA.values() for option in medium.listen_options):
            if media_options[option.name] is not None:
                raise UsageError(f"{option.flag} needs --listen")
        return
    stored = kind in ("dataset", "run", "rolls")
    medium = medium_of_file(path)
    if stored or not medium.listen_formats:
        what = "a file of rolls" if kind == "rolls" else f"a {kind}" if stored else medium.name
        raise UsageError(f"--listen renders files of {RENDERED}, and {path} is {what}")
    if listen.suffix.lower().lstrip(".") not in medium.listen_formats:
        raise UsageError(f"--listen writes sound only: {listen} must end in one of {SOUNDS}")


def _dataset(values: dict[str, Any]) -> list[str]:
    medium, frame = MEDIA[values["media"]], definition_from_json(values["media"], values["frame"])
    return [
        f"{values['path']}: dataset of {frame}",
        *split_lines(values["splits"], medium.split_columns(values)),
        *label_lines(frame.known_labels),
        *medium.dataset_lines(values),
        "  every piece matches its hash",
        *(f"  skipped {skip['source']}: {skip['reason']}" for skip in values["skipped"]),
    ]


def _run(values: dict[str, Any]) -> list[str]:
    epochs = values["epochs"]
    lines = [f"{values['path']}: run of {epochs_text(epochs)} epoch{'s' * (epochs != 1)}"]
    if "verified" in values:
        lines.append(f"  unchanged: {', '.join(values['verified'])}")
    best = values.get("best", {})
    if "config" in values:
        lines.append(f"  {values['model']}")
        lines.append(
            f"  {values['parameters']:,} parameters, "
            f"{values['parameters_with_output']:,} with the output"
        )
        lines.append(f"  trained on {values['config']['data']}, {values['frames']}")
        lines += label_lines(values["labels"])
    if best:
        per_sample = "valid_nats_per_sample" in best
        lines.append(
            f"  best valid {best['valid_nats_per_frame']:.4f} nats per frame"
            + (f", {best['valid_nats_per_sample']:.4f} per sample" if per_sample else "")
            + f", epoch {epochs_text(best['epoch'])}{partial_note(best)}"
            + (f"; accuracy {best['valid_accuracy']:.4f}" if "valid_accuracy" in best else "")
        )
    if values.get("remark"):
        lines.append(f"  {values['remark']}")
    return lines
