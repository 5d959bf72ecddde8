"""Kernels' arguments, declared once: names, types, shapes and layout, checked at every call.

A kernel receives one array of 64-bit integers: its sizes, its strides, then the addresses of its
arrays. The declaration next to the code that writes the kernel names these fields; the emitter and
the calls refer to them by name. Without the check, a wrong shape would read or write beyond a
buffer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import torch
from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, POINTER, Emitter, panel_width, spacing, vector_lanes
from seqmodel.kernels.code.instructions import Pointer
from seqmodel.kernels.run import memory

REAL, WEIGHT = "real", "weight"
"""The float types of a kernel's computation and of its packed matrices, which may be narrower.

They stand for a torch dtype in `Array.dtype`; `Signature.layout` fixes them by size in bytes.
"""
THREADS = "threads"
"""The number of threads of a call: usable in shapes, but not a field."""


NEW: Literal["new"] = "new"
"""Passed for an array to have it allocated as declared."""
Field = int | Tensor | Literal["new"] | None
"""What a call passes for a field; None omits an array."""
KernelFields = dict[str, Field]
Layout = Callable[..., tuple[list[Any], dict[str, Tensor]]]
"""Fields by name -> the fields in order, and the arrays that were passed as `NEW`."""

_DTYPES = {4: torch.float32, 8: torch.float64}


# Compared by identity, like all declarations here: compiled code is looked up by them at each call.
@dataclass(frozen=True, eq=False)
class Array:
    """An array that a kernel reads or writes."""

    name: str
    shape: tuple[str, ...]
    """Python expressions of the kernel's sizes, such as ("T + 1", "B", "H").

    LANES is the number of lanes in a vector, WIDTH the number of columns in a packed panel, SPACING
    the multiple to which per-thread buffers are padded.
    """
    dtype: torch.dtype | str = REAL
    strides: tuple[str, ...] = ()
    """Names of the strides, which become fields; an unnamed last stride is 1; () if contiguous."""
    optional: bool = False
    """Whether it may be omitted; its address is then null."""


def packed(name: str, rows: str, columns: str, *, optional: bool = False) -> Array:
    """A matrix (rows, columns) as panels; see `linear.matmul`."""
    shape = f"-(-({columns}) // WIDTH)", rows, "WIDTH"
    return Array(name, shape, WEIGHT, optional=optional)


def per_thread(name: str, count: str, *, optional: bool = False) -> Array:
    """`count` numbers for each thread, padded to avoid false sharing; see `of_thread`."""
    shape = THREADS, f"-(-({count}) // SPACING) * SPACING"
    return Array(name, shape, strides=(f"{name}_step",), optional=optional)


def of_thread(e: Emitter, f: Mapping[str, Any], name: str, thread: Any, *elements: Any) -> Any:
    """The address of a thread's own numbers in a field of `per_thread`, or of some from there."""
    return e.offset(f[name], e.mul(thread, f[f"{name}_step"]), *elements)


