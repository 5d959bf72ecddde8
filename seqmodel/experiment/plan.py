"""What an experiment compares: datasets, variants of the settings, a search, and seeds."""

import itertools
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from seqmodel.config import SEARCHES, UNITS, Config, field_types, parse_setting
from seqmodel.data.dataset import Dataset, open_dataset
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.media.words import listed
from seqmodel.unit_setting import is_text, unit_name

if TYPE_CHECKING:
    import optuna

LOG_RATE_RANGE = (-12.0, -6.0)
"""Chung et al. 2014, section 4.3: rates are exp(U(-12, -6)), 6.1e-6 to 2.5e-3."""
WIDEST = (1e-6, 1.0)
"""Learning rates that no bracket leaves."""
QUICK_FRAMES = 64_000
"""Frames that a run of a quick experiment is trained on, as far as whole epochs allow."""
QUICK_EPOCHS = 60
"""The most epochs of such a run; tiny datasets would need thousands."""
MAX_NAME_BYTES = 240
"""Maximum bytes of a dataset's name, which is part of longer ones; file systems allow 255."""
KEPT = {"settings": "settings", "search": "search", "space": "settings to tune", "quick": "--quick"}
"""Fields of a plan that cannot change once it has begun -> what messages call them."""


@dataclass(frozen=True)
class Range:
    """From `low` to `high`; on a log scale if `log`, whole numbers if `whole`."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise UsageError(
                f"a range goes from a low to a high number, not {self.low}..{self.high}"
            )
        if self.log and self.low <= 0:
            raise UsageError(f"learning rates must be above 0, not {self.low}..{self.high}")

    @property
    def ends(self) -> tuple[float | int, float | int]:
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def at_end(self, value: float) -> bool:
        """Whether it is in the outermost twentieth of the range, at either end."""
        return not 0.05 <= (value - self.low) / (self.high - self.low) <= 0.95

    def suggest(self, trial: "optuna.Trial", name: str, fixed: float | None) -> float | int:
        """The value of the setting `name` for a trial: as given, or drawn by its sampler."""
        low, high = self.ends if fixed is None else (fixed, fixed)
        if self.whole:
            return trial.suggest_int(name, int(low), int(high), log=self.log)
        return trial.suggest_float(name, low, high, log=self.log)


@dataclass(frozen=True)
class Source:
    """A dataset of the experiment."""

    name: str
    """One word, for tables and folder names."""
    path: str
    """Absolute, on the host that reads it; other hosts can have it elsewhere."""
    fingerprint: str
    """That of its content, see `_fingerprint`."""

    def dataset(self) -> Dataset:
        """The dataset, opened; SeqmodelError if it is not the one that the plan was made for."""
        dataset = open_dataset(self.path)
        if _fingerprint(dataset) != self.fingerprint:
            raise SeqmodelError(
                f"{self.path} has changed since the experiment began: prepare it as it was then, "
                "or start a new experiment with --out"
            )
        return dataset


@dataclass(frozen=True)
class Variant:
    """One of the alternatives compared: settings that override the experiment's own."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """An experiment before it is run. The plan alone determines all of its runs."""

    sources: Sequence[Source]
    variants: Sequence[Variant]
    settings: Mapping[str, Any]
    """What all runs share: options and the config file's settings, as for `train`."""
    search: str
    """none, or one of `config.SEARCHES`."""
    trials: int
    """Trials of the search, per dataset and variant."""
    seeds: int
    """Runs of the winner of each search, including the winning trial."""
    space: Mapping[str, Range] = field(default_factory=dict)
    """Setting -> the range searched."""
    quick: bool = False
    """Whether the size of the data decides the number of epochs, unless a setting does."""
    against: str | None = None
    """The variant that the others are compared with; None: the best. Runs do not depend on it."""
    all_pairs: bool = False
    enough_epochs: bool = True
    """Whether small data have more epochs, see `schedule.with_enough_epochs`."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, the same for the same plan."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; ValueError for a search with pruning, of older versions.

        Their other experiments go on with the epochs of the runs that they have.
        """
        sources = tuple(Source(**source) for source in values["sources"])
        variants = tuple(Variant(**variant) for variant in values["variants"])
        space = {name: Range(**bounds) for name, bounds in values["space"].items()}
        fields = {name: value for name, value in values.items() if name != "finals"}
        fields.setdefault("enough_epochs", False)
        if values.get("finals"):
            raise ValueError("a search with pruning")
        return cls(**{**fields, "sources": sources, "variants": variants, "space": space})

    def at_least(self, other: "Plan") -> Self:
        """The plan with at least the trials and seeds of `other`, and as many epochs."""
        trials, seeds = max(self.trials, other.trials), max(self.seeds, other.seeds)
        return replace(self, trials=trials, seeds=seeds, enough_epochs=other.enough_epochs)

    def differs(self, other: "Plan") -> str | None:
        """What prevents it from extending `other` by datasets, variants, trials or seeds, or None.

        The runs of `other` stay unchanged; datasets are identified by their content.
        """
        ours, theirs = ({s.name: s.fingerprint for s in p.sources} for p in (self, other))
        for name, fingerprint in theirs.items():
            if ours.get(name, fingerprint) != fingerprint:
                return f"data of {name}"
        for what, own, others in (
            ("datasets", ours, theirs),
            ("variants", *({v.name: v for v in p.variants} for p in (self, other))),
        ):
            if missing := [name for name in others if name not in own]:
                return f"{what} (to extend it, list its {listed(missing)} too)"
        if not all(variant in self.variants for variant in other.variants):
            return "variants"
        for name in ("trials", "seeds"):
            if getattr(self, name) < getattr(other, name):
                return name
        changed = (KEPT[k] for k in KEPT if getattr(self, k) != getattr(other, k))
        return next(changed, None)

    def ready(self, ended: int) -> int:
        """How many trials of a cell may have begun once the first `ended` ones have ended."""
        if self.search != "bracket":
            return self.trials
        # A bracket chooses its rates in pairs, each by all before it; see `search.next_rates`.
        return min(self.trials, max(3, ended + 2 - (ended - 1) % 2))

    def cells(self) -> list["Cell"]:
        """Every variant on every dataset, dataset by dataset."""
        return [Cell(s, v) for s, v in itertools.product(self.sources, self.variants)]

    def check(self) -> None:
        """Build every cell's model, at both ends of the search space, without allocating it.

        SeqmodelError if a dataset is not the plan's; UsageError if settings do not fit each other
        or the data, or models cannot be compared.
        """
        names = [variant.name for variant in self.variants]
        if self.against is not None and self.against not in names:
            raise UsageError(
                f"--against {self.against} is not compared here: choose from {listed(names)}"
            )
        from seqmodel.model.build import meta_model  # here, because a plan alone must load fast

        for source in self.sources:
            dataset, kinds = source.dataset(), dict[bool, str]()
            for variant, end in itertools.product(self.variants, (0, 1)):
                params = {name: bounds.ends[end] for name, bounds in self.space.items()}
                config = self.config(Cell(source, variant), dataset, params, 0)
                kinds[meta_model(config, dataset.frame).output.discrete] = variant.name
            if len(kinds) > 1:
                raise UsageError(
                    f"{kinds[False]} gives densities and {kinds[True]} probabilities, whose nats "
                    "are not comparable: choose outputs of one kind, such as --set output=logistic"
                )

    def config(self, cell: "Cell", dataset: Dataset, params: Mapping[str, Any], run: int) -> Config:
        """The settings of seed `run` with the search's `params`; UsageError if they do not fit."""
        from seqmodel.model.build import with_sizes
        from seqmodel.outputs.registry import config_for
        from seqmodel.training.schedule import with_enough_epochs

        settings = {**self.settings, **cell.variant.settings, **params}
        if self.quick:
            epochs = QUICK_FRAMES // dataset["train"].frames
            settings.setdefault("epochs", min(max(epochs, 1), QUICK_EPOCHS))
        config = config_for(dataset.frame, {}, settings)  # what excludes another is no option
        if config.minutes is not None:
            raise UsageError(
                "minutes are for `train` only, as compared runs share a machine: set epochs"
            )
        if config.valid_every.endswith("m"):
            raise UsageError("valid_every must be updates or epoch: minutes depend on the clock")
        seeded = replace(config, data=str(dataset.folder), seed=config.seed + run)
        sized = with_sizes(seeded.without_search(), dataset.frame)
        if not self.enough_epochs:
            return sized
        return with_enough_epochs(sized, dataset, settings)


