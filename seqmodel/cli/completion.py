"""What the shell can complete beside options and paths: names of units, outputs, presets, ..."""

from collections.abc import Callable, Iterable

# Kept here since torch would be loaded with those who own them.
GATE_ACTIVATIONS = ("sigmoid", "hard-sigmoid")
ACTIVATIONS = ("tanh", "sigmoid", "relu")
BACKENDS = ("auto", "cpu", "torch-nn", "reference")
DEVICES = ("auto", "cpu", "cuda")

Completion = Callable[[str], list[str]]


def one_of(names: Iterable[str]) -> Completion:
    """Completes one of `names`."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def several_of(names: Iterable[str]) -> Completion:
    """Completes the last of several `names` with commas between them."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(last)]

    return complete
