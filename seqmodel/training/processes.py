"""Processes that share each update of one model, on one machine or on many.

All their communication goes through a `Group`. Sums are computed along a fixed tree, so that no bit
depends on the number of processes, as it would with the reductions of libraries, whose order
depends on it.
"""

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import safetensors.torch
import torch
import torch.distributed as dist
from torch import Tensor, nn

from seqmodel.errors import SeqmodelError
from seqmodel.training.stopping import StopRequest

SAVE_EVERY = 60.0
"""Seconds between two saves of the last checkpoint: the most a power cut can cost."""
HOST = "127.0.0.1"
PATIENCE = timedelta(seconds=50)
"""How long one process waits for another, which may be saving, before it counts as stuck."""
POLL = 0.05
_BLOCK = 1 << 10
"""Bytes exchanged at once; more take a second exchange."""
_HEAD = 8
"""Bytes at the start of a block that hold the message's length."""


class PeerError(SeqmodelError):
    """Another process has ended or does not answer."""


class UnfitError(PeerError):
    """One of the processes cannot take part; nothing has been trained."""


class Group:
    """The processes that train one model: in this base class, only this one.

    With every message they agree when to save and to stop, which no process may decide alone.
    """

    rank, size = 0, 1
    """This process's number, where only the first, 0, writes files; and how many there are."""

    def __init__(self) -> None:
        self.stop, self._saved_at = StopRequest(), time.monotonic()
        self._signal: int | None = None
        self._save_due = False

    def all(self, values: Any) -> list[Any]:
        """The JSON values of all processes, in order; numbers arrive unchanged."""
        received = self._exchange([values, self.stop.signal, self._save_is_due()])
        signals = [signal for _, signal, _ in received if signal is not None]
        self._signal, self._save_due = next(iter(signals), None), received[0][2]
        return [theirs for theirs, _, _ in received]

    def _exchange(self, values: Any) -> list[Any]:
        return [values]

    def gather_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return tensors

    def sum(self, numbers: Tensor) -> Tensor:
        """The sum of all processes' numbers (N,), as by `tree_sum`; may overwrite `numbers`."""
        return numbers

    @property
    def signal(self) -> int | None:
        return self.stop.signal if self.size == 1 else self._signal

    @property
    def save_due(self) -> bool:
        return self._save_is_due() if self.size == 1 else self._save_due

    def saved(self) -> None:
        self._saved_at, self._save_due = time.monotonic(), False

    def _save_is_due(self) -> bool:
        return time.monotonic() - self._saved_at > SAVE_EVERY


