"""`seqmodel sample`: new pieces from a run, to a file or to stdout."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqmodel.cli.common import Force, Quiet
from seqmodel.cli.sample.request import DEFAULT_LENGTH, DEFAULT_SECONDS, DEFAULT_TEMPO, Request
from seqmodel.errors import UsageError

if TYPE_CHECKING:
    from seqmodel.media.definitions import Media
    from seqmodel.runs.folder import Run

FORMATS: "dict[Media, tuple[str, ...]]" = {
    "music": ("mid", "npy", "png"),
    "audio": ("wav", "flac", "raw", "npy", "png"),
}
ALL_FORMATS = tuple(dict.fromkeys(FORMATS["music"] + FORMATS["audio"]))
OTHER_SUFFIXES = {"midi": "mid", "wave": "wav"}


def sample(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="Of music a .mid, of audio a .wav, .flac or .raw file; of either .npy (frames) or "
            ".png; - for stdout, with --format.",
        ),
    ],
    run: Annotated[
        Path | None, typer.Option(help="The run folder.  [default: the newest that can write OUT]")
    ] = None,
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="Pieces: out-1.mid, out-2.mid, ...")
    ] = 1,
    length: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Frames.  [default: {DEFAULT_LENGTH} of music, or with --end as long as the "
            f"longest training piece at most; {DEFAULT_SECONDS:g} seconds of audio]",
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.001, help="Length in seconds instead.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same bytes.")] = 1,
    temperature: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Below 1 tamer (notes sparser, sound smoother), above 1 wilder; 0: always the "
            "likeliest.",
        ),
    ] = 1.0,
    prime: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A MIDI file, or for audio an audio file, to go on from; or a sampled .npy.",
        ),
    ] = None,
    include_prime: Annotated[
        bool, typer.Option("--include-prime/--no-include-prime", help="Put it before the new.")
    ] = False,
    tempo: Annotated[
        float | None,
        typer.Option(
            min=4.0,
            max=1000.0,
            help="Of music, beats per minute, in the file and --seconds.  "
            f"[default: {DEFAULT_TEMPO:g}]",
        ),
    ] = None,
    output_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="mid, wav, flac, raw (16-bit PCM, little-endian, no header), npy or png, where "
            "OUT does not tell.",
        ),
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Draw new pieces from what a run has learned.

    A MIDI, WAV or FLAC file written here and prepared again as the run's data were gives back
    exactly what was drawn. Audio has the run's rate, in 16 bits; with - as wav or raw it plays
    while it grows: seqmodel sample - --format wav | aplay. A run trained with --end stops by
    itself.
    """
    request = Request(
        out=out,
        kind=_format(out, output_format),
        number=number,
        length=length,
        seconds=seconds,
        seed=seed,
        temperature=temperature,
        prime=prime,
        include_prime=include_prime,
        tempo=tempo,
        quiet=quiet,
    )
    _check(request)

    from seqmodel.files import check_writable, refuse_existing
    from seqmodel.media.definitions import AudioFrames
    from seqmodel.runs.folder import load_run, newest_run

    if not request.to_stdout:
        for target in request.targets:
            refuse_existing(target, force=force)
            check_writable(target)
    loaded = load_run(run or newest_run(media=_media(request.kind)))
    _check_medium(request, loaded)
    if isinstance(loaded.frame, AudioFrames):
        from seqmodel.cli.sample.audio import sample_audio

        sample_audio(request, loaded, loaded.frame)
    else:
        from seqmodel.cli.sample.music import sample_music

        sample_music(request, loaded, loaded.frame)


def _format(out: Path, given: str | None) -> str:
    suffix = "" if str(out) == "-" else out.suffix.lower().lstrip(".")
    kind = given or OTHER_SUFFIXES.get(suffix, suffix)
    if kind not in ALL_FORMATS:
        what = "--format" if given or str(out) == "-" else f"the suffix of {out}"
        raise UsageError(f"{what} must be one of {', '.join(ALL_FORMATS)}")
    return kind


def _media(kind: str) -> "Media | None":
    """The one medium that is written in a format; None where both are."""
    able = [media for media, kinds in FORMATS.items() if kind in kinds]
    return able[0] if len(able) == 1 else None


def _check(request: Request) -> None:
    """UsageError for options that do not go together, whatever the run."""
    if request.to_stdout and request.number > 1:
        raise UsageError("-n above 1 needs a file name, not stdout")
    if request.length is not None and request.seconds is not None:
        raise UsageError("--length and --seconds exclude each other")
    if request.include_prime and request.prime is None:
        raise UsageError("--include-prime needs --prime FILE")
    if not math.isfinite(request.temperature):
        raise UsageError(f"--temperature must be finite, not {request.temperature}")


def _check_medium(request: Request, run: "Run") -> None:
    """UsageError where the options ask for the other medium than the run was trained on."""
    from seqmodel.data.sources import MIDI_SUFFIXES
    from seqmodel.media.audio import reader as audio

    media, trained = run.frame.media, f"{run.folder} was trained on {run.frame.media} ({run.frame})"
    if request.kind not in FORMATS[media]:
        written = ", ".join(FORMATS[media])
        raise UsageError(
            f"{trained}, which cannot be written as {request.kind}: take one of {written}, or "
            "another run with --run"
        )
    if request.tempo is not None and media == "audio":
        raise UsageError(f"{trained}, which has no tempo: leave --tempo out")
    if request.prime is not None:
        suffix = request.prime.suffix.lower()
        kind, others = (
            ("an audio", MIDI_SUFFIXES) if media == "audio" else ("a MIDI", audio.SUFFIXES)
        )
        if suffix in others:
            raise UsageError(
                f"{trained} and cannot go on from {request.prime}: give --prime {kind} file"
            )
