"""`seqmodel sample`: new pieces from a run, to files or to stdout."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

import typer

from seqmodel.cli.common import message, print_json
from seqmodel.cli.help import one_of
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
from seqmodel.cli.progress import counting, display, part
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.media.definitions import Filling, Medium, Progress, SampleRequest, Sampling, Written
from seqmodel.media.registry import MEDIA, medium_of
from seqmodel.unit_setting import unit_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seqmodel.runs.folder import Run

OTHER_SUFFIXES = {"midi": "mid", "wave": "wav", "oga": "ogg"}
WRITTEN = ", ".join(
    f"{medium.name} as {' '.join('.' + kind for kind in medium.formats)}"
    for medium in MEDIA.values()
)
DEFAULT_LENGTH = "; ".join(medium.default_length for medium in MEDIA.values())
FORMATS = [*dict.fromkeys(kind for medium in MEDIA.values() for kind in medium.formats)]
FEW_PARTICLES = 2.0
"""Where fewer are effective, what is given may be unlike the training data."""


pieces_option = partial(typer.Option, rich_help_panel="Pieces")
primer_option = partial(typer.Option, rich_help_panel="Primer")


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
            help=f"{', '.join(FORMATS)}, if OUT's suffix does not say; npy holds the frames, raw "
            "16-bit PCM, little-endian, without a header.",
            autocompletion=one_of(FORMATS),
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
    to_stdout = str(out) == "-"
    kind = _format(out, output_format)
    if to_stdout and number > 1:
        raise UsageError("-n above 1 needs a file name, not stdout")
    exclude({"--length": length, "--seconds": seconds})
    exclude({"--min-length": min_length > 1, "--no-end": no_end})
    exclude({"--prime-frames": prime_frames, "--prime-seconds": prime_seconds})
    exclude({"--json": as_json, "OUT -": to_stdout})
    of_prime = {"--prime-frames": prime_frames, "--prime-seconds": prime_seconds}
    for option, value in {**of_prime, "--include-prime": include_prime}.items():
        if value and prime is None:
            raise UsageError(f"{option} needs --prime FILE")
    check_temperature(temperature)
    not_with_fill = {
        "--length": length,
        "--seconds": seconds,
        "--min-length": min_length > 1,
        "--no-end": no_end,
        "--prime": prime,
        "--best-of": best_of > 1,
        "--temperature 0": temperature == 0,
        "--device cuda": device == "cuda",
    }
    for option, given in not_with_fill.items():
        exclude({"--fill": media_options.get("fill"), option: given})

    from seqmodel.runs.folder import load_run

    numbered = (out.with_name(f"{out.stem}-{k}{out.suffix}") for k in range(1, number + 1))
    targets = [*numbered] if number > 1 else [out]
    for target in () if to_stdout else targets:
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
    loaded.model.to(loaded.model.choose_device("cpu" if device == "auto" else device, 1))
    if sampling.filling is None:
        shortest = math.inf if no_end else min_length
        make = _drawing(loaded, sampling, seed, temperature, shortest, best_of)
        what, counted = "sampling", "drafts" if best_of > 1 else "sampling"
    else:
        make = _filling(loaded, sampling.filling, seed, temperature)
        what = counted = "filling"
    pieces = []
    with display(what, quiet=quiet) as shown:
        count = counting(shown, counted)
        for k, target in enumerate(targets):
            piece = make(k, part(count, k, number))
            with _opened(target, to_stdout=to_stdout) as file:
                written = sampling.write(file, piece.chunks, piece.progress)
            facts, lines, warnings = piece.describe(target, written)
            pieces.append({"path": str(target), **facts})
            for line in [*lines, *warnings] if not (to_stdout or as_json) else warnings:
                shown.say(line)
    if as_json:
        print_json({"run": str(loaded.folder), "seed": seed, "pieces": pieces})


class _Piece(NamedTuple):
    """A piece to be written."""

    chunks: Iterable["NDArray[Any]"]
    progress: Progress
    """Of writing it, which draws it where that is still to be done."""
    describe: Callable[[Path, Written], tuple[dict[str, Any], list[str], list[str]]]
    """Once it is written: facts for JSON, the same as lines, and warnings."""


def _drawing(
    run: "Run",
    sampling: Sampling,
    seed: int,
    temperature: float,
    shortest: float,
    best_of: int,
) -> Callable[[int, Progress], _Piece]:
    """The function that draws piece k; `shortest` is as in `Sampler.draw`.

    Of `best_of` drafts the piece is the one whose nats per frame come nearest to training's.
    """
    import numpy as np

    from seqmodel.sampling.sampler import Sampler

    sampler, primer = Sampler(run.model, temperature=temperature), sampling.primer
    usual = _training_nats(run) if best_of > 1 else 0.0

    def make(k: int, progress: Progress) -> _Piece:
        drafts = [
            sampler.piece(sampling.length, seed=seed, number=n, prime=primer, shortest=shortest)
            for n in range(k * best_of, (k + 1) * best_of)
        ]
        piece, chunks, nats = drafts[0], iter(drafts[0]), None
        if best_of > 1:
            drawn, of_drafts = [], []
            for done, draft in enumerate(drafts, 1):
                drawn.append(np.concatenate(list(draft)))
                scored = run.nll(np.concatenate([primer, drawn[-1]]))[len(primer) :]
                of_drafts.append(float(scored.mean()))
                progress(done, best_of)
            best = int(np.argmin(np.abs(np.array(of_drafts) - usual)))
            piece, chunks, nats = drafts[best], iter([drawn[best]]), of_drafts[best]

        def describe(target: Path, written: Written) -> tuple[dict[str, Any], list[str], list[str]]:
            ended_by = "model" if piece.ended else "limit"
            facts: dict[str, Any] = {"frames": piece.frames, "ended_by": ended_by}
            words = [f"{target}: {written.size} from {run.folder}"]
            if run.config.end:
                words.append("ended by the model" if piece.ended else "cut off at the limit")
            if nats is not None:
                facts["nats_per_frame"] = nats
                words.append(f"{nats:.3f} nats per frame (training {usual:.3f})")
            return facts, [", ".join(filter(None, [*words, written.hint]))], []

        return _Piece(chunks, _silent if best_of > 1 else progress, describe)

    return make


def _training_nats(run: "Run") -> float:
    """The nats per frame of train in the epoch whose weights these are."""
    from seqmodel.runs.folder import METRICS, read_metrics

    for epoch in read_metrics(run.folder):
        if epoch["epoch"] == run.epoch:
            return float(epoch["train_nats_per_frame"])
    raise SeqmodelError(f"--best-of needs epoch {run.epoch} in {run.folder / METRICS}")


def _filling(
    run: "Run", filling: Filling, seed: int, temperature: float
) -> Callable[[int, Progress], _Piece]:
    """The function that draws piece k around what is given.

    Raises:
        UsageError: where the particles do not fit in memory.
        SeqmodelError: if what is given is impossible.
    """
    import numpy as np

    from seqmodel.sampling.filling import Filler

    filler = Filler(run.model, particles=filling.particles, temperature=temperature)
    drawn = np.asarray(filling.free.any(axis=1))

    def make(k: int, progress: Progress) -> _Piece:
        filled = filler.fill(
            filling.piece, filling.free, seed=seed, number=k, sweeps=filling.sweeps,
            progress=progress,
        )  # fmt: skip
        nats = run.nll(filled.frames)
        there = float(nats[drawn].mean())
        around = float(nats[~drawn].mean()) if not drawn.all() else None
        least, median = int(np.argmin(filled.effective)), float(np.median(filled.effective))
        fewest = float(filled.effective[least])

        def describe(target: Path, written: Written) -> tuple[dict[str, Any], list[str], list[str]]:
            facts = {
                "frames": len(nats),
                "drawn_frames": int(drawn.sum()),
                "nats_per_drawn_frame": there,
                "nats_per_frame_around": around,
                "log_given": filled.log_given,
                "particles": filling.particles,
                "effective_median": median,
                "effective_least": fewest,
                "effective_after": None if drawn[-1] else filled.fitting,
            }
            hint = f", {written.hint}" if written.hint else ""
            given = "" if around is None else f", {around:.3f} around"
            after = "" if drawn[-1] else f", {filled.fitting:.1f} after what follows"
            lines = [
                f"{target}: {written.size} from {run.folder}, {drawn.sum():,} of them drawn{hint}",
                f"  {there:.3f} nats per frame there{given}; of {filling.particles:,} particles "
                f"{median:.1f} effective{after}",
            ]
            if not fewest < FEW_PARTICLES < filling.particles:
                return facts, lines, []
            frame = int(np.argmax(drawn)) + least
            unlikely = "what is given, which may be unlike the training data"
            if frame == len(nats) - 1 and run.config.end:
                unlikely = "the end of the piece"
            return (
                facts,
                lines,
                [
                    f"at frame {frame:,} only {fewest:.1f} particles fit {unlikely}: try more "
                    "--particles"
                ],
            )

        return _Piece([filled.frames], _silent, describe)

    return make


def _silent(done: int, total: int) -> None:
    """Progress of writing what is drawn already."""


@contextmanager
def _opened(target: Path, *, to_stdout: bool) -> Iterator[BinaryIO]:
    """Yield what `target` is written to: stdout, or a file that appears once it is complete."""
    if to_stdout:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from seqmodel.files import new_file

    with new_file(target) as file:
        yield file


def _format(out: Path, given: str | None) -> str:
    suffix = "" if str(out) == "-" else out.suffix.lower().lstrip(".")
    of_suffix = OTHER_SUFFIXES.get(suffix, suffix)
    kind = given or of_suffix
    if not _able(kind):
        what = "--format" if given or str(out) == "-" else f"the suffix of {out}"
        raise UsageError(f"{what} must be one of {', '.join(FORMATS)}")
    if kind != of_suffix and _able(of_suffix):
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
