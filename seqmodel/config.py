"""The settings of a training run: their definitions, their YAML form and their precedence.

A field of `Config` states a setting's name, type, default, range, and its option's help and group;
the options of `seqmodel train`, YAML files, --set and all checks are derived from it.

The default here of a setting added after version 1 is neutral: the value that matches the behaviour
before it existed. Checkpoints omit it while it has that value, and readers assume it if it is
missing (runs/README.md), including in a YAML file that states every setting of version 1, as a
run's config.yaml does. Other defaults of new runs are in `MODELS`, `PRESETS` and the media.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any, Self, get_args

import yaml

from seqmodel import plain
from seqmodel.errors import SeqmodelError, UsageError, did_you_mean
from seqmodel.files import read_bytes
from seqmodel.unit_setting import read_unit

VERSION_1 = (
    *("data", "preset", "unit", "hidden", "params", "layers", "gate_activation", "activation"),
    *("bias", "dropout", "output", "components", "end", "backend", "optimizer", "learning_rate"),
    *("learning_rate_draws", "schedule", "weight_noise", "clip", "average", "batch_size"),
    *("truncate", "epochs", "patience", "augment_keys", "seed"),
)
"""The settings contained in every checkpoint."""
EXCLUSIVE = ("hidden", "params"), ("epochs", "minutes")
"""Pairs of which only one may be given; an option for either overrides both in a file."""
UNITS = "unit", "note_unit"
"""The settings that hold a unit; see `unit_setting`."""
RESUMABLE = ("data", "epochs", "patience", "valid_every")
"""Settings that may change on resuming: the dataset's path (but not its content), when to end, and
when to look at valid."""
GROUPS = USUAL, DATA, MODEL, TRAINING, RUN = "Most used", "Data", "Model", "Training", "Run"
"""Groups of options, in the order in which help lists them."""
SEARCHES: Mapping[str, str] = {
    "bracket": "bracket_trials",
    "paper": "learning_rate_draws",
    "tpe": "tpe_trials",
}
"""Learning-rate search -> the setting that holds its number of runs."""
TRIALS: Mapping[str, int] = {"bracket": 7, "paper": 10, "tpe": 10}
"""Search -> its default number of runs; the one for `paper` is stated in the paper."""
MAX_INTEGER = 2**64
"""Larger integers are never meaningful, and printing one can take a while."""
MAX_FILE_BYTES = 2**16
TYPE_NAMES: Mapping[type, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "nothing",
}
"""How errors name the types of settings."""
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    # Chung et al. 2014, section 4.3, and the weight noise and learning rates stated there.
    "paper": {
        "hidden": None,
        "optimizer": "rmsprop",
        "learning_rate_draws": 10,
        "schedule": "constant",
        "weight_noise": 0.075,
        "clip": 1.0,
        "average": 0.0,
        "batch_size": 8,
        "dropout": 0.0,
        "epochs": 500,
        "patience": 20,
    },
}


@dataclass(frozen=True)
class ModelEntry:
    """A model: how it reads frames, and the defaults and settings that follow."""

    encoder: str
    """"module:class" of its `model.encoder.Encoder`."""
    defaults: Mapping[str, Any]
    """Its defaults that differ from `Config`; a preset's values override these."""
    settings: tuple[str, ...] = ()
    """The settings of its encoder, which other models reject."""
    like: str | None = None
    """The model whose outputs can read its h too; None: outputs name this model themselves."""


MODELS: dict[str, ModelEntry] = {
    "frame-wise": ModelEntry(
        "seqmodel.model.encoder:WindowEncoder",
        {"by_part": True, "nearby": True},
        ("by_part", "nearby"),
    ),
    "tied": ModelEntry(
        "seqmodel.model.notes:NoteEncoder",
        {
            **dict.fromkeys(("echo", "clock", "bars", "held", "by_part", "nearby", "ages"), True),
            "first_change": None,
            "hidden": 64,
            "dropout": 0.2,
            "input_noise": 0.1,
            "schedule": "cosine",
            "weight_noise": 0.0,
            "batch_size": 2,
            "truncate": 160,
            "epochs": 14,
        },
        (
            *("echo", "bars", "clock", "metre", "held", "by_part", "nearby", "ages", "motifs"),
            *("rests", "first_change", "input_noise"),
        ),
    ),
    "sample-wise": ModelEntry(
        "seqmodel.model.sound.encoder:SoundEncoder",
        {
            "hidden": 128,
            "components": 5,
            "dropout": 0.0,
            "carry_over": 0.75,
            "input_noise": 0.6,
            "steering": 1.0,
            "learning_rate": 0.003,
            "schedule": "cosine",
            "weight_noise": 0.0,
            "batch_size": 16,
            "average": 0.0,
            "truncate": 200,
            "epochs": 7,
        },
        ("input_noise", "steering", "carry_over"),
    ),
}
"""The available models, one row each; the classes of their encoders are loaded at first use."""


