"""What `seqmodel sample` was asked for, whatever the medium, and where its pieces go."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from seqmodel.cli.common import message
from seqmodel.errors import SeqmodelError

DEFAULT_LENGTH = 256
"""Frames of music."""
DEFAULT_SECONDS = 2.0
"""Of audio."""
DEFAULT_TEMPO = 120.0


@dataclass(frozen=True)
class Request:
    """The options of one call."""

    out: Path
    kind: str
    """The format, such as "mid" or "wav"."""
    number: int
    length: int | None
    """In frames."""
    seconds: float | None
    seed: int
    temperature: float
    prime: Path | None
    include_prime: bool
    tempo: float | None
    """Beats per minute."""
    quiet: bool

    @property
    def to_stdout(self) -> bool:
        """Whether OUT was `-`."""
        return str(self.out) == "-"

    @property
    def targets(self) -> list[Path]:
        """A place for each piece: OUT, or out-1.mid, out-2.mid, ..."""
        if self.number == 1:
            return [self.out]
        numbers = range(1, self.number + 1)
        return [self.out.with_name(f"{self.out.stem}-{k}{self.out.suffix}") for k in numbers]

    @contextmanager
    def opened(self, target: Path) -> Iterator[BinaryIO]:
        """Yield what is written to `target`: stdout, or a file that is there in the end, whole."""
        if not self.to_stdout:
            from seqmodel.files import new_file

            with new_file(target) as file:
                yield file
            return
        if sys.stdout is None:  # as after >&-
            raise SeqmodelError("cannot write to stdout: it is closed")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()

    def say(self, text: str) -> None:
        """Say one line of a piece that was written to a file."""
        message(text, quiet=self.quiet or self.to_stdout)
