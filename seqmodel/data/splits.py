"""Which split a piece goes to, and what the manifest tells of that."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


def hash_split(digest: str) -> str:
    """The split of a piece whose folder names none: 80, 10 and 10 percent, by its content alone."""
    share = int(digest[:8], 16) / 16**8
    return "train" if share < 0.8 else "valid" if share < 0.9 else "test"


@dataclass
class Tally:
    """Places each recording in a split, counts its pieces, and keeps what was forgiven.

    A recording is what a file holds of one performance: a piece, or several where it was cut.
    """

    split_of: dict[str, str] = field(default_factory=dict)
    """Content hash of a recording -> the split that first had it."""
    split_of_piece: dict[str, str] = field(default_factory=dict)
    """The same of its pieces."""
    by_folder: int = 0
    by_hash: int = 0
    repeated: int = 0
    straddling: list[str] = field(default_factory=list)
    repaired: list[dict[str, Any]] = field(default_factory=list)

    def place(self, digest: str, folder: str | None) -> str:
        """The split for a recording of this content: its folder's, its twin's, else its hash's."""
        split = folder or self.split_of.get(digest) or hash_split(digest)
        self.split_of.setdefault(digest, split)
        return split

    def count(self, source: str, digest: str, split: str, *, by_folder: bool) -> None:
        """Take note of a piece that went to `split`, its folder's or that of its content."""
        self.by_folder += by_folder
        self.by_hash += not by_folder
        if digest in self.split_of_piece:
            self.repeated += 1
            if self.split_of_piece[digest] != split:
                self.straddling.append(source)
        self.split_of_piece.setdefault(digest, split)

    def forgive(self, source: str, repairs: Sequence[str]) -> None:
        """Take note of what the reader forgave in a file, if anything."""
        if repairs:
            self.repaired.append({"source": source, "repairs": list(repairs)})

    def to_json(self) -> dict[str, Any]:
        """What the manifest says of splits, repeats and repairs."""
        return {
            "split_by": {"folder": self.by_folder, "content_hash": self.by_hash},
            "repeated_pieces": self.repeated,
            "also_in_another_split": self.straddling,
            "repaired": self.repaired,
        }
