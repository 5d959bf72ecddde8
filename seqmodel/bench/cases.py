"""What can be measured: the parts of the report, and the sizes that units are measured at."""

from dataclasses import dataclass

from seqmodel.errors import UsageError
from seqmodel.units import UnitSpec

PARTS = ("machine", "units", "piano-rolls", "training", "sampling", "tied")


@dataclass(frozen=True)
class Size:
    """`hidden` (H) units over `inputs` (I), on a batch (B) of sequences of `frames` (T) each."""

    name: str
    inputs: int
    hidden: int
    batch: int
    frames: int
    hidden_with_cell: int | None = None
    """H of units with a cell, where it differs because they have more gates."""

    def hidden_of(self, spec: UnitSpec) -> int:
        """H for this unit."""
        return self.hidden_with_cell if self.hidden_with_cell and "c" in spec.state else self.hidden


SIZES = (
    Size("paper", 88, 46, 16, 200, hidden_with_cell=36),
    Size("music-100", 88, 100, 16, 200),
    Size("speech", 20, 195, 32, 500),
    Size("h256", 88, 256, 32, 200),
    Size("h512", 88, 512, 32, 200),
    Size("one-row", 88, 46, 1, 200),
)


def find_size(name: str) -> Size:
    """The size called `name`; UsageError lists the choices."""
    for size in SIZES:
        if size.name == name:
            return size
    names = ", ".join(size.name for size in SIZES)
    raise UsageError(f"there is no size {name!r}; choose one of {names}")


def check_part(name: str) -> str:
    """The name itself if it is a part; UsageError lists the choices."""
    if name not in PARTS:
        raise UsageError(f"there is no part {name!r}; choose one of {', '.join(PARTS)}")
    return name