@dataclass(frozen=True, eq=False)
class Signature:
    """A kernel's name and fields."""

    name: str
    sizes: tuple[str, ...]
    arrays: tuple[Array, ...]
    optional_sizes: tuple[str, ...] = ()
    """Sizes that may be omitted; they are then 0."""

    @property
    def integers(self) -> tuple[str, ...]:
        """The fields that hold numbers, in order: sizes, then strides."""
        return (*self.sizes, *self.optional_sizes, *(s for a in self.arrays for s in a.strides))

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields, in the order in which the kernel reads them."""
        return (*self.integers, *(array.name for array in self.arrays))

    def load(self, e: Emitter, array: Any) -> dict[str, Any]:
        """The fields by name, as instructions that load them from the kernel's array."""
        b, found, integers = e.builder, dict[str, Any](), len(self.integers)
        for k, name in enumerate(self.fields):
            place = b.gep(array, [e.int(k)], source_etype=INT)
            found[name] = b.load(place, name, typ=INT if k < integers else POINTER)
        return found

    def arguments(self, e: Emitter, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The loaded fields as a text's own; arrays are of int64, reals or bytes."""
        types: dict[Any, Any] = {torch.int64: INT, torch.float32: ir.FloatType()}
        types[torch.uint8] = ir.IntType(8)
        kinds = {one.name: types.get(one.dtype, e.real) for one in self.arrays}
        return {
            name: Pointer(field, kinds[name]) if name in kinds else field
            for name, field in fields.items()
        }

    def layout(
        self, itemsize: int, w_bytes: int | None = None, *, addresses: bool = True
    ) -> Layout:
        """The function that checks fields given by name and returns them in order.

        Arrays must have `itemsize` bytes per number, packed ones `w_bytes` (default: the same). The
        result holds the arrays themselves or, with `addresses`, their addresses. The function has
        the kernel's name, and raises ValueError for an array that is not as declared.

        It is generated as source: interpreting the declaration at each call would take many times
        as long, a few per cent of a small model's training step.
        """
        lines, ordered, w_bytes = ["made = {}"], [], w_bytes or itemsize
        arguments = [*self.sizes, *(f"{name}=0" for name in self.optional_sizes)]
        arguments += [THREADS] if any(THREADS in array.shape for array in self.arrays) else []
        types = {REAL: _DTYPES[itemsize], WEIGHT: _DTYPES[w_bytes]}
        scope: dict[str, Any] = {"fail": _fail, "_memory": memory, "NEW": NEW}
        for k, array in enumerate(self.arrays):
            name, dtype = array.name, types.get(str(array.dtype), array.dtype)
            scope |= {f"array_{k}": array, f"dtype_{k}": dtype}
            shape = "".join(f"{part}, " for part in array.shape)
            mismatch = f"{name}.shape != ({shape}) or {name}.dtype is not dtype_{k}"
            if not array.strides:
                mismatch += f" or not {name}.is_contiguous()"
            fail = f"fail({self.name!r}, array_{k}, dtype_{k}, ({shape}), {name})"
            make = f"{name} = made[{name!r}] = _memory.buffer(dtype_{k}, {shape})"
            check = [f"if {name} is NEW: {make}", f"elif {mismatch}: {fail}"]
            if array.strides:
                rest = [f"unit_{k}"] * (len(array.shape) - len(array.strides))
                check.append(f"{', '.join((*array.strides, *rest))}, = {name}.stride()")
                any_other = f"!= 1 and {array.shape[-1]} != 1 and {name}.numel()"
                check += [f"if {unit} {any_other}: {fail}" for unit in rest]
            address = f"{name}.data_ptr()" if addresses else name
            if array.optional:
                lines += [*(f"{stride} = 0" for stride in array.strides), f"if {name} is not None:"]
                lines += [f"    {line}" for line in check]
                address = f"(0 if {name} is None else {address})"
            else:
                lines += check
            arguments.append(f"{name}=None" if array.optional else name)
            ordered.append(address)
        lines.append(f"return [{', '.join((*self.integers, *ordered))}], made")
        head = f"def {self.name}(*, {', '.join(arguments)}):\n"
        scope |= {"WIDTH": panel_width(w_bytes), "LANES": vector_lanes(itemsize)}
        scope["SPACING"] = spacing(itemsize)
        exec(head + "".join(f"    {line}\n" for line in lines), scope)
        return scope[self.name]


def _fail(
    kernel: str, array: Array, dtype: torch.dtype, shape: tuple[int, ...], passed: Any
) -> NoReturn:
    expected = f"{_dtype_name(dtype)} {shape}" + ("" if array.strides else ", contiguous")
    if not hasattr(passed, "is_contiguous"):
        actual = repr(passed)
    else:
        actual = f"{_dtype_name(passed.dtype)} {tuple(passed.shape)}"
        if not passed.is_contiguous():
            actual += f" with strides {tuple(passed.stride())}"
    raise ValueError(f"kernel {kernel}: {array.name} must be {expected}, not {actual}")


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
