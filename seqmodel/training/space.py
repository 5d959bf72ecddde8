"""The ranges of settings that a search covers."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqmodel.errors import UsageError

if TYPE_CHECKING:
    import optuna

LOG_RATE_RANGE = (-12.0, -6.0)
"""Chung et al. 2014, section 4.3: rates are exp(U(-12, -6)), 6.1e-6 to 2.5e-3."""


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
        """The lowest and the highest value."""
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def at_end(self, value: float) -> bool:
        """Whether it lies in the outermost twentieth of the range, at either end."""
        scale = math.log if self.log else float
        low, high = scale(self.low), scale(self.high)
        return not 0.05 <= (scale(value) - low) / (high - low) <= 0.95

    def suggested(self, trial: "optuna.Trial", name: str) -> float | int:
        """The value that the trial's sampler draws for the setting `name`."""
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


def default_space(search: str, *, paper: bool) -> dict[str, Range]:
    """What a learning-rate search covers: the paper's range, or the range of the other presets."""
    if search == "none":
        return {}
    papers = [math.exp(bound) for bound in LOG_RATE_RANGE]
    low, high = papers if paper or search == "paper" else (1e-3, 3e-2)
    return {"learning_rate": Range(low, high, log=True)}


def finals(search: str, count: int) -> int:
    """How many of `count` trials go on after the first look, about a third; 0: no look is taken."""
    return max(1, round(count / 3)) if search == "tpe" else 0


def tuned(text: str, kind: Any) -> tuple[str, Range]:
    """The setting and its range from KEY=low..high; `kind` gives a setting's types by its name.

    UsageError for anything else.
    """
    key, _, bounds = text.partition("=")
    low, _, high = bounds.partition("..")
    try:
        numbers = float(low), float(high)
    except ValueError:
        raise UsageError(f"--tune takes KEY=low..high, not {text!r}") from None
    allowed = kind(key)
    if float not in allowed and int not in allowed:
        raise UsageError(f"--tune {key}: only settings that are numbers have a range")
    return key, Range(*numbers, log=key == "learning_rate", whole=float not in allowed)
