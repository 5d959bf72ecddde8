"""`seqmodel sample`: new pieces from a run, to a file or to stdout."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqmodel.cli.common import Force, Quiet, message, plural
from seqmodel.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from seqmodel.runs import Run

FORMATS = ("mid", "npy", "png")
DEFAULT_LENGTH = 256


def sample(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="A .mid, .npy or .png file; - for stdout, with --format."
        ),
    ],
    run: Annotated[Path | None, typer.Option(help="The run folder.  [default: the newest]")] = None,
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="Pieces: out-1.mid, out-2.mid, ...")
    ] = 1,
    length: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Frames.  [default: {DEFAULT_LENGTH}; with --end, as long as the longest "
            "training piece at most]",
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
            help="Below 1 tamer and sparser, above 1 wilder; 0: the notes likelier on than off.",
        ),
    ] = 1.0,
    prime: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A MIDI file to go on from.")
    ] = None,
    include_prime: Annotated[
        bool, typer.Option("--include-prime/--no-include-prime", help="Put it before the new.")
    ] = False,
    tempo: Annotated[
        float,
        typer.Option(min=4.0, max=1000.0, help="Beats per minute, in the file and --seconds."),
    ] = 120.0,
    output_format: Annotated[
        str | None, typer.Option("--format", help="mid, npy or png, where OUT does not tell.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Draw new pieces from what a run has learned.

    A run trained with --end stops by itself. A MIDI file written here and prepared again with the
    run's grid gives back exactly the frames that were drawn.
    """
    kind = _format(out, output_format)
    if str(out) == "-" and number > 1:
        raise UsageError("-n above 1 needs a file name, not stdout")
    if length is not None and seconds is not None:
        raise UsageError("--length and --seconds exclude each other")
    if include_prime and prime is None:
        raise UsageError("--include-prime needs --prime FILE")
    targets = [out] if number == 1 else [_numbered(out, k + 1) for k in range(number)]

    import numpy as np

    from seqmodel.files import check_writable, refuse_existing, write_file
    from seqmodel.frames.grid import MAX_FRAMES
    from seqmodel.runs import load_run, newest_run
    from seqmodel.sample import sample_piece

    if str(out) != "-":
        for target in targets:
            refuse_existing(target, force=force)
            check_writable(target)
    loaded = load_run(run or newest_run())
    if seconds is not None:
        frames = seconds / loaded.frame.grid.seconds_per_frame(tempo)
        length = max(1, round(min(frames, MAX_FRAMES + 1)))
    elif length is None:
        length = loaded.longest_piece if loaded.config.end else DEFAULT_LENGTH
    if length > MAX_FRAMES:
        option = "--length" if seconds is None else "--seconds"
        raise UsageError(f"{option} asks for more than the {MAX_FRAMES:,} frames a piece may have")
    primer = _read_primer(prime, loaded, quiet) if prime else None
    for k, target in enumerate(targets):
        roll = sample_piece(
            loaded, length, seed=seed, number=k, temperature=temperature, prime=primer
        )
        heard = 0
        if include_prime and primer is not None:
            heard, roll = len(primer), np.concatenate([primer, roll])
        data = _encode(kind, roll, loaded, tempo, heard)
        if str(out) == "-":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            write_file(target, data)
            silent = "" if roll.any() else ", silent: try a higher --temperature"
            what = f"{target}: {plural(len(roll), 'frame')} from {loaded.folder}{silent}"
            message(what, quiet=quiet)


def _format(out: Path, given: str | None) -> str:
    kind = given or (
        "" if str(out) == "-" else out.suffix.lower().lstrip(".").replace("midi", "mid")
    )
    if kind not in FORMATS:
        what = "--format" if given or str(out) == "-" else f"the suffix of {out}"
        raise UsageError(f"{what} must be one of {', '.join(FORMATS)}")
    return kind


def _numbered(out: Path, number: int) -> Path:
    return out.with_name(f"{out.stem}-{number}{out.suffix}")


def _read_primer(path: Path, run: "Run", quiet: bool) -> "NDArray[np.uint8]":
    from seqmodel.errors import SeqmodelError, SourceError
    from seqmodel.prepare import load_midi
    from seqmodel.sources import Source

    try:
        piece = load_midi(Source(path, None), run.frame)
    except SourceError as error:
        raise SeqmodelError(f"--prime {path}: {error}") from error
    except OSError as error:
        raise SeqmodelError(f"--prime {path}: {(error.strerror or str(error)).lower()}") from error
    if piece.transposed:
        message(
            f"{path} was moved by {piece.transposed:+d} semitones, its tonic to C as in training",
            quiet=quiet,
        )
    return piece.roll


def _encode(kind: str, roll: "NDArray[np.uint8]", run: "Run", tempo: float, heard: int) -> bytes:
    if kind == "mid":
        from seqmodel.frames.midi_writer import midi_bytes

        return midi_bytes(roll, run.frame.grid, tempo_bpm=tempo)
    if kind == "png":
        from seqmodel.frames.grid import LOWEST_PITCH
        from seqmodel.plots import piano_roll_png

        title = f"sampled from {run.folder} ({run.config.unit})"
        return piano_roll_png(
            roll, LOWEST_PITCH, title=title, unit=f"frame ({run.frame.grid})", primer=heard
        )
    import io

    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, roll, allow_pickle=False)
    return buffer.getvalue()
