"""The lines of a unit's text: tokens, and errors that show the place."""

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from seqmodel.errors import SeqmodelError

_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<comment>#.*)|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"|(?P<name>[A-Za-z][A-Za-z0-9_]*|[σφ])|(?P<sign>\(\.\)|[-+*/=()'⊙∘·′’−])"  # noqa: RUF001
)
_PLAIN = {  # the signs of papers
    "σ": "s", "φ": "phi", "⊙": "(.)", "∘": "(.)", "·": "(.)", "′": "'", "’": "'", "−": "-",  # noqa: RUF001
}  # fmt: skip


_ONE = "functions have one argument; max(a, b) is a + relu(b - a), and min(a, b) is a - relu(a - b)"
_GATE = "nothing is compared; what chooses is a gate, as in z (.) a + (1 - z) (.) b"
_BRACKET = "the previous h is h', and products are added, as in W x + U h'"
_SUM = "nothing is summed over the H numbers but by a matrix U"
INSTEAD = {
    ",": _ONE, "max": _ONE, "min": _ONE, "^": "the square of a is a (.) a",
    "<": _GATE, ">": _GATE, "if": _GATE, "where": _GATE, "[": _BRACKET, "{": _BRACKET,
    "@": "a matrix stands before its factor, as in W x", "|": "|a| is relu(a) + relu(-a)",
    "abs": "abs(a) is relu(a) + relu(-a)", "silu": "silu(a) is a (.) sigmoid(a)",
    "softmax": _SUM, "sum": _SUM, "mean": _SUM, "norm": _SUM,
}  # fmt: skip
"""What other languages have -> how it is written in this one, or that it cannot be."""


class UnitError(SeqmodelError):
    """A text defines no unit; the lines below the message show the place."""

    def __init__(self, message: str, *shown: str) -> None:
        super().__init__(message)
        self.shown = shown


class Token(NamedTuple):
    """A word of a line; `kind` is number, name, sign or end, `column` counts from 0."""

    kind: str
    text: str
    column: int


class Lines:
    """The lines of a text, which errors call `called`."""

    def __init__(self, text: str, called: str) -> None:
        self.called, self.lines = called, text.splitlines()

    def tokens(self, number: int) -> Iterator[Token]:
        """The tokens of a line, in the plain spelling, and its end.

        Raises:
            UnitError: at a character that begins none.
        """
        line, at = self.lines[number - 1], 0
        while at < len(line):
            found = _TOKEN.match(line, at)
            if found is None:
                self.fail(number, at, f"unexpected {line[at]!r}", INSTEAD.get(line[at]))
            kind = str(found.lastgroup)
            if kind not in ("space", "comment"):
                yield Token(kind, _PLAIN.get(found[0], found[0]), at)
            at = found.end()
        yield Token("end", "the end of the line", len(line))

    def fail(self, number: int, column: int, message: str, why: str | None = None) -> NoReturn:
        """Raise UnitError for a place; lines count from 1, columns from 0."""
        message += f": {why}" if why else ""
        first = max(0, column - 60)
        part = self.lines[number - 1].replace("\t", " ")[first : first + 90]
        caret = " " * (column - first) + "^"
        raise UnitError(f"{self.called}:{number}: {message}", f"    {part}", f"    {caret}")


def plain(line: str) -> str:
    """The line without comment, in the plain spelling."""
    return "".join(_PLAIN.get(sign, sign) for sign in line.partition("#")[0]).strip()
