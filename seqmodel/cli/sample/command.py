"""`seqmodel sample`: new pieces from a run, to a file or to stdout."""

import math
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from seqmodel.cli.common import message, print_json
from seqmodel.cli.completion import one_of
from seqmodel.cli.options import (
    Device,
    Force,
    Json,
    Quiet,
    check_target,
    check_temperature,
    chosen_run,
    exclude,
    options_of,
    with_media_options,
)
from seqmodel.cli.sample.drawing import draw_pieces
from seqmodel.cli.sample.filling import fill_pieces
from seqmodel.cli.sample.targets import Targets
from seqmodel.errors import UsageError
from seqmodel.media.definitions import Medium, SampleRequest
from seqmodel.media.registry import MEDIA, medium_of
from seqmodel.unit_setting import unit_name

OTHER_SUFFIXES = {"midi": "mid", "wave": "wav", "oga": "ogg"}
WRITTEN = ", ".join(
    f"{medium.name} as {' '.join('.' + kind for kind in medium.formats)}"
    for medium in MEDIA.values()
)
DEFAULT_LENGTH = "; ".join(medium.default_length for medium in MEDIA.values())


pieces_option = partial(typer.Option, rich_help_panel="Pieces")
primer_option = partial(typer.Option, rich_help_panel="Primer")


def _formats() -> str:
    """All formats of all media."""
    kinds = dict.fromkeys(kind for medium in MEDIA.values() for kind in medium.formats)
    return ", ".join(kinds)


@with_media_options(attrgetter("sample_options"))
def sample(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help=f"{WRITTEN}; or - for stdout, with --format.")
    ],
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Its folder or zip.  [default: the newest that can write OUT]"
        ),
    ] = None,
    number: Annotated[
        int, pieces_option("-n", "--number", min=1, help="Pieces: out-1.mid, out-2.mid, ...")
    ] = 1,
    length: Annotated[
        int | None,
        pieces_option(
            min=1,
            help=f"Frames; a run trained with --end may stop sooner.  [default: {DEFAULT_LENGTH}]",
        ),
    ] = None,
    seconds: Annotated[
        float | None, pieces_option(min=0.001, help="Length in seconds instead.")
    ] = None,
    min_length: Annotated[
        int,
        pieces_option(
            min=1,
            metavar="FRAMES",
            help="The model may not end a piece before this many frames.",
            show_default=False,
        ),
    ] = 1,
    no_end: Annotated[
        bool, pieces_option("--no-end", help="The model may not end a piece at all.")
    ] = False,
    best_of: Annotated[
        int,
        pieces_option(
            min=1,
            help="Draw as many for each, and keep the one whose nats per frame come nearest to "
            "training's.",
        ),
    ] = 1,
    seed: Annotated[int, pieces_option(min=0, help="The same seed gives the same bytes.")] = 1,
    temperature: Annotated[
        float,
        pieces_option(
            min=0.0,
            help="Below 1 tamer (notes sparser, sound smoother), above 1 wilder; 0: always the "
            "likeliest.",
        ),
    ] = 1.0,
    prime: Annotated[
        Path | None,
        primer_option(
            metavar="FILE", help="Continue this file, of the run's medium, or a sampled .npy."
        ),
    ] = None,
    prime_frames: Annotated[
        int | None, primer_option(min=1, help="Only its first frames, at most.")
    ] = None,
    prime_seconds: Annotated[
        float | None, primer_option(min=0.001, help="Only its first seconds, at most.")
    ] = None,
    include_prime: Annotated[
        bool,
        primer_option("--include-prime/--no-include-prime", help="Write it before the new frames."),
    ] = False,
    *,
    output_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"{_formats()}, if OUT's suffix does not say; npy holds the frames, raw 16-bit "
            "PCM, little-endian, without a header.",
            autocompletion=one_of(_formats().split(", ")),
        ),
    ] = None,
    device: Device = "auto",
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **media_options: Any,
) -> None:
    """Draw new pieces from what a run has learned.

    MIDI of music, WAV or FLAC of audio, written here and prepared again as the run's data were,
    gives back exactly what was drawn. Audio has the run's rate, in 16 bits; with - as wav or raw it
    plays while it grows: seqmodel sample - --format wav | aplay. Music as sound is played by a
    small synthesizer at 44,100 Hz. A run trained with --end stops by itself; whether it did, or
    was cut off at the limit, is reported. With --fill a part of a file is drawn anew, so that it
    fits the rest: a bar, some notes, or the voices under a melody.
    """
    kind = _format(out, output_format)
    targets = Targets(out, number)
    exclude({"--length": length, "--seconds": seconds})
    exclude({"--min-length": min_length > 1, "--no-end": no_end})
    exclude({"--prime-frames": prime_frames, "--prime-seconds": prime_seconds})
    exclude({"--json": as_json, "OUT -": targets.to_stdout})
    of_prime = {
        "--prime-frames": prime_frames,
        "--prime-seconds": prime_seconds,
        "--include-prime": include_prime,
    }
    for option, value in of_prime.items():
        if value and prime is None:
            raise UsageError(f"{option} needs --prime FILE")
    check_temperature(temperature)
    excluded_by_fill = {
        "--length": length,
        "--seconds": seconds,
        "--min-length": min_length > 1,
        "--no-end": no_end,
        "--prime": prime,
        "--best-of": best_of > 1,
        "--temperature 0": temperature == 0,
        "--device cuda": device == "cuda",
    }
    for option, given in excluded_by_fill.items():
        exclude({"--fill": media_options.get("fill"), option: given})

    from seqmodel.runs.folder import load_run

    if not targets.to_stdout:
        for target in targets:
            check_target(target, force=force)
    loaded = load_run(chosen_run(run, _able(kind), quiet=quiet))
    medium = medium_of(loaded.frame)
    trained = f"{loaded.folder} was trained on {medium.name} ({loaded.frame})"
    _check(kind, medium, trained)
    if (min_length > 1 or no_end) and not loaded.config.end:
        raise UsageError(
            f"{loaded.folder} was trained without --end, so its pieces always last until the "
            f"limit: leave out {'--no-end' if no_end else '--min-length'}"
        )
    options = options_of(medium, media_options, attrgetter("sample_options"), trained)
    _check_file("continue", "--prime", prime, medium, trained)
    _check_file("fill", "--fill", options.get("fill"), medium, trained)
    request = SampleRequest(
        kind=kind,
        length=length,
        seconds=seconds,
        shortest=min_length,
        prime=prime,
        prime_frames=prime_frames,
        prime_seconds=prime_seconds,
        include_prime=include_prime,
        options=options,
        title=f"sampled from {loaded.folder} ({unit_name(loaded.config.unit)})",
        longest_piece=loaded.longest_piece if loaded.config.end else None,
    )
    sampling = medium.sampling(loaded.frame, request)
    for remark in sampling.remarks:
        message(remark, quiet=quiet)
    # A step of one piece is too small for a GPU to be faster.
    place = loaded.model.choose_device("cpu" if device == "auto" else device, 1)
    loaded.model.to(place)
    manner: dict[str, Any] = {
        "seed": seed, "temperature": temperature, "quiet": quiet, "as_json": as_json,
    }  # fmt: skip
    if sampling.filling is not None:
        pieces = fill_pieces(loaded, sampling, sampling.filling, targets, **manner)
    else:
        shortest = math.inf if no_end else min_length
        pieces = draw_pieces(
            loaded, sampling, targets, shortest=shortest, best_of=best_of, **manner
        )
    if as_json:
        print_json({"run": str(loaded.folder), "seed": seed, "pieces": pieces})


