"""Units that are the user's own torch module, named `package.module:Class`.

    class Mine(nn.Module):
        def __init__(self, input_size: int, hidden_size: int): ...
        def zero_state(self, batch_size: int): ...      # a tensor (B, ...), or a tuple of them,
                                                        # as made by weight.new_zeros(B, ...)
        def forward(self, x, state): ...                # x (T, B, I) -> h (T, B, H), state

The module runs unchanged, over rows of equal length; `check_module` finds what makes likelihoods
wrong, such as an h that depends on later frames.
"""

import inspect
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch
from torch import Tensor, nn

from seqmodel.errors import UsageError
from seqmodel.units import check_device
from seqmodel.units.definition import state_of
from seqmodel.units.module import Layer, UnitState, checked_lengths

TORCH = f"{Path(torch.__file__).parent}{os.sep}"
T, B = 128, 3
"""The frames and rows of a check, which finds effects over at most half of these frames."""


class ModuleUnit(Layer):
    """One layer that is a user's module."""

    module: Any

    def __init__(self, name: str, input_size: int, hidden_size: int) -> None:
        """UsageError if there is no such class, or it cannot be built with these sizes."""
        super().__init__()
        self.name, self.input_size, self.hidden_size = name, input_size, hidden_size
        kind = find_class(name)
        if not callable(getattr(kind, "zero_state", None)):
            raise UsageError(f"{name} has no method zero_state(batch_size)")
        with _user_code(name, "__init__(self, input_size, hidden_size)"), warnings.catch_warnings():
            # The search for a size tries 1, at which parts of a module may have no weights.
            warnings.filterwarnings("ignore", "Initializing zero-element tensors")
            self.module = kind(input_size, hidden_size)
        self._single = isinstance(self._start(1), Tensor)

    def noisy_weights(self) -> list[Tensor]:
        return [weight for weight in self.parameters() if weight.dim() > 1]

    def choose_device(self, option: str, batch_size: int) -> torch.device:
        """With `auto`, a GPU if there is one."""
        if check_device(option) == "auto":
            option = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(option)

    def zero_state(self, batch_size: int) -> UnitState:
        """The module's initial state, as a named tuple."""
        return self._as_state(self._start(batch_size))

    def _start(self, batch_size: int) -> Any:
        with _user_code(self.name, "zero_state(self, batch_size)"):
            return self.module.zero_state(batch_size)

    def over(
        self, x: Tensor, state: UnitState | None = None, lengths: Any = None
    ) -> tuple[Tensor, UnitState]:
        """Like `Unit.over`. The module runs over stretches in which no row ends."""
        frames, rows, _ = x.shape
        state = self.zero_state(rows) if state is None else state
        lengths = checked_lengths(lengths, frames, rows)
        if lengths is None:
            return self._run(x, state)
        outputs, begin = [], 0
        for end in sorted({*lengths.tolist()} - {0}):
            running = (lengths >= end).nonzero()[:, 0].to(x.device)
            states = type(state)(*(tensor.index_select(0, running) for tensor in state))
            h, after = self._run(x[begin:end].index_select(1, running), states)
            outputs.append(h.new_zeros(end - begin, rows, h.shape[2]).index_copy(1, running, h))
            both = zip(state, after, strict=True)
            state = type(state)(*(old.index_copy(0, running, new) for old, new in both))
            begin = end
        outputs.append(x.new_zeros(frames - begin, rows, self.hidden_size))
        return torch.cat(outputs), state

    def _run(self, x: Tensor, state: UnitState) -> tuple[Tensor, UnitState]:
        with _user_code(self.name, "forward(self, x, state), which returns h and a state"):
            h, after = self.module(x, state[0] if self._single else tuple(state))
        return h, self._as_state(after)

    def _as_state(self, state: Any) -> UnitState:
        tensors = (state,) if isinstance(state, Tensor) else state
        fits = isinstance(tensors, tuple | list)
        if not fits or not all(isinstance(tensor, Tensor) for tensor in tensors):
            given = type(state).__name__
            raise UsageError(f"{self.name}: a state is a tensor or a tuple of them, not a {given}")
        return state_of(tuple(f"state{k}" for k in range(len(tensors))), tuple(tensors))

    def extra_repr(self) -> str:
        return f"{self.name}, {self.input_size} -> {self.hidden_size}"


def find_class(name: str) -> Any:
    """The class of `package.module:Class`, which may be in the working directory.

    Raises:
        UsageError: if there is none, or it is not a torch module.
    """
    module, _, path = name.partition(":")
    if module.endswith(".py"):
        raise UsageError(f"{name}: write {module.removesuffix('.py')}:{path}, without .py")
    working_folder = str(Path.cwd())
    sys.path.append(working_folder)  # last, so that a file there cannot take the place of a library
    try:
        with _user_code(name):
            found: Any = import_module(module)
    finally:
        sys.path.remove(working_folder)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise UsageError(f"{name}: {module} has no class {path} that is a torch.nn.Module")
    return found


