"""`seqmodel train`: a dataset and a unit to a run folder."""

from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqmodel.cli.common import Force, Json, Quiet, message, print_json
from seqmodel.config import Config, read_config_file, resolve, to_yaml
from seqmodel.errors import SeqmodelError, UsageError

if TYPE_CHECKING:
    from seqmodel.data.dataset import Dataset
    from seqmodel.runs.folder import Run

# What may change when a run is resumed without making it another run.
RESUMABLE = {"epochs", "patience"}

# The options themselves default to None, which tells what was said from what was not.
DEFAULT = {
    name: f"  [default: {str(value).lower() if isinstance(value, bool) else value}]"
    for name, value in asdict(resolve({})).items()
}


def train(
    data: Annotated[
        Path | None,
        typer.Argument(metavar="DATA", help="A prepared dataset; the bundled sample if none."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="default, or paper: as in Chung et al. 2014." + DEFAULT["preset"]),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Settings from a YAML file; an option counts more than the file."
        ),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all settings as YAML and stop.")
    ] = False,
    unit: Annotated[
        str | None, typer.Option(help="See `seqmodel units`." + DEFAULT["unit"])
    ] = None,
    hidden: Annotated[
        int | None, typer.Option(help="Size of each layer." + DEFAULT["hidden"])
    ] = None,
    params: Annotated[
        int | None,
        typer.Option(help="Solve the size for so many parameters, the output layer not counted."),
    ] = None,
    layers: Annotated[
        int | None, typer.Option(help="Layers, one upon the other." + DEFAULT["layers"])
    ] = None,
    gate_activation: Annotated[
        str | None, typer.Option(help="sigmoid or hard-sigmoid." + DEFAULT["gate_activation"])
    ] = None,
    activation: Annotated[
        str | None, typer.Option(help="tanh, sigmoid or relu." + DEFAULT["activation"])
    ] = None,
    bias: Annotated[
        bool | None,
        typer.Option("--bias/--no-bias", help="Whether the unit has biases." + DEFAULT["bias"]),
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(
            help="Share dropped between layers and before the output." + DEFAULT["dropout"]
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            help="auto: bernoulli for music, gaussian for audio, whose 16-bit samples can also have"
            " logistic." + DEFAULT["output"]
        ),
    ] = None,
    components: Annotated[
        int | None,
        typer.Option(help="Components of an audio output's mixture." + DEFAULT["components"]),
    ] = None,
    end: Annotated[
        bool | None,
        typer.Option("--end/--no-end", help="Whether to learn when pieces end." + DEFAULT["end"]),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="What computes the unit: auto, cpu or reference." + DEFAULT["backend"]),
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="adam or rmsprop." + DEFAULT["optimizer"])
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option("--learning-rate", "--lr", help="At the start." + DEFAULT["learning_rate"]),
    ] = None,
    learning_rate_draws: Annotated[
        int | None,
        typer.Option(
            help="Search: so many runs at rates from exp(U(-12, -6)), the best kept."
            + DEFAULT["learning_rate_draws"]
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="The rate over time: cosine, down to 0, or constant." + DEFAULT["schedule"]
        ),
    ] = None,
    weight_noise: Annotated[
        float | None,
        typer.Option(
            help="Deviation of the noise on the unit's weights at each update."
            + DEFAULT["weight_noise"]
        ),
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(
            help="Rescale the gradient's norm to this when above; 0: never." + DEFAULT["clip"]
        ),
    ] = None,
    average: Annotated[
        float | None,
        typer.Option(
            help="Keep the running mean of the weights, of this decay; 0: the weights themselves."
            + DEFAULT["average"]
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Pieces in a batch." + DEFAULT["batch_size"])
    ] = None,
    truncate: Annotated[
        int | None,
        typer.Option(
            help="Backpropagate through windows of so many frames; 0: whole pieces."
            + DEFAULT["truncate"]
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes through the pieces, at most." + DEFAULT["epochs"])
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Stop after so many epochs without a better valid figure." + DEFAULT["patience"]
        ),
    ] = None,
    augment_keys: Annotated[
        bool | None,
        typer.Option(
            "--augment-keys/--no-augment-keys",
            help="Transpose each piece to a random key at each epoch." + DEFAULT["augment_keys"],
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same run." + DEFAULT["seed"])
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="The run folder.  [default: a new one in runs/]")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a stopped run: --run, or the newest.")
    ] = False,
    init_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Start from the weights of another run.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a unit, and keep the epoch that predicts valid best.

    A stopped run (Ctrl-C will do) goes on, bit for bit, with --resume. The defaults are those of
    music; audio and the paper preset have some of their own: --print-config shows what counts.
    """
    given = locals()
    said = {field.name: given[field.name] for field in fields(Config)}
    said = {name: value for name, value in said.items() if value is not None}
    if data is not None:
        said["data"] = str(data)
    if resume:
        if init_from is not None or config is not None or force:
            raise UsageError("--resume goes with neither --init-from nor --config nor --force")
        folder, settings = _stopped(run, said)
    else:
        settings = _resolved(said, read_config_file(config) if config else {})
    if print_config:
        typer.echo(to_yaml(settings), nl=False)
    elif resume:
        _resume(settings, folder, as_json=as_json, quiet=quiet)
    else:
        _train(settings, run, init_from, force=force, as_json=as_json, quiet=quiet)


def _resolved(said: dict[str, Any], file: dict[str, Any]) -> Config:
    """The settings, for the medium of their data, with the hidden size solved.

    UsageError where there is no such unit.
    """
    import torch

    from seqmodel.data.bundled import FRAMES
    from seqmodel.data.dataset import open_dataset
    from seqmodel.model.build import build_model, with_hidden_size

    data = said.get("data", file.get("data"))
    frame = open_dataset(data).frame if data else FRAMES
    settings = with_hidden_size(resolve(said, file, frame.medium.presets), frame)
    with torch.device("meta"):  # takes no memory
        build_model(settings, frame)
    return settings


def _train(
    settings: Config,
    folder: Path | None,
    init_from: Path | None,
    *,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    from seqmodel.data.bundled import sample_dataset
    from seqmodel.data.dataset import open_dataset
    from seqmodel.files import check_writable, new_folder, refuse_existing
    from seqmodel.runs.folder import CONFIG, RUNS, new_run_folder
    from seqmodel.training.search import begin

    # What can be wrong is found before a folder is made.
    if folder is not None:
        refuse_existing(folder, force=force)
        if folder.exists() and not (folder / CONFIG).is_file():
            raise UsageError(f"{folder} is not a run folder; choose another for --run")
    path = Path(settings.data) if settings.data else sample_dataset(RUNS)
    dataset = open_dataset(path)
    _check_splits(dataset)
    start = _start(init_from, settings, dataset) if init_from else None
    settings = replace(settings, data=str(path.resolve()))
    replaces = folder is not None and folder.exists()
    if folder is None:
        folder = new_run_folder(path.resolve().name.removesuffix("-data"), settings.unit)
    elif replaces:  # the old run stays until the first checkpoint of the new one is on the disk
        with new_folder(folder, force=True, mark=CONFIG) as beside:
            begin(settings, dataset, beside, start)
        start = None
    else:
        check_writable(folder / CONFIG)
    output = {"as_json": as_json, "quiet": quiet}
    try:
        _run(settings, dataset, folder, resume=replaces, init_from=start, **output)
    finally:
        for made in (folder, RUNS):  # an error before anything was begun leaves no empty folder
            with suppress(OSError):
                made.rmdir()


def _check_splits(dataset: "Dataset") -> None:
    for split in ("train", "valid"):
        if split not in dataset.splits:
            advice = dataset.frame.medium.split_advice(dataset.manifest) or (
                "prepare it again from more files, or from folders named train and valid"
            )
            raise SeqmodelError(
                f"{dataset.folder} has no pieces in {split}, which training needs: {advice}"
            )
        dataset[split]  # SeqmodelError where it is damaged


def _start(folder: Path, settings: Config, dataset: "Dataset") -> "Run":
    from seqmodel.model.build import build_model
    from seqmodel.runs.folder import load_model, load_run, model_tensors

    run = load_run(folder)
    try:
        run.check_reads(dataset)
        load_model(build_model(settings, dataset.frame), model_tensors(run.model))
    except SeqmodelError as error:
        raise SeqmodelError(f"--init-from {folder}: {error}") from error
    return run


def _stopped(folder: Path | None, said: dict[str, Any]) -> tuple[Path, Config]:
    """The folder and the settings of the run to go on with."""
    from seqmodel.runs.folder import CONFIG, LAST, newest_run, read_metrics

    folder = folder or newest_run()
    if not (folder / CONFIG).is_file():
        raise SeqmodelError(
            f"{folder} is not a run folder (no {CONFIG}); there is nothing to resume"
        )
    stored = read_config_file(folder / CONFIG)
    if "data" in said:
        said["data"] = str(Path(said["data"]).resolve())  # as it is stored
    fixed = sorted(name for name in set(said) - RESUMABLE if said[name] != stored.get(name))
    if fixed:
        option = "DATA" if fixed[0] == "data" else "--" + fixed[0].replace("_", "-")
        raise UsageError(f"{option} cannot change on --resume; start a new run with --init-from")
    settings = resolve(said, stored)
    ended = len(read_metrics(folder))
    if settings.epochs < ended:
        raise UsageError(f"--epochs {settings.epochs} is less than the {ended} that {folder} has")
    if not (folder / LAST).is_file() and not settings.learning_rate_draws:
        raise SeqmodelError(
            f"{folder} has no checkpoint to resume from ({LAST}); "
            f"train it anew with --run {folder} --force"
        )
    return folder, settings


def _resume(settings: Config, folder: Path, *, as_json: bool, quiet: bool) -> None:
    from seqmodel.data.dataset import open_dataset

    dataset = open_dataset(str(settings.data))
    _run(settings, dataset, folder, as_json=as_json, quiet=quiet, resume=True)


def _run(
    settings: Config,
    dataset: "Dataset",
    folder: Path,
    *,
    as_json: bool,
    quiet: bool,
    resume: bool = False,
    init_from: "Run | None" = None,
) -> None:
    from seqmodel.cli.progress import training_progress
    from seqmodel.runs.folder import read_metrics
    from seqmodel.training.search import train as train_run
    from seqmodel.training.stopping import stop_on_signals

    title = f"{folder}: {settings.unit} of {settings.hidden} units on {dataset.folder}"
    with stop_on_signals() as stop, training_progress(settings, title, quiet=quiet) as listener:
        train_run(settings, dataset, folder, listener, stop, resume=resume, init_from=init_from)
    metrics = read_metrics(folder)
    best = min(metrics, key=lambda line: line["valid_nats_per_frame"])
    if as_json:
        print_json({"run": str(folder), "epochs": len(metrics), "best": best})
    else:
        typer.echo(
            f"{folder}  best valid {best['valid_nats_per_frame']:.4f} nats per frame, "
            f"epoch {best['epoch']} of {len(metrics)}"
        )
    if not quiet:
        _warn_if_trivial(settings, dataset, folder, best["valid_nats_per_frame"])


def _warn_if_trivial(settings: Config, dataset: "Dataset", folder: Path, nats: float) -> None:
    """Say so where a trivial model predicts valid as well as the run's `nats` per frame."""
    from seqmodel.outputs.registry import OUTPUTS, output_name

    frame = dataset.frame
    discrete = OUTPUTS[output_name(settings.output, frame)].load().discrete
    figures = frame.medium.baselines(dataset["train"], dataset["valid"], frame, discrete=discrete)
    name, best = min(figures.items(), key=lambda figure: figure[1])
    if nats < best:
        return
    message(
        f"a trivial model predicts valid better ({name.replace('_', ' ')}, {best:.4f}): train "
        f"longer, or at another --learning-rate; `seqmodel eval {folder}` shows all figures"
    )
