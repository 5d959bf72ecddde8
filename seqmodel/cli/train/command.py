"""`seqmodel train`: from a dataset and a unit to a run folder."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqmodel.cli.common import Device, Force, Json, Quiet
from seqmodel.cli.completion import ACTIVATIONS, BACKENDS, GATE_ACTIVATIONS, one_of
from seqmodel.cli.train.job import Job
from seqmodel.config import (
    CHOICES,
    MODELS,
    PRESETS,
    SEARCHES,
    TRIALS,
    Config,
    blaming,
    read_config_file,
    resolve,
    search_of,
    to_yaml,
)
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.media.music.medium import MUSIC
from seqmodel.outputs.registry import OUTPUTS
from seqmodel.units import UNITS

if TYPE_CHECKING:
    from seqmodel.media.definitions import FrameDefinition

DATA, MODEL, TRAINING, SEARCH, RUN = "Data", "Model", "Training", "Search", "Run"

# The options themselves default to None, which tells those given from those left out.
DEFAULTS = asdict(resolve({}, presets=MUSIC.presets))


def _setting(
    name: str,
    group: str,
    text: str,
    *flags: str,
    among: Iterable[str] | None = None,
    metavar: str | None = None,
) -> Any:
    """The option of a setting of `Config`: its help ends with its default, if that is a constant.

    `among` are the names that it takes, for the shell to complete.
    """
    default = DEFAULTS[name]
    if default is not None:
        text += f"  [default: {str(default).lower() if isinstance(default, bool) else default}]"
    complete = None if among is None else one_of(among)
    return typer.Option(
        *flags, help=text, rich_help_panel=group, autocompletion=complete, metavar=metavar
    )


def train(
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA",
            help="A prepared dataset; the bundled sample if none.",
            rich_help_panel=DATA,
        ),
    ] = None,
    augment_keys: Annotated[
        bool | None,
        _setting(
            "augment_keys",
            DATA,
            "Transpose each piece to a random key in each epoch.",
            "--augment-keys/--no-augment-keys",
        ),
    ] = None,
    batch_size: Annotated[int | None, _setting("batch_size", DATA, "Pieces in a batch.")] = None,
    truncate: Annotated[
        int | None,
        _setting(
            "truncate",
            DATA,
            "Backpropagate through windows of this many frames; 0: whole pieces.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        _setting(
            "model",
            MODEL,
            "frame-wise: a unit reads whole frames. tied, for music: it runs along time for each "
            "note, with the same weights for all.",
            among=MODELS,
        ),
    ] = None,
    unit: Annotated[
        str | None, _setting("unit", MODEL, "See `seqmodel units`.", among=UNITS)
    ] = None,
    hidden: Annotated[int | None, _setting("hidden", MODEL, "Size of each layer.")] = None,
    params: Annotated[
        int | None,
        _setting(
            "params",
            MODEL,
            "Solve the size for this many parameters of all units, without output layers.",
        ),
    ] = None,
    layers: Annotated[int | None, _setting("layers", MODEL, "Layers, stacked.")] = None,
    note_unit: Annotated[
        str | None,
        _setting(
            "note_unit",
            MODEL,
            "tied: the unit along the notes of a frame.  [default: as --unit]",
            among=UNITS,
        ),
    ] = None,
    note_hidden: Annotated[
        int | None,
        _setting("note_hidden", MODEL, "tied: its size.  [default: half of --hidden]"),
    ] = None,
    note_layers: Annotated[
        int | None, _setting("note_layers", MODEL, "tied: its layers.  [default: as --layers]")
    ] = None,
    gate_activation: Annotated[
        str | None,
        _setting("gate_activation", MODEL, "sigmoid or hard-sigmoid.", among=GATE_ACTIVATIONS),
    ] = None,
    activation: Annotated[
        str | None, _setting("activation", MODEL, "tanh, sigmoid or relu.", among=ACTIVATIONS)
    ] = None,
    bias: Annotated[
        bool | None, _setting("bias", MODEL, "Whether the unit has biases.", "--bias/--no-bias")
    ] = None,
    output: Annotated[
        str | None,
        _setting(
            "output",
            MODEL,
            "auto: note-unit for the tied model, bernoulli for the frame-wise one, gaussian for "
            "audio. The tied model can also have bernoulli, the frame-wise one nade (which "
            "implies it), 16-bit audio logistic.",
            among=("auto", *OUTPUTS),
        ),
    ] = None,
    components: Annotated[
        int | None, _setting("components", MODEL, "Components of an audio output's mixture.")
    ] = None,
    nade_hidden: Annotated[
        int | None, _setting("nade_hidden", MODEL, "Hidden units of a nade output.")
    ] = None,
    end: Annotated[
        bool | None, _setting("end", MODEL, "Also learn when pieces end.", "--end/--no-end")
    ] = None,
    echo: Annotated[
        bool | None,
        _setting(
            "echo",
            MODEL,
            "With the tied model: also tell each note what followed when the piece was last as it "
            "is now.",
            "--echo/--no-echo",
        ),
    ] = None,
    epochs: Annotated[
        int | None, _setting("epochs", TRAINING, "Passes through the pieces, at most.")
    ] = None,
    patience: Annotated[
        int | None,
        _setting(
            "patience", TRAINING, "Stop after this many epochs without a better valid figure."
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        _setting("optimizer", TRAINING, "adam or rmsprop.", among=CHOICES["optimizer"]),
    ] = None,
    learning_rate: Annotated[
        str | None,
        _setting(
            "learning_rate",
            TRAINING,
            "At the start; search: tries several and keeps the best on valid.",
            "--learning-rate",
            "--lr",
            metavar="NUMBER",
            among=["search"],
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        _setting(
            "schedule",
            TRAINING,
            "Learning rate over time: constant, or cosine (down to 0).",
            among=CHOICES["schedule"],
        ),
    ] = None,
    dropout: Annotated[
        float | None,
        _setting("dropout", TRAINING, "Dropout probability between layers and before the output."),
    ] = None,
    weight_noise: Annotated[
        float | None,
        _setting(
            "weight_noise",
            TRAINING,
            "Standard deviation of the noise on the unit's weights at each update.",
        ),
    ] = None,
    weight_dropout: Annotated[
        float | None,
        _setting(
            "weight_dropout",
            TRAINING,
            "Probability of dropping a number of a unit's recurrent weights at each update.",
        ),
    ] = None,
    clip: Annotated[
        float | None,
        _setting(
            "clip", TRAINING, "Rescale the gradient's norm to this if it is larger; 0: never."
        ),
    ] = None,
    average: Annotated[
        float | None,
        _setting(
            "average",
            TRAINING,
            "Decay of the running mean of the weights, which is kept; 0: no mean.",
        ),
    ] = None,
    seed: Annotated[
        int | None, _setting("seed", TRAINING, "The same seed gives the same run.")
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Runs of --lr search. With the paper preset, which searches anyway, at rates from "
            "exp(U(-12, -6)); else Optuna chooses from 0.001 to 0.03 and gives up what does worse "
            f"than the median.  [default: {TRIALS}]",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        _setting("preset", RUN, "default, or paper: as in Chung et al. 2014.", among=PRESETS),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings from a YAML file; options override the file.",
            rich_help_panel=RUN,
        ),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config", help="Print all settings as YAML and stop.", rich_help_panel=RUN
        ),
    ] = False,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The run folder.  [default: a new one in runs/]",
            rich_help_panel=RUN,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue a stopped run: --run, or the newest.", rich_help_panel=RUN
        ),
    ] = False,
    init_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Start from the weights of another run.", rich_help_panel=RUN
        ),
    ] = None,
    backend: Annotated[
        str | None,
        _setting(
            "backend",
            RUN,
            "Code that runs the unit: auto, cpu, torch-nn or reference.",
            among=BACKENDS,
        ),
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
    given = {f.name: values[f.name] for f in fields(Config) if f.name in values}
    given = {name: value for name, value in given.items() if value is not None}
    if data is not None:
        given["data"] = str(data)
    if resume:
        if init_from is not None or config is not None or force:
            raise UsageError("--resume excludes --init-from, --config and --force")
        folder, settings = _stopped(run, given, trials)
    else:
        file = read_config_file(config) if config else {}
        settings = blaming(
            Path(config or ""),
            file,
            lambda file: _resolved(_with_rates(given, file, trials), file),
        )
    if print_config:
        typer.echo(to_yaml(settings), nl=False)
        return
    job = Job(settings, device, as_json=as_json, quiet=quiet)
    if resume:
        job.resume(folder)
    else:
        job.start(run, init_from, force=force)


def _with_rates(
    given: dict[str, Any], file: Mapping[str, Any], trials: int | None
) -> dict[str, Any]:
    """The options with `learning_rate` as a number, or as the setting of the search it asks for."""
    others = dict(given)
    rate = others.pop("learning_rate", None)
    if rate is not None and rate != "search":
        if trials is not None:
            raise UsageError(f"--trials goes with --lr search, not with --lr {rate}")
        return {**others, "learning_rate": _number(rate)}
    if rate is None and trials is None:
        return others
    search = search_of({**file, **given}.get("preset", Config.preset))
    return {**others, SEARCHES[search]: trials or TRIALS}


def _number(rate: str) -> float:
    try:
        return float(rate)
    except ValueError:
        raise UsageError(f"--learning-rate must be a number or search, not {rate!r}") from None


def _resolved(given: Mapping[str, Any], file: Mapping[str, Any]) -> Config:
    """The settings for the medium of their data, with all sizes solved.

    UsageError where there is no such unit.
    """
    from seqmodel.data.bundled import FRAMES
    from seqmodel.data.dataset import open_dataset
    from seqmodel.model.build import with_sizes
    from seqmodel.outputs.registry import only_model, output_name

    data = given.get("data", file.get("data"))
    frame = open_dataset(data).frame if data else FRAMES
    both = {**file, **given}
    model = only_model(both.get("output", "auto"))
    if model is not None and "model" not in both:
        given = {**given, "model": model}
    settings = with_sizes(resolve(given, file, frame.medium.presets), frame)
    _refuse_sizes_of_other_outputs(given, output_name(settings, frame))
    _check(settings, frame)
    return settings


def _check(settings: Config, frame: "FrameDefinition") -> None:
    """UsageError where there is no model of these settings for such frames."""
    import torch

    from seqmodel.model.build import build_model

    with torch.device("meta"):  # takes no memory
        build_model(settings, frame)


def _refuse_sizes_of_other_outputs(given: Mapping[str, Any], chosen: str) -> None:
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


def _stopped(folder: Path | None, given: dict[str, Any], trials: int | None) -> tuple[Path, Config]:
    """The folder and the settings of the run to continue."""
    from seqmodel.data.dataset import open_dataset
    from seqmodel.runs.folder import CONFIG, LAST, newest_resumable_run, read_metrics
    from seqmodel.training.resuming import RESUMABLE

    folder = folder or newest_resumable_run()
    if not (folder / CONFIG).is_file():
        raise SeqmodelError(
            f"{folder} is not a run folder (no {CONFIG}); there is nothing to resume"
        )
    stored = read_config_file(folder / CONFIG)
    given = _with_rates(given, stored, trials)
    changed = [name for name in given if given[name] != stored.get(name)]
    fixed = sorted(set(changed) - set(RESUMABLE))
    if fixed:
        name = "trials" if fixed[0] in SEARCHES.values() else fixed[0]
        option = "--" + name.replace("_", "-")
        raise UsageError(f"{option} cannot change on --resume; start a new run with --init-from")
    if "data" in given:
        given["data"] = str(Path(given["data"]).resolve())  # as it is stored

    def continued(stored: Mapping[str, Any]) -> Config:
        settings = resolve(given, stored)
        _check(settings, open_dataset(str(settings.data)).frame)
        return settings

    settings = blaming(folder / CONFIG, stored, continued)
    ended = len(read_metrics(folder))
    if settings.epochs < ended:
        raise UsageError(f"--epochs {settings.epochs} is less than the {ended} that {folder} has")
    if not (folder / LAST).is_file() and not settings.trials:
        raise SeqmodelError(
            f"{folder} has no checkpoint to resume from ({LAST}); "
            f"train it again with --run {folder} --force"
        )
    return folder, settings
