"""The settings of a training run: defaults, presets, YAML, and which source overrides which.

Compatibility between versions: a checkpoint holds its run's settings by name. A setting added
after version 1 declares a neutral value, the one that matches the behaviour before it existed
(`added`). While it has that value it is left out of checkpoints, so older versions can still read
them; if it is missing, a reader takes the neutral value. A reader that meets an unknown setting
rejects the file with a one-line error, since the setting's meaning cannot be guessed.
"""

import difflib
import reprlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from math import inf
from pathlib import Path
from types import UnionType
from typing import Any, Self, TypeVar, get_args

import yaml

from seqmodel import plain_yaml
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.files import read_bytes

Result = TypeVar("Result")


def added(default: Any, *, neutral: Any) -> Any:
    """A setting of `Config` added after version 1; see above for its `neutral` value."""
    return field(default=default, metadata={"neutral": neutral})


@dataclass(frozen=True)
class Config:
    """One training run. Fields are named like the options and the keys of the YAML file.

    The defaults are the default preset's, chosen for the best valid figure within a fixed training
    time; see README.
    """

    data: str | None = None
    """The prepared dataset; None: the bundled sample."""
    preset: str = "default"

    model: str = added("frame-wise", neutral="frame-wise")
    """What the unit runs over: whole frames, or the time of each note with tied weights."""
    unit: str = "lstm"
    hidden: int | None = 200
    """Size of each layer; None: solved from `params` or from the preset."""
    params: int | None = None
    """Parameter budget of all units, excluding output layers, from which `hidden` is solved."""
    layers: int = 1
    echo: bool = added(False, neutral=False)
    """Whether each note is also given what followed the last frames' longest earlier match."""
    note_unit: str | None = added(None, neutral=None)
    """The unit along pitch, if the output has one; None: the same as `unit`."""
    note_hidden: int | None = added(None, neutral=None)
    """Its size; None: half of `hidden`."""
    note_layers: int | None = added(None, neutral=None)
    """Its layers; None: as many as `layers`."""
    gate_activation: str = "sigmoid"
    activation: str = "tanh"
    bias: bool = True
    dropout: float = 0.4
    """Dropout probability between layers and before the output."""
    output: str = "auto"
    """The output distribution; auto: the first that fits the model and the medium."""
    components: int = 20
    """Components of the output's mixture, if it has one."""
    nade_hidden: int = added(200, neutral=200)
    """Hidden units of the output, if it is a NADE."""
    end: bool = False
    """Whether the output also predicts when a piece ends."""
    backend: str = "auto"

    optimizer: str = "adam"
    learning_rate: float = 0.01
    learning_rate_draws: int = 0
    """Runs of the paper's learning-rate search, see training/search.py; 0: no such search."""
    tpe_trials: int = added(0, neutral=0)
    """Runs of a learning-rate search by Optuna's TPE; 0: no such search."""
    schedule: str = "constant"
    weight_noise: float = 0.075
    """Standard deviation."""
    weight_dropout: float = added(0.0, neutral=0.0)
    """Probability of dropping each entry of a unit's U, drawn anew for each update."""
    clip: float = 1.0
    """Rescale the gradient's norm to this if it is larger; 0: never."""
    average: float = 0.995
    """Decay of the moving average of the weights, which is evaluated and saved; 0: no average."""
    batch_size: int = 4
    truncate: int = 0
    """Frames to backpropagate through; 0: whole pieces."""
    epochs: int = 40
    patience: int = 10
    """Stop after this many epochs without a better valid figure."""
    augment_keys: bool = False
    seed: int = 1

    @property
    def trials(self) -> int:
        """Runs of the learning-rate search; 0: no search, one run at `learning_rate`."""
        return self.learning_rate_draws or self.tpe_trials

    def without_search(self) -> Self:
        """The same settings, for a single run."""
        return replace(self, learning_rate_draws=0, tpe_trials=0)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {
            f.name: value
            for f in fields(self)
            if (value := getattr(self, f.name)) != f.metadata.get("neutral", MISSING)
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], origin: Path) -> Self:
        """The inverse of `to_json`; SeqmodelError names `origin` and the setting that is wrong."""
        refuse_unknown(values, cls, origin)
        missing = {f.name: _neutral(f) for f in fields(cls) if f.name not in values}
        there = {name: _checked(name, value, origin, cls) for name, value in values.items()}
        return cls(**missing, **there)


def _neutral(setting: Field[Any]) -> Any:
    return setting.metadata.get("neutral", setting.default)