@contextmanager
def _user_code(name: str, wanted: str = "") -> Iterator[None]:
    """Report any error of the user's code in one line that shows the place.

    If none of that code has run, the class lacks the `wanted` method or defines it differently.
    """
    try:
        yield
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        first, *_ = str(error).splitlines() or [""]
        message = f"{name}: {type(error).__name__}: {first}"
        frames = extract_tb(error.__traceback__)
        user = [frame for frame in frames if not frame.filename.startswith((__file__, TORCH))]
        if not user:
            message += f"; {Path(inspect.getfile(find_class(name))).name} must have {wanted}"
        elif not isinstance(error, SyntaxError | ModuleNotFoundError):
            message += f" ({Path(user[-1].filename).name}, line {user[-1].lineno})"
        raise UsageError(message) from error


@cache
def check_module(name: str, input_size: int, hidden_size: int) -> None:
    """Run the module over a few random frames, in float64 as sampling does, without dropout.

    Raises:
        UsageError: if a shape is wrong, h or a gradient is not finite, or h depends on later
            frames, on other rows, or on where a sequence is cut into windows.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(0)
        unit = ModuleUnit(name, input_size, hidden_size)
        if not unit.parameter_count():
            raise UsageError(f"{name} has no parameters to learn")
        unit = unit.double().eval()
        x = torch.randn(T, B, input_size, dtype=torch.float64)
        start = unit.zero_state(B)
        kinds = {tensor.dtype for tensor in start if tensor.is_floating_point()}
        if kinds - {torch.float64}:
            raise UsageError(
                f"{name}: zero_state must be in the weights' dtype and on their device, as "
                "self.weight.new_zeros(...) makes it"
            )
        h, after = unit(x, start)
        _check_shapes(unit, h, start, after)
        _check_gradients(unit, h)
        with torch.no_grad():
            _check_dependences(unit, x, start, h, after)


def _check_shapes(unit: ModuleUnit, h: Tensor, start: UnitState, after: UnitState) -> None:
    wanted = T, B, unit.hidden_size
    if not isinstance(h, Tensor) or h.shape != wanted:
        shape = tuple(h.shape) if isinstance(h, Tensor) else type(h).__name__
        raise UsageError(f"{unit.name}: h must be (T, B, H) = {wanted}, not {shape}")
    shapes = [[tuple(tensor.shape) for tensor in state] for state in (start, after)]
    if any(shape[:1] != (B,) for shape in shapes[0]):
        raise UsageError(f"{unit.name}: a state must be (B, ...), here with B = {B}: {shapes[0]}")
    if shapes[0] != shapes[1]:
        raise UsageError(
            f"{unit.name}: the state changes its shape, from {shapes[0]} to {shapes[1]}: a window "
            f"of the past needs a fixed size"
        )
    dtypes = [[tensor.dtype for tensor in state] for state in (start, after)]
    if dtypes[0] != dtypes[1]:
        raise UsageError(
            f"{unit.name}: the state changes its dtype, from {dtypes[0]} to {dtypes[1]}"
        )
    if not torch.isfinite(h).all():
        raise UsageError(f"{unit.name}: h is not finite at first")


def _check_gradients(unit: ModuleUnit, h: Tensor) -> None:
    if not h.requires_grad:
        raise UsageError(f"{unit.name}: no parameter has an effect on h")
    h.sum().backward()  # type: ignore[no-untyped-call]
    for name, weight in unit.module.named_parameters():
        if weight.grad is not None and not torch.isfinite(weight.grad).all():
            raise UsageError(f"{unit.name}: the gradient of {name} is not finite at first")


def _check_dependences(
    unit: ModuleUnit, x: Tensor, start: UnitState, h: Tensor, after: UnitState
) -> None:
    """Check that h depends only on the row's frames so far, and the state holds all of the past."""

    def check(same: bool, what: str) -> None:
        if not same:
            raise UsageError(f"{unit.name}: h {what}, so likelihoods would be wrong")

    def alike(ours: Tensor, theirs: Tensor) -> bool:
        return torch.allclose(ours, theirs, rtol=1e-6, atol=1e-9)

    if not alike(unit(x, start)[0], h):
        raise UsageError(
            f"{unit.name}: the same input gives another h: in evaluation nothing may be random, or "
            "kept elsewhere than in the state"
        )
    half = T // 2
    other = x.clone()
    other[half:] += 1
    check(alike(unit(other, start)[0][:half], h[:half]), "depends on later frames")
    first, between = unit(x[:half], start)
    second, end = unit(x[half:], between)
    whole = alike(torch.cat([first, second]), h) and all(map(alike, end, after))
    check(whole, "depends on where a sequence is cut: state must hold all that it remembers")
    one = type(start)(*(tensor[:1] for tensor in start))
    check(alike(unit(x[:, :1], one)[0], h[:, :1]), "of a row depends on other rows")
