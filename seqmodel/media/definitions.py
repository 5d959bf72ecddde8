"""The protocols that every medium implements for the rest of the program.

A medium turns files into frames and frames into files. Higher layers see only these protocols;
`registry.py` lists the media. Importing this module, the registry or a medium does not load NumPy,
so that `seqmodel --help` can list their options without it.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeAlias, get_args

from seqmodel.errors import UsageError
from seqmodel.media.labels import KnownLabels, labels_of
from seqmodel.media.samples import Picture, SampleRequest, Sampling, shares, total_variation
from seqmodel.plain import Fields

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from seqmodel.config import Config
    from seqmodel.media.marks import Levels


@dataclass(frozen=True)
class Option:
    """A command-line option that only some media have; its value is None if not given."""

    name: str
    """As a Python name: "clip_seconds" for --clip-seconds."""
    help: str
    kind: type = str
    """int, float, str, Path, or bool for a flag."""
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    negated: bool = False
    """For a flag: whether `no_flag` sets it to False."""

    @property
    def flag(self) -> str:
        """As typed: "--clip-seconds"."""
        return "--" + self.name.replace("_", "-")

    @property
    def no_flag(self) -> str:
        """As typed: "--no-onsets"."""
        return self.flag.replace("--", "--no-", 1)


SplitName = Literal["train", "valid", "test"]
SPLITS: tuple[str, ...] = get_args(SplitName)
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev"), "valid"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""What folders and files call them, in lower case."""

# ---- what is stored -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """One line of a split's index."""

    source: str
    """The file as the user named it, and "#split/index" if it holds several pieces."""
    sha256: str
    """Hash of the piece's frames in canonical form (`FrameDefinition.canonical`)."""
    frames: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Anything else that the medium records about a piece, such as a transposition."""

    def to_json(self) -> dict[str, Any]:
        values = {"source": self.source, "sha256": self.sha256, "frames": self.frames}
        return {**values, **self.facts}

    @classmethod
    def from_json(cls, values: Any) -> "Piece":
        """The inverse of `to_json`; ValueError names the invalid field."""
        fields = Fields.of(values)
        source, digest = fields.text("source"), fields.text("sha256")
        frames = fields.integer("frames", 1)
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise ValueError("sha256 must be 64 hexadecimal digits")
        core_fields = ("source", "sha256", "frames")
        facts = {name: value for name, value in values.items() if name not in core_fields}
        labels_of(facts)
        return cls(source, digest, frames, facts)


@dataclass(frozen=True)
class Work:
    """One performance, as found in a file: one piece, or several if it was cut into clips.

    All of its pieces go to the same split.
    """

    source: str
    content_hash: str
    """SHA-256 of the source's content, independent of `prepare`'s options: it decides the split."""
    frames_hash: str
    """SHA-256 of the prepared frames: equal works share a split even if their sources differ."""
    split: str | None
    """The split named inside the file, if any."""
    pieces: Sequence[tuple[str, int]]
    """The name of each piece, and its length in frames."""
    rows: "Callable[[int, int], Iterable[NDArray[Any]]]"
    """The stored rows of its frames from `begin` to `end`, in blocks of whole frames, until the
    next work is requested."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """`Piece.facts` of all of its pieces."""
    repairs: Sequence[str] = ()
    """What was wrong with the source and how it was read anyway."""
    on_train_rows: "Callable[[NDArray[Any]], None]" = lambda rows: None
    """Called with its rows that go to train, in blocks, for statistics such as the mean."""

    @property
    def frames(self) -> int:
        """The total number of all pieces."""
        return sum(frames for _, frames in self.pieces)


class Corpus(Protocol):
    """The sources of one dataset while it is being prepared."""

    read_types: tuple[type, ...] = ()
    """The class of what `read` returns, then those of what that holds."""

    @property
    def read_by(self) -> str | None:
        """What `read` goes by besides a file's bytes; None: do not cache its results."""
        return None

    @property
    def frame(self) -> "FrameDefinition":
        """How frames are stored, with the statistics of the works placed in train so far."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Additional keys for the manifest."""

    def read(self, path: Path) -> Any:
        """What can be read of a file independently, to be pickled; None: leave it to `works`.

        Any process may call it, for any number of files before `works` gets to them. SourceError
        says why the file cannot be used.
        """

    def works(self, path: Path, read: Any = None) -> Iterator[Work]:
        """The works of one file in order, given what was `read`; SourceError as there."""


