"""`seqmodel train`: from a dataset and a unit to a run folder."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from seqmodel.cli.common import Device, Force, Json, Quiet
from seqmodel.cli.train.job import Job
from seqmodel.config import Config, read_config_file, resolve, to_yaml
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.media.music.medium import MUSIC

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
    echo: Annotated[
        bool | None,
        typer.Option(
            "--echo/--no-echo",
            help="With the tied model: also tell each note what followed when the piece was last "
            "as it is now." + DEFAULT["echo"],
        ),
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
    weight_dropout: Annotated[
        float | None,
        typer.Option(
            help="Probability of dropping a number of a unit's recurrent weights at each update."
            + DEFAULT["weight_dropout"]
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
    job = Job(settings, device, as_json=as_json, quiet=quiet)
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
    from seqmodel.outputs.registry import only_model, output_name

    data = given.get("data", file.get("data"))
    frame = open_dataset(data).frame if data else FRAMES
    both = {**file, **given}
    model = only_model(both.get("output", "auto"))
    if model is not None and "model" not in both:
        given = {**given, "model": model}
    settings = with_sizes(resolve(given, file, frame.medium.presets), frame)
    _refuse_sizes_of_other_outputs(given, output_name(settings, frame))
    with torch.device("meta"):  # takes no memory
        build_model(settings, frame)
    return settings


def _refuse_sizes_of_other_outputs(given: dict[str, Any], chosen: str) -> None:
    """UsageError for an option that would change nothing."""
    from seqmodel.outputs.registry import OUTPUTS

    owners: dict[str, list[str]] = {}
    for name, entry in OUTPUTS.items():
        if entry.size is not None:
            owners.setdefault(entry.size[0], []).append(name)
    for setting, names in owners.items():
        if setting in given and chosen not in names:
            option = "--" + setting.replace("_", "-")
            raise UsageError(f"{option} is for --output {' or '.join(names)}, not for {chosen}")


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
