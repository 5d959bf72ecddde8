"""Where `seqmodel sample` writes its pieces: to files or to stdout."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from seqmodel.errors import UsageError


@dataclass(frozen=True)
class Targets:
    """The paths of pieces, OUT or out-1.mid, ...; UsageError if several are to go to stdout."""

    out: Path
    number: int

    def __post_init__(self) -> None:
        if self.to_stdout and self.number > 1:
            raise UsageError("-n above 1 needs a file name, not stdout")

    @property
    def to_stdout(self) -> bool:
        """Whether OUT was `-`."""
        return str(self.out) == "-"

    def __iter__(self) -> Iterator[Path]:
        if self.number == 1:
            return iter([self.out])
        numbers = range(1, self.number + 1)
        return (self.out.with_name(f"{self.out.stem}-{k}{self.out.suffix}") for k in numbers)

    @contextmanager
    def opened(self, target: Path) -> Iterator[BinaryIO]:
        """Yield what `target` is written to: stdout, or a file that appears once it is complete."""
        if not self.to_stdout:
            from seqmodel.files import new_file

            with new_file(target) as file:
                yield file
            return
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
