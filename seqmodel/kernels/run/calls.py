"""Kernels called one after another for many users, each with its own arena.

Sampling draws many pieces with the same weights. The weights are shared; states and buffers are in
each piece's arena, at the same offsets in all of them.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.kernels.code.emit import INT, Emitter, target, vector_lanes
from seqmodel.kernels.code.instructions import Inline
from seqmodel.kernels.code.jit import call_at
from seqmodel.kernels.run.signature import REAL, Array, Signature
from seqmodel.kernels.run.threads import Kernel, compile_text

_ALIGNED = 64  # bytes: a vector that straddles two cache lines takes twice as long to load


@dataclass(frozen=True)
class Slot:
    """An array at a fixed offset in every user's arena."""

    start: int
    """Offset in bytes."""
    shape: tuple[int, ...]
    dtype: torch.dtype

    def of(self, memory: NDArray[np.uint8]) -> NDArray[Any]:
        """The array in one user's arena."""
        return np.ndarray(self.shape, _numpy(self.dtype), memory, self.start)

    def of_all(self, memories: NDArray[np.uint8]) -> NDArray[Any]:
        """The arrays (N, ...) in the arenas of N users."""
        kind = _numpy(self.dtype)
        strides = (memories.strides[0], *(step * kind.itemsize for step in self.stride()))
        return np.ndarray((len(memories), *self.shape), kind, memories, self.start, strides)

    def reshaped(self, *shape: int) -> "Slot":
        return Slot(self.start, shape, self.dtype)

    def __getitem__(self, k: int) -> "Slot":
        """Part `k` of the first dimension."""
        _, *shape = self.shape
        size = int(np.prod(shape)) * self.dtype.itemsize
        return Slot(self.start + k * size, tuple(shape), self.dtype)

    # What a signature checks or reads besides `shape` and `dtype`, as of a tensor.

    def is_contiguous(self) -> bool:
        return True

    def stride(self) -> tuple[int, ...]:
        return np.empty(self.shape, np.uint8).strides

    def numel(self) -> int:
        return math.prod(self.shape)


@cache
def _numpy(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype


class Arena:
    """The layout of each user's memory."""

    size = 0
    """The size of an arena in bytes."""

    def take(self, *shape: int, dtype: torch.dtype = torch.float64) -> Slot:
        """A slot for an array, beyond whose end code may read or write a vector's rest."""
        slot = Slot(self.size, shape, dtype)
        size = int(np.prod(shape)) * dtype.itemsize + target().vector_bytes
        self.size += -(-size // _ALIGNED) * _ALIGNED
        return slot

    def memory(self) -> NDArray[np.uint8]:
        """Memory for one more user, uninitialised."""
        return self.memories(1)[0]

    def memories(self, users: int) -> NDArray[np.uint8]:
        """Memory for several users, one row each, uninitialised."""
        return torch.empty(users, self.size, dtype=torch.uint8).numpy()


Value = int | Tensor | Slot | None
"""A field of a call: a size, or an array; None is the null address."""


def declare(name: str, values: Mapping[str, Value]) -> tuple[Signature, list[int | Tensor | Slot]]:
    """The signature of a call with only these contiguous fields, and the fields in order."""
    sizes = {field: value for field, value in values.items() if isinstance(value, int)}
    arrays = {field: value for field, value in values.items() if not isinstance(value, int)}
    for field, array in arrays.items():
        if array is not None and not array.is_contiguous():
            raise ValueError(f"kernel {name}: {field} must be contiguous")
    kinds = tuple((field, getattr(array, "dtype", REAL)) for field, array in arrays.items())
    addresses = [0 if array is None else array for array in arrays.values()]
    return _signature(name, tuple(sizes), kinds), [*sizes.values(), *addresses]


@cache
def _signature(
    name: str, sizes: tuple[str, ...], arrays: tuple[tuple[str, torch.dtype | str], ...]
) -> Signature:
    return Signature(name, sizes, tuple(Array(array, (), kind) for array, kind in arrays))


class Call:
    """A compiled function at an address, and its fields in order: numbers, tensors and slots.

    If it makes further calls, `inner`, their fields follow its own.
    """

    def __init__(
        self, function: int, fields: "Sequence[int | Tensor | Slot]", inner: "Sequence[Call]" = ()
    ) -> None:
        self.function = function
        self.fields = [*fields]
        self.fields += [field for call in inner for field in call.fields]
        self.shape = function, len(self.fields)


ITEMSIZE = torch.float64.itemsize
"""Bytes in each number of a `step_call`."""


def step_call(
    text: Callable[..., Any], given: Mapping[str, Value], inner: Sequence[Call] = (),
    **constants: Any,
) -> Call:  # fmt: skip
    """A call of a text in float64, with the fields that are `given`.

    It is compiled once for these fields' names and types, and the constants. By `make_calls(f)` it
    can make the `inner` calls.
    """
    signature, fields = declare(text.__name__, given)
    calls = tuple(call.shape for call in inner)
    constants |= {"lanes": vector_lanes(ITEMSIZE), "calls": calls}
    kernel = compile_text(signature, ITEMSIZE, text, **constants)
    return Call(kernel.alone, fields, inner)


def kernel_call(kernel: Kernel, w_bytes: Any = None, **given: Value) -> Call:
    """A call of a kernel in float64, on one thread; numbers of packed matrices take `w_bytes`."""
    fields, _ = kernel.signature.layout(ITEMSIZE, w_bytes, addresses=False)(**given)
    return Call(kernel.alone, fields)


def write_calls(e: Emitter, calls: Iterable[tuple[int, int]], fields: Any) -> Any:
    """Make calls, given as (address, number of fields); returns the end of their fields."""
    for address, count in calls:
        call_at(e.builder, address, ir.VoidType(), [fields])
        fields = e.builder.gep(fields, [e.int(count)], source_etype=INT)
    return fields


make_calls: Any = Inline(lambda e, f: write_calls(e, f.calls, f.inner))
"""make_calls(f): make the inner calls of a `step_call`."""


class CallFields:
    """The fields of several calls, one after another, as the functions read them, and others."""

    def __init__(self, calls: Sequence[Call], *others: Slot) -> None:
        of_calls = (field for call in calls for field in call.fields)
        self._fields = [*of_calls, *others]  # keeps tensors alive
        self._values = np.array([_number(field) for field in self._fields], np.int64)
        self._is_slot = np.array([isinstance(field, Slot) for field in self._fields], np.int64)

    def for_user(self, memory: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The fields for the user whose arena this is."""
        return self._values + memory.ctypes.data * self._is_slot

    def columns(self, slot: Slot) -> list[int]:
        """The indices of the fields that hold this slot's address."""
        return [k for k, field in enumerate(self._fields) if field is slot]


def _number(field: int | Tensor | Slot) -> int:
    if isinstance(field, Slot):
        return field.start
    return field if isinstance(field, int) else field.data_ptr()