def refuse_unknown(values: Mapping[str, Any], kind: type, origin: Path) -> None:
    """SeqmodelError if `values` from the file `origin` has a key that dataclass `kind` lacks."""
    unknown = sorted(values.keys() - {f.name for f in fields(kind)})
    if unknown:
        raise SeqmodelError(
            f"{origin} has the unknown setting {unknown[0]!r}: it was written by a newer version "
            "of seqmodel; use that one"
        )


SEARCHES: Mapping[str, str] = {"paper": "learning_rate_draws", "tpe": "tpe_trials"}
"""Learning-rate search -> the setting that holds its number of runs."""
TRIALS = 10
"""The default number of runs, which is the paper's."""
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    # Chung et al. 2014, section 4.3, and the weight noise and learning rates stated there.
    "paper": {
        "hidden": None,
        "optimizer": "rmsprop",
        "learning_rate_draws": TRIALS,
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
MODELS: Mapping[str, Mapping[str, Any]] = {
    "frame-wise": {},
    "tied": {
        "echo": True,
        "hidden": 64,
        "dropout": 0.2,
        "schedule": "cosine",
        "weight_noise": 0.0,
        "batch_size": 2,
        "truncate": 160,
        "epochs": 14,
    },
}
"""Each model's defaults that differ from `Config`; a preset's values override these."""
CHOICES: Mapping[str, tuple[str, ...]] = {
    "model": tuple(MODELS),
    "preset": tuple(PRESETS),
    "optimizer": ("adam", "rmsprop"),
    "schedule": ("cosine", "constant"),
}
AT_LEAST: Mapping[str, float] = {
    "hidden": 1,
    "params": 1,
    "layers": 1,
    "note_hidden": 1,
    "note_layers": 1,
    "dropout": 0,
    "components": 1,
    "nade_hidden": 1,
    "learning_rate": 0,
    "learning_rate_draws": 0,
    "tpe_trials": 0,
    "weight_noise": 0,
    "weight_dropout": 0,
    "clip": 0,
    "average": 0,
    "batch_size": 1,
    "truncate": 0,
    "epochs": 1,
    "patience": 1,
    "seed": 0,
}
AT_MOST: Mapping[str, int] = {
    # Beyond these, sizes overflow or torch refuses the seed, with errors of their own.
    "hidden": 1_000_000,
    "params": 10**12,
    "layers": 1_000,
    "note_hidden": 1_000_000,
    "note_layers": 1_000,
    "components": 10_000,
    "nade_hidden": 10_000,
    "seed": 2**63 - 1,
}
BELOW_1 = ("dropout", "weight_dropout", "average")
LARGEST = 2**64
"""Larger integers are never meaningful, and printing one may take a while."""


def search_of(preset: str) -> str:
    """The learning-rate search that goes with a preset."""
    return "paper" if preset == "paper" else "tpe"


LONGEST_FILE = 2**16
"""Maximum size of a config file, in bytes."""


def read_config_file(path: Path) -> dict[str, Any]:
    """The settings in a YAML file; SeqmodelError names the file and the invalid key."""
    try:
        values = plain_yaml.mapping(read_bytes(path, LONGEST_FILE))
    except ValueError as error:
        raise SeqmodelError(f"{path}: {error}") from error
    settings = {key: _checked(key, value, path) for key, value in values.items()}
    if settings.get("hidden") is not None and settings.get("params") is not None:
        raise SeqmodelError(f"{path}: hidden and params exclude each other: leave one out")
    return settings


def blaming(
    origin: Path, values: Mapping[str, Any], use: Callable[[Mapping[str, Any]], Result]
) -> Result:
    """`use(values)`, for settings read from the file `origin`.

    A setting may be wrong only in combination with other settings, options or data. The setting to
    blame is the first whose removal avoids the error or, failing that, changes it.

    Raises:
        SeqmodelError: that of `use`, naming the file and the setting if one is to blame.
    """
    try:
        return use(values)
    except SeqmodelError as error:
        without = {
            key: _error(use, {other: values[other] for other in values if other != key})
            for key in values
        }
        helped = [key for key, left in without.items() if left is None]
        changed = [key for key, left in without.items() if left != str(error)]
        for key in (helped or changed)[:1]:
            raise SeqmodelError(f"{origin}: {key}: {error}") from error
        raise


def _error(use: Callable[[Mapping[str, Any]], Any], values: Mapping[str, Any]) -> str | None:
    try:
        use(values)
    except SeqmodelError as error:
        return str(error)
    return None


def _checked(key: str, value: Any, origin: Path, kind: type = Config) -> Any:
    """A setting's value from the file `origin`, checked against the dataclass `kind`."""
    try:
        allowed = field_types(key, kind)
    except UsageError as error:
        raise SeqmodelError(f"{origin}: {error}") from None
    if type(value) is int and abs(value) > LARGEST:
        raise SeqmodelError(f"{origin}: {key} is out of range")
    if float in allowed and type(value) in (int, str):  # YAML reads 1e-3 as a string
        with suppress(ValueError):
            value = float(value)
    if type(value) not in allowed:
        names = " or ".join("nothing" if t is type(None) else t.__name__ for t in allowed)
        raise SeqmodelError(f"{origin}: {key} must be {names}, not {_shown(value)}")
    must = _out_of_range(key, value)
    if must is not None:
        raise SeqmodelError(f"{origin}: {key} must be {must}")
    return value


def _shown(value: Any) -> str:
    kinds: dict[type, str] = {list: "a list", dict: "keys and values"}
    return kinds.get(type(value)) or reprlib.repr(value)


def field_types(name: str, kind: type = Config) -> tuple[type, ...]:
    """The types that the setting `name` may have.

    Raises:
        UsageError: if there is no such setting.
    """
    types = {field.name: field.type for field in fields(kind)}
    if name not in types:
        near = difflib.get_close_matches(name, types, 1)
        raise UsageError(
            f"there is no setting {name!r}" + (f"; did you mean {near[0]}?" if near else "")
        )
    told: Any = types[name]
    return get_args(told) if isinstance(told, UnionType) else (told,)


def parse_setting(key: str, text: str, option: str) -> Any:
    """The value of the setting `key`, parsed from `text` as YAML; errors name `option`.

    Raises:
        UsageError: if there is no such setting, or the value is invalid.
    """
    try:
        return _checked(key, plain_yaml.value(text), Path(option))
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

    `presets` are a medium's own values for each preset, which override the general ones. `hidden`
    stays None if it is to be solved, which requires the data's frame size. UsageError for a value
    out of range or mutually exclusive settings.
    """
    file = dict(file or {})
    if options.get("hidden") is not None or options.get("params") is not None:
        file |= {"hidden": None, "params": None}  # either option overrides both in the file
    searches = set(SEARCHES.values())
    if options.keys() & {"learning_rate", *searches}:  # these override a search in the file
        file = {name: value for name, value in file.items() if name not in searches}
    given = {**file, **options}
    preset = given.get("preset", Config.preset)
    if preset not in PRESETS:
        raise UsageError(f"--preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    if given.get("hidden") is not None and given.get("params") is not None:
        raise UsageError("--hidden and --params exclude each other: give the size or the budget")
    chosen = {**PRESETS[preset], **presets.get(preset, {}), **given}
    values = {**MODELS.get(chosen.get("model", Config.model), {}), **chosen}
    if given.get("params") is not None:
        values["hidden"] = None
    if given.keys() & {"learning_rate", *searches}:  # these override the preset's search
        values |= {name: given.get(name, 0) for name in searches}
    config = Config(**values)
    if config.learning_rate_draws and config.tpe_trials:
        raise UsageError("learning_rate_draws and tpe_trials exclude each other: leave one out")
    _check(config)
    return config


def _check(config: Config) -> None:
    for setting in fields(config):
        must = _out_of_range(setting.name, getattr(config, setting.name))
        if must is not None:
            raise UsageError(f"--{_option(setting.name)} must be {must}")


def _out_of_range(name: str, value: Any) -> str | None:
    """What the setting must be instead of `value`; None if `value` is valid."""
    return None if value is None else next(_objections(name, value), None)


def _objections(name: str, value: Any) -> Iterator[str]:
    choices, least, most = CHOICES.get(name), AT_LEAST.get(name), AT_MOST.get(name)
    if choices is not None and value not in choices:
        yield f"one of {', '.join(choices)}, not {value!r}"
    if least is not None and not value >= least:  # also refuses nan
        yield f"{least} or more, not {value}"
    if value == inf:
        yield f"finite, not {value}"
    if most is not None and value > most:
        yield f"{most} or less, not {value}"
    if name in BELOW_1 and value >= 1:
        yield f"below 1, not {value}"
    if (name, value) == ("truncate", 1):
        yield "0 or at least 2, not 1: nothing would be remembered"


def _option(name: str) -> str:
    return name.replace("_", "-")


def to_yaml(config: Config) -> str:
    """The complete config as YAML, in the order of its fields; `read_config_file` reads it back."""
    return yaml.safe_dump(asdict(config), sort_keys=False)