# ---- what is read -------------------------------------------------------------------------------


class FrameDefinition(Protocol):
    """What a frame is: stored in each manifest and checkpoint, and all that a model needs to know.

    The defaults are for frames that are read unchanged, one row each.
    """

    medium: ClassVar[str]
    """The name of the frames' medium, as looked up by `registry.medium_of`."""
    onsets: bool = False
    """Whether a frame's first half says which notes sound and its second which begin."""
    marks: Mapping[str, "Levels"] = MappingProxyType({})
    """The levels in train of the notes' stored marks, a subset of `marks.MARKS` in order."""
    drum_keys: Mapping[int, int] = MappingProxyType({})
    """How often drums that are parts hit each row in train, by the MIDI number of its key."""
    known_labels: KnownLabels = MappingProxyType({})
    """The labels of pieces that models can be conditioned on; the same for all kinds of frames."""
    rate: int = 0
    """Samples per second; 0 if the values are not samples."""
    longest_pause: int | None = None
    """Samples that 99 % of the pauses in train do not exceed; None if unknown, or without any."""
    mean: float = 0.0
    """The mean of all values in the training split; 0 if frames are not standardised."""
    deviation: float = 1.0
    """Their standard deviation; 1 if frames are not standardised."""

    @property
    def kind(self) -> str:
        """A name for these frames, such as the medium's."""
        return self.medium

    @property
    def drum_parts(self) -> Sequence[int]:
        """Which of the parts, from 0 on, are drums, if `drum_keys` are known."""
        return ()

    @property
    def longest_hold(self) -> int | None:
        """How many frames a chord may last; None if unknown, or if there are no chords."""
        return None

    @property
    def variants(self) -> range:
        """The variants that `vary` accepts, for augmentation; empty if there are none."""
        return range(0)

    @property
    def context(self) -> int:
        """C, the number of preceding values that a model reads; by default the previous frame."""
        return self.frame_size

    @property
    def values(self) -> Literal["binary", "samples", "levels"]:
        """Zeros and ones, real numbers in [-1, 1), or a few of them; decides which outputs fit."""

    @property
    def frame_size(self) -> int:
        """F, the number of values in a frame."""

    @property
    def marked_size(self) -> int:
        """F plus, if there are marks, those of each note: the size of what is drawn and written."""
        return self.frame_size

    @property
    def row_dtype(self) -> "np.dtype[Any]":
        """The platform-independent type of a stored row."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of a stored row."""

    @property
    def rows_per_frame(self) -> int:
        """Stored rows per frame."""
        return 1

    @property
    def labels(self) -> Sequence[str]:
        """Everything that determines what frames mean, a phrase each, always in the same order."""

    @property
    def layout_options(self) -> str:
        """The options of `prepare` that produce frames of this size; "" if there are none."""
        return ""

    @property
    def fingerprint(self) -> bytes:
        """What distinguishes datasets beyond the hashes of their pieces."""

    def decode(self, rows: "NDArray[Any]") -> "NDArray[Any]":
        """Stored rows (T * rows_per_frame, *row_shape) as frames (T, F).

        Rows of zeros, with which batches are padded, become zeros or the nearest level.
        """

    def marks_of(self, rows: "NDArray[Any]") -> "Mapping[str, NDArray[np.uint8]]":
        """For each of `marks` (T, D), the number of each sounding note; 0 if unknown."""
        return {}

    def decode_marked(self, rows: "NDArray[Any]") -> "NDArray[Any]":
        """Stored rows (T, `marked_size`) in the form in which pieces are drawn and written."""
        return self.decode(rows)

    def encode(self, values: "NDArray[Any]") -> "NDArray[Any]":
        """The inverse of `decode`."""

    def canonical(self, rows: "NDArray[Any]") -> bytes:
        """Stored rows as the bytes that are hashed, independent of how they are stored."""

    def cut(self, rows: "NDArray[Any]") -> "NDArray[Any]":
        """Adjust the stored rows of an excerpt's first frame so that they can begin a piece."""
        return rows

    def vary(self, rows: "NDArray[Any]", variant: int) -> "NDArray[Any]":
        """Stored rows transposed or the like; `variant` is one of `variants`."""
        return rows

    def metres(self, facts: Mapping[str, Any]) -> "NDArray[np.int64] | None":
        """(G,) a piece's metres as integers, from `Piece.facts`; None if the medium has none.

        The usual one in train if none is stated; ValueError for facts `prepare` never writes.
        """
        return None

    def facts_from(self, facts: Mapping[str, Any], begin: int, end: int) -> Mapping[str, Any]:
        """A piece's facts as they apply to its frames from `begin` to `end`."""
        return facts

    def duration(self, frames: int) -> str | None:
        """How long `frames` frames last, such as "61.1 s"; None if unknown."""
        return None

    def standardisation(self) -> dict[str, float] | None:
        """{"mean", "deviation"} if a model standardises its input, else None."""
        return None

    def differences(
        self, other: "FrameDefinition", contents: Mapping[str, Any] = MappingProxyType({})
    ) -> list[str]:
        """The labels in which two definitions differ, such as "drums kept, not drums dropped".

        `contents`, from the manifest of this one's dataset, exclude those that it cannot differ in.
        """
        if self.medium != other.medium:
            return [f"{self.medium}, not {other.medium}"]
        pairs = zip(self.labels, other.labels, strict=True)
        return [f"{ours}, not {theirs}" for ours, theirs in pairs if ours != theirs]

    def to_json(self) -> dict[str, Any]:
        """Plain values for manifest and checkpoint."""


