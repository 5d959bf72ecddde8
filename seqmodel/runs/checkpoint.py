"""Checkpoints: named tensors and JSON in one safetensors file, with a checksum over both.

safetensors has no checksum: a flipped bit in a weight would go unnoticed. Loading runs no code; the
JSON describes the model, which is built once both are known to fit.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from seqmodel.config import Config
from seqmodel.errors import SeqmodelError
from seqmodel.files import write_file
from seqmodel.media.definitions import FrameDefinition, known_labels
from seqmodel.media.labels import labels_text
from seqmodel.model.build import build_model, meta_model, with_sizes
from seqmodel.model.sequence import SequenceModel
from seqmodel.runs.content import FORMAT, KEY, VERSION, Content, instead_of, opened, parsed
from seqmodel.units.module import KEY as UNIT_KEY

MODEL = "model."
"""Prefix of the model's tensors in a checkpoint."""
AVERAGE = "average."
"""Prefix of the moving average of the weights, in the last checkpoint."""


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
    """Write a checkpoint to `path`; see `checkpoint_bytes`."""
    write_file(path, checkpoint_bytes(tensors, content))


def checkpoint_bytes(tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> bytes:
    """A checkpoint of `tensors`, from any device, and of `content`: JSON, so without nan."""
    # Copies, because safetensors refuses tensors that share memory, such as tied weights.
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    text = json.dumps(content, allow_nan=False)
    metadata = {"format": FORMAT, "version": VERSION, "content": text}
    metadata["sha256"] = _checksum(tensors, text)
    return safetensors.torch.save(tensors, {KEY: json.dumps(metadata)})


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors, onto the CPU, and content; SeqmodelError unless it is an intact checkpoint."""
    with opened(path) as (data, metadata):
        tensors = safetensors.torch.load(data)
        text = metadata.text("content")
        if _checksum(tensors, text) != metadata.text("sha256"):
            raise ValueError("another checksum")
        for name in [name for name in tensors if name.endswith("encoder.known")]:
            for limit in ("most_dc", "loudest"):  # runs on sound from before it was measured
                tensors.setdefault(name.removesuffix("known") + limit, torch.zeros(1).double())
        return tensors, parsed(text)


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())  # TypeError for a dtype that NumPy lacks
    return digest.hexdigest()


def model_of(content: Content, tensors: Mapping[str, Tensor], origin: Path) -> SequenceModel:
    """The model of a checkpoint, on the CPU; SeqmodelError names `origin`."""
    check_fit(content.config, content.frame, tensors, origin)
    model = build_model(content.config, content.frame)
    load_model(model, tensors)
    for name, weight in model.state_dict().items():
        if not torch.isfinite(weight).all():
            raise SeqmodelError(
                f"{origin} has weights that are not finite ({name}); {instead_of(origin)}"
            )
    return model


def check_fit(
    config: Config, frame: FrameDefinition, tensors: Mapping[str, Tensor], origin: Path
) -> None:
    """SeqmodelError unless the tensors of `origin` fit such a model, without allocating it."""
    try:
        if with_sizes(config, frame) != config:
            raise SeqmodelError("its settings leave sizes open")
        advice = "it may be from another version of seqmodel: train again"
        _compare(meta_model(config, frame), tensors, advice)
    except SeqmodelError as error:
        raise SeqmodelError(f"{origin}: {error}") from error


def check_labels(trained: Content, config: Config, frame: FrameDefinition, model: str) -> None:
    """SeqmodelError unless the trained `model` knows exactly these frames' labels."""
    theirs, ours = known_labels(trained.config, trained.frame), known_labels(config, frame)
    if [*theirs.items()] != [*ours.items()]:
        knows = [f"the labels {labels_text(one)}" if one else "no labels" for one in (theirs, ours)]
        without = "prepare them without --labels, or train with --labels none"
        raise SeqmodelError(
            f"{model} knows {knows[0]}, but one for these data {knows[1]}: "
            + ("prepare them with the same --labels" if theirs else without)
        )


def tensors_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """The state_dict without units' descriptions, which the settings contain in a checkpoint."""
    return {name: t for name, t in module.state_dict().items() if not name.endswith(UNIT_KEY)}


def model_tensors(model: SequenceModel) -> dict[str, Tensor]:
    """The model's tensors under their names in a checkpoint."""
    return {MODEL + name: tensor for name, tensor in tensors_of(model).items()}


def averaged(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The moving average of the weights in the last checkpoint, by the model's names, if any."""
    begin = f"{AVERAGE}module."
    return {MODEL + k.removeprefix(begin): t for k, t in tensors.items() if k.startswith(begin)}


def load_model(model: SequenceModel, tensors: Mapping[str, Tensor]) -> None:
    """Copy a checkpoint's tensors into `model`; SeqmodelError if names or shapes differ."""
    advice = "use its settings, --config RUN/config.yaml, and data prepared as its were"
    model.load_state_dict(_compare(model, tensors, advice))


def _compare(model: SequenceModel, tensors: Mapping[str, Tensor], advice: str) -> dict[str, Tensor]:
    stored = {k.removeprefix(MODEL): v for k, v in tensors.items() if k.startswith(MODEL)}
    expected = tensors_of(model)
    for name in sorted(stored.keys() | expected.keys()):
        shapes = [tuple(some[name].shape) if name in some else None for some in (stored, expected)]
        if shapes[0] != shapes[1]:
            raise SeqmodelError(
                f"the checkpoint's weights do not fit the model: {name} is {shapes[0]} there and "
                f"{shapes[1]} here; {advice}"
            )
    return stored
