"""A third medium, letters of DNA, in one file; otherwise as it would be in its own folder."""

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from seqmodel.errors import SourceError
from seqmodel.media.definitions import FrameDefinition, Medium, Work
from seqmodel.media.samples import Sampling, Written

LETTERS = "ACGT"


@dataclass(frozen=True)
class Letters(FrameDefinition):
    """A frame: which of four letters comes next, stored as its number from 1; 0 is none."""

    medium: ClassVar[str] = "dna"
    values: ClassVar[str] = "binary"
    frame_size: ClassVar[int] = 4
    row_dtype: ClassVar[Any] = np.dtype("u1")
    row_shape: ClassVar[tuple[int, ...]] = ()
    fingerprint: ClassVar[bytes] = b"dna"
    variants = range(2)
    labels = ("strand as written",)

    def decode(self, rows):
        return np.eye(5, dtype=np.uint8)[rows][:, 1:]

    def encode(self, values):
        return (values @ np.arange(1, 5)).astype(self.row_dtype)

    def canonical(self, rows):
        return rows.tobytes()

    def vary(self, rows, variant):
        return np.where(rows, 5 - rows, 0) if variant else rows  # A for T, C for G

    def to_json(self):
        return {}

    def __str__(self):
        return f"letters, {self.labels[0]}"


class Sequences:
    """One sequence per file."""

    facts: ClassVar = {"alphabet": LETTERS}

    def __init__(self, frame):
        self.frame = frame

    def read(self, path):
        return None

    def works(self, path, read=None):
        text = path.read_text().strip().upper()
        if not text or set(text) - set(LETTERS):
            raise SourceError("holds other letters than A, C, G and T")
        rows = np.array([1 + LETTERS.index(letter) for letter in text], np.uint8)
        content = hashlib.sha256(rows.tobytes()).hexdigest()
        pieces, facts = [(str(path), len(rows))], {"guanine": int((rows == 3).sum())}
        yield Work(
            str(path), content, content, None, pieces, lambda begin, end: [rows[begin:end]], facts
        )


class Copying(Sampling):
    """Writes the letters as text."""

    length = 12
    primer = np.empty((0, 4), np.uint8)
    remarks = ()

    def write(self, file, chunks, progress):
        letters = "".join(LETTERS[k] for chunk in chunks for k in chunk.argmax(axis=1))
        file.write(letters.encode())
        progress(len(letters), self.length)
        return Written(f"{len(letters)} letters")


class Dna(Medium):
    """The medium."""

    name = "dna"
    suffixes = frozenset({".dna"})
    file_kinds = "sequences (.dna)"
    presets: ClassVar = {"default": {"dropout": 0.1}}
    paper_hidden: ClassVar = {}
    paper_params = 1000
    prepare_options = ()
    formats = ("dna",)
    default_length = "12 of DNA"

    def frame_from_json(self, values):
        return Letters(**values)

    def settings(self, options):
        return Letters()

    def corpus(self, settings, paths, folder):
        return Sequences(settings)

    def baselines(self, train, valid, frame, *, discrete):
        shares = train.totals() / train.frames
        return {"marginal": float(-(valid.totals() * np.log(shares)).sum() / valid.frames)}

    def kind_of_file(self, path):
        return "sequence" if path.suffix == ".dna" else None

    def sampling(self, frame, request):
        return Copying()


DNA = Dna()