def known_labels(config: "Config", frame: FrameDefinition) -> KnownLabels:
    """The labels that a model of such frames is conditioned on."""
    return frame.known_labels if config.labels == "all" else {}


class Pieces(Protocol):
    """The pieces of one split, as a medium reads them."""

    @property
    def name(self) -> str:
        """The split's name, such as "train"."""

    @property
    def frame(self) -> FrameDefinition:
        """How they are stored."""

    @property
    def frames(self) -> int:
        """Frames in all pieces."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> "NDArray[Any]":
        """The frames (T, F) of a piece."""

    def __iter__(self) -> Iterator["NDArray[Any]"]: ...

    def facts(self, index: int) -> Mapping[str, Any]:
        """`Piece.facts`."""

    def row_count(self, index: int) -> int:
        """The number of rows that a piece is stored in."""

    def read_rows(self, index: int, begin: int = 0, end: int | None = None) -> "NDArray[Any]":
        """The rows `begin` to `end` of a piece, not decoded."""

    def totals(self) -> "NDArray[np.int64]":
        """(F,), the sum of each binary value of a frame over all frames."""


# ---- comparison of samples with the data ---------------------------------------------------------


PieceSet: TypeAlias = "Sequence[NDArray[Any]] | Pieces"
"""Sampled pieces, frames (T, F), or those of a split."""


Classifier: TypeAlias = "Callable[[PieceSet], NDArray[np.int64]]"
"""Predicts the value of a label for each piece, (pieces,)."""


class Measurements(ABC):
    """Counts and figures of a set of pieces."""

    @abstractmethod
    def distributions(self) -> dict[str, Counter[Any]]:
        """Name -> value -> count."""

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """Plain values by name."""

    def overall(self) -> dict[str, Any]:
        """For training data: what is shown apart from the figures of all sets."""
        return {}

    def against(self, train: Self) -> dict[str, Any]:
        """Figures that compare pieces with train; "distances" are between distributions."""
        train_counts = train.distributions()
        counts = self.distributions().items()
        return {"distances": {name: total_variation(of, train_counts[name]) for name, of in counts}}

    def to_json(self) -> dict[str, Any]:
        """Everything about these pieces alone."""
        counts = self.distributions().items()
        return {**self.figures(), "distributions": {name: shares(of) for name, of in counts}}


class Comparison(ABC):
    """How a medium's samples are compared with the data: see evaluation/README.md."""

    @abstractmethod
    def measure(self, pieces: PieceSet, train: Pieces, limit: int | None) -> Measurements:
        """Measure pieces as described in `compare`."""

    def compare(
        self,
        drawn: "Sequence[NDArray[Any]]",
        split: Pieces | None,
        train: Pieces,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """Figures for sampled frames (T, F), for a split and for the training data.

        Plain values; `split` is None if it would be the training split itself. For pieces longer
        than `limit`, where samples were cut off, distributions may cover only that many frames.
        """
        train_values = self.measure(train, train, limit)
        values = {**train_values.overall(), "train": train_values.to_json()}
        sets: dict[str, Any] = {"drawn": drawn, **({} if split is None else {"split": split})}
        for name, pieces in sets.items():
            measured = self.measure(pieces, train, limit)
            values[name] = measured.to_json() | measured.against(train_values)
        return values

    def classifier(self, train: Pieces, values: "NDArray[np.int64]") -> Classifier:
        """A judge that learns a label's `values` (pieces,) from train alone; 0 means unknown."""
        raise UsageError("--judge is for audio")

    @abstractmethod
    def lines(self, values: Mapping[str, Any], split: str) -> list[str]:
        """`compare`'s values as a table; `split` is the split's name."""


# ---- media ---------------------------------------------------------------------------------------


def lazily(name: str) -> Any:
    """A method implemented by a function of another module, imported when called.

    `name` is "package.module:function"; the function gets the method's arguments without `self`.
    """

    def method(_: Any, *arguments: Any, **options: Any) -> Any:
        return resolve_name(name)(*arguments, **options)

    return method


class Medium(Protocol):
    """One kind of data: how it is read, described, evaluated and written."""

    name: str
    """One word, in manifests, checkpoints and messages."""
    suffixes: frozenset[str]
    """Suffixes of the files it reads, in lower case, such as ".mid"."""
    loose_suffixes: frozenset[str] = frozenset()
    """The subset of `suffixes` that other programs use for other things: a file may be a stray."""
    named_suffixes: frozenset[str] = frozenset()
    """The subset that can be anything at all: ignored in folders, read if named."""
    file_kinds: str
    """The same in human-readable form, such as "MIDI files (.mid .midi)"."""
    presets: Mapping[str, Mapping[str, Any]]
    """Preset or model -> settings of `Config` whose default differs for this medium."""
    kinds: Mapping[str, Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    """`FrameDefinition.kind` -> the `presets` that differ for such frames."""
    paper_hidden: Mapping[str, int]
    """Unit -> hidden size in Chung et al. 2014."""
    paper_params: int
    """The parameter count of those sizes; all other units are sized to match it."""
    prepare_options: tuple[Option, ...]
    inspect_options: tuple[Option, ...] = ()
    listen_options: tuple[Option, ...] = ()
    sample_options: tuple[Option, ...] = ()
    page_options: tuple[Option, ...] = ()
    """Those of `sample_options` that also apply to samples on report pages."""
    formats: tuple[str, ...]
    """Formats that `sample` can write."""
    listen_formats: tuple[str, ...] = ()
    """Formats that `listen` can write; empty if files are sound or cannot be rendered as sound."""
    default_length: str
    """The length of a sampled piece, for the help text."""
    page_format: str = ""
    """The one of `formats` for samples on report pages; empty if browsers can play none."""
    page_download: str = ""
    """The one also offered there as a file; empty if the sound itself is the piece."""
    page_seconds: float = 0.0
    """The maximum length of samples there."""
    page_joins: bool = False
    """Whether real pieces are concatenated there until they are as long."""

    def frame_from_json(self, values: Mapping[str, Any]) -> FrameDefinition:
        """The inverse of `FrameDefinition.to_json`.

        SourceError, ValueError, KeyError or TypeError if the values are damaged.
        """

    def settings(self, options: Mapping[str, Any]) -> Any:
        """The settings for `corpus`, from `prepare_options`; UsageError for impossible ones."""

    def settings_like(self, frame: FrameDefinition) -> Any:
        """The settings that prepare sources in frames like `frame`."""
        return frame

    def corpus(self, settings: Any, paths: Sequence[Path], folder: Path) -> Corpus:
        """Begin a dataset of the files `paths`; `folder` may hold temporary files.

        SeqmodelError if the files are incompatible with each other.
        """

    def baselines(
        self, train: Pieces, valid: Pieces, frame: FrameDefinition, *, discrete: bool
    ) -> dict[str, float]:
        """Nats per frame of trivial models fitted to `train`, on every frame of `valid`.

        `frame` holds the standardisation that densities refer to; `discrete` asks for
        probabilities of stored levels instead.
        """

    def copies(self, splits: Mapping[str, Pieces], train: Pieces) -> dict[str, dict[str, float]]:
        """Split -> frames in a window -> the share of its frames in windows that `train` has."""
        return {}

    def voices(self, split: Pieces, train: Pieces) -> tuple[float, int] | None:
        """Nats of which voice sings what, given all that sounds, in `split`, and its note count.

        Learned from `train` first; None if a piece has no voices.
        """
        return None

    def kind_of_file(self, path: Path) -> str | None:
        """`inspect`'s word for the file, by its name or first bytes; None if it cannot read it."""

    def inspect_file(
        self, path: Path, options: Mapping[str, Any], plot: Path | None
    ) -> dict[str, Any]:
        """Describe a media file, "path" and "kind" first, and draw its picture to `plot`.

        SeqmodelError, naming the file, if it cannot be read.
        """
        return {"path": str(path), "kind": self.name}

    def listen(self, path: Path, options: Mapping[str, Any], target: Path) -> None:
        """Render a file as sound to `target`; takes `inspect_options` and `listen_options`.

        UsageError if the sound cannot be written, SeqmodelError if the file cannot be read.
        """
        raise UsageError(f"{path} is {self.name}, which is not rendered as sound")

    def file_lines(self, values: Mapping[str, Any]) -> list[str]:
        """`inspect_file`'s values as lines of text."""
        return [f"{values['path']}: {values['kind']}"]

    def inspect_splits(
        self, splits: Mapping[str, Pieces], plot: Path | None, title: str
    ) -> dict[str, Any]:
        """What `inspect` adds to a dataset's manifest; also draws its picture to `plot`."""
        return {}

    def split_columns(self, values: Mapping[str, Any]) -> Mapping[str, str]:
        """Split -> last column of its line, from a manifest with `inspect_splits`' values."""

    def dataset_lines(self, manifest: Mapping[str, Any]) -> list[str]:
        """What `inspect` shows below the splits of a dataset."""
        return []

    def summary_lines(self, manifest: Mapping[str, Any]) -> list[str]:
        """What `prepare` shows in that place."""
        return []

    def prepare_remarks(self, manifest: Mapping[str, Any]) -> list[str]:
        """What `prepare` reports about a new dataset; so does `eval`."""
        return []

    def prepare_advice(self, manifest: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
        """What `prepare`, given `options`, reports further: what was lost, and better options."""
        return []

    def training_remarks(self, frame: FrameDefinition) -> list[str]:
        """Remarks, before any training, on data from which nothing can be learned."""
        return []

    def outdated(self, manifest: Mapping[str, Any]) -> str | None:
        """What an older version's dataset lacks of `FrameDefinition.metres`; None if nothing."""
        return None

    def split_advice(self, manifest: Mapping[str, Any]) -> str:
        """What to do about an empty split."""
        return "add files, or put them into folders named train and valid"

    def sampling(self, frame: FrameDefinition, request: SampleRequest) -> Sampling:
        """Check the request and read its primer.

        UsageError if a length or format is impossible, SeqmodelError if --prime cannot be used.
        """

    def comparison(self) -> Comparison | None:
        """How to compare sampled pieces with the data; None if the medium has no such figures."""
        return None

    def picture(self, frames: "NDArray[Any]", definition: FrameDefinition) -> Picture:
        """A piece (T, F) as report pages show it, if there is a `page_format`."""
        raise NotImplementedError(f"{self.name} is not shown on report pages")
