"""Which split a work goes to, and what the manifest says about that."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from seqmodel.media.definitions import Work

SPLITS = ("train", "valid", "test")

RULE = "source content"
"""What is hashed to choose a split. Manifests without a rule are older: there it was the prepared
frames, so another grid could give another split."""


def hash_split(digest: str) -> str:
    """The split of a work that no folder decides: 80, 10 and 10 percent, by its content."""
    share = int(digest[:8], 16) / 16**8
    return "train" if share < 0.8 else "valid" if share < 0.9 else "test"


@dataclass
class Tally:
    """Assigns each work to a split, counts its pieces and keeps a record of repairs."""

    by_content: dict[str, str] = field(default_factory=dict)
    """`Work.content` -> the split that first had it."""
    by_prepared: dict[str, str] = field(default_factory=dict)
    """`Work.prepared` likewise."""
    by_piece: dict[str, str] = field(default_factory=dict)
    """A piece's hash likewise."""
    from_folder: int = 0
    from_hash: int = 0
    repeated: int = 0
    straddling: list[str] = field(default_factory=list)
    repaired: list[dict[str, Any]] = field(default_factory=list)

    def place(self, work: Work, folder: str | None) -> str:
        """The split of a work: its folder's, that of an equal work, or that of its content's hash.

        Equal are works of the same source content and works whose prepared frames are the same.
        """
        split = (
            folder
            or self.by_content.get(work.content)
            or self.by_prepared.get(work.prepared)
            or hash_split(work.content)
        )
        self.by_content.setdefault(work.content, split)
        self.by_prepared.setdefault(work.prepared, split)
        return split

    def count(self, source: str, digest: str, split: str, *, by_folder: bool) -> None:
        """Count a piece that went to `split`, because of its folder or its content."""
        self.from_folder += by_folder
        self.from_hash += not by_folder
        if digest in self.by_piece:
            self.repeated += 1
            if self.by_piece[digest] != split:
                self.straddling.append(source)
        self.by_piece.setdefault(digest, split)

    def record_repairs(self, source: str, repairs: Sequence[str]) -> None:
        """Note what was repaired while reading a source, if anything."""
        if repairs:
            self.repaired.append({"source": source, "repairs": list(repairs)})

    def to_json(self) -> dict[str, Any]:
        """What the manifest says of splits, repeats and repairs."""
        return {
            "split_by": {"folder": self.from_folder, "content_hash": self.from_hash},
            "split_rule": RULE,
            "repeated_pieces": self.repeated,
            "also_in_another_split": self.straddling,
            "repaired": self.repaired,
        }
