"""Checkpoints: named tensors and a JSON text in one safetensors file, with a checksum over both.

safetensors has no checksum of its own, so a flipped bit in a weight would go unnoticed. Loading
runs no code. Checkpoints are written atomically.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from seqmodel import plain_json
from seqmodel.errors import SeqmodelError
from seqmodel.files import disk_error, write_file
from seqmodel.plain_json import Fields
from seqmodel.runs.files import open_file

FORMAT = "seqmodel-checkpoint"
VERSION = 1
# The only metadata key: safetensors writes several in random order, and equal runs should leave
# equal bytes.
KEY = "seqmodel"


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
    """Write a checkpoint to `path`; see `checkpoint_bytes`."""
    write_file(path, checkpoint_bytes(tensors, content))


def checkpoint_bytes(tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> bytes:
    """A checkpoint of `tensors`, from any device, and the JSON values `content`.

    ValueError for nan or inf in `content`, which JSON lacks.
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(content, allow_nan=False)
    metadata = {"format": FORMAT, "version": VERSION, "content": text}
    metadata["sha256"] = _checksum(tensors, text)
    return safetensors.torch.save(tensors, {KEY: json.dumps(metadata)})


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors, onto the CPU, and the content.

    SeqmodelError if the file is missing, truncated, changed, or of another format or version.
    """
    with _opened(path) as (file, metadata):
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = metadata.text("content")
        if _checksum(tensors, text) != metadata.text("sha256"):
            raise ValueError("another checksum")
        return tensors, _content(text)


def load_content(path: Path) -> dict[str, Any]:
    """Read the content alone, which is quick but does not verify the checksum."""
    with _opened(path) as (_, metadata):
        return _content(metadata.text("content"))


def is_checkpoint(path: Path) -> bool:
    """Whether `path` is a checkpoint of ours, of any version; its content is not verified."""
    try:
        with _safetensors(path) as file:
            return _metadata(file).text("format") == FORMAT
    except (OSError, safetensors.SafetensorError, ValueError):
        return False


def _metadata(file: Any) -> Fields:
    return Fields.of(plain_json.parse((file.metadata() or {}).get(KEY, "{}")))


def _content(text: str) -> dict[str, Any]:
    # Accepts nan, which older versions wrote as a figure; `check_valid_figure` explains it better.
    return dict(Fields.of(plain_json.parse(text, constants=True)).values)


@contextmanager
def _safetensors(path: Path) -> Iterator[Any]:
    """Yield an open safetensors file; OSError if it cannot be read.

    Opened here because safetensors' own error does not say why it failed, and safetensors cannot
    open names that are not UTF-8 at all.
    """
    with (
        open_file(path) as file,
        safetensors.safe_open(f"/dev/fd/{file.fileno()}", framework="pt") as tensors,
    ):
        yield tensors


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Fields]]:
    """Yield a checkpoint's safetensors file and our metadata; failures become SeqmodelErrors."""
    try:
        with _safetensors(path) as file:
            metadata = _metadata(file)
            if metadata.values.get("format") != FORMAT:
                raise SeqmodelError(f"{path} is not a seqmodel checkpoint")
            version = metadata.values.get("version")
            if version != VERSION:
                raise SeqmodelError(
                    f"{path} has checkpoint version {version!r:.20}; this seqmodel reads version "
                    f"{VERSION}: use the seqmodel that wrote it"
                )
            yield file, metadata
    except OSError as error:
        raise disk_error(path, "read", error) from error
    except (safetensors.SafetensorError, ValueError, TypeError) as error:
        raise SeqmodelError(
            f"{path} is damaged (cut short or changed); use another checkpoint or train again"
        ) from error


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())  # TypeError for a dtype that NumPy lacks
    return digest.hexdigest()
