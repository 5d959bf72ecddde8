"""What a training run is told: defaults, presets, YAML, and the order in which they count."""

import difflib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args

import yaml

from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.files import read_bytes


@dataclass(frozen=True)
class Config:
    """One training run. The field names are those of the options and of the YAML file's keys.

    The defaults are those of the default preset: the best valid figure for the time, see README.
    """

    data: str | None = None
    """The prepared dataset; None stands for the bundled sample."""
    preset: str = "default"

    unit: str = "lstm"
    hidden: int | None = 200
    params: int | None = None
    """Solve `hidden` for so many parameters, the output layer not counted."""
    layers: int = 1
    gate_activation: str = "sigmoid"
    activation: str = "tanh"
    bias: bool = True
    dropout: float = 0.4
    output: str = "auto"
    """auto: bernoulli for music, gaussian for audio."""
    components: int = 20
    """Of an audio output's mixture."""
    end: bool = False
    backend: str = "auto"

    optimizer: str = "adam"
    learning_rate: float = 0.01
    learning_rate_draws: int = 0
    """Train so many times, each with a rate drawn from exp(U(-12, -6)), and keep the best."""
    schedule: str = "constant"
    weight_noise: float = 0.075
    clip: float = 1.0
    average: float = 0.995
    """Evaluate and keep the running mean of the weights, of this decay; 0: the weights."""
    batch_size: int = 4
    truncate: int = 0
    epochs: int = 40
    patience: int = 10
    augment_keys: bool = False
    seed: int = 1


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
CHOICES: Mapping[str, tuple[str, ...]] = {
    "preset": tuple(PRESETS),
    "optimizer": ("adam", "rmsprop"),
    "schedule": ("cosine", "constant"),
}
AT_LEAST: Mapping[str, float] = {
    "hidden": 1,
    "params": 1,
    "layers": 1,
    "dropout": 0,
    "components": 1,
    "learning_rate": 0,
    "learning_rate_draws": 0,
    "weight_noise": 0,
    "clip": 0,
    "average": 0,
    "batch_size": 1,
    "truncate": 0,
    "epochs": 1,
    "patience": 1,
    "seed": 0,
}


AT_MOST: Mapping[str, int] = {
    # Beyond these the sizes overflow, or torch refuses the seed, with an error of its own.
    "hidden": 1_000_000,
    "params": 10**12,
    "layers": 1_000,
    "components": 10_000,
    "seed": 2**63 - 1,
}


def read_config_file(path: Path) -> dict[str, Any]:
    """The values that a YAML file sets; SeqmodelError names the file and the key that is wrong."""
    try:
        values = yaml.safe_load(read_bytes(path))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise SeqmodelError(f"{path} is not a YAML file: {reason}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SeqmodelError(f"{path} must hold keys and values, such as `unit: lstm`")
    return {str(key): _checked(str(key), value, path) for key, value in values.items()}


def _checked(key: str, value: Any, path: Path) -> Any:
    types = {field.name: field.type for field in fields(Config)}
    if key not in types:
        near = difflib.get_close_matches(key, types, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise SeqmodelError(f"{path}: there is no setting {key!r}{hint}")
    kind = types[key]
    allowed = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if float in allowed and type(value) in (int, str):  # to YAML, 1e-3 is a text
        with suppress(ValueError):
            return float(value)
    if type(value) not in allowed:
        names = " or ".join("nothing" if t is type(None) else t.__name__ for t in allowed)
        raise SeqmodelError(f"{path}: {key} must be {names}, not {value!r}")
    return value


def resolve(
    options: Mapping[str, Any],
    file: Mapping[str, Any] | None = None,
    presets: Mapping[str, Mapping[str, Any]] = {},
) -> Config:
    """A complete config: option before config file before preset before default.

    `presets` are those of the data's medium: what its presets set beyond `PRESETS`.

    Where `hidden` is None the model solves it, since that takes the data's frame size.
    UsageError for a value out of range or settings that exclude each other.
    """
    file = dict(file or {})
    if options.get("hidden") is not None or options.get("params") is not None:
        file |= {"hidden": None, "params": None}  # one option overrules either in the file
    if options.get("learning_rate") is not None:
        file.pop("learning_rate_draws", None)
    given = {**file, **options}
    preset = given.get("preset", Config.preset)
    if preset not in PRESETS:
        raise UsageError(f"--preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    if given.get("hidden") is not None and given.get("params") is not None:
        raise UsageError("--hidden and --params exclude each other: give the size or the budget")
    values = {**PRESETS[preset], **presets.get(preset, {}), **given}
    if given.get("params") is not None:
        values["hidden"] = None
    if given.get("learning_rate") is not None and "learning_rate_draws" not in given:
        values["learning_rate_draws"] = 0  # a rate that is named need not be searched
    config = Config(**values)
    _check(config)
    return config


def _check(config: Config) -> None:
    for name, choices in CHOICES.items():
        if getattr(config, name) not in choices:
            raise UsageError(
                f"--{_option(name)} must be one of {', '.join(choices)}, "
                f"not {getattr(config, name)!r}"
            )
    for name, least in AT_LEAST.items():
        value = getattr(config, name)
        if value is not None and not value >= least:  # also refuses nan
            raise UsageError(f"--{_option(name)} must be {least} or more, not {value}")
    for name, most in AT_MOST.items():
        value = getattr(config, name)
        if value is not None and value > most:
            raise UsageError(f"--{_option(name)} must be {most} or less, not {value}")
    for name in ("dropout", "average"):
        if getattr(config, name) >= 1:
            raise UsageError(f"--{name} must be below 1, not {getattr(config, name)}")


def _option(name: str) -> str:
    return name.replace("_", "-")


def to_yaml(config: Config) -> str:
    """The complete config as YAML, in the order of its fields; `read_config_file` reads it back."""
    return yaml.safe_dump(asdict(config), sort_keys=False)
