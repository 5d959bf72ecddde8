"""Builds a model from a config and the definition of the data's frames."""

from dataclasses import replace
from pkgutil import resolve_name

import torch

from seqmodel import units
from seqmodel.config import MODELS, Config
from seqmodel.errors import UsageError
from seqmodel.media.definitions import FrameDefinition, known_labels
from seqmodel.media.labels import column_count
from seqmodel.media.registry import medium_of
from seqmodel.model.encoder import Encoder
from seqmodel.model.marks import Marks
from seqmodel.model.notes import absolute_pitch
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.notes import note_count
from seqmodel.outputs.registry import output_class
from seqmodel.unit_setting import is_text, unit_name
from seqmodel.units.own_module import check_module
from seqmodel.units.trial import try_unit

EQUATION_SETTINGS = (
    "gate_activation",
    "activation",
    "bias",
    "backend",
    "weight_dropout",
    "zoneout",
    "rests",
)
"""Settings that have no meaning for a unit that is a module."""
NOTE_UNIT = "gru"
"""The unit along pitch if the unit along time is a module."""


def with_sizes(config: Config, frame: FrameDefinition) -> Config:
    """The config with every size that it leaves open filled in for these frames.

    A parameter budget counts all units but no output layer. The paper preset uses the paper's size
    for the medium if there is one, else as many parameters as the paper's units have.

    Raises:
        UsageError: if the config sets a note unit or size that its output does not have.
    """
    return _with_note_unit(_with_hidden(config, frame), frame)


def _with_hidden(config: Config, frame: FrameDefinition) -> Config:
    if config.hidden is not None:
        return config
    medium = medium_of(frame)
    sizes = medium.paper_hidden
    is_paper = config.preset == "paper" and config.model == "frame-wise" and config.unit in sizes
    if config.params is None and is_paper:
        return replace(config, hidden=sizes[config.unit])

    def count(hidden: int) -> int:
        sized = _with_note_unit(replace(config, hidden=hidden), frame)
        return meta_model(sized, frame).parameter_counts().units

    inputs = _encoder(config, frame).input_size
    smallest = f"{unit_name(config.unit)}: one unit over {inputs} inputs"
    hidden = units.size_for(count, config.params or medium.paper_params, smallest)
    return replace(config, hidden=hidden, params=None)


def _with_note_unit(config: Config, frame: FrameDefinition) -> Config:
    """The config with its unit along pitch filled in, if its output has one."""
    names = [name for name in ("note_unit", "note_hidden", "note_layers") if getattr(config, name)]
    if not output_class(config, frame).over_notes:
        if names:
            option = "--" + names[0].replace("_", "-")
            raise UsageError(f"{option} is for --model tied with the output note-unit")
        return replace(config, first_change=bool(config.first_change))
    assert config.hidden is not None
    along_time = config.unit if units.module_name(config.unit) is None else NOTE_UNIT
    return replace(
        config,
        note_unit=config.note_unit or along_time,
        note_hidden=config.note_hidden or max(1, config.hidden // 2),
        note_layers=config.note_layers or config.layers,
        first_change=config.first_change is not False,
    )


def _encoder(config: Config, frame: FrameDefinition) -> Encoder:
    kind: type[Encoder] = resolve_name(MODELS[config.model].encoder)
    return kind.build(config, frame)


def build_model(config: Config, frame: FrameDefinition) -> SequenceModel:
    """The model that a resolved `config` describes for these frames, freshly initialised.

    Raises:
        UsageError: if the config asks for something that does not fit frames of this medium.
    """
    assert config.hidden is not None
    if config.augment_keys and not frame.variants:
        raise UsageError(f"--augment-keys is for music, not for {frame.kind}")
    output = output_class(config, frame)  # first: checks that output, model and medium fit
    for name in sorted({name for entry in MODELS.values() for name in entry.settings}):
        models = [model for model, entry in MODELS.items() if name in entry.settings]
        if getattr(config, name) and config.model not in models:
            raise UsageError(f"--{name.replace('_', '-')} is for --model {' or '.join(models)}")
    if units.module_name(config.unit) is not None:
        defaults = Config()
        for name in EQUATION_SETTINGS:
            if getattr(config, name) != getattr(defaults, name):
                option = name.replace("_", "-")
                raise UsageError(f"--{option} is for units with equations, not for {config.unit}")
    if config.note_unit is not None and units.module_name(config.note_unit) is not None:
        raise UsageError(f"--note-unit takes units with equations, not {config.note_unit}")
    if config.first_change and not output.over_notes:
        raise UsageError("--first-change is for the output note-unit")
    if config.rests and not config.ages:
        raise UsageError("--rests needs --ages")
    if config.labels != "all" and not frame.known_labels:
        raise UsageError("--labels none is for data that were prepared with --labels")
    encoder, labels = _encoder(config, frame), known_labels(config, frame)
    columns = column_count(labels)
    sizes = encoder.input_size + columns, config.hidden, config.layers
    unit = units.configured(config, config.unit, *sizes, config.zoneout)
    h_size = config.hidden + columns + encoder.skip_size
    built = output.build(config, frame, h_size)
    if encoder.end_skip_size is not None:
        built.limit_ends(config.hidden + columns + encoder.end_skip_size)
    marks = None
    if frame.marks:
        pitch = absolute_pitch(note_count(frame), frame.drum_keys)
        marks = Marks(
            h_size, frame.marks, pitch, encoder.rows, by_part=config.by_part, nearby=config.nearby,
            drums=frame.drum_parts,
        )  # fmt: skip
    return SequenceModel(encoder, unit, built, config.dropout, marks, labels)


def meta_model(config: Config, frame: FrameDefinition) -> SequenceModel:
    """`build_model` without memory for weights; user-defined units are tried as well."""
    if (module := units.module_name(config.unit)) is not None:
        assert config.hidden is not None
        inputs = _encoder(config, frame).input_size + column_count(known_labels(config, frame))
        check_module(module, inputs, config.hidden)
    for unit in filter(None, (config.unit, config.note_unit)):
        if is_text(unit):
            spec, activations = units.unit_spec(unit), (config.gate_activation, config.activation)
            try_unit(spec, *activations, bias=config.bias)
    with torch.device("meta"):
        return build_model(config, frame)
