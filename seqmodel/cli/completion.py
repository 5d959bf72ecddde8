"""Shell completion beyond options and paths: names of units, outputs, presets, ..."""

from collections.abc import Callable, Iterable

# Repeated here because importing the module that defines them would load torch.
DEVICES = ("auto", "cpu", "cuda")

Completion = Callable[[str], list[str]]


def one_of(names: Iterable[str]) -> Completion:
    """A completion for one of `names`."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def several_of(names: Iterable[str]) -> Completion:
    """A completion for the last of several comma-separated `names`."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(last)]

    return complete
