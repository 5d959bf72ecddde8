"""`notes_below` in compiled code, note by note."""

from typing import Any

from llvmlite import ir

from seqmodel.kernels.code.emit import Emitter
from seqmodel.outputs.notes.below import REACH

WORK = 4 * REACH + 1
"""The numbers that `NotesBelow` keeps, beyond 2 D."""


class NotesBelow:
    """A frame's notes so far after 12 zeros, their counts per pitch class, and in all.

    The counts per class are stored twice in a row, so that those from any class on are contiguous.
    With `onsets` the struck notes so far follow, also after 12 zeros.
    """

    def __init__(self, e: Emitter, work: Any, D: Any, *, onsets: bool) -> None:
        """`work` holds 2 D + WORK numbers."""
        self._e, self._line = e, work
        self._classes = e.offset(work, D, REACH)
        self._count = e.offset(work, D, 3 * REACH)
        self._struck = e.offset(work, D, 3 * REACH + 1) if onsets else None
        e.clear(work, e.add(D, 3 * REACH + 1))
        if self._struck is not None:
            e.clear(self._struck, e.add(D, REACH))

    def write(self, n: Any, to: Any) -> None:
        """Write the inputs of note `n` to `to`."""
        e, b = self._e, self._e.builder
        e.copy(e.offset(self._line, n), to, e.int(REACH))
        e.copy(self._class(n), e.offset(to, REACH), e.int(REACH))
        share = b.fdiv(b.load(self._count, typ=e.real), ir.Constant(e.real, REACH))
        b.store(share, e.offset(to, 2 * REACH))
        if self._struck is not None:
            e.copy(e.offset(self._struck, n), e.offset(to, 2 * REACH + 1), e.int(REACH))

    def add(self, n: Any, note: Any, struck: Any = None) -> None:
        """Add note `n`: whether it sounds and, with onsets, whether it is struck, 0 or 1."""
        e, b = self._e, self._e.builder
        b.store(note, e.offset(self._line, n, REACH))
        for place in (self._count, self._class(n), e.offset(self._class(n), REACH)):
            b.store(b.fadd(b.load(place, typ=e.real), note), place)
        if self._struck is not None:
            b.store(struck, e.offset(self._struck, n, REACH))

    def _class(self, n: Any) -> Any:
        return self._e.offset(self._classes, self._e.builder.srem(n, self._e.int(REACH)))
