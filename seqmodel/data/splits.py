"""Assignment of works to splits, and its record in the manifest."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from seqmodel.media.definitions import Work

SPLITS = ("train", "valid", "test")

RULE = "source content"
"""What is hashed to choose a split. Older manifests have no rule: there the prepared frames were
hashed, so another grid could give another split."""

BY_TIME = "time: the first 80% of each piece, then 10%, then 10%, with gaps of 1%"
"""The rule if works are cut by time."""

SplitBy = Literal["piece", "time"]
Placed = Literal["folder", "content_hash", "time"]
"""By what a piece was placed in its split."""

ENOUGH_WORKS = 10
"""With at least so many works, a split left empty by the hash gets one; fewer are cut by time."""


def hash_split(digest: str) -> str:
    """The split of a work that no folder places: 80, 10 and 10 percent, by its content."""
    share = _share(digest)
    return "train" if share < 0.8 else "valid" if share < 0.9 else "test"


def _share(digest: str) -> float:
    return int(digest[:8], 16) / 16**8


class Part(NamedTuple):
    """Frames of a work that go to a split together."""

    split: str
    begin: int
    end: int


def parts_in_time(frames: int, context: int) -> list[Part]:
    """Cut a work of `frames` frames by time: the last tenth for test, the one before for valid.

    Between two parts a hundredth is left out, but at least the `context` frames that a model
    predicts from, so that no note or syllable is in both. A work too short for that goes to
    train.
    """
    gap = max(frames // 100, context)
    valid, test = frames * 8 // 10, frames * 9 // 10
    if test - valid <= gap:
        return [Part("train", 0, frames)]
    return [
        Part("train", 0, valid),
        Part("valid", valid + gap, test),
        Part("test", test + gap, frames),
    ]


@dataclass
class Tally:
    """Assigns each work to a split, counts its pieces and keeps a record of repairs."""

    by_time: bool = False
    """Whether works that no folder places are cut by time."""
    moves: Mapping[str, str] = field(default_factory=dict)
    """`Work.content` -> a split other than the one its hash gives, so that none is empty."""
    hashed: dict[str, str] = field(default_factory=dict)
    """`Work.content` -> the split its hash gives, of each work not placed otherwise."""

    by_content: dict[str, str] = field(default_factory=dict)
    """`Work.content` -> the split that first had it."""
    by_prepared: dict[str, str] = field(default_factory=dict)
    """`Work.prepared` -> the split that first had it."""
    by_piece: dict[str, str] = field(default_factory=dict)
    """A piece's hash -> the split that first had it."""
    placed: Counter[str] = field(default_factory=Counter)
    """How many pieces a folder, their content's hash or time placed."""
    moved: list[dict[str, str]] = field(default_factory=list)
    repeated: int = 0
    straddling: list[str] = field(default_factory=list)
    repaired: list[dict[str, Any]] = field(default_factory=list)

    def place(self, work: Work, folder: str | None) -> str:
        """The split of a work: its folder's, an equal work's, or the one its content's hash gives.

        Works are equal if their source content or their prepared frames are the same.
        """
        split = folder or self.by_content.get(work.content) or self.by_prepared.get(work.prepared)
        if split is None:
            split = self.hashed[work.content] = hash_split(work.content)
            if work.content in self.moves:
                split = self.moves[work.content]
                self.moved.append({"source": work.source, "to": split})
        self.by_content.setdefault(work.content, split)
        self.by_prepared.setdefault(work.prepared, split)
        return split

    def lacking(self) -> bool:
        """Whether all works were placed by their hash, and that leaves a split empty."""
        return not self.placed["folder"] and not set(SPLITS) <= set(self.hashed.values())

    def mended(self, split_by: SplitBy | None) -> "Tally":
        """A new tally, to fill empty splits in a second pass where they are `lacking`."""
        if split_by is None and len(self.hashed) < ENOUGH_WORKS:
            return Tally(by_time=True)
        return Tally(moves=dict(_moves(self.hashed)))

    def count(self, source: str, digest: str, split: str, by: Placed) -> None:
        """Count a piece that went to `split`, because of its folder, its time or its content."""
        self.placed[by] += 1
        if digest in self.by_piece:
            self.repeated += 1
            if self.by_piece[digest] != split:
                self.straddling.append(source)
        self.by_piece.setdefault(digest, split)

    def to_json(self) -> dict[str, Any]:
        """The manifest's record of splits, repeats and repairs."""
        return {
            "split_by": {by: self.placed[by] for by in get_args(Placed)[: 2 + self.by_time]},
            "split_rule": BY_TIME if self.by_time else RULE,
            **({"moved": self.moved} if self.moved else {}),
            "repeated_pieces": self.repeated,
            "also_in_another_split": self.straddling,
            "repaired": self.repaired,
        }


def _moves(hashed: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield works to move, by their content, each with the empty split that it goes to.

    Each comes from the split with most works: the one lowest by hash for train, else the highest.
    """
    works = {split: [c for c in hashed if hashed[c] == split] for split in SPLITS}
    for empty in SPLITS:
        most = max(works.values(), key=len)
        if not works[empty] and len(most) > 1:
            content = (min if empty == "train" else max)(most, key=_share)
            most.remove(content)
            works[empty].append(content)
            yield content, empty
