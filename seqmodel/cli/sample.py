"""`seqmodel sample`: new pieces from a run, to files or to stdout."""

import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import typer

from seqmodel.cli.common import Verbosity, message, print_json
from seqmodel.cli.options import (
    Force,
    Json,
    Quiet,
    about,
    check_given,
    check_target,
    chosen_run,
    load_runs,
    one_of,
    options_of,
    stored_runs,
    with_media_options,
)
from seqmodel.cli.progress import counting, display
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.files import new_file
from seqmodel.media.definitions import Medium
from seqmodel.media.labels import Labels, combinations
from seqmodel.media.registry import MEDIA, medium_of
from seqmodel.media.samples import Filling, Progress, SampleRequest, Sampling, part_progress
from seqmodel.media.words import plural
from seqmodel.runs.files import METRICS, run_names
from seqmodel.unit_setting import unit_name

if TYPE_CHECKING:
    from seqmodel.runs.folder import Run, StoredRun

OTHER_SUFFIXES = {"midi": "mid", "wave": "wav", "oga": "ogg"}
WRITTEN = ", ".join(
    f"{medium.name} as {' '.join('.' + kind for kind in medium.formats)}"
    for medium in MEDIA.values()
)
DEFAULT_LENGTH = "; ".join(medium.default_length for medium in MEDIA.values())
FORMATS = [*dict.fromkeys(kind for medium in MEDIA.values() for kind in medium.formats)]
FEW_PARTICLES = 2.0
"""With fewer effective ones, what is given may be unlike the training data."""
FOREIGN = 3.0
"""A file with over this many times the nats per frame of valid is foreign to a run. Scored by the
bundled one, tunes of valid have up to 1.3 times the mean, chorales 11 or more, songs 5 to 70."""
JUDGED = 10_000
"""So many of a file's first frames, half an hour of music or more, tell whether it is foreign."""
SOON = 8
"""A continuation that the model ends within this part of what it continues is a surprise."""
ENDED = {
    "model": "ended by the model",
    "freeze": "ended where a chord outlasted any in training",
    "limit": "cut off at the limit",
}
NEEDS = [
    ("--prime-frames", "--prime FILE"),
    ("--prime-seconds", "--prime FILE"),
    ("--include-prime", "--prime FILE"),
    ("--guidance", "--label NAME=VALUE"),
]
NOT_WITH_FILL = (
    "--length", "--seconds", "--min-length", "--no-end", "--prime", "--best-of", "--guidance",
)  # fmt: skip
EXCLUSIVE = [
    ("--length", "--seconds"),
    ("--min-length", "--no-end"),
    ("--prime-frames", "--prime-seconds"),
    ("--json", "OUT -"),
    ("several runs", "--best-of"),
    ("several runs", "--fill"),
    *(("--fill", other) for other in (*NOT_WITH_FILL, "--temperature 0")),
]
Report = tuple[dict[str, Any], list[str], str, list[str]]
"""A piece's facts for JSON, the same as lines, the first without the path, and what is odd about
it; warnings."""
Write = Callable[[int, BinaryIO, Progress], Report]
"""Draws the piece with a given number and writes it."""

pieces_option = partial(typer.Option, rich_help_panel="Pieces")
primer_option = partial(typer.Option, rich_help_panel="Primer")