@dataclass(frozen=True)
class Cell:
    """One variant on one dataset: a search, and runs of its winner."""

    source: Source
    variant: Variant

    @property
    def name(self) -> str:
        """Unique in the experiment, and usable as a folder name."""
        return f"{self.source.name}/{_folder_name(self.variant.name)}"


def sources_of(paths: Sequence[Path]) -> tuple[Source, ...]:
    """The datasets at `paths`; UsageError for equal names, SeqmodelError for no train or valid."""
    sources: list[Source] = []
    for path in paths:
        dataset = open_dataset(path)
        dataset.check_trainable()
        name = _folder_name(path.resolve().name)
        if name.casefold() in (source.name.casefold() for source in sources):
            raise UsageError(f"two datasets are named {name}, ignoring case: rename one")
        if len(os.fsencode(name)) > MAX_NAME_BYTES:
            raise UsageError(f"the name {name} is too long for an experiment's files: rename it")
        sources.append(Source(name, str(path.resolve()), _fingerprint(dataset)))
    return tuple(sources)


def _fingerprint(dataset: Dataset) -> str:
    """`Dataset.fingerprint`, and a hash of the labels that models are given, if any."""
    return dataset.fingerprint() + (dataset.facts_hash() if dataset.frame.known_labels else "")


def variants_of(units: Sequence[str], vary: Sequence[str]) -> tuple[Variant, ...]:
    """Every unit with every combination of what varies, given as KEY=a,b,c; or UsageError."""
    axes: list[list[dict[str, Any]]] = (
        [[{"unit": setting_of("unit", unit, "--units")} for unit in units]] if units else []
    )
    for text in vary:
        key, equals, values = text.partition("=")
        if not equals:
            raise UsageError(f"--vary takes KEY=A,B,..., not {text!r}")
        if any(key in options[0] for options in axes):
            raise UsageError(f"{key} is varied twice: name it once, with all its values")
        axes.append([{key: setting_of(key, value, "--vary")} for value in values.split(",")])
    variants = []
    for parts in itertools.product(*axes):
        settings = {key: value for part in parts for key, value in part.items()}
        texts = {k: str(v).lower() if isinstance(v, bool) else v for k, v in settings.items()}
        # A class keeps its module: a user's GRU differs from gru, also in the folder's name.
        own_units = {k for k in UNITS if is_text(texts.get(k) or "")}
        names = {k: unit_name(v) if k in own_units else v for k, v in texts.items()}
        words = [v if k == "unit" else f"{k}={v}" for k, v in names.items()]
        variants.append(Variant(" ".join(words), settings))
    folders: dict[str, Variant] = {}
    for variant in variants:
        name = variant.name
        other = folders.setdefault(_folder_name(name).casefold(), variant)
        if other is variant:
            continue
        if other == variant:
            raise UsageError(f"{name} is listed twice")
        if other.name == name:
            raise UsageError(f"two different units are named {name}: rename one")
        raise UsageError(f"{other.name} and {name} have the same folder, ignoring case: rename one")
    return tuple(variants)


