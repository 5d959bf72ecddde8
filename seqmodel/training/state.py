"""The state that changes while a run trains, and how checkpoints store it to resume the run."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqmodel.config import RESUMABLE, Config
from seqmodel.data.dataset import Split
from seqmodel.errors import SeqmodelError
from seqmodel.model.build import build_model
from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.runs.checkpoint import AVERAGE, load_model, model_tensors, tensors_of
from seqmodel.runs.content import DATA_HASH, Progress, damaged, read_content
from seqmodel.runs.files import CONFIG
from seqmodel.training.optimizer import Average, Optimizer

# Prefixes of tensors in a checkpoint, besides the model's own and their average.
OPTIMIZER, CARRY = "optimizer.", "carry."


class DivergedError(SeqmodelError):
    """A loss, a gradient or a valid figure is not finite."""


def check_valid_figure(line: Mapping[str, Any]) -> None:
    """DivergedError if the nats per frame on valid, in a line of metrics, are not finite."""
    nats, rate = line["valid_nats_per_frame"], line["learning_rate"]
    if not math.isfinite(nats):
        raise DivergedError(
            f"the valid split scores {nats} nats per frame after epoch {line['epoch']:.5g}: lower "
            f"--learning-rate, now {rate:.2g}, or look for damaged pieces in valid with "
            "`seqmodel inspect`"
        )


class TrainingState:
    """A run's model, optimizer, average of the weights, carry and progress.

    A new one is a function of the config and the training split, on any device; one that will load
    a checkpoint need not read the split. `parts` are those trained here, by default all.
    """

    def __init__(
        self,
        config: Config,
        train: Split,
        device: torch.device,
        parts: range | None = None,
        *,
        is_new: bool = True,
    ) -> None:
        torch.manual_seed(config.seed)
        self.config, self.device = config, device
        with fixed_threads(config):  # the last bits of an orthogonal matrix depend on it, too
            model = build_model(config, train.frame)
            if is_new:
                model.start_at(train)
        self.model = model.to(device)
        self.optimizer = Optimizer(self.model, config)
        self.average = Average(self.model, config.average) if config.average else None
        self.parts = range(config.parts) if parts is None else parts
        """The parts of a batch that this process trains on."""
        self.carries: dict[int, Carry] = {}
        """Between two windows of a batch: where the next window of each part starts from."""
        self.progress = Progress()

    @property
    def scored_model(self) -> SequenceModel:
        """The model to evaluate and save: the average's, if there is one."""
        return self.model if self.average is None else self.average.module

    def load_weights(self, tensors: Mapping[str, Tensor], train: Split) -> None:
        """Start from the weights of another checkpoint; the encoder still refers to `train`."""
        load_model(self.model, tensors)
        self.model.encoder.start_at(train)
        if self.average is not None:
            self.average.module.load_state_dict(self.model.state_dict())

    def tensors(self) -> dict[str, Tensor]:
        """All tensors under their names in a checkpoint."""
        tensors = model_tensors(self.model)
        tensors |= {OPTIMIZER + name: t for name, t in self.optimizer.tensors().items()}
        if self.average is not None:
            tensors |= {AVERAGE + name: t for name, t in tensors_of(self.average).items()}
        return tensors | self.carry_tensors()

    def carry_tensors(self) -> dict[str, Tensor]:
        return {
            f"{self._prefix(part)}{k}": tensor
            for part, carry in self.carries.items()
            for k, tensor in enumerate(carry.tensors())
        }

    def _prefix(self, part: int) -> str:
        return f"{CARRY}{part}." if self.config.parts > 1 else CARRY

    def load(self, tensors: Mapping[str, Tensor], progress: Any, origin: Path) -> None:
        """Restore what `tensors` and `progress.to_json` returned; SeqmodelError names `origin`."""
        load_model(self.model, tensors)
        try:
            self.progress = Progress.from_json(progress, origin)
            for line in self.progress.metrics:
                check_valid_figure(line)
            self.optimizer.load(_without_prefix(OPTIMIZER, tensors))
            if self.average is not None:
                self.average.load(_without_prefix(AVERAGE, tensors))
            self._load_carries(tensors)
        except (ValueError, KeyError, RuntimeError) as error:
            raise damaged(origin, str(error).splitlines()[0]) from error

    def _load_carries(self, tensors: Mapping[str, Tensor]) -> None:
        self.carries = {}
        for part in self.parts:
            if carried := _without_prefix(self._prefix(part), tensors):
                # Copied, as every carry is: a tensor's alignment in memory determines the last bits
                # of matrix products that read it, and tensors in a file can have any alignment.
                copies = [carried[str(k)].to(self.device, copy=True) for k in range(len(carried))]
                carry = self.model.start(len(copies[0])).like(copies)
                past = carry.past
                if past.memory is not None:
                    past = past._replace(memory=self.model.encoder.restored(past.memory))
                self.carries[part] = carry._replace(past=past)


@contextmanager
def fixed_threads(config: Config) -> Iterator[None]:
    """Let torch use one thread if batches have parts: the last bits of sums depend on how many."""
    if config.parts == 1:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def detached(carry: Carry) -> Carry:
    """A copy of the carry without its graph: a view would keep the whole window in memory."""
    return carry.like([tensor.detach().clone() for tensor in carry.tensors()])


def _without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def check_resumable(
    config: Config, hashes: Mapping[str, str], content: Mapping[str, Any], path: Path
) -> None:
    """SeqmodelError unless `config` and the dataset, by its `hashes`, continue the run of `path`.

    The checkpoint, not config.yaml, records how it was trained; older versions stored fewer hashes.
    """
    trained, folder = read_content(content, path).config, path.parent
    fresh = f"start a new run with --init-from {folder} --config {folder / CONFIG}"
    for name, value in asdict(config).items():
        stored = getattr(trained, name)
        if name not in RESUMABLE and value != stored:
            raise SeqmodelError(
                f"{folder} was trained with {name} {stored}, not {value}: restore it in "
                f"{folder / CONFIG}, or {fresh}"
            )
    if config.schedule != "constant" and config.epochs != trained.epochs:
        raise SeqmodelError(
            f"--epochs cannot change on --resume with --schedule {config.schedule}, which spreads "
            f"the learning rate over the {trained.epochs} epochs of {folder}: {fresh}"
        )
    stored_hashes = {key: content.get(key) for key in hashes if key == DATA_HASH or key in content}
    if stored_hashes != {key: hashes[key] for key in stored_hashes}:
        raise SeqmodelError(
            f"{config.data} is not the dataset that {folder} was trained on: prepare it again as "
            f"it was, or {fresh}"
        )
