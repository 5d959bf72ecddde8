"""Compiled functions that one user after another calls, each over memory of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

_ALIGNED = 64  # bytes: a vector that lies across two lines of the cache takes twice as long


@dataclass(frozen=True)
class Own:
    """An array in the memory of each user: its place, before there is any memory."""

    start: int
    """In bytes."""
    shape: tuple[int, ...]
    kind: DTypeLike

    def of(self, memory: NDArray[np.uint8]) -> NDArray[Any]:
        """The array in a user's memory."""
        return np.ndarray(self.shape, self.kind, memory, self.start)


class Room:
    """What a user needs, laid out once for all of them."""

    def __init__(self) -> None:
        self._size = 0

    def take(self, *shape: int, kind: DTypeLike = np.float64, spare: int = 0) -> Own:
        """Room for an array, and `spare` bytes behind it."""
        taken = Own(self._size, shape, kind)
        size = int(np.prod(shape)) * np.dtype(kind).itemsize + spare
        self._size += -(-size // _ALIGNED) * _ALIGNED
        return taken

    def memory(self) -> NDArray[np.uint8]:
        """Memory for a further user, uninitialised."""
        memory: NDArray[np.uint8] = torch.empty(self._size, dtype=torch.uint8).numpy()
        return memory


@dataclass(frozen=True)
class Call:
    """A compiled function at an address, and the fields it takes.

    Those are numbers, what all users read, and what each has of its own.
    """

    function: int
    fields: Sequence[int | Tensor | Own]


class Fields:
    """The fields of several calls in a row, as the functions see them."""

    def __init__(self, calls: Sequence[Call]) -> None:
        fields = [field for call in calls for field in call.fields]
        self._shared = np.array([_number(field) for field in fields], np.int64)
        self._own = np.array([isinstance(field, Own) for field in fields], np.int64)
        self._alive = calls

    def over(self, memory: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The fields of the user whose memory this is."""
        filled: NDArray[np.int64] = self._shared + memory.ctypes.data * self._own
        return filled


def _number(field: int | Tensor | Own) -> int:
    if isinstance(field, Own):
        return field.start
    return field if isinstance(field, int) else field.data_ptr()