def setting(
    default: Any,
    help: str,
    group: str | None = None,
    *,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
    among: Collection[str] = (),
) -> Any:
    """A field of `Config`: everything about a setting except its name and type.

    Without a `group`, it has no command-line option.
    """
    limits = {"least": least, "most": most, "below": below, "among": among}
    return field(default=default, metadata={"help": help, "group": group, **limits})


@dataclass(frozen=True)
class Config:
    """One training run. Fields are named like the options and the keys of the YAML file.

    The defaults are those of the default preset, chosen for the best valid figure within a fixed
    training time; see README. Upper bounds on sizes and seeds prevent less helpful errors.
    """

    # For a setting not in VERSION_1, the default is part of the file format: older runs imply it.
    # Other defaults for new runs go into MODELS, PRESETS or a medium.
    data: str | None = setting(None, "A prepared dataset; the bundled sample if none.")
    preset: str = setting(
        "default",
        "default; or paper: as in Chung et al. 2014, for music without onsets.",
        USUAL,
        among=tuple(PRESETS),
    )
    labels: str = setting(
        "all",
        "Labels to condition on, for data prepared with --labels: all or none.",
        DATA,
        among=("all", "none"),
    )
    model: str = setting(
        "frame-wise",
        "frame-wise: the unit reads whole frames. tied (music): it runs along time for each note, "
        "with shared weights. sample-wise (audio): it runs at every sample.",
        MODEL,
        among=MODELS,
    )
    unit: str = setting("lstm", "A name from `seqmodel units`, NAME.unit or module:Class.", USUAL)
    hidden: int | None = setting(200, "Size of each layer.", USUAL, least=1, most=10**6)
    params: int | None = setting(
        None,
        "Choose --hidden so that all units have this many parameters, not counting the output.",
        MODEL,
        least=1,
        most=10**12,
    )
    layers: int = setting(1, "Stacked layers.", MODEL, least=1, most=1000)
    echo: bool = setting(
        False,
        "tied: each note also reads what followed the longest earlier match of the latest frames.",
        MODEL,
    )
    clock: bool = setting(
        False,
        "tied: each note also reads how soon a piece this long tends to end in train.",
        MODEL,
    )
    bars: bool = setting(
        False,
        "tied: each note also reads the position in the beat and the bar, from the piece's time "
        "signatures.",
        MODEL,
    )
    metre: bool = setting(
        False, "What --bars replaces: the last six binary digits of the number of frames."
    )
    held: bool = setting(False, "Whether clocks also use, with ages, how long nothing has changed.")
    by_part: bool = setting(
        False, "Whether velocity and timing also read how often the note's part had each level."
    )
    nearby: bool = setting(
        False, "Whether velocity and timing also read means of levels near in time and in pitch."
    )
    ages: bool = setting(
        False,
        "tied: each note also reads for how many frames it has sounded or been silent, and for how "
        "many nothing has changed.",
        MODEL,
    )
    motifs: bool = setting(
        False,
        "tied: each note also reads what came next when its neighbours looked the same, at any "
        "pitch.",
        MODEL,
    )
    rests: bool = setting(
        False,
        "tied: skip the unit along time where nothing begins or ends (fine grids); needs --ages.",
        MODEL,
    )
    first_change: bool | None = setting(
        False,
        "tied: predict which note changes first without the unit along pitch, which then runs "
        "only in frames with a change.  [default: true with such a unit; drums: false]",
        MODEL,
    )
    note_unit: str | None = setting(
        None, "tied: the unit along the notes of a frame.  [default: that of --unit]", MODEL
    )
    note_hidden: int | None = setting(
        None, "tied: the size of --note-unit.  [default: --hidden / 2]", MODEL, least=1, most=10**6
    )
    note_layers: int | None = setting(
        None, "tied: the layers of --note-unit.  [default: --layers]", MODEL, least=1, most=1000
    )
    gate_activation: str = setting(
        "sigmoid", "sigmoid or hard-sigmoid, x/6 + 1/2.", MODEL, among=("sigmoid", "hard-sigmoid")
    )
    activation: str = setting(
        "tanh", "tanh, sigmoid or relu.", MODEL, among=("tanh", "sigmoid", "relu")
    )
    bias: bool = setting(True, "Whether the unit has biases.", MODEL)
    dropout: float = setting(
        0.4, "Dropout between layers and before the output.", TRAINING, least=0, below=1
    )
    output: str = setting(
        "auto",
        "auto: note-unit for the tied model; logistic, or categorical for mu-law audio, for the "
        "sample-wise one; bernoulli or gaussian for the frame-wise one. The tied model can also "
        "use bernoulli, the frame-wise one nade (which implies it) and, for audio, logistic.",
        MODEL,
    )
    components: int = setting(
        20, "Mixture components of an audio output.", MODEL, least=1, most=10_000
    )
    nade_hidden: int = setting(200, "Hidden units of a nade output.", MODEL, least=1, most=10_000)
    end: bool = setting(False, "Also learn when pieces end.", MODEL)
    backend: str = setting(
        "auto",
        "Implementation that runs the unit: auto, cpu, torch-nn or reference.",
        RUN,
        among=("auto", "cpu", "torch-nn", "reference"),
    )
    optimizer: str = setting("adam", "adam or rmsprop.", TRAINING, among=("adam", "rmsprop"))
    learning_rate: float = setting(
        0.01, "The initial rate; or search: try several, keep the best on valid.", USUAL, least=0
    )
    learning_rate_draws: int = setting(0, "Runs in the paper's search; 0: none.", least=0)
    tpe_trials: int = setting(0, "Runs in a search by Optuna's TPE; 0: none.", least=0)
    bracket_trials: int = setting(
        0, "Runs in a search that brackets the best rate; 0: none.", least=0
    )
    schedule: str = setting(
        "constant", "constant, or cosine (down to 0).", TRAINING, among=("cosine", "constant")
    )
    weight_noise: float = setting(
        0.075, "Standard deviation of the noise on a unit's weights.", TRAINING, least=0
    )
    input_noise: float = setting(
        0.0,
        "sample-wise: read a third of train with noise of up to this share of its residual; tied: "
        "read half with up to this share of the notes missing, and a little with a frame held on.",
        TRAINING,
        least=0,
    )
    steering: float = setting(
        0.0,
        "sample-wise: how strongly samples are steered towards the sound of train, at some cost in "
        "bits; 0: not at all, and they whistle.",
        TRAINING,
        least=0,
        most=4,
    )
    carry_over: float = setting(
        0.0,
        "sample-wise: share of batches whose pieces continue from those of the previous batch.",
        TRAINING,
        least=0,
        most=1,
    )
    weight_dropout: float = setting(
        0.0, "Dropout on a unit's recurrent weights.", TRAINING, least=0, below=1
    )
    zoneout: float = setting(
        0.0,
        "Probability that a state of the unit along time keeps its value at a step.",
        TRAINING,
        least=0,
        below=1,
    )
    clip: float = setting(1.0, "Clip the gradient's norm to this; 0: never.", TRAINING, least=0)
    average: float = setting(
        0.995, "Decay of the average of weights that is saved; 0: none.", TRAINING, least=0, below=1
    )
    batch_size: int = setting(4, "Pieces in a batch.", DATA, least=1)
    parts: int = setting(
        1,
        "Split each batch into this many parts, a power of two; --processes must divide it.",
        DATA,
        least=1,
        most=1024,
    )
    truncate: int = setting(
        0,
        "Backpropagate through windows of this many steps (frames or samples); 0: whole pieces.",
        DATA,
        least=0,
    )
    epochs: int = setting(
        40,
        "Maximum passes over train; auto or 0: until --patience runs out; the default is higher if "
        "train is small.",
        USUAL,
        least=0,
    )
    minutes: float | None = setting(
        None,
        "Minutes to train, instead of --epochs; schedules are planned from the measured speed.",
        TRAINING,
        least=0.01,
        most=10**6,
    )
    patience: int = setting(
        10,
        "Stop after this many epochs without a better valid figure; the default is higher if train "
        "is small.",
        TRAINING,
        least=1,
    )
    valid_every: str = setting(
        "auto",
        "Score valid, or a part of it, within epochs too: after every N updates (2000) or minutes "
        "(10m); epoch: only at their end; auto: within long ones.",
        TRAINING,
    )
    augment_keys: bool = setting(False, "Transpose each piece to a random key every epoch.", DATA)
    seed: int = setting(1, "The same seed gives the same run.", USUAL, least=0, most=2**63 - 1)

    @property
    def trials(self) -> int:
        """Runs of the learning-rate search; 0: no search, one run at `learning_rate`."""
        return max(getattr(self, name) for name in SEARCHES.values())

    def most_epochs(self, best: float) -> float:
        """The maximum number of epochs; with auto, if epoch `best` remains the best."""
        return self.epochs or best + self.patience

    def without_search(self) -> Self:
        """The same settings, for a single run.

        Valid is scored as a whole, unless they state otherwise, because it decides between runs.
        """
        every = "epoch" if self.valid_every == "auto" else self.valid_every
        return replace(
            self, learning_rate_draws=0, tpe_trials=0, bracket_trials=0, valid_every=every
        )

    @classmethod
    def neutral(cls) -> dict[str, Any]:
        """The values of settings that a file of an older version lacks."""
        return {f.name: f.default for f in fields(cls) if f.name not in VERSION_1}

    def to_json(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        left_out = self.neutral().items()
        return {name: value for name, value in vars(self).items() if (name, value) not in left_out}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], origin: Path) -> Self:
        """The inverse of `to_json`; SeqmodelError names `origin` and the wrong setting."""
        refuse_unknown(values, cls, origin)
        checked = {name: _checked(name, value, origin, cls) for name, value in values.items()}
        return cls(**checked)


