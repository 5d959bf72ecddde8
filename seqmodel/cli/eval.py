"""`seqmodel eval`: how well a run predicts, compared with trivial baselines."""

import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seqmodel.cli.common import from_here, message, print_json, show
from seqmodel.cli.options import (
    Device,
    Force,
    Json,
    Quiet,
    about,
    check_given,
    check_plot,
    chosen_run,
    load_runs,
    stored_runs,
)
from seqmodel.cli.prepare import source_remarks
from seqmodel.cli.progress import counter, display
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.media.definitions import Comparison, SplitName
from seqmodel.media.labels import labels_text, unknown_values, values_of
from seqmodel.media.registry import medium_of
from seqmodel.media.words import aligned, csv_text, epochs_text, plural
from seqmodel.runs.files import run_names
from seqmodel.unit_setting import unit_name

MAX_SHOWN = 16
"""If a label has more values, --classify prints no confusion matrix; --json includes it."""

OF_VOICES = {
    "nats_per_frame": "with voices",
    "assignment_nats_per_frame": "  which voice sings what",
    "nats_per_note": "  per note, rests too",
}

if TYPE_CHECKING:
    from seqmodel.data.dataset import Dataset, Split
    from seqmodel.data.sources import Sources
    from seqmodel.runs.folder import Run, StoredRun


