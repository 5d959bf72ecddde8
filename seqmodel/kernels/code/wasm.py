"""A module and every kernel that it calls, as WebAssembly with 128-bit vectors.

LLVM writes object files for a linker. Here everything is linked as IR instead, into one function
and what it calls, so that nothing is left to relocate: an object file without its custom sections
is a module once it names the function it exports.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llvmlite import binding

from seqmodel.kernels.code import cache as disk
from seqmodel.kernels.code.jit import COMPILER, Library, libraries_called, optimised

STACK = 1 << 16
"""Bytes at the start of memory for the module's constants and stack; the rest is free."""
_TRIPLE, _FEATURES = "wasm32-unknown-unknown", "+simd128,+bulk-memory,+bulk-memory-opt"
_CUSTOM, _EXPORTS, _CODE = 0, 7, 10
_AFTER_EXPORTS = (8, 9, 12, _CODE)
"""The sections after the exports in a module's order, in which 12 comes before 10."""


def webassembly(module: Any, name: str) -> bytes:
    """A module that exports `name`, the first function of an `ir.Module` emitted for `PORTABLE`.

    It imports `env.__linear_memory`, and `env.__stack_pointer`, which starts at `STACK`.
    """
    source, libraries = str(module), list(_all(libraries_called(module), set()))
    parts = [source, *(library.source for library in libraries)]
    version = Path(__file__).read_text("utf-8")  # how the module is made
    key = disk.digest(*parts, version, name, *COMPILER)
    return disk.cached(key, lambda: _with_export(_object(source, name, libraries), name))


def _all(libraries: list[Library], seen: set[int]) -> Iterator[Library]:
    """Libraries and all that they call, directly or indirectly."""
    for library in libraries:
        if id(library) not in seen:
            seen.add(id(library))
            yield library
            yield from _all(library.calls, seen)


def _object(source: str, name: str, libraries: list[Library]) -> bytes:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple(_TRIPLE)
    machine = target.create_target_machine(features=_FEATURES, opt=3)

    def parsed(source: str, names: dict[str, str]) -> Any:
        part = binding.parse_assembly(source)
        part.triple, part.data_layout = _TRIPLE, str(machine.target_data)
        for name_here, unique_name in names.items():
            part.get_function(name_here).name = unique_name
        return part

    linked = parsed(source, {})
    for library in libraries:
        linked.link_in(parsed(library.source, library.names))
    for function in linked.functions:
        if not function.is_declaration and function.name != name:
            function.linkage = "internal"
    return optimised(linked, machine)


def _with_export(code: bytes, name: str) -> bytes:
    """The object file as a module that exports its first function."""
    entry = bytes([1, len(name), *name.encode(), 0, 0])  # one export, of function number 0
    exports, written = bytes([_EXPORTS, len(entry)]) + entry, code[:8]
    for kind, section in _sections(code):
        if kind in _AFTER_EXPORTS:
            written, exports = written + exports, b""
        if kind != _CUSTOM:
            written += section
    return written


def _sections(code: bytes) -> Iterator[tuple[int, bytes]]:
    """Sections by number, each with its header."""
    position = 8  # after the magic number and the version
    while position < len(code):
        start, size, shift = position, 0, 0
        position += 1
        while True:
            digit, position = code[position], position + 1
            size, shift = size | (digit & 127) << shift, shift + 7
            if digit < 128:
                break
        position += size
        yield code[start], code[start:position]
