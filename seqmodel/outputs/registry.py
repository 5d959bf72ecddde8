"""The available outputs, one row each; torch is loaded when one is built, not on import."""

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from seqmodel.config import MODELS, Config, resolve
from seqmodel.errors import UsageError
from seqmodel.media.registry import presets_of
from seqmodel.media.words import listed

if TYPE_CHECKING:
    from seqmodel.media.definitions import FrameDefinition
    from seqmodel.outputs.protocol import Output


@dataclass(frozen=True)
class OutputEntry:
    """An output by name: the frames it fits, and the classes that implement it."""

    values: Literal["binary", "samples", "levels"]
    """What a frame's numbers are: zeros and ones, samples in [-1, 1), or 256 levels of these."""
    classes: Mapping[str, str]
    """Model -> "module:class" of the output over its h; also for models `like` it."""
    size: str | None = None
    """The setting that gives its size; None if it has none."""

    def fits(self, model: str) -> bool:
        """Whether it reads this model's h."""
        return (MODELS[model].like or model) in self.classes

    def load(self, model: str) -> "type[Output]":
        """The class for a model, imported."""
        return resolve_name(self.classes[MODELS[model].like or model])


# The first output that fits a model and a medium's frames is the default for them.
OUTPUTS = {
    "note-unit": OutputEntry(
        "binary",
        {"tied": "seqmodel.outputs.note_unit:NoteUnitOutput"},
        "note_hidden",
    ),
    "bernoulli": OutputEntry(
        "binary",
        {
            "frame-wise": "seqmodel.outputs.bernoulli:BernoulliOutput",
            "tied": "seqmodel.outputs.bernoulli:TiedBernoulliOutput",
        },
    ),
    "nade": OutputEntry(
        "binary",
        {"frame-wise": "seqmodel.outputs.nade:NadeOutput"},
        "nade_hidden",
    ),
    "gaussian": OutputEntry(
        "samples",
        {"frame-wise": "seqmodel.outputs.gaussian:GaussianMixtureOutput"},
        "components",
    ),
    "logistic": OutputEntry(
        "samples",
        {
            "frame-wise": "seqmodel.outputs.logistic:DiscretisedLogisticOutput",
            "sample-wise": "seqmodel.outputs.logistic:SampleLogisticOutput",
        },
        "components",
    ),
    "categorical": OutputEntry(
        "levels",
        {"sample-wise": "seqmodel.outputs.categorical:CategoricalOutput"},
    ),
}


def output_name(config: Config, frame: "FrameDefinition") -> str:
    """The name of the config's output, with "auto" resolved for its model and these frames.

    Raises:
        UsageError: if there is no such output, or it does not fit the frames or the model.
    """
    name = config.output
    fitting = {name: entry for name, entry in OUTPUTS.items() if entry.values == frame.values}
    if name not in (*OUTPUTS, "auto"):
        raise UsageError(f"--output must be one of auto, {', '.join(OUTPUTS)}, not {name!r}")
    if name not in (*fitting, "auto"):
        raise UsageError(
            f"--output {name} does not fit {frame.kind}, which has {listed([*fitting])}"
        )
    usable = [name for name, entry in fitting.items() if entry.fits(config.model)]
    if not usable:
        models = [model for model in MODELS if any(one.fits(model) for one in fitting.values())]
        raise UsageError(
            f"--model {config.model} does not fit {frame.kind}, which has {listed(models)}"
        )
    if name == "auto":
        return usable[0]
    if name not in usable:
        raise UsageError(
            f"--output {name} does not fit --model {config.model}, which has {listed(usable)}"
        )
    return name


def config_for(
    frame: "FrameDefinition", options: Mapping[str, Any], file: Mapping[str, Any] = {}
) -> Config:
    """The complete config for frames, see `resolve`; an output that fits one model implies it."""
    given = {**file, **options}
    output = OUTPUTS.get(given.get("output", "auto"))
    models = [model for model in MODELS if output is not None and output.fits(model)]
    if len(models) == 1 and "model" not in given:
        options = {**options, "model": models[0]}
    return resolve(options, file, presets_of(frame))


def output_class(config: Config, frame: "FrameDefinition") -> "type[Output]":
    """The class of the config's output; raises UsageError as `output_name` does."""
    return OUTPUTS[output_name(config, frame)].load(config.model)