def refuse_unknown(values: Mapping[str, Any], kind: type, origin: Path) -> None:
    """SeqmodelError if `values` from the file `origin` has a key that dataclass `kind` lacks."""
    if unknown := sorted(values.keys() - {f.name for f in fields(kind)}):
        raise SeqmodelError(
            f"{origin} has the unknown setting {unknown[0]!r}: it was written by a newer version "
            "of seqmodel; use that version"
        )


def search_of(preset: str) -> str:
    """The learning-rate search that goes with a preset."""
    return "paper" if preset == "paper" else "bracket"


def read_config_file(path: Path) -> dict[str, Any]:
    """The settings in a YAML file; SeqmodelError names the file and the invalid key.

    Settings missing from the complete config of an older version's run have neutral values.
    """
    try:
        values = plain.parse_mapping(read_bytes(path, MAX_FILE_BYTES))
    except ValueError as error:
        raise SeqmodelError(f"{path}: {error}") from error
    settings = {key: _checked(key, value, path) for key, value in values.items()}
    return {**Config.neutral(), **settings} if settings.keys() >= {*VERSION_1} else settings


def _checked(key: str, value: Any, origin: Path, kind: type = Config) -> Any:
    """A setting's value from the file `origin`, checked against the dataclass `kind`."""
    try:
        allowed = field_types(key, kind)
    except UsageError as error:
        raise SeqmodelError(f"{origin}: {error}") from None
    called = str(origin) if str(origin) == f"--{key}" else f"{origin}: {key}"
    if type(value) is int and abs(value) > MAX_INTEGER:
        raise SeqmodelError(f"{called} is out of range")
    if float in allowed and type(value) in (int, str):  # YAML reads 1e-3 as a string
        with suppress(ValueError):
            value = float(value)
    if key in UNITS and type(value) is str:
        value = read_unit(value)
    if (key, value) == ("epochs", "auto"):
        value = 0
    if key == "valid_every" and type(value) is int:
        value = f"{value}"
    if type(value) not in allowed:
        names = " or ".join(map(TYPE_NAMES.__getitem__, allowed))
        raise SeqmodelError(f"{called} must be {names}, not {plain.quoted(value)}")
    for must in _objections(key, value, kind):
        raise SeqmodelError(f"{called} must be {must}")
    return value


