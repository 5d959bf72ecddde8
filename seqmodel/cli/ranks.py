"""The processes of `seqmodel train`: the first leads, the others follow.

`--processes` starts the others on this machine; torchrun starts all of them, on many.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING

import typer

from seqmodel.config import Config
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.media.words import plural
from seqmodel.runs.files import resume_command

if TYPE_CHECKING:
    from seqmodel.data.dataset import Dataset
    from seqmodel.training.processes import Processes

RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
LAUNCHED = ("TORCHELASTIC_RUN_ID", "SEQMODEL_RENDEZVOUS")
"""Set if this process is one of several: by torchrun; by the first of `--processes`, to a port."""
GRACE = 10.0
"""Seconds for a process to exit by itself once all is done."""


@dataclass(frozen=True)
class ProcessRank:
    """Which of the processes this is."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Its number on this host."""
    launched: bool = False
    """Whether the other processes are started by something else."""


def process_rank() -> ProcessRank:
    """This process as described by the environment."""
    if not any(name in os.environ for name in LAUNCHED):
        return ProcessRank()
    rank, size, local = (int(os.environ[n]) for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    return ProcessRank(rank, size, local, launched=True)


def was_restarted() -> bool:
    """Whether a launcher restarted this training; only the first process may ask, and only once."""
    if any(int(os.environ.get(name, "0")) > 0 for name in RESTARTS):
        return True
    if LAUNCHED[0] not in os.environ:
        return False
    from seqmodel.training.processes import started_before

    return started_before()


def processes_of(option: int | None) -> int:
    """The number of processes for `--processes`; UsageError if it is impossible."""
    from seqmodel.system.processes import no_groups_reason

    own_rank = process_rank()
    if own_rank.launched and option not in (None, own_rank.size):
        raise UsageError(f"torchrun started {own_rank.size} processes: leave --processes out")
    size = own_rank.size if own_rank.launched else option or 1
    if size & (size - 1):
        raise UsageError(f"the number of processes must be a power of two, not {size}")
    if size > 1 and (reason := no_groups_reason()):
        raise UsageError(f"only one process can train here: {reason}; leave --processes out")
    return size


def check_processes(config: Config, size: int) -> None:
    """UsageError unless this many processes can train this together."""
    if size > 1 and config.trials:
        raise UsageError(
            "a search for the learning rate, as with --lr search or the paper preset, uses one "
            f"process, not {size}: start only one"
        )
    if config.parts % size:
        parts = plural(config.parts, "part")
        raise UsageError(f"{size} processes cannot share {parts}: their number must divide --parts")


@contextmanager
def leading(
    size: int, config: Config, dataset: "Dataset", folder: Path, device: str
) -> Iterator["Processes | None"]:
    """Yield the `size` processes, ready to train this run; None if this is the only one.

    UnfitError if one of them cannot take part; PeerError if another process is gone or stuck.
    """
    if size == 1:
        yield None
        return
    from seqmodel.runs.folder import LAST
    from seqmodel.training import processes

    own_rank = process_rank()
    hint = f"continue from the last checkpoint with {resume_command(folder)}"
    others = list[subprocess.Popen[bytes]]()
    try:
        if own_rank.launched:
            store = processes.torchrun_rendezvous(own_rank.rank, size)
        else:
            store = processes.rendezvous()
            for rank in range(1, size):
                others.append(_start(rank, size, store.port, dataset.folder))
        with _watched(own_rank, f"; {hint}"), processes.join(own_rank.rank, size, store) as group:
            order = {
                "config": config.to_json(),
                "data": [dataset.fingerprint(), dataset.facts_hash()],
                "folder": str(folder),
                "device": device,
            }
            group.broadcast(json.dumps(order).encode())
            group.broadcast((folder / LAST).read_bytes())
            processes.check_all(group, lambda: None)
            yield group
        for process in others:
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
    except processes.UnfitError:
        raise
    except processes.PeerError as error:
        raise processes.PeerError(f"{_ended(others) or error}; {hint}") from error
    finally:
        for process in others:
            process.kill()  # also if it is frozen
            process.communicate()  # closes its stdin


def _start(rank: int, size: int, port: int, data: Path) -> "subprocess.Popen[bytes]":
    """Start another process on this host, which connects to this one at the port."""
    environment = {
        LAUNCHED[1]: str(port), "WORLD_SIZE": str(size), "RANK": str(rank), "LOCAL_RANK": str(rank),
        "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR",
    }  # fmt: skip
    # In its own session: Ctrl-C is for this process to handle. Its stdin closes when this process
    # ends, however that happens.
    return subprocess.Popen(
        [sys.executable, "-m", "seqmodel", "train", str(data.resolve())],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _ended(others: Sequence["subprocess.Popen[bytes]"]) -> str | None:
    """Which other process was killed or, failing that, ended first; None if none has ended."""
    ended = list[tuple[bool, str]]()
    for rank, process in enumerate(others, 1):
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(1)
            how = f"signal {-status}" if status < 0 else f"status {status}"
            ended.append((status >= 0, f"process {rank} has ended with {how}"))
    return min(ended)[1] if ended else None


def follow(data: Path | None) -> None:
    """Train as ordered by the first process, on the dataset at `data`, or where the first has it.

    Errors that concern all processes are raised once on each host.
    """
    import torch

    from seqmodel.training import processes
    from seqmodel.training.loop import Trainer
    from seqmodel.training.state import DivergedError
    from seqmodel.training.stopping import InterruptError, stop_on_signals
    from seqmodel.training.trackers import Listener

    own_rank, port = process_rank(), os.environ.get(LAUNCHED[1])
    if port is not None:
        Thread(target=_end_with_the_first, daemon=True).start()
    try:
        if port is None:
            store = processes.torchrun_rendezvous(own_rank.rank, own_rank.size)
        else:
            store = processes.rendezvous(int(port))
        with (
            stop_on_signals() as stop,
            _watched(own_rank),
            processes.join(own_rank.rank, own_rank.size, store) as group,
        ):
            order = json.loads(group.broadcast(b""))
            checkpoint = group.broadcast(b"")
            config = Config.from_json(order["config"], Path(order["folder"]))
            path, hashes = data or config.data, order["data"]
            dataset = processes.check_all(group, lambda: _same_dataset(path, hashes))
            kind = order["device"]  # each process has its own GPU, if there are any
            device = torch.device(f"cuda:{own_rank.local_rank}" if kind == "cuda" else kind)
            hint = f"continue with {resume_command(order['folder'])}"
            trainer = Trainer(config, dataset, None, device, hint, group)
            with TemporaryDirectory() as folder:
                last = Path(folder, "last")
                last.write_bytes(checkpoint)
                trainer.resume(last)
            trainer.run(Listener(), stop)
    except (processes.PeerError, DivergedError, InterruptError) as error:
        if own_rank.local_rank:
            raise typer.Exit(error.exit_status) from error
        raise


def _end_with_the_first() -> None:
    """End this process once the first of `--processes` has, instead of waiting in vain."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def _watched(own_rank: ProcessRank, advice: str = "") -> AbstractContextManager[None]:
    """A watchdog for a host's first process under torchrun, which would leave it frozen."""
    from seqmodel.system.watchdog import watched
    from seqmodel.training.processes import PATIENCE

    if not own_rank.launched or own_rank.local_rank:
        return nullcontext()
    patience, what = PATIENCE.seconds, f"process {own_rank.rank} was frozen for"
    return watched(patience, f"{what} {patience} s and has been killed{advice}")


def _same_dataset(data: Path | str | None, hashes: Sequence[str]) -> "Dataset":
    from seqmodel.data.dataset import open_dataset

    dataset = open_dataset(str(data))
    if [dataset.fingerprint(), dataset.facts_hash()] != hashes:
        raise SeqmodelError(
            f"{dataset.folder} differs from the dataset of process 0: copy its folder here"
        )
    return dataset