@with_media_options(attrgetter("sample_options"))
def sample(
    context: typer.Context,
    out: Path = typer.Argument(
        ..., metavar="OUT", help=f"{WRITTEN}; or - for stdout, with --format."
    ),
    runs: list[Path] | None = typer.Option(
        None,
        "--run",
        metavar="RUN",
        help="The run, a folder or zip; if repeated, draw from the average of the runs, frame by "
        "frame.  [default: the newest that can write OUT]",
    ),
    number: int = pieces_option(
        1, "-n", "--number", min=1, help="Number of pieces: out-1.mid, out-2.mid, ..."
    ),
    length: int | None = pieces_option(
        None,
        min=1,
        help=f"Frames; a run trained with --end can stop sooner.  [default: {DEFAULT_LENGTH}]",
    ),
    seconds: float | None = pieces_option(None, min=0.001, help="Length in seconds instead."),
    min_length: int = pieces_option(
        1,
        min=1,
        metavar="FRAMES",
        help="Do not let the model end a piece before this many frames.",
        show_default=False,
    ),
    no_end: bool = pieces_option(False, "--no-end", help="Do not let the model end a piece."),
    best_of: int = pieces_option(
        1,
        min=1,
        help="Draw this many drafts of each piece and keep the one whose nats per frame are "
        "closest to those of train.",
    ),
    seed: int = pieces_option(1, min=0, help="The same seed gives the same bytes."),
    temperature: float = pieces_option(
        1.0,
        min=0.0,
        max=100.0,
        help="Below 1: tamer (plainer chords, smoother sound); above 1: wilder; 0: always the "
        "likeliest.",
    ),
    mark_temperature: float | None = pieces_option(
        None,
        min=0.0,
        max=100.0,
        help="Temperature of parts, velocity and timing, for data prepared with them.  "
        "[default: --temperature]",
    ),
    guidance: float | None = pieces_option(
        None,
        min=0.0,
        max=100.0,
        help="How strongly labels guide sound; 8 is clearer, but hoarser.  [default: 4]",
    ),
    label: list[str] | None = pieces_option(
        None,
        metavar="NAME=VALUE",
        help="The piece's label, for data prepared with --labels; repeatable. NAME=FIRST..LAST or "
        "NAME=A,B: each value in turn.",
    ),
    prime: Path | None = primer_option(
        None, metavar="FILE", help="Continue this file of the run's medium, or a sampled .npy."
    ),
    prime_frames: int | None = primer_option(None, min=1, help="Use at most its first N frames."),
    prime_seconds: float | None = primer_option(
        None, min=0.001, help="Use at most this many of its first seconds."
    ),
    include_prime: bool = primer_option(
        False,
        "--include-prime/--no-include-prime",
        help="Write it before the new frames; MIDI into MIDI keeps all of its events up to there.",
    ),
    *,
    output_format: str | None = typer.Option(
        None,
        "--format",
        help=f"{', '.join(FORMATS)}, if OUT has no such suffix; npy: the frames; raw: 16-bit "
        "little-endian PCM without a header.",
        autocompletion=one_of(FORMATS),
    ),
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **media_options: Any,
) -> None:
    """Draw new pieces from what a run has learned.

    Music written as MIDI, or audio as WAV or FLAC, gives back exactly the drawn frames when
    prepared like the run's data. Audio has the run's sample rate, in 16 bits, and can be played as
    it is drawn: seqmodel sample - --format wav | aplay (raw, for a run trained with --end). Music
    as sound is rendered by a small synthesizer at 44,100 Hz. A run trained with --end stops by
    itself; the output says whether it did, was cut off at the limit, or held a chord longer than
    any in train.

    --fill redraws a part of a file to fit the rest: a bar, some notes, or the voices under a
    melody. From MIDI to MIDI everything else stays, event for event: tracks, programs, drums,
    velocities, controllers, tempos, lyrics.
    """
    to_stdout = str(out) == "-"
    kind = _format(out, output_format)
    if to_stdout and number > 1:
        raise UsageError("-n above 1 needs a file name, not stdout")
    special = {
        "--temperature 0": temperature == 0,
        "OUT -": to_stdout,
        "several runs": len(runs or ()) > 1,
    }
    check_given(context, EXCLUSIVE, NEEDS, special)

    numbers = range(1, number + 1) if number > 1 else ()
    targets = [out.with_name(f"{out.stem}-{k}{out.suffix}") for k in numbers] or [out]
    remarks, wanted = list[str](), [text.partition("=")[0] for text in label or []]
    paths = runs or [chosen_run(_media_writing(kind), wanted, say=remarks.append)]
    stored = stored_runs(paths)
    labels = _combinations(label or [], stored, number)
    folder, first, medium = paths[0], stored[0], medium_of(stored[0].frame)
    trained = f"{folder} was trained on {medium.name} ({first.frame})"
    if kind not in medium.formats:
        raise UsageError(
            f"{trained}, which cannot be written as {kind}: use one of "
            f"{', '.join(medium.formats)}, or another run with --run"
        )
    if (min_length > 1 or no_end) and not first.config.end:
        raise UsageError(
            f"{folder} was trained without --end, so its pieces always reach the limit: "
            f"leave out {'--no-end' if no_end else '--min-length'}"
        )
    unit = ", ".join(dict.fromkeys(unit_name(each.config.unit) for each in stored))
    options = options_of(medium, media_options, attrgetter("sample_options"), trained)
    _check_files(prime, options.get("fill"), medium, trained)
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
        title=f"sampled from {run_names(paths)} ({unit})",
        longest_piece=first.longest_piece if first.config.end else None,
        temperature=temperature,
    )
    with nullcontext() if runs else about(f"run: {folder}", last=True):
        sampling = medium.sampling(first.frame, request)
    for target in () if to_stdout else targets:
        check_target(target, force=force)
    for remark in (*remarks, *(() if runs else _passed_over(kind, wanted, paths[0]))):
        message(remark)
    all_runs = load_runs(stored, "cpu", 1)
    by_label = [[run.conditioned(chosen) for run in all_runs] for chosen in labels]  # used in turn
    run = by_label[0][0]
    for remark in (
        *sampling.remarks,
        *_unused(all_runs, sampling, options.get("metre"), mark_temperature),
        # Do not score the file if the remark would not be shown.
        *(() if Verbosity.quiet else _foreign_remarks(run, sampling, prime or options.get("fill"))),
    ):
        message(remark)
    settings = {"temperature": temperature, "mark_temperature": mark_temperature}
    settings |= {} if sampling.filling else {"guidance": guidance}
    pieces, shortest = [], math.inf if no_end else min_length
    write = _writer(by_label, sampling, seed, settings, shortest, best_of, number, include_prime)
    what = "filling" if sampling.filling else "sampling"
    with display(what) as progress:
        count = counting(progress, "drafts" if best_of > 1 else what)
        for k, target in enumerate(targets):
            with nullcontext(sys.stdout.buffer) if to_stdout else new_file(target) as stream:
                facts, lines, hint, warnings = write(k, stream, part_progress(count, k, number))
                stream.flush()
            chosen = labels[k % len(labels)]
            pieces.append({"path": str(target), **facts, **({"labels": chosen} if chosen else {})})
            told = ", ".join([lines[0], *map(" ".join, chosen.items())])
            lines[0] = f"{target}: {told}" + f"; {hint}" * bool(hint)
            for line in [*lines, *warnings] if not (to_stdout or as_json) else warnings:
                progress.say(line)
    if as_json:
        run_facts = {"runs": [str(run.folder) for run in all_runs]} if len(all_runs) > 1 else {}
        print_json({**(run_facts or {"run": str(run.folder)}), "seed": seed, "pieces": pieces})


