"""`seqmodel train`: from a dataset and a unit to a run folder."""

from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from seqmodel.cli.common import Device, Force, Json, Quiet
from seqmodel.cli.completion import ACTIVATIONS, BACKENDS, GATE_ACTIVATIONS, one_of
from seqmodel.cli.train.job import Job
from seqmodel.cli.train.settings import of_new_run, of_stopped_run
from seqmodel.config import CHOICES, MODELS, PRESETS, TRIALS, Config, resolve, to_yaml
from seqmodel.errors import UsageError
from seqmodel.media.music.medium import MUSIC
from seqmodel.outputs.registry import OUTPUTS
from seqmodel.units import UNITS

DATA, MODEL, TRAINING, SEARCH, RUN = "Data", "Model", "Training", "Search", "Run"

# The options themselves default to None, which tells those given from those omitted.
DEFAULTS = asdict(resolve({}, presets=MUSIC.presets))


def _setting(
    name: str,
    group: str,
    text: str,
    *flags: str,
    among: Iterable[str] | None = None,
    metavar: str | None = None,
) -> Any:
    """The option for a setting of `Config`; its help ends with its default, if that is a constant.

    `among` are the names that it takes, for shell completion.
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
            "With the tied model: also give each note what followed the longest earlier match of "
            "the latest frames.",
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
            "Probability of dropping each of a unit's recurrent weights at each update.",
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
            "Decay of the running mean of the weights, which is what is saved; 0: no mean.",
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
            "exp(U(-12, -6)); else Optuna chooses from 0.001 to 0.03, and after a first look "
            f"only the best third go on.  [default: {TRIALS}]",
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
    """Train a unit and keep the epoch with the best score on valid.

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
        folder, settings = of_stopped_run(run, given, trials)
    else:
        settings = of_new_run(given, config, trials)
    if print_config:
        typer.echo(to_yaml(settings), nl=False)
        return
    job = Job(settings, device, as_json=as_json, quiet=quiet)
    if resume:
        job.resume(folder)
    else:
        job.start(run, init_from, force=force)