def evaluate(
    context: typer.Context,
    runs: list[Path] | None = typer.Argument(
        None,
        metavar="RUN",
        help="The run, a folder or zip; several: their average.  [default: the newest]",
    ),
    data: Path | None = typer.Option(
        None,
        metavar="PATH",
        help="A prepared dataset; or media files to score in full: a file, folder or glob.  "
        "[default: the run's dataset]",
    ),
    split: SplitName | None = typer.Option(
        None, help="A split of the dataset.  [default: valid]", show_default=False
    ),
    per_piece: bool = typer.Option(
        False, "--per-piece", help="Print a line of CSV for each piece instead."
    ),
    per_frame: bool = typer.Option(
        False, "--per-frame", help="Print a line of CSV for each frame instead."
    ),
    voices: bool = typer.Option(
        False,
        "--voices",
        help="Also score which voice sings what, if the data have separate voices.",
    ),
    classify: str | None = typer.Option(
        None,
        metavar="LABEL",
        help="Also find the likeliest value of the label for each piece, and the accuracy.",
    ),
    plot: Path | None = typer.Option(
        None, metavar="FILE.png", help="Draw the single piece of --data above its nats."
    ),
    batch_size: int = typer.Option(
        32, min=1, help="Pieces scored at once; affects the speed, not the figures."
    ),
    samples: int | None = typer.Option(
        None,
        min=1,
        metavar="N",
        help="Also draw N pieces and compare their statistics with the data's.",
    ),
    seconds: float | None = typer.Option(
        None,
        min=0.001,
        help="The samples' length in seconds.  [default: the lengths of the split's pieces]",
    ),
    judge: str | None = typer.Option(
        None,
        metavar="LABEL",
        help="Also report how many samples a classifier of real audio recognises as intended.",
    ),
    seed: int = typer.Option(1, min=0, help="The samples' seed."),
    temperature: float = typer.Option(1.0, min=0.0, max=100.0, help="The samples' temperature."),
    guidance: float | None = typer.Option(
        None,
        min=0.0,
        max=100.0,
        help="How strongly labels guide the samples, as in sample.  [default: 4]",
    ),
    device: Device = "auto",
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a run: exact nats per frame, next to trivial baselines.

    Every frame of the split is scored, the first included, each given all frames before it.
    Media files are prepared like the run's data, without splits, in a temporary folder. For
    several runs, the probabilities of each frame are averaged; this is exact too, and often better
    than any one of them. The baseline flac is libFLAC at level 8.

    --samples compares statistics of drawn pieces with those of the split and of train. For music:
    voices, chords, lines, and how many frames in a row are copied from train; for audio: level,
    pitch, spectrum, pauses and bursts. Drones are pieces that hold a note or a chord longer than
    any in train. Distances are between distributions: 0 if equal, 1 if disjoint; that of spectra
    is in dB.
    """
    from seqmodel.data.dataset import MANIFEST, open_dataset
    from seqmodel.data.sources import Sources, find_sources

    files = data if data is not None and not (data / MANIFEST).is_file() else None
    no_dataset = f"--data {files}, which is not a dataset,"
    special = {no_dataset: files, "several runs": len(runs or []) > 1}
    lines = () if as_json else ("--per-piece", "--per-frame")
    exclusive = [
        *itertools.product(("--split", "--samples", "--classify"), [no_dataset]),
        ("--per-piece", "--per-frame"),
        *itertools.product(["several runs"], ("--samples", "--classify")),
        *itertools.product(("--samples", "--voices", "--classify"), lines),
    ]
    needs = itertools.product(("--seconds", "--judge", "--guidance"), ["--samples N"])
    check_given(context, exclusive, needs, special)
    # What can be wrong is told before torch is loaded, as far as possible.
    given = find_sources([str(files)]) if files else open_dataset(data) if data else None
    medium = given.medium if isinstance(given, Sources) else given and medium_of(given.frame)
    stored = stored_runs(runs or [chosen_run([medium.name] if medium else [])])
    for option, label in (("--classify", classify), ("--judge", judge)):
        if label is not None:
            values_of(label, stored[0].known_labels, stored[0].folder, f"{option} {label}")
    if plot is not None:
        check_plot(plot, force=force)
    with ExitStack() as stack:
        dataset = _open(stored, data, given, stack)
        name = split or (dataset.splits[0] if files else "valid")
        if plot is not None and len(dataset[name]) > 1:
            raise UsageError("--plot draws one piece: name a file that holds one with --data FILE")
        voice_nats = _voice_nats(stored[0], dataset, name, data) if voices else None
        loaded, *others = loaded_runs = load_runs(stored, device, batch_size)
        from seqmodel.evaluation.evaluate import evaluate  # torch is loaded by now
        from seqmodel.sampling.comparison import compare_samples, comparison_of, judge_of

        if samples is not None:  # fails now rather than after scoring
            comparison_of(loaded, guidance)
        loaded_judge = None if judge is None else judge_of(loaded, dataset, name, judge)
        with counter("scoring", then="fitting trivial baselines") as progress:
            result = evaluate(
                loaded,
                dataset,
                name,
                others=others,
                batch_size=batch_size,
                per_piece=per_piece,
                per_frame=per_frame or plot is not None,
                voice_nats=voice_nats,
                classify=classify,
                progress=progress,
            )
        if files is not None:
            sources = {key: dataset.manifest[key] for key in ("skipped", "repaired")}
            result |= {"data": str(files), "split": None, **sources}
        if plot is not None:
            (piece,) = result["per_piece"] if per_piece or per_frame else result.pop("per_piece")
            nats = piece["frame_nats"] if per_frame else piece.pop("frame_nats")
            _draw(plot, loaded_runs, dataset[name], nats)
        if samples is not None:
            with counter("sampling", then="comparing") as progress:
                result["samples"] = compare_samples(
                    loaded,
                    dataset,
                    name,
                    number=samples,
                    seed=seed,
                    temperature=temperature,
                    guidance=guidance,
                    seconds=seconds,
                    judge=loaded_judge,
                    progress=progress,
                )
    if as_json:
        print_json(result)
    elif per_piece or per_frame:
        show(*_csv(result["per_piece"], per_frame=per_frame))
    else:
        show(*_table(result, loaded))
        if samples is not None:
            show(*_samples(result["samples"], name, comparison_of(loaded)))


def _open(
    runs: Sequence["StoredRun"],
    data: Path | None,
    given: "Dataset | Sources | None",
    stack: ExitStack,
) -> "Dataset":
    """The data to score, open until `stack` closes; prints remarks on them."""
    from seqmodel.data.prepare import prepared_like
    from seqmodel.data.sources import Sources

    run = runs[0]
    if isinstance(given, Sources):
        if given.medium != medium_of(run.frame):
            raise UsageError(
                f"{data} is {given.medium.name}, but {run.folder} was trained on "
                f"{run.frame.medium}: name another run or other files"
            )
        with counter("reading") as progress, about(f"run: {run.folder}", last=True):
            dataset = stack.enter_context(prepared_like(run.frame, given, progress))
        for line in source_remarks(medium_of(run.frame), dataset.manifest):
            message(line)
        if run.known_labels:
            message(f"files have no labels: scored without those that {run.folder} knows")
        return dataset
    dataset = given or run.dataset()
    for other in runs[1:] if given is None else ():
        if not other.trained_on(dataset):
            raise UsageError(
                f"{run.folder} was trained on {dataset.folder}, but {other.folder} was not: "
                "name the data to score with --data"
            )
    run.check_reads(dataset)
    if differences := dataset.frame.differences(run.frame, dataset.manifest.get("contents", {})):
        message(
            f"{dataset.folder} was prepared differently from the run's training data "
            f"({'; '.join(differences)}): the figures are not a fair test",
        )
    unknown = unknown_values(dataset.frame.known_labels, run.known_labels)
    if given and unknown:
        unknown_text = labels_text(unknown)
        message(f"labels unknown to {run.folder} count as none: {unknown_text}")
    return dataset


def _voice_nats(
    run: "StoredRun", dataset: "Dataset", split: str, data: Path | None
) -> tuple[float, int]:
    """See `Medium.voices`; SeqmodelError if the dataset, made from any `data` given, has none."""
    train = run.train_of(dataset)
    if train is None:
        raise SeqmodelError(
            f"--voices needs train, but that of {run.folder} is gone or was prepared differently"
        )
    with display("scoring voices"):
        found = medium_of(run.frame).voices(dataset[split], train)
    if found is None:
        raise SeqmodelError(
            "--voices needs pieces that state which voice sings what, in train as well, unlike "
            f"those of {data or from_here(dataset.folder)}: prepare Jsb16thSeparated.npz or a "
            "similar file again"
        )
    return found


def _draw(path: Path, runs: Sequence["Run"], split: "Split", nats: list[float]) -> None:
    from seqmodel.evaluation.evaluate import plot_nats

    frame = runs[0].frame
    picture = medium_of(frame).picture(split[0], frame)
    names = run_names([run.folder for run in runs])
    plot_nats(path, picture, nats, f"{split.sources[0]}, by {names}")
    message(f"drawn to {path}")


def _csv(pieces: list[dict[str, Any]], *, per_frame: bool) -> list[str]:
    """A header and a line for each piece, or for each frame, numbered from 0."""
    columns = ["source", "frames", "nats", "nats_per_frame"]
    rows = [[piece[name] for name in columns] for piece in pieces]
    if per_frame:
        columns = ["source", "frame", "nats"]
        rows = [[p["source"], t, n] for p in pieces for t, n in enumerate(p["frame_nats"])]
    return csv_text([columns, *rows]).splitlines()


def _samples(values: dict[str, Any], split: str, comparison: Comparison) -> list[str]:
    counts = f"{plural(values['pieces'], 'sample')}, {plural(values['frames'], 'frame')}"
    settings = f", temperature {values['temperature']:g}" if values["temperature"] != 1 else ""
    settings += f", guidance {values['guidance']:g}" if values["guidance"] != 1 else ""
    heading = f"{counts}, seed {values['seed']}{settings}, {values['lengths']}"
    if "cut_off" in values:
        heading += f", {values['cut_off']} cut off at the limit"
    if values.get("frozen"):
        heading += f", {values['frozen']} where a chord outlasted any in training"
    if values.get("pauses_cut"):
        heading += f", {plural(values['pauses_cut'], 'pause')} cut short"
    lines = ["", heading, "", *comparison.lines(values, split)]
    if "judge" in values:
        shares = {"samples": values["judge"]["drawn"], split: values["judge"]["split"]}
        texts = [f"{share:.1%} of {name}" for name, share in shares.items() if share is not None]
        lines += ["", f"{values['judge']['label']}, recognised: {', '.join(texts) or 'none'}"]
    return lines


def _confusion(
    label: str, pieces: int, accuracy: float, values: list[str], confusion: list[list[int]]
) -> list[str]:
    """A heading and a row for each true value; only the heading if there are too many."""
    title = f"{label} by likelihood, of {len(values):,} equally probable ones"
    head = f"{title}: {accuracy:.1%} of {plural(pieces, 'piece')}"
    if len(values) > MAX_SHOWN:
        return [head]
    rows = [[value, *map(str, row)] for value, row in zip(values, confusion, strict=True)]
    return [head, *(f"  {line}" for line in aligned([["", *values], *rows]))]


def _table(result: dict[str, Any], run: "Run") -> list[str]:
    from seqmodel.evaluation.likelihood import FIGURES, describe
    from seqmodel.outputs.protocol import figure_lines

    config = run.config
    nats, runs = result["nats_per_frame"], result.get("runs", [])
    unit = unit_name(config.unit)
    unit = unit if config.model == "frame-wise" else f"{config.model} {unit}"
    run_text = "" if runs else f"{result['run']} ({unit}, epoch {epochs_text(result['epoch'])})"
    lines = [
        f"{run_text or f'the average of {len(runs)} runs'} on "
        f"{result['split'] + ' of ' if result['split'] else ''}{from_here(Path(result['data']))}: "
        f"{plural(result['pieces'], 'piece')}, {plural(result['frames'], 'frame')}",
        "",
        *figure_lines(result, FIGURES),
        *figure_lines(result.get("without_labels", {}), {"nats_per_frame": "  without labels"}),
    ]
    lines += describe(result) if runs else run.model.describe(result)
    if "classify" in result:
        lines += ["", *_confusion(**result["classify"])]
    lines += figure_lines(result.get("voices", {}), OF_VOICES)
    if runs:
        width = max(22, *(len(one["run"]) for one in runs))
        lines += ["", "each run by itself, nats per frame"]
        lines += [f"  {one['run']:{width}} {one['nats_per_frame']:9.4f}" for one in runs]
    if result["baselines"]:
        lines += ["", "baselines, nats per frame"]
    for name, figure in result["baselines"].items():
        verdict = "" if nats < figure else f"  better than the {'average' if runs else 'run'}"
        lines.append(f"  {name.replace('_', ' '):22} {figure:9.4f}{verdict}")
    if "copies" in result:
        key = "" if run.frame.kind == "drums" else ", in any key"
        lines += ["", f"share of frames that are in train too{key}"]
    for n, share in result.get("copies", {}).items():
        lines.append(f"  in windows of {n:>2} frames   {share:9.4f}")
    return lines
