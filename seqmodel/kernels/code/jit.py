"""From written instructions to running code: LLVM, through llvmlite, in this process.

The code is small and arrives nearly as the machine wants it, so that compiling takes a fraction of
a second, less than reading it safely from a cache would be worth. Nothing is kept on disk.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from llvmlite import binding, ir

from seqmodel.kernels.code.emit import Emitter

P = ParamSpec("P")
R = TypeVar("R")

_ready = False
_lock = threading.RLock()


def _prepare() -> None:
    global _ready  # noqa: PLW0603  (LLVM is prepared once a process)
    if not _ready:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        _ready = True


def compiled_once(compile_it: Callable[P, R]) -> Callable[P, R]:
    """Keep what `compile_it` returns, by its arguments, for good.

    One thread at a time: code that another module already calls must never be the copy thrown away.
    """
    kept = cache(compile_it)

    @wraps(compile_it)
    def find(*args: P.args, **kwargs: P.kwargs) -> R:
        with _lock:
            return kept(*args, **kwargs)  # type: ignore[arg-type]

    return find


@contextmanager
def function(module: Any, name: str, kinds: list[Any], itemsize: int) -> Iterator[Any]:
    """An emitter into the body of a new function `name`, with its arguments: (emitter, *args)."""
    made = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    builder = ir.IRBuilder(made.append_basic_block())
    yield Emitter(builder, itemsize), *made.args
    builder.ret_void()


class Library:
    """A compiled module. It must outlive every use of its functions' addresses."""

    def __init__(self, module: Any) -> None:
        _prepare()
        parsed = binding.parse_assembly(str(module))
        parsed.verify()
        machine = binding.Target.from_triple(binding.get_process_triple()).create_target_machine(
            cpu=binding.get_host_cpu_name(),
            features=binding.get_host_cpu_features().flatten(),
            opt=3,
            jit=True,
        )
        options = binding.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.slp_vectorization = False
        options.loop_unrolling = False
        builder = binding.create_pass_builder(machine, options)
        builder.getModulePassManager().run(parsed, builder)
        self._parsed = parsed
        self._engine = binding.create_mcjit_compiler(parsed, machine)
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Where the function's code begins."""
        return int(self._engine.get_function_address(name))
