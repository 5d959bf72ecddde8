"""The outputs there are, one row each. Torch is loaded when one is built, not by the import."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from seqmodel.config import Config
from seqmodel.errors import UsageError

if TYPE_CHECKING:
    from seqmodel.media.definitions import FrameDefinition
    from seqmodel.outputs.protocol import Output

Values = Literal["binary", "samples"]
"""What the numbers of a frame are: zeros and ones, or samples of a signal in [-1, 1)."""


@dataclass(frozen=True)
class OutputEntry:
    """An output by name: the frames it fits, and the class that implements it."""

    values: Values
    module: str
    class_name: str
    size: tuple[str, str] | None = None
    """The setting that is its size, and what that counts; None where it has none."""

    def load(self) -> "type[Output]":
        """The class, imported."""
        found: type[Output] = getattr(import_module(self.module), self.class_name)
        return found


# The first that fits a medium's frames is its default.
OUTPUTS = {
    "bernoulli": OutputEntry(
        "binary", "seqmodel.outputs.bernoulli.specification", "BernoulliOutput"
    ),
    "nade": OutputEntry(
        "binary",
        "seqmodel.outputs.nade.specification",
        "NadeOutput",
        ("nade_hidden", "hidden unit"),
    ),
    "gaussian": OutputEntry(
        "samples",
        "seqmodel.outputs.gaussian.specification",
        "GaussianMixtureOutput",
        ("components", "component"),
    ),
    "logistic": OutputEntry(
        "samples",
        "seqmodel.outputs.logistic.specification",
        "DiscretisedLogisticOutput",
        ("components", "component"),
    ),
}


def output_name(name: str, frame: "FrameDefinition") -> str:
    """The output called `name`, "auto" being the default for such frames.

    Raises:
        UsageError: when there is none of that name, or it does not fit the frames.
    """
    fitting = [other for other, entry in OUTPUTS.items() if entry.values == frame.values]
    if name == "auto":
        return fitting[0]
    if name not in OUTPUTS:
        raise UsageError(f"--output must be one of auto, {', '.join(OUTPUTS)}, not {name!r}")
    if name not in fitting:
        raise UsageError(
            f"--output {name} does not fit {frame.medium.name}, which has {' and '.join(fitting)}"
        )
    return name


def build_output(config: Config, frame: "FrameDefinition") -> "Output":
    """The output that a resolved config describes for such frames, freshly initialised.

    Raises:
        UsageError: as `output_name`, and when the output lacks what the config asks of it.
    """
    return OUTPUTS[output_name(config.output, frame)].load().build(config, frame)