def default_space(search: str, *, paper: bool) -> dict[str, Range]:
    """The space of a search: the paper's rates, others', or all that a bracket can widen to."""
    if search == "none":
        return {}
    low, high = WIDEST
    if search != "bracket":
        paper_range = math.exp(LOG_RATE_RANGE[0]), math.exp(LOG_RATE_RANGE[1])
        low, high = paper_range if paper or search == "paper" else (1e-3, 3e-2)
    return {"learning_rate": Range(low, high, log=True)}


def parse_range(text: str) -> tuple[str, Range]:
    """The setting and its range from KEY=LOW..HIGH; UsageError for anything else."""
    key, _, bounds = text.partition("=")
    low, _, high = bounds.partition("..")
    try:
        numbers = float(low), float(high)
    except ValueError:
        raise UsageError(f"--tune takes KEY=LOW..HIGH, not {text!r}") from None
    allowed = field_types(key)
    if float not in allowed and int not in allowed:
        raise UsageError(f"--tune {key}: only numeric settings have a range")
    return key, Range(*numbers, log=key == "learning_rate", whole=float not in allowed)


def setting_of(key: str, text: str, option: str) -> Any:
    """The value of a setting for all runs; UsageError if it is invalid or not allowed there."""
    if key == "data":
        raise UsageError(f"datasets are named as arguments, not with {option} data")
    if key in SEARCHES.values():
        raise UsageError(f"{option}: {key} is for train; see --search and --trials")
    return parse_setting(key, text, option)


def _folder_name(text: str) -> str:
    """The text as the name of a folder, valid on Windows too."""
    word = re.sub(r"[^\w.=+-]+|\.$", "-", text)
    return re.sub(r"(?i)^(con|prn|aux|nul|com\d|lpt\d)(?=\.|$)", r"\1-", word)
