"""`seqmodel train`: from a dataset and a unit to a run folder."""

from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqmodel.cli.common import Device, Force, Json, Quiet, message, print_json
from seqmodel.config import Config, read_config_file, resolve, to_yaml
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.media.music.medium import MUSIC

if TYPE_CHECKING:
    import torch

    from seqmodel.data.dataset import Dataset
    from seqmodel.runs.folder import Run

# The options themselves default to None, which tells those given from those left out.
DEFAULT = {
    name: f"  [default: {str(value).lower() if isinstance(value, bool) else value}]"
    for name, value in asdict(resolve({}, presets=MUSIC.presets)).items()
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
        typer.Option(metavar="FILE", help="Settings from a YAML file; options override the file."),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all settings as YAML and stop.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            help="frame-wise: a unit reads whole frames. tied, for music: it runs along time for "
            "each note, with the same weights for all." + DEFAULT["model"]
        ),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="See `seqmodel units`." + DEFAULT["unit"])
    ] = None,
    hidden: Annotated[
        int | None, typer.Option(help="Size of each layer." + DEFAULT["hidden"])
    ] = None,
    params: Annotated[
        int | None,
        typer.Option(
            help="Solve the size for this many parameters of all units, without output layers."
        ),
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Layers, stacked." + DEFAULT["layers"])] = None,
    note_unit: Annotated[
        str | None,
        typer.Option(help="tied: the unit along the notes of a frame.  [default: as --unit]"),
    ] = None,
    note_hidden: Annotated[
        int | None, typer.Option(help="tied: its size.  [default: half of --hidden]")
    ] = None,
    note_layers: Annotated[
        int | None, typer.Option(help="tied: its layers.  [default: as --layers]")
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
            help="Dropout probability between layers and before the output." + DEFAULT["dropout"]
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            help="auto: note-unit for the tied model, bernoulli for the frame-wise one, gaussian "
            "for audio. The tied model can also have bernoulli, the frame-wise one nade (which "
            "implies it), 16-bit audio logistic." + DEFAULT["output"]
        ),
    ] = None,
    components: Annotated[
        int | None,
        typer.Option(help="Components of an audio output's mixture." + DEFAULT["components"]),
    ] = None,
    nade_hidden: Annotated[
        int | None, typer.Option(help="Hidden units of a nade output." + DEFAULT["nade_hidden"])
    ] = None,
    end: Annotated[
        bool | None,
        typer.Option("--end/--no-end", help="Also learn when pieces end." + DEFAULT["end"]),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            help="Code that runs the unit: auto, cpu, torch-nn or reference." + DEFAULT["backend"]
        ),
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
            help="Search: train this many runs at rates from exp(U(-12, -6)), keep the best."
            + DEFAULT["learning_rate_draws"]
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Learning rate over time: constant, or cosine (down to 0)." + DEFAULT["schedule"]
        ),
    ] = None,
    weight_noise: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the noise on the unit's weights at each update."
            + DEFAULT["weight_noise"]
        ),
    ] = None,
    clip: Annotated[
        float | None,
        typer.Option(
            help="Rescale the gradient's norm to this if it is larger; 0: never." + DEFAULT["clip"]
        ),
    ] = None,
    average: Annotated[
        float | None,
        typer.Option(
            help="Decay of the running mean of the weights, which is kept; 0: no mean."
            + DEFAULT["average"]
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Pieces in a batch." + DEFAULT["batch_size"])
    ] = None,
    truncate: Annotated[
        int | None,
        typer.Option(
            help="Backpropagate through windows of this many frames; 0: whole pieces."
            + DEFAULT["truncate"]
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes through the pieces, at most." + DEFAULT["epochs"]),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Stop after this many epochs without a better valid figure." + DEFAULT["patience"]
        ),
    ] = None,
    augment_keys: Annotated[
        bool | None,
        typer.Option(
            "--augment-keys/--no-augment-keys",
            help="Transpose each piece to a random key in each epoch." + DEFAULT["augment_keys"],
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same run." + DEFAULT["seed"])
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="The run folder.  [default: a new one in runs/]")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a stopped run: --run, or the newest.")
    ] = False,
    init_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Start from the weights of another run.")
    ] = None,
    device: Device = "auto",
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a unit and keep the epoch that predicts valid best.

    --resume continues a stopped run (Ctrl-C will do), bit for bit. The defaults shown are for
    music; audio, the frame-wise model and the paper preset have some of their own, see
    --print-config.
    """
    values = locals()
    given = {field.name: values[field.name] for field in fields(Config)}
    given = {name: value for name, value in given.items() if value is not None}
    if data is not None:
        given["data"] = str(data)
    if resume:
        if init_from is not None or config is not None or force:
            raise UsageError("--resume excludes --init-from, --config and --force")
        folder, settings = _stopped(run, given)
    else:
        settings = _resolved(given, read_config_file(config) if config else {})
    if print_config:
        typer.echo(to_yaml(settings), nl=False)
        return
    job = _Job(settings, device, as_json=as_json, quiet=quiet)
    if resume:
        job.resume(folder)
    else:
        job.start(run, init_from, force=force)


def _resolved(given: dict[str, Any], file: dict[str, Any]) -> Config:
    """The settings for the medium of their data, with all sizes solved.

    UsageError where there is no such unit.
    """
    import torch

    from seqmodel.data.bundled import FRAMES
    from seqmodel.data.dataset import open_dataset
    from seqmodel.model.build import build_model, with_sizes
    from seqmodel.outputs.registry import only_model

    data = given.get("data", file.get("data"))
    frame = open_dataset(data).frame if data else FRAMES
    both = {**file, **given}
    model = only_model(both.get("output", "auto"))
    if model is not None and "model" not in both:
        given = {**given, "model": model}
    settings = with_sizes(resolve(given, file, frame.medium.presets), frame)
    with torch.device("meta"):  # takes no memory
        build_model(settings, frame)
    return settings


def _stopped(folder: Path | None, given: dict[str, Any]) -> tuple[Path, Config]:
    """The folder and the settings of the run to continue."""
    from seqmodel.runs.folder import CONFIG, LAST, newest_resumable_run, read_metrics
    from seqmodel.training.resuming import RESUMABLE

    folder = folder or newest_resumable_run()
    if not (folder / CONFIG).is_file():
        raise SeqmodelError(
            f"{folder} is not a run folder (no {CONFIG}); there is nothing to resume"
        )
    stored = read_config_file(folder / CONFIG)
    changed = [name for name in given if given[name] != stored.get(name)]
    fixed = sorted(set(changed) - set(RESUMABLE))
    if fixed:
        option = "--" + fixed[0].replace("_", "-")
        raise UsageError(f"{option} cannot change on --resume; start a new run with --init-from")
    if "data" in given:
        given["data"] = str(Path(given["data"]).resolve())  # as it is stored
    settings = resolve(given, stored)
    ended = len(read_metrics(folder))
    if settings.epochs < ended:
        raise UsageError(f"--epochs {settings.epochs} is less than the {ended} that {folder} has")
    if not (folder / LAST).is_file() and not settings.learning_rate_draws:
        raise SeqmodelError(
            f"{folder} has no checkpoint to resume from ({LAST}); "
            f"train it again with --run {folder} --force"
        )
    return folder, settings


class _Job:
    """What trains `settings`, with or without a learning-rate search, and reports it."""

    def __init__(self, settings: Config, device: str, *, as_json: bool, quiet: bool) -> None:
        self.settings, self.device = settings, device
        self.as_json, self.quiet = as_json, quiet

    def resume(self, folder: Path) -> None:
        """Continue the run in `folder`."""
        from seqmodel.data.dataset import open_dataset

        dataset = open_dataset(str(self.settings.data))
        self._run(dataset, folder, _device(self.device, self.settings, dataset), resume=True)

    def start(self, folder: Path | None, init_from: Path | None, *, force: bool) -> None:
        """Train a new run in `folder`, or in a new one in runs/."""
        from seqmodel.data.bundled import sample_dataset
        from seqmodel.data.dataset import open_dataset
        from seqmodel.files import check_writable, new_folder
        from seqmodel.runs.folder import CONFIG, RUN_FOLDER, RUNS, new_run_folder
        from seqmodel.training.loop import begin_run
        from seqmodel.training.search import begin_search

        # All that can be wrong is found before a folder is made.
        if folder is not None:
            RUN_FOLDER.check_target(folder, force=force)
        path = Path(self.settings.data) if self.settings.data else sample_dataset(RUNS)
        dataset = open_dataset(path)
        _check_splits(dataset)
        device = _device(self.device, self.settings, dataset)
        weights = _weights(init_from, self.settings, dataset) if init_from else None
        self.settings = replace(self.settings, data=str(path.resolve()))
        replaces = folder is not None and folder.exists()
        if folder is None:
            name = path.resolve().name.removesuffix("-data")
            folder = new_run_folder(name, self.settings.unit)
        elif replaces:  # the old run stays until the new one's first checkpoint is on the disk
            begin = begin_search if self.settings.learning_rate_draws else begin_run
            with new_folder(folder, RUN_FOLDER, force=True) as new:
                begin(self.settings, dataset, new, weights)
            weights = None
        else:
            check_writable(folder / CONFIG)
        try:
            self._run(dataset, folder, device, resume=replaces, init_from=weights)
        finally:
            for made in (folder, RUNS):  # an error before the first checkpoint leaves no folder
                with suppress(OSError):
                    made.rmdir()

    def _run(
        self,
        dataset: "Dataset",
        folder: Path,
        device: "torch.device",
        *,
        resume: bool,
        init_from: "Run | None" = None,
    ) -> None:
        from seqmodel.cli.progress import training_progress
        from seqmodel.runs.folder import read_metrics
        from seqmodel.training.loop import train_run
        from seqmodel.training.search import search
        from seqmodel.training.stopping import stop_on_signals

        settings, quiet = self.settings, self.quiet
        train = search if settings.learning_rate_draws else train_run
        title = f"{folder}: {_units(settings)} on {dataset.folder}"
        with stop_on_signals() as stop, training_progress(settings, title, quiet=quiet) as listener:
            train(
                settings,
                dataset,
                folder,
                device=device,
                resume=resume,
                init_from=init_from,
                listener=listener,
                stop=stop,
            )
        metrics = read_metrics(folder)
        best = min(metrics, key=lambda line: line["valid_nats_per_frame"])
        if self.as_json:
            print_json({"run": str(folder), "epochs": len(metrics), "best": best})
        else:
            typer.echo(
                f"{folder}  best valid {best['valid_nats_per_frame']:.4f} nats per frame, "
                f"epoch {best['epoch']} of {len(metrics)}"
            )
        if not quiet:
            _warn_if_trivial(settings, dataset, folder, best["valid_nats_per_frame"])


def _units(settings: Config) -> str:
    along_time = f"{settings.unit} of {settings.hidden} units"
    if settings.note_unit is None:
        return along_time
    return f"{along_time}, {settings.note_unit} of {settings.note_hidden} along pitch,"


def _device(option: str, settings: Config, dataset: "Dataset") -> "torch.device":
    import torch

    from seqmodel.model.build import build_model

    with torch.device("meta"):  # takes no memory
        model = build_model(settings, dataset.frame)
    return model.choose_device(option, settings.batch_size)


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


def _weights(folder: Path, settings: Config, dataset: "Dataset") -> "Run":
    """The run to take weights from, known to fit."""
    from seqmodel.model.build import build_model
    from seqmodel.runs.folder import load_model, load_run, model_tensors

    run = load_run(folder)
    try:
        run.check_reads(dataset)
        load_model(build_model(settings, dataset.frame), model_tensors(run.model))
    except SeqmodelError as error:
        raise SeqmodelError(f"--init-from {folder}: {error}") from error
    return run


def _warn_if_trivial(settings: Config, dataset: "Dataset", folder: Path, nats: float) -> None:
    """Say so where a trivial model predicts valid as well as the run's `nats` per frame."""
    from seqmodel.outputs.registry import output_class

    frame = dataset.frame
    discrete = output_class(settings, frame).discrete
    figures = frame.medium.baselines(dataset["train"], dataset["valid"], frame, discrete=discrete)
    name, best = min(figures.items(), key=lambda figure: figure[1])
    if nats < best:
        return
    message(
        f"a trivial model predicts valid better ({name.replace('_', ' ')}, {best:.4f}): train "
        f"longer, or at another --learning-rate; `seqmodel eval {folder}` shows all figures"
    )
