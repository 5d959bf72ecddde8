"""`seqmodel eval`: how well a run predicts, compared with trivial baselines."""

from pathlib import Path
from typing import Annotated, Any

import typer

from seqmodel.cli.common import (
    Device,
    Json,
    Quiet,
    check_temperature,
    chosen_run,
    counter,
    message,
    plural,
    print_json,
    show,
)
from seqmodel.cli.completion import one_of
from seqmodel.config import Config
from seqmodel.data.splits import SPLITS
from seqmodel.errors import UsageError
from seqmodel.media.definitions import Comparison


def evaluate(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="The run folder; the newest if none.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A prepared dataset; the run's own if none."),
    ] = None,
    split: Annotated[
        str, typer.Option(help="train, valid or test.", autocompletion=one_of(SPLITS))
    ] = "valid",
    batch_size: Annotated[
        int, typer.Option(min=1, help="Pieces at a time; changes the speed, not the figures.")
    ] = 32,
    samples: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Also draw N pieces and compare their statistics with the data's.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The samples' seed.")] = 1,
    temperature: Annotated[float, typer.Option(min=0.0, help="The samples' temperature.")] = 1.0,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a run: exact nats per frame, next to trivial baselines.

    Every frame of the split is scored, the first included, each given all frames before it.
    With --samples, statistics of drawn pieces are shown next to those of the split and of the
    training data: voices, chords, lines, and how many frames in a row are copied from training.
    Drones are pieces with a note, or a chord, held longer than any in training. Distances are
    between distributions: 0 if equal, 1 if they share nothing.
    """
    if split not in SPLITS:
        raise UsageError(f"--split must be train, valid or test, not {split!r}")
    check_temperature(temperature)
    from seqmodel.data.dataset import open_dataset
    from seqmodel.evaluation.evaluate import evaluate
    from seqmodel.runs.folder import load_run
    from seqmodel.sampling.comparison import compare_samples, comparison_of

    loaded = load_run(chosen_run(run, quiet=quiet))
    if samples is not None:
        comparison_of(loaded)  # fail now rather than after scoring
    dataset = open_dataset(data or Path(str(loaded.config.data)))
    loaded.check_reads(dataset)
    differences = dataset.frame.differences(loaded.frame)
    if differences:
        message(
            f"{dataset.folder} was prepared differently from what the run was trained on "
            f"({'; '.join(differences)}): the figures are not a fair test",
            quiet=quiet,
        )
    loaded.model.to(loaded.model.choose_device(device, batch_size))
    with counter("scoring", quiet=quiet) as progress:
        result = evaluate(loaded, dataset, split, batch_size=batch_size, progress=progress)
    if samples is not None:
        # A step of one piece is too small for a GPU to be faster.
        loaded.model.to(loaded.model.choose_device("cpu" if device == "auto" else device, 1))
        with counter("sampling", quiet=quiet) as progress:
            result["samples"] = compare_samples(
                loaded,
                dataset,
                split,
                number=samples,
                seed=seed,
                temperature=temperature,
                progress=progress,
            )
    if as_json:
        print_json(result)
        return
    figures = loaded.model.output.describe(result)
    show(*_table(result, loaded.config, figures))
    if samples is not None:
        show(*_samples(result["samples"], split, comparison_of(loaded)))


def _from_here(path: str) -> str:
    """A path as one would type it: relative if it is below the working directory."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def _samples(values: dict[str, Any], split: str, comparison: Comparison) -> list[str]:
    counts = f"{plural(values['pieces'], 'sample')}, {plural(values['frames'], 'frame')}"
    heat = f", temperature {values['temperature']:g}" if values["temperature"] != 1 else ""
    heading = f"{counts}, seed {values['seed']}{heat}, {values['lengths']}"
    if "cut_off" in values:
        heading += f", {values['cut_off']} cut off at the limit"
    return ["", heading, "", *comparison.lines(values, split)]


def _table(result: dict[str, Any], config: Config, figures: list[str]) -> list[str]:
    nats = result["nats_per_frame"]
    unit = f"tied {config.unit}" if config.model == "tied" else config.unit
    lines = [
        f"{result['run']} ({unit}, epoch {result['epoch']}) on {result['split']} of "
        f"{_from_here(result['data'])}: {plural(result['pieces'], 'piece')}, "
        f"{plural(result['frames'], 'frame')}",
        "",
        f"nats per frame           {nats:9.4f}",
        f"  first frames left out  {result['nats_per_frame_skip_first']:9.4f}",
        f"  mean over pieces       {result['piece_mean_nats_per_frame']:9.4f}",
    ]
    lines += figures
    lines += ["", "baselines, nats per frame"]
    for name, figure in result["baselines"].items():
        verdict = "" if nats < figure else "  better than the run"
        lines.append(f"  {name.replace('_', ' '):22} {figure:9.4f}{verdict}")
    return lines
