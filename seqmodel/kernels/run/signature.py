"""What a kernel takes, declared once: names, types, shapes and layout, checked at every call.

A kernel receives one array of 64-bit integers: its sizes, its strides, then the addresses of its
arrays. The declaration beside the code that writes the kernel names these fields; the emitter finds
them by those names, and a call gives them by name. Without the check a wrong shape would read or
write beyond a buffer.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import torch

from seqmodel.kernels.code.emit import Emitter, panel_width, spacing, vector_lanes

REAL, STORED = "real", "stored"
"""The float type that a kernel computes in, and that of its packed matrices, which may be narrower.

They stand for a torch dtype in `Array.dtype`; a call fixes them by their sizes in bytes.
"""
THREADS = "threads"
"""The number of threads a call is for: usable in shapes, but no field."""

_DTYPES = {4: torch.float32, 8: torch.float64}


@dataclass(frozen=True)
class Array:
    """An array that a kernel reads or writes."""

    name: str
    shape: tuple[str, ...]
    """Python expressions of the kernel's sizes, such as ("T + 1", "B", "H").

    LANES is the numbers in a vector, WIDTH the columns of a packed panel, SPACING the multiple to
    which per-thread buffers are padded.
    """
    dtype: torch.dtype | str = REAL
    strides: tuple[str, ...] = ()
    """Names of the strides, which become fields; an unnamed last one is 1. () if contiguous."""
    optional: bool = False
    """Whether it may be left out; its address is null then."""


def packed(name: str, rows: str, columns: str, *, optional: bool = False) -> Array:
    """A matrix (rows, columns) as panels, see `linear.packing`."""
    shape = f"-(-({columns}) // WIDTH)", rows, "WIDTH"
    return Array(name, shape, STORED, optional=optional)


def per_thread(name: str, count: str, *, optional: bool = False) -> Array:
    """`count` numbers for each thread, padded against false sharing."""
    return Array(name, (THREADS, f"-(-({count}) // SPACING) * SPACING"), optional=optional)


@dataclass(frozen=True, eq=False)  # hashed by identity, at every call
class Signature:
    """A kernel's name and fields."""

    name: str
    sizes: tuple[str, ...]
    arrays: tuple[Array, ...]
    optional_sizes: tuple[str, ...] = ()
    """Sizes that may be left out; they are 0 then."""

    @property
    def integers(self) -> tuple[str, ...]:
        """The fields that hold numbers, in order: sizes, then strides."""
        return (*self.sizes, *self.optional_sizes, *(s for a in self.arrays for s in a.strides))

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields, in the order in which the kernel finds them."""
        return (*self.integers, *(array.name for array in self.arrays))

    def load(self, e: Emitter, array: Any) -> dict[str, Any]:
        """The fields by name, as instructions that load them from the kernel's array."""
        return e.fields(array, self.integers, [array.name for array in self.arrays])

    def numbers(self, itemsize: int, given: Mapping[str, Any], stored: int | None = None) -> Any:
        """The integers that the kernel reads, for fields given by name.

        Arrays must be of `itemsize` bytes a number, packed ones of `stored` (the same if None).
        ValueError names the kernel and the field that is missing, unknown or not as declared.
        """
        return self._laid_out(itemsize, stored or itemsize, given, as_addresses=True)

    def ordered(self, itemsize: int, given: Mapping[str, Any], stored: int | None = None) -> Any:
        """As `numbers`, but with the arrays themselves in place of their addresses."""
        return self._laid_out(itemsize, stored or itemsize, given, as_addresses=False)

    def _laid_out(
        self, itemsize: int, stored: int, given: Mapping[str, Any], *, as_addresses: bool
    ) -> Any:
        try:
            return _layout(self, itemsize, stored, as_addresses)(**given)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"kernel {self.name}: {self._complaint(given) or error}") from error

    def _complaint(self, given: Mapping[str, Any]) -> str | None:
        """What is wrong with the names."""
        needed = {*self.sizes, *(a.name for a in self.arrays if not a.optional)}
        needed |= {THREADS} & set(_names_in(self.arrays))
        known = needed | set(self.optional_sizes) | {array.name for array in self.arrays}
        for what, names in (("missing", needed - set(given)), ("unknown", set(given) - known)):
            if names:
                return f"{what} {', '.join(sorted(names))}"
        return None


def _names_in(arrays: Iterable[Array]) -> list[str]:
    return [part for array in arrays for part in array.shape]


@cache
def _layout(
    signature: Signature, itemsize: int, stored: int, as_addresses: bool
) -> Callable[..., list[Any]]:
    """The function that checks fields and puts them in order.

    It is written as source, once for each kernel and type: a loop over the declaration would cost a
    small model's training step several times as much as the straight line of comparisons does.
    """
    lines, ordered = [], []
    arguments = [*signature.sizes, *(f"{name}=0" for name in signature.optional_sizes)]
    arguments += [THREADS] if THREADS in _names_in(signature.arrays) else []
    types = {REAL: _DTYPES[itemsize], STORED: _DTYPES[stored]}
    scope: dict[str, Any] = {"fail": _fail}
    for k, array in enumerate(signature.arrays):
        name, dtype = array.name, types.get(str(array.dtype), array.dtype)
        scope |= {f"array_{k}": array, f"dtype_{k}": dtype}
        shape = "".join(f"{part}, " for part in array.shape)
        wrong = f"{name}.shape != ({shape}) or {name}.dtype is not dtype_{k}"
        if not array.strides:
            wrong += f" or not {name}.is_contiguous()"
        fail = f"fail({signature.name!r}, array_{k}, dtype_{k}, ({shape}), {name})"
        check = [f"if {wrong}: {fail}"]
        if array.strides:
            rest = [f"unit_{k}"] * (len(array.shape) - len(array.strides))
            check.append(f"{', '.join((*array.strides, *rest))}, = {name}.stride()")
            check += [f"if {unit} != 1 and {array.shape[-1]} != 1: {fail}" for unit in rest]
        address = f"{name}.data_ptr()" if as_addresses else name
        if array.optional:
            lines += [*(f"{stride} = 0" for stride in array.strides), f"if {name} is not None:"]
            lines += [f"    {line}" for line in check]
            address = f"(0 if {name} is None else {address})"
        else:
            lines += check
        arguments.append(f"{name}=None" if array.optional else name)
        ordered.append(address)
    lines.append(f"return [{', '.join((*signature.integers, *ordered))}]")
    source = f"def layout(*, {', '.join(arguments)}):\n" + "".join(f"    {s}\n" for s in lines)
    scope |= {"WIDTH": panel_width(stored), "LANES": vector_lanes(itemsize)}
    scope["SPACING"] = spacing(itemsize)
    exec(source, scope)
    layout: Callable[..., list[Any]] = scope["layout"]
    return layout


def _fail(
    kernel: str, array: Array, dtype: torch.dtype, shape: tuple[int, ...], given: Any
) -> NoReturn:
    expected = f"{_named(dtype)} {shape}" + ("" if array.strides else ", contiguous")
    if not hasattr(given, "is_contiguous"):
        found = repr(given)
    else:
        found = f"{_named(given.dtype)} {tuple(given.shape)} with strides {tuple(given.stride())}"
    raise ValueError(f"kernel {kernel}: {array.name} must be {expected}, not {found}")


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