def _combinations(
    requested: Sequence[str], runs: Sequence["StoredRun"], number: int
) -> list[Labels]:
    """The combinations that --label asks for, known to all runs; pieces use them in turn."""
    labels, *_ = [combinations(requested, run.known_labels, run.folder) for run in runs]
    if len(labels) > number:
        raise UsageError(f"--label asks for {len(labels)} combinations: -n {len(labels)} draws all")
    return labels


def _unused(
    runs: Sequence["Run"], sampling: Sampling, metre: str | None, mark_temperature: float | None
) -> Iterator[str]:
    """Remarks on options without effect on the runs' models, or with one that none has learned."""
    for run in runs if metre else ():
        if not run.config.bars:
            prefix = f"{run.folder} was trained without --bars"
            yield f"{prefix}: the drawn notes do not follow --metre"
        elif sampling.metres is not None and not run.knows_metre(sampling.metres):
            prefix = f"no piece that {run.folder} was trained on is in {metre}"
            yield f"{prefix}: the drawn notes may not follow --metre"
    if mark_temperature is not None and not runs[0].frame.marks:
        prefix = f"{runs[0].folder} was trained without parts, velocity or timing"
        yield f"{prefix}: --mark-temperature has no effect"


def _writer(
    by_label: Sequence[Sequence["Run"]],
    sampling: Sampling,
    seed: int,
    settings: Mapping[str, Any],
    shortest: float,
    best_of: int,
    number: int,
    include_prime: bool,
) -> Write:
    """The function that draws or fills piece k of `number`; call it with 0, 1, ... in order.

    `by_label` holds the runs for each combination of labels, used in turn. A piece is the one of
    `best_of` drafts whose nats per frame are closest to training's. `settings` and `shortest` are
    as in `Sampler`; with `include_prime` a piece begins with the primer.
    """
    import numpy as np
    from numpy.typing import NDArray

    from seqmodel.sampling.sampler import AverageSampler, DrawnPiece, Freeze, Sampler, side_by_side

    if sampling.filling is not None:
        return _filler([run for run, *_ in by_label], sampling, sampling.filling, seed, settings)
    settings, run = {**settings, "metres": sampling.metres}, by_label[0][0]
    names = run_names([run.folder for run in by_label[0]])
    samplers = [
        Sampler(one.model, **settings)
        if not others
        else AverageSampler([each.model for each in (one, *others)], **settings)
        for one, *others in by_label
    ]
    freeze = next(filter(None, map(Freeze.of, by_label[0])), None)  # runs may differ in this
    primer, metrics = sampling.primer, run.metrics() if best_of > 1 else {}
    if best_of > 1 and not metrics:
        raise SeqmodelError(f"--best-of needs epoch {run.epoch} in {run.folder / METRICS}")

    kwargs: dict[str, Any] = {"prime": primer, "shortest": shortest, "freeze": freeze}
    total = number * best_of
    each = (
        samplers[n // best_of % len(by_label)].piece(sampling.length, seed=seed, number=n, **kwargs)
        for n in range(total)
    )
    drafts = side_by_side(each, samplers[0].threads(total, sampling.length))

    def write(k: int, file: BinaryIO, progress: Progress) -> Report:
        facts, notes, scorer = dict[str, Any](), list[str](), by_label[k % len(by_label)][0]
        if best_of == 1:
            piece, chunks = next(drafts)
            written = sampling.write(file, chunks, progress)
        else:
            pieces, drawn, nats = list[DrawnPiece](), list[NDArray[Any]](), list[float]()
            for draft, chunks in islice(drafts, best_of):
                pieces.append(draft)
                drawn.append(np.concatenate([*chunks]))
                whole = np.concatenate([primer, drawn[-1]])
                scored = scorer.nll(whole, sampling.metres)[len(primer) :]
                nats.append(float(scored.mean()))
                progress(len(nats), best_of)
            train_nats = metrics["train_nats_per_frame"]
            best = int(np.argmin(np.abs(np.array(nats) - train_nats)))
            piece, facts = pieces[best], {"nats_per_frame": nats[best]}
            written = sampling.write(file, [drawn[best]])
            notes = [f"{nats[best]:.3f} nats per frame (training {train_nats:.3f})"]
        ended_by = "model" if piece.ended else "freeze" if piece.frozen else "limit"
        if run.config.end and not (piece.frozen and written.hint):  # which is of the same chord
            notes.insert(0, ENDED[ended_by])
        if piece.pauses_cut:
            notes.append(f"{plural(piece.pauses_cut, 'pause')} cut short")
            facts["pauses_cut"] = piece.pauses_cut
        line = ", ".join([f"{written.size} from {names}", *notes])
        frames = {"frames": piece.frames}
        if include_prime:  # as of a filled piece
            frames = {"frames": len(primer) + piece.frames, "drawn_frames": piece.frames}
        more = "the model soon ended what it was to continue: --no-end or --min-length draws more"
        warnings = [more] * (piece.ended and piece.frames * SOON < len(primer))
        return {**frames, "ended_by": ended_by, **facts}, [line], written.hint, warnings

    return write


def _foreign_remarks(run: "Run", sampling: Sampling, path: Path | None) -> list[str]:
    """A remark on a file to fill or continue, if it is unlike the run's music."""
    whole = sampling.primer if sampling.filling is None else sampling.filling.piece
    piece = whole[:JUDGED]
    valid_nats = run.metrics().get("valid_nats_per_frame")
    if valid_nats is None or run.frame.values != "binary" or len(piece) < 2:
        return []
    # Without the first frame, which is as costly in valid but in longer pieces.
    nats = float(run.nll(piece, sampling.metres)[1:].mean())
    if nats <= FOREIGN * valid_nats:
        return []
    return [
        f"{path} is unlike the training data of {run.folder}: {nats:.1f} nats per frame, "
        f"compared with {valid_nats:.1f} on valid; what is drawn may not suit it"
    ]


def _filler(
    runs: Sequence["Run"],
    sampling: Sampling,
    filling: Filling,
    seed: int,
    settings: Mapping[str, Any],
) -> Write:
    """The function that draws piece k around what is given, using the runs in turn.

    UsageError if the particles do not fit in memory; SeqmodelError if filling is impossible.
    """
    import numpy as np

    from seqmodel.sampling.filling import Filler

    fillers = [
        Filler(run.model, particles=filling.particles, metres=sampling.metres, **settings)
        for run in runs
    ]
    redrawn = np.asarray(filling.free.any(axis=1))

    def write(k: int, file: BinaryIO, progress: Progress) -> Report:
        run = runs[k % len(runs)]
        filled = fillers[k % len(runs)].fill(
            filling.piece, filling.free, seed=seed, number=k, sweeps=filling.sweeps,
            progress=progress,
        )  # fmt: skip
        written = sampling.write(file, [filled.frames])
        nats = run.nll(filled.frames, sampling.metres)
        inside = float(nats[redrawn].mean())
        outside = float(nats[~redrawn].mean()) if not redrawn.all() else None
        weakest, median = int(np.argmin(filled.effective)), float(np.median(filled.effective))
        fewest = float(filled.effective[weakest])
        facts = {
            "frames": len(nats),
            "drawn_frames": int(redrawn.sum()),
            "nats_per_drawn_frame": inside,
            "nats_per_frame_around": outside,
            "log_given": filled.log_given,
            "particles": filling.particles,
            "effective_median": median,
            "effective_least": fewest,
            "effective_after": None if redrawn[-1] else filled.paths,
        }
        around_text = "" if outside is None else f", {outside:.3f} around"
        fitting = median if redrawn[-1] else filled.paths
        lines = [
            f"{written.size} from {run.folder}, {redrawn.sum():,} of them drawn",
            f"  {inside:.3f} nats per frame there{around_text}; {fitting:.1f} of "
            f"{filling.particles:,} particles fit",
        ]
        if not fewest < FEW_PARTICLES < filling.particles:
            return facts, lines, written.hint, []
        frame = int(np.argmax(redrawn)) + weakest
        unlikely = "what is given, which may be unlike the training data"
        if frame == len(nats) - 1 and run.config.end:
            unlikely = "the end of the piece"
        warning = f"at frame {frame:,} only {fewest:.1f} particles fit {unlikely}"
        return facts, lines, written.hint, [f"{warning}: try more --particles"]

    return write


def _format(out: Path, given: str | None) -> str:
    suffix = "" if str(out) == "-" else out.suffix.lower().lstrip(".")
    suffix_format = OTHER_SUFFIXES.get(suffix, suffix)
    kind = given or suffix_format
    if not _media_writing(kind):
        what = "- needs --format, which" if str(out) == "-" else f"the suffix of {out}"
        raise UsageError(f"{'--format' if given else what} must be one of {', '.join(FORMATS)}")
    if kind != suffix_format and _media_writing(suffix_format):
        raise UsageError(f"--format {kind} contradicts the suffix of {out}: leave one out")
    return kind


def _media_writing(kind: str) -> list[str]:
    """The media that can be written in a format, those with such files first."""
    able = [medium for medium in MEDIA.values() if kind in medium.formats]
    return [medium.name for medium in sorted(able, key=lambda m: f".{kind}" not in m.suffixes)]


def _passed_over(kind: str, labels: Collection[str], chosen: Path) -> Iterator[str]:
    """Remarks on runs of the media that a format suggests, if they were not taken.

    Those of a medium that cannot be written in it are only named if they are newer.
    """
    from seqmodel.runs.content import newest_run

    writing = _media_writing(kind)
    reading = [name for name, medium in MEDIA.items() if f".{kind}" in medium.suffixes]
    for name in dict.fromkeys([writing[0], *reading]):
        media, advice = [name], "name it with --run"
        if name not in writing:
            media = [name, *writing]
            advice = f"{name} is written as {', '.join(MEDIA[name].formats)}"
        with suppress(SeqmodelError):  # a damaged run that is not needed
            newest = newest_run(media=media, labels=labels)
            if newest is not None and newest[0] != chosen:
                yield f"using {chosen}; the newest run of {name} is {newest[0]}: {advice}"


def _check_files(prime: Path | None, fill: Path | None, medium: Medium, trained: str) -> None:
    """UsageError if a file to continue or fill belongs to another medium."""
    for use, option, file in (("continue", "--prime", prime), ("fill", "--fill", fill)):
        suffix = file.suffix.lower() if file is not None else ".npy"
        others = [other for other in MEDIA.values() if suffix in other.suffixes]
        if suffix != ".npy" and others and medium not in others:
            raise UsageError(
                f"{trained} and cannot {use} {file}: {option} must be {medium.name} too"
            )
