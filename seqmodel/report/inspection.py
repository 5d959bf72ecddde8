"""The contents of a media file, a dataset or a run, as plain values and as a plot."""

from pathlib import Path
from typing import Any

from seqmodel.data.dataset import MANIFEST, damaged, open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.media.registry import medium_of, medium_of_file
from seqmodel.outputs.registry import output_name
from seqmodel.plots import plot_learning_curve
from seqmodel.runs.content import unfinished
from seqmodel.runs.files import BEST, CONFIG, LAST, epochs_of, has_file


def kind_of(path: Path) -> str:
    """The kind of `path`: "run", "dataset" or a media file's kind; SeqmodelError if unknown."""
    if (path / CONFIG).is_file() or (path.is_file() and path.suffix.lower() == ".zip"):
        return "run"
    if (path / MANIFEST).is_file():
        return "dataset"
    kind = medium_of_file(path).kind_of_file(path) if path.is_file() else None
    if kind is not None:
        return kind
    if not path.exists():
        raise SeqmodelError(f"{path}: no such file or folder")
    hint = "; name one in it" if path.is_dir() else ""
    raise SeqmodelError(
        f"{path} is neither a media file that can be inspected nor a prepared dataset nor a "
        f"run{hint}"
    )


def inspect_dataset(path: Path, plot: Path | None) -> dict[str, Any]:
    """The contents of a dataset: its manifest, and what its medium reports on its splits.

    SeqmodelError if a piece has changed since it was prepared, or the manifest is damaged.
    """
    dataset = open_dataset(path)
    dataset.check_content()
    splits = {name: dataset[name] for name in dataset.splits}
    medium, manifest = medium_of(dataset.frame), dataset.manifest
    try:
        medium.dataset_lines(manifest)  # values that are only shown are not checked elsewhere
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        how = "its description of the dataset cannot be read"
        raise SeqmodelError(damaged(path / MANIFEST, how)) from error
    more = medium.inspect_splits(splits, plot, str(path))
    return {"path": str(path), "kind": "dataset", **manifest, **more}


def inspect_run(path: Path, plot: Path | None, *, verify: bool = False) -> dict[str, Any]:
    """The state of a run: its settings, size, epochs and best figure.

    With `verify`, its checkpoints are checked against their hashes; SeqmodelError if one differs.
    """
    # These load torch, which takes seconds; files and datasets do without.
    from seqmodel.report.subjects import model_in_words
    from seqmodel.runs.checkpoint import load_checkpoint
    from seqmodel.runs.folder import load_run, read_metrics

    metrics = read_metrics(path)
    if plot is not None:
        if not metrics:
            raise SeqmodelError(f"{path} has no complete epoch to draw yet")
        plot_learning_curve(plot, metrics)
    values: dict[str, Any] = {"path": str(path), "kind": "run", "epochs": epochs_of(metrics)}
    values["remark"] = unfinished(path)
    if verify:
        found = [name for name in (BEST, LAST) if has_file(path / name)]
        for name in found:
            load_checkpoint(path / name)
        values["verified"] = found
    if has_file(path / BEST):
        run = load_run(path)
        parameters = run.model.parameter_counts()
        values |= {
            "parameters": parameters.units,
            "parameters_with_output": parameters.with_output,
            "model": model_in_words(run),
            "output": output_name(run.config, run.frame),
            "frames": str(run.frame),
            "labels": run.model.known_labels,
            "config": run.config.__dict__,
        }
        if best := run.metrics():
            values["best"] = best
    return values