class Processes(Group):
    """The group that torch.distributed was initialised with."""

    def __init__(self) -> None:
        super().__init__()
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._sent = self._received = torch.empty(0)  # reused: fresh memory costs more than a sum

    def _exchange(self, values: Any) -> list[Any]:
        return [json.loads(data) for data in self._gather_bytes(json.dumps(values).encode())]

    def gather_tensors(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        ours = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        received = self._gather_bytes(safetensors.torch.save(ours))
        return {name: t for data in received for name, t in safetensors.torch.load(data).items()}

    def broadcast(self, data: bytes) -> bytes:
        """The bytes given by the first process."""
        length = self._exchange(len(data))[0]
        sent = torch.frombuffer(bytearray(data.ljust(length)), dtype=torch.uint8)
        with _peer_errors():
            dist.broadcast(sent, 0)
        return bytes(sent.numpy())

    def _gather_bytes(self, data: bytes) -> list[bytes]:
        head = len(data).to_bytes(_HEAD, "little")
        received = self._gather_blocks((head + data)[:_BLOCK].ljust(_BLOCK, b"\0"))
        lengths = [int.from_bytes(block[:_HEAD], "little") for block in received]
        longest = max(lengths)
        if longest > _BLOCK - _HEAD:
            received = self._gather_blocks(head + data.ljust(longest, b"\0"))
        return [block[_HEAD:][:n] for block, n in zip(received, lengths, strict=True)]

    def _gather_blocks(self, block: bytes) -> list[bytes]:
        ours = torch.frombuffer(bytearray(block), dtype=torch.uint8)
        received = [torch.empty_like(ours) for _ in range(self.size)]
        with _peer_errors():
            dist.all_gather(received, ours)
        return [bytes(tensor.numpy()) for tensor in received]

    def sum(self, numbers: Tensor) -> Tensor:
        """See `Group`: each process adds up one part of the numbers, then all get all parts."""
        if self.size == 2:  # a + b is b + a, so the library's order is the tree's, and it is faster
            with _peer_errors():
                dist.all_reduce(numbers)
            return numbers
        N, length = len(numbers), -(-len(numbers) // self.size)
        if self._sent.shape != (self.size, length):
            self._sent = numbers.new_zeros(self.size, length)
            self._received = torch.zeros_like(self._sent)
        self._sent.view(-1)[:N] = numbers
        with _peer_errors():
            dist.all_to_all_single(self._received, self._sent)
            dist.all_gather(list(self._sent), tree_sum(list(self._received)))
        return self._sent.view(-1)[:N]


def tree_sum(terms: Sequence[Tensor]) -> Tensor:
    """The sum of 2^n terms, in pairs, so that processes can first add up their own."""
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


@contextmanager
def _peer_errors() -> Iterator[None]:
    """PeerError instead of torch's error if another process is gone or stuck."""
    try:
        yield
    except RuntimeError as error:
        stuck = "imed out" in str(error)
        what = f"has not answered for {PATIENCE.seconds} s" if stuck else "has ended"
        raise PeerError(f"another process of this training {what}") from error


def _wait_until(condition: Callable[[], bool]) -> None:
    """Wait in Python, where a signal can end the process, unlike in torch's own waiting."""
    deadline = time.monotonic() + PATIENCE.seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("timed out")
        time.sleep(POLL)


def rendezvous(port: int | None = None) -> Any:
    """The TCPStore where this machine's processes meet, new or at `port`; PeerError for none."""
    with _peer_errors():
        return dist.TCPStore(  # type: ignore[attr-defined]
            HOST, port or 0, is_master=port is None, wait_for_workers=False, timeout=PATIENCE
        )


def started_before() -> bool:
    """Whether torchrun restarted this training; for the first process to call, once.

    Uses torchrun's store, which outlives the processes, because its count of restarts omits those
    requested by another host. PeerError if the store does not answer.
    """
    if not _agents_own_store():
        return False
    with _peer_errors():
        return bool(_torchrun_store(is_master=False).add("starts", 1) > 1)


def _agents_own_store() -> bool:
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _torchrun_store(*, is_master: bool) -> Any:
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(  # type: ignore[attr-defined]
        host, port, is_master=is_master, wait_for_workers=False, timeout=PATIENCE
    )


def torchrun_rendezvous(rank: int, size: int) -> Any:
    """The store of torchrun's agents, for only this start of the processes.

    It still contains what processes left before a restart, such as addresses. So each gives itself
    a new name, and the first one sends its prefix to every name it finds, until all have confirmed
    it. PeerError if the others do not appear.
    """
    with _peer_errors():
        store = _torchrun_store(is_master=rank == 0 and not _agents_own_store())
        name = uuid4().hex
        if rank:
            store.set(f"name {rank}", name)
            _wait_until(lambda: store.check([f"prefix for {name}"]))
            prefix = store.get(f"prefix for {name}").decode()
            store.set(f"{rank} has {prefix}", "")
            return dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]
        others = set(range(1, size))

        def all_confirmed() -> bool:
            for other in [k for k in others if store.check([f"name {k}"])]:
                store.set(f"prefix for {store.get(f'name {other}').decode()}", name)
            others.difference_update([k for k in others if store.check([f"{k} has {name}"])])
            return not others

        _wait_until(all_confirmed)
        return dist.PrefixStore(name, store)  # type: ignore[attr-defined]


@contextmanager
def join(rank: int, size: int, store: Any) -> Iterator[Processes]:
    """For the block, join the `size` processes that meet at `store`; PeerError if they do not."""
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    with _peer_errors():
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        yield Processes()
    finally:
        dist.destroy_process_group()


def check_all(group: Group, check: Callable[[], Any]) -> Any:
    """The result of `check` here; UnfitError for the first SeqmodelError of any process."""
    result = error = None
    try:
        result = check()
    except SeqmodelError as problem:
        error = str(problem)
    for rank, (message, host) in enumerate(group.all([error, socket.gethostname()])):
        if message is not None:
            raise UnfitError(f"process {rank} on {host}: {message}")
    return result


def check_equal_weights(group: Group, model: nn.Module) -> None:
    """SeqmodelError unless all processes have equal weights, since different rounding diverges."""
    if group.size == 1:
        return
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    received = group.all([digest.hexdigest(), socket.gethostname()])
    (first, host_0), *others = received
    for rank, (weights, host) in enumerate(others, 1):
        if weights != first:
            raise SeqmodelError(
                f"process {rank} on {host} has other weights than process 0 on {host_0}: their "
                "processors or versions of torch round differently; use hosts of the same kind"
            )