def field_types(name: str, kind: type = Config) -> tuple[type, ...]:
    """The types that the setting `name` can have; UsageError if there is no such setting."""
    types: dict[str, Any] = {field.name: field.type for field in fields(kind)}
    if name not in types:
        raise UsageError(f"there is no setting {name!r}{did_you_mean(name, types)}")
    return get_args(types[name]) or (types[name],)


def parse_setting(key: str, text: str, option: str) -> Any:
    """The value of the setting `key`, parsed from `text` as YAML; errors name `option`.

    UsageError if there is no such setting, or the value is invalid.
    """
    try:
        return _checked(key, plain.parse_value(text), Path(option))
    except ValueError:
        raise UsageError(f"{option}: {key} cannot be {text!r}") from None
    except SeqmodelError as error:
        raise UsageError(str(error)) from None


def resolve(
    options: Mapping[str, Any],
    file: Mapping[str, Any] | None = None,
    presets: Mapping[str, Mapping[str, Any]] = {},
) -> Config:
    """The complete config: options override the file, which overrides the preset.

    `presets` are a medium's own values for presets and models, which override the general ones.
    `hidden` stays None if it depends on the data's frame size. UsageError for a value out of range
    or mutually exclusive settings, SeqmodelError for a unit's file that cannot be read.
    """
    searches = set(SEARCHES.values())
    given_options = {name for name, value in options.items() if value is not None}
    overridden = {name for pair in EXCLUSIVE if given_options & {*pair} for name in pair}
    if options.keys() & {"learning_rate", *searches}:  # these override a search in the file
        overridden |= searches
    file = {name: value for name, value in (file or {}).items() if name not in overridden}
    settings = {**file, **options}
    preset = settings.get("preset", Config.preset)
    if preset not in PRESETS:
        raise UsageError(f"--preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    _check_exclusion(options, file)
    with_preset = {**PRESETS[preset], **presets.get(preset, {}), **settings}
    model = with_preset.get("model", Config.model)
    model_defaults = MODELS[model].defaults if model in MODELS else {}
    values = {**model_defaults, **presets.get(model, {}), **with_preset}
    values |= {name: read_unit(values[name]) for name in UNITS if values.get(name)}
    if settings.get("params") is not None:
        values["hidden"] = None
    if settings.get("minutes") is not None:
        values["epochs"] = 0
    if settings.keys() & {"learning_rate", *searches}:  # these override the preset's search
        values |= {name: settings.get(name, 0) for name in searches}
    config = Config(**values)
    if len(both := [name for name in SEARCHES.values() if getattr(config, name)]) > 1:
        raise UsageError(f"{both[0]} and {both[1]} exclude each other: leave one out")
    for name, value in asdict(config).items():
        for must in _objections(name, value):
            raise UsageError(f"--{name.replace('_', '-')} must be {must}")
    _check_time(config)
    if config.parts > config.batch_size:
        raise UsageError(
            f"{config.parts} parts (by default one per process) need a --batch-size of "
            f"{config.parts} or more, not {config.batch_size}"
        )
    return config


def _check_exclusion(options: Mapping[str, Any], file: Mapping[str, Any]) -> None:
    """UsageError if two options, or two remaining settings of the file, exclude each other."""
    if options.get("hidden") is not None and options.get("params") is not None:
        raise UsageError("--hidden and --params exclude each other: give one of them")
    for name in ("epochs", "patience"):
        if options.get("minutes") is not None and options.get(name):
            raise UsageError(f"--{name} and --minutes exclude each other: give one of them")
    for one, other in EXCLUSIVE:
        if file.get(one) and file.get(other):
            raise UsageError(f"{one} and {other} exclude each other: leave one out")


def _check_time(config: Config) -> None:
    """UsageError if what ends training, or scores valid, does not fit the other settings."""
    if not (config.epochs or config.minutes) and config.schedule != "constant":
        raise UsageError(
            "--epochs auto needs --schedule constant: a cosine needs a fixed number of epochs"
        )
    if config.trials and (config.minutes is not None or config.valid_every.endswith("m")):
        raise UsageError(
            "a search cannot use --minutes, or --valid-every in minutes, because they depend on "
            "the clock: use --epochs, and a number of updates"
        )


def _objections(name: str, value: Any, kind: type = Config) -> Iterator[str]:
    """What the setting must be instead of `value`, for each way in which it is out of range."""
    if value is None:
        return
    limits = {f.name: f.metadata for f in fields(kind)}[name]
    among, least, most, below = (limits[key] for key in ("among", "least", "most", "below"))
    if among and value not in among:
        yield f"one of {', '.join(among)}, not {value!r}"
    if least is not None and not value >= least:  # also refuses nan
        yield f"{least} or more, not {value}"
    if value == inf:
        yield f"finite, not {value}"
    if most is not None and value > most:
        yield f"{most} or less, not {value}"
    if below is not None and value >= below:
        yield f"below {below}, not {value}"
    if name == "parts" and value & (value - 1):
        yield f"a power of two, not {value}"
    every = r"auto|epoch|0*[1-9]\d*|(?=.*[1-9])\d+(\.\d+)?m"
    if name == "valid_every" and not re.fullmatch(every, value):
        yield f"auto, epoch, a number of updates, or minutes like 10m, not {value!r:.40}"
    if (name, value) == ("truncate", 1):
        yield "0 or at least 2, not 1: nothing would be remembered"


def to_yaml(config: Config) -> str:
    """The complete config as YAML, in the order of its fields; `read_config_file` reads it back."""
    return yaml.dump(asdict(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Writes a multi-line string, such as a unit's text, as a block."""

    def represent_scalar(self, tag: str, value: Any, style: str | None = None) -> yaml.ScalarNode:
        return super().represent_scalar(tag, value, "|" if "\n" in value else style)
