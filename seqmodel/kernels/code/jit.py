"""From LLVM IR to running code, through llvmlite, in this process.

Modules are small and need little optimisation, but a training run has a dozen of them: without the
on-disk cache, compiling them would take a third of its start-up time.

Set SEQMODEL_DUMP_IR to a folder to have each module's IR written there as NAME-N.ll; loads of a
kernel's fields are named after the fields.
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import llvmlite
from llvmlite import binding, ir

from seqmodel.kernels.code import cache as disk
from seqmodel.kernels.code.emit import POINTER, Emitter, target
from seqmodel.system import native

P = ParamSpec("P")
R = TypeVar("R")

_DUMP = "SEQMODEL_DUMP_IR"
_lock = threading.RLock()
_numbers = itertools.count()  # of dumped modules
_names: dict[int, str] = {}
"""Function names by address: unlike addresses, names are the same in every process."""
_libraries: dict[str, "Library"] = {}
"""Libraries by the names of their functions."""
_used = set["Library"]()
"""Every library used: two of one text, made for two targets, share their names in `_libraries`."""

COMPILER = llvmlite.__version__, str(binding.llvm_version_info), Path(__file__).read_text("utf-8")
"""What compiled code depends on besides IR and processor; this file holds the options."""


@cache
def _prepare() -> None:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()


def compiled_once(compile_once: Callable[P, R]) -> Callable[P, R]:
    """Cache the results of `compile_once` forever, by its arguments and the target.

    Only one thread compiles at a time: of two copies, one would be freed while another module may
    already call it. Lookups take no lock, since each training step makes many.
    """
    results: dict[tuple[Any, ...], R] = {}

    @wraps(compile_once)
    def find(*args: P.args, **kwargs: P.kwargs) -> R:
        key = (target(), *args, *kwargs.items())
        try:
            return results[key]
        except KeyError:
            pass
        with _lock:
            if key not in results:
                results[key] = compile_once(*args, **kwargs)
            return results[key]

    return find


@contextmanager
def function(
    module: Any, name: str, kinds: list[Any], itemsize: int, returns: Any = None
) -> Iterator[Any]:
    """An emitter into the body of a new function `name`, with its arguments: (emitter, *args).

    The body must end with a return if there is a type to return; otherwise one is appended.
    """
    written = ir.Function(module, ir.FunctionType(returns or ir.VoidType(), kinds), name)
    builder = ir.IRBuilder(written.append_basic_block())
    yield Emitter(builder, itemsize), *written.args
    if returns is None:
        builder.ret_void()


def call_at(builder: Any, address: int, returns: Any, arguments: Sequence[Any]) -> Any:
    """A call to the function at `address` in a `Library`."""
    module, name = builder.module, _names[address]
    if name not in module.globals:
        binding.add_symbol(name, address)
        ir.Function(module, ir.FunctionType(returns, [a.type for a in arguments]), name)
    return builder.call(module.get_global(name), arguments)


def separate(write: Callable[..., Any], returns: Any = None) -> Callable[..., Any]:
    """Turn `write(e, *arguments, **parameters)` into calls to a function in a separate module.

    `write`, at the top level of a Python module, writes the function's body, compiled once for each
    choice of its `parameters`. With a type `returns`, the function returns what `write` does.
    """

    @wraps(write)
    def call(e: Emitter, *arguments: Any, **parameters: Any) -> Any:
        kinds = tuple(argument.type for argument in arguments)
        library = _separate_library(write, e.precision.itemsize, kinds, returns, **parameters)
        address = library.address(write.__name__)
        return call_at(e.builder, address, returns or ir.VoidType(), arguments)

    return call


@compiled_once
def _separate_library(
    write: Callable[..., Any], itemsize: int, kinds: Sequence[Any], returns: Any, **parameters: Any
) -> "Library":
    module = ir.Module(write.__name__)
    with function(module, write.__name__, list(kinds), itemsize, returns) as (e, *arguments):
        value = write(e, *arguments, **parameters)
        if returns is not None:
            e.builder.ret(value)
    return Library(module)


class Library:
    """A compiled module, which lives on once the address of a function has been requested.

    Attributes:
        source: its IR.
        names: the names by which other modules call its functions, by their names here.
        calls: the libraries that it calls.
    """

    def __init__(self, module: Any) -> None:
        _prepare()
        self.source = source = str(module)
        self.calls = libraries_called(module)
        self.names = dict[str, str]()
        if folder := os.environ.get(_DUMP):
            Path(folder).mkdir(parents=True, exist_ok=True)
            Path(folder, f"{module.name}-{next(_numbers)}.ll").write_text(source, "utf-8")
        target = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
        machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine(
            *target, opt=3, jit=True
        )
        self._name = disk.digest(source, *target, *COMPILER)
        code = disk.cached(self._name, lambda: _compiled(source, machine))
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
        self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        address = int(self._engine.get_function_address(name))
        self.names[name] = _names[address] = f"{name}_{self._name}"
        _libraries[_names[address]] = self
        _used.add(self)
        return address

    def function(self, name: str, kinds: Sequence[Any], returns: Any = None) -> Callable[..., Any]:
        """A Python function that calls `name` with addresses and integers; any result is an int."""
        types = [native.ADDRESS if kind is POINTER else native.INT for kind in kinds]
        return native.function(self.address(name), types, returns and native.INT)


def libraries_called(module: Any) -> list[Library]:
    """The libraries that a module calls directly."""
    return [_libraries[name] for name in module.globals if name in _libraries]


def _compiled(source: str, machine: Any) -> bytes:
    return optimised(binding.parse_assembly(source), machine)


def optimised(parsed: Any, machine: Any) -> bytes:
    """The object file of a parsed module, for an LLVM target machine."""
    parsed.verify()
    options = binding.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_unrolling = False
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    return bytes(machine.emit_object(parsed))
