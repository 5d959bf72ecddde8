"""From a config and the data's frames to a model."""

from dataclasses import replace

from seqmodel import units
from seqmodel.config import Config
from seqmodel.errors import UsageError
from seqmodel.media.definitions import FrameDefinition
from seqmodel.model.encoder import WindowEncoder
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.registry import build_output


def with_hidden_size(config: Config, frame: FrameDefinition) -> Config:
    """The config with its hidden size solved for such frames, if it has none.

    The paper preset takes the paper's size of the medium where there is one, else as many
    parameters as the paper's units have.
    """
    if config.hidden is not None:
        return config
    papers = frame.medium.paper_hidden
    if config.params is None and config.preset == "paper" and config.unit in papers:
        return replace(config, hidden=papers[config.unit])
    hidden = units.hidden_size_for(
        config.unit,
        frame.context,
        config.params or frame.medium.paper_params,
        layers=config.layers,
        bias=config.bias,
    )
    return replace(config, hidden=hidden, params=None)


def build_model(config: Config, frame: FrameDefinition) -> SequenceModel:
    """The model that a resolved `config` describes for such frames, freshly initialised.

    Raises:
        UsageError: when the config asks for what frames of this medium do not have.
    """
    assert config.hidden is not None
    if config.augment_keys and not frame.variants:
        raise UsageError(f"--augment-keys is for music, not for {frame.medium.name}")
    unit = units.make(
        config.unit,
        frame.context,
        config.hidden,
        config.backend,
        layers=config.layers,
        dropout=config.dropout,
        gate_activation=config.gate_activation,
        activation=config.activation,
        bias=config.bias,
    )
    encoder = WindowEncoder(
        frame.context,
        mean=frame.mean,
        deviation=frame.deviation,
        binary=frame.values == "binary",
    )
    return SequenceModel(encoder, unit, build_output(config, frame), config.dropout)