def _format(out: Path, given: str | None) -> str:
    suffix = "" if str(out) == "-" else out.suffix.lower().lstrip(".")
    told = OTHER_SUFFIXES.get(suffix, suffix)
    kind = given or told
    if not _able(kind):
        what = "--format" if given or str(out) == "-" else f"the suffix of {out}"
        raise UsageError(f"{what} must be one of {_formats()}")
    if kind != told and _able(told):
        raise UsageError(f"--format {kind} contradicts the suffix of {out}: leave one out")
    return kind


def _able(kind: str) -> list[str]:
    """The media that can be written in a format, first those whose files have it."""
    able = [medium for medium in MEDIA.values() if kind in medium.formats]
    return [medium.name for medium in sorted(able, key=lambda m: f".{kind}" not in m.suffixes)]


def _check(kind: str, medium: Medium, trained: str) -> None:
    """UsageError if the format belongs to another medium than the run's."""
    if kind not in medium.formats:
        raise UsageError(
            f"{trained}, which cannot be written as {kind}: take one of "
            f"{', '.join(medium.formats)}, or another run with --run"
        )


def _check_file(use: str, option: str, file: Path | None, medium: Medium, trained: str) -> None:
    """UsageError if a file that is to be continued or filled belongs to another medium."""
    if file is None:
        return
    suffix = file.suffix.lower()
    others = [other for other in MEDIA.values() if suffix in other.suffixes]
    if suffix != ".npy" and others and medium not in others:
        raise UsageError(f"{trained} and cannot {use} {file}: {option} must be {medium.name} too")
