"""Frames of music: which of the piano's 88 notes sound and, optionally, which begin; or which of a
drum kit's 47 sounds are struck.

Frames that distinguish struck from held notes are (T, 176): which sound, then which begin. A note
that begins also sounds, and one that sounds after silence begins. Before the first frame there is
silence. Frames without onsets, (T, 88), are the first half alone. Frames with marks have 88 more
numbers for each of `marks.MARKS`: of each note that sounds how it was struck, 1 to 127, or 0 where
that is not known or not kept: its part, from 1 on; its velocity in MIDI; and when, 64 where its
frame begins, and 126 more would be a frame later. With parts, drums lie on rows that pitched notes
hardly use, see `kit.PART_KEYS`.

Hits of a kit have no length: a 1 in its frames, (T, 47), is a hit, also where the frame before has
one. What is said below of frames (T, 88) holds for them too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.labels import LABELS, KnownLabels, known_labels_of
from seqmodel.media.marks import MARKS, Levels
from seqmodel.media.music.grid import (
    DEFAULT_BPM,
    DRUM_KIND,
    HIGHEST_PITCH,
    KIT,
    LOWEST_PITCH,
    MAX_TEMPO,
    MIN_TEMPO,
    NOTES,
    PIANO,
    Grid,
    Restrike,
)
from seqmodel.media.music.kit import ROWS
from seqmodel.media.music.metre import (
    COMMON_TIME,
    Metre,
    metre_from_json,
    metre_name,
    parse_metre,
    shifted,
    signature_row,
)
from seqmodel.media.music.parts import DRUMS, Part
from seqmodel.media.words import listed, plural
from seqmodel.plain import Fields

# ---- rows and onsets -----------------------------------------------------------------------------


def is_kit(frames: NDArray[Any]) -> bool:
    """Whether the rows of frames are those of a drum kit, (T, 47)."""
    return bool(frames.shape[1] == len(KIT))


def rows_of(frames: NDArray[Any]) -> range:
    """The MIDI keys of the rows of frames."""
    return KIT if is_kit(frames) else PIANO


OFF, STRUCK, HELD = 0, 1, 2
"""The states of a note, in .npy files (T, 88)."""


def has_onsets(frames: NDArray[np.uint8]) -> bool:
    """Whether frames are (T, 176), with marks or without, not (T, 88)."""
    return bool(frames.shape[1] >= 2 * NOTES)


def marks_in(frames: NDArray[np.uint8]) -> dict[str, NDArray[np.uint8]]:
    """The marks (T, 88) that frames hold, by name, as views; none if they are without."""
    if frames.shape[1] <= 2 * NOTES:
        return {}
    return dict(zip(MARKS, np.split(frames[:, 2 * NOTES :], len(MARKS), 1), strict=True))


ON_TIME, TIMING_PER_FRAME = 64, 126
"""The timing of a note that begins as its frame does, and how much a frame is in it."""


def sounding(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The piano-roll (T, 88), a view."""
    return frames[:, : len(rows_of(frames))]


def struck(frames: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which notes begin (T, 88); without onsets, those that sound after silence, or all hits."""
    if is_kit(frames):
        return frames > 0
    if has_onsets(frames):
        return frames[:, NOTES : 2 * NOTES].astype(np.bool_)
    return (frames > 0) & ~sounded_before(frames)


def sounded_before(frames: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which notes sound in the previous frame (T, 88)."""
    roll = sounding(frames)
    before = np.zeros(roll.shape, np.bool_)
    before[1:] = roll[:-1]
    return before


def count_restrikes(pieces: Iterable[NDArray[np.uint8]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """How often each of N notes is struck while it sounds, and could have been: (N,) each."""
    struck, chances = list[NDArray[Any]](), list[NDArray[Any]]()
    for piece in pieces:
        sounds, begins = np.split(piece > 0, 2, axis=1)
        free = sounds[1:] & sounds[:-1]
        struck.append((free & begins[1:]).sum(axis=0))
        chances.append(free.sum(axis=0))
    return np.sum(struck, axis=0), np.sum(chances, axis=0)


def with_onsets(roll: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The roll (T, 88) as frames (T, 176) in which a note that continues to sound is held.

    Hits of a kit are as they are.
    """
    return roll if is_kit(roll) else np.concatenate([roll, struck(roll).astype(np.uint8)], axis=1)


def after_silence(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Frames (T, 176) cut from their past: notes held into the first one begin there."""
    cut = frames.copy()
    cut[:1, NOTES : 2 * NOTES] = cut[:1, :NOTES]
    return cut


def is_valid(frames: NDArray[np.uint8]) -> bool:
    """Whether only sounding notes of frames (T, 176) begin, and all notes after silence do."""
    roll, begins = sounding(frames) > 0, struck(frames)
    return not (begins & ~roll).any() and not (roll & ~sounded_before(frames) & ~begins).any()


def states(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Frames (T, 176) as states (T, 88): 0 off, 1 struck, 2 held."""
    return np.where(struck(frames), STRUCK, HELD * sounding(frames)).astype(np.uint8)


def from_states(states: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The inverse of `states`."""
    return np.concatenate([states != OFF, states == STRUCK], axis=1).astype(np.uint8)


# ---- notes ---------------------------------------------------------------------------------------


def given_notes(notes: NDArray[np.int64], given: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of `notes_of` frames (N, 3) begin in what is given (T, 88): (N,)."""
    return given[notes[:, 0], notes[:, 2] - rows_of(given)[0]]


def drums_in(frames: NDArray[np.uint8], parts: Sequence[Part] = ()) -> NDArray[np.bool_]:
    """Which sounding notes (T, 88) are of parts that are drums; of a kit (T, 47), all.

    Part 0, unknown, counts as the last, as in `split_tracks`.
    """
    are_drums = [part.program == DRUMS for part in (*parts[-1:], *parts)]
    if not any(are_drums):
        return np.broadcast_to(np.bool_(is_kit(frames)), sounding(frames).shape)
    return (sounding(frames) > 0) & np.array(are_drums)[marks_in(frames)["part"]]


def outer_notes(roll: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lowest and the highest note, 0 to 87, of each frame of a roll (T, 88): (T,) twice.

    In a silent frame they are 0 and 87.
    """
    return roll.argmax(axis=1), roll.shape[1] - 1 - roll[:, ::-1].argmax(axis=1)


def note_lengths(frames: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The length in frames of each of `notes_of` a piece, (N,)."""
    notes = notes_of(frames)
    return notes[:, 1] - notes[:, 0]


def notes_of(frames: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The notes of frames (T, 88) as rows (N, 3): first frame, frame after the last, MIDI pitch.

    Consecutive frames of a pitch are one note; with onsets each onset begins a new one, unless it
    is silent; each hit of a kit has one frame. Sorted by first frame, then by pitch.
    """
    closed = np.pad(frames, ((0, 1), (0, 0)))  # what still sounds ends after the last frame
    roll = sounding(closed) > 0
    begins = roll & (struck(closed) | ~sounded_before(closed))
    ends = sounded_before(closed) & (begins | ~roll)
    # Both are sorted by pitch, then frame: the k-th begin and the k-th end are of the same note.
    pitch, begin = np.nonzero(begins.T)
    _, end = np.nonzero(ends.T)
    notes = np.stack([begin, end, pitch + rows_of(frames)[0]], axis=1)
    return notes[np.lexsort((pitch, begin))]


def chord_lengths(frames: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The length in frames of every chord of a piece (T, 88) or (T, 176), (chords,).

    A chord is all that sounds in a frame; it ends where any note begins or ends.
    """
    ages = chord_ages(frames)
    return ages[np.append(ages[1:] <= 1, True) & (ages > 0)]


def chord_ages(frames: NDArray[np.uint8]) -> NDArray[np.int64]:
    """How many frames the chord of each frame has lasted, itself included, (T,); 0 in silence."""
    return packed_chord_ages(pack(frames[:, : 2 * NOTES]))


def packed_chord_ages(packed: NDArray[np.uint8]) -> NDArray[np.int64]:
    """`chord_ages` of frames that are packed."""
    words, frame = packed_words(packed), np.arange(len(packed))
    changed = (words[:2, 1:] != words[:2, :-1]).any(axis=0)
    if packed.shape[1] != ROLL_BYTES:  # all hits of a kit begin
        changed |= words[-2:, 1:].any(axis=0)
    start = np.maximum.accumulate(np.append(0, np.where(changed, frame[1:], 0)))
    ages: NDArray[np.int64] = (1 + frame - start) * words[:2].any(axis=0)
    return ages


# ---- rolls ---------------------------------------------------------------------------------------


def transposed(
    frames: NDArray[Any], semitones: int, drums: NDArray[np.bool_] | None = None
) -> NDArray[Any]:
    """Frames, with marks or without, or marks (T, 88), moved by `semitones`, down if negative.

    Notes that leave the piano's range are moved back into it by octaves, so none is lost. Notes of
    frames with marks that are `drums` (T, 88) stay; where others meet them, what strikes last has
    what follows, and if both strike, the drum.
    """
    if drums is not None and drums.any():
        rows = np.tile(drums, frames.shape[1] // NOTES)
        stay, moved = frames * rows, transposed(frames * ~rows, semitones)
        both = np.maximum(stay, moved)
        begin = struck(stay)
        begin[:1] |= drums[:1] & ~struck(moved)[:1]  # those held from before a window
        of_drums, others = marks_in(stay), marks_in(moved)
        for name, numbers in marks_in(both).items():
            numbers[:] = hold(np.where(begin, of_drums[name], others[name]), both)
        return both
    blocks = frames.reshape(len(frames), frames.shape[1] // NOTES, NOTES)
    moved = np.zeros_like(blocks)
    first = max(0, -semitones)
    end = max(first, NOTES - max(0, semitones))  # notes from `first` to here stay in the range
    moved[..., first + semitones : end + semitones] = blocks[..., first:end]
    target = fold(np.array(PIANO) + semitones) - LOWEST_PITCH
    for note in (*range(min(first, NOTES)), *range(end, NOTES)):
        column = moved[..., target[note]]
        np.maximum(column, blocks[..., note], out=column)
    return moved.reshape(frames.shape)


def hold(at_onset: NDArray[Any], frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Of notes that sound in `frames` with onsets, numbers (T, 88) that each has at its onset."""
    T = len(frames)
    onset = np.where(struck(frames), np.arange(T)[:, None], 0)
    onset = np.maximum.accumulate(onset, axis=0)
    return np.take_along_axis(at_onset, onset, axis=0) * sounding(frames)


def pack(roll: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Frames as bytes, the lowest note in the highest bit: (T, 88) is (T, 11)."""
    T, size = roll.shape  # five times as fast as along an axis:
    return np.packbits(roll, axis=1) if size % 8 else np.packbits(roll).reshape(T, size // 8)


ROLL_BYTES = NOTES // 8
"""Bytes of a packed frame (88,)."""


def packed_words(packed: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Packed frames as words, (2, T), or (4, T) with onsets: 64 notes, and the higher ones."""
    T, size = len(packed), min(packed.shape[1], ROLL_BYTES)
    filled = np.zeros((T, packed.shape[1] // size, 16), np.uint8)
    filled[..., :size] = packed.reshape(T, filled.shape[1], size)
    return filled.view(">u8").reshape(T, 2 * filled.shape[1]).T.astype(np.uint64, order="C")


def unpack(packed: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """The inverse of `pack`, frames (T, size)."""
    bits = np.unpackbits(packed).reshape(len(packed), 8 * packed.shape[1])
    return np.ascontiguousarray(bits[:, :size])  # ten times as fast as along an axis


def fold(pitch: Any, lowest: int = LOWEST_PITCH, highest: int = HIGHEST_PITCH) -> NDArray[Any]:
    """Pitches moved into a range, by default the piano's, by as few octaves as possible."""
    pitch = np.where(pitch < lowest, lowest + (pitch - lowest) % 12, pitch)
    return np.where(pitch > highest, highest - (highest - pitch) % 12, pitch)


# ---- frames --------------------------------------------------------------------------------------


BRIEF_SECONDS = 2.0
"""A chord that lasts no longer is nothing odd, whatever train is like."""
OPTIONAL_FLAGS = "onsets", "short_notes", "kit", "pedal"
"""Fields that older datasets and runs lack, whose frames were made without."""


@dataclass(frozen=True)
class PianoRollFrames(FrameDefinition):
    """How music becomes frames, stored as 11 bytes (88 bits) each, 22 with onsets, 6 of a kit.

    Of each mark, which frames with onsets alone have, a byte for each note follows.
    """

    medium: ClassVar[str] = "music"
    values: ClassVar[Literal["binary"]] = "binary"
    row_dtype: ClassVar[np.dtype[Any]] = np.dtype("u1")

    grid: Grid
    restrike: Restrike = "close"
    drums: bool = False
    transpose_to_c: bool = False
    onsets: bool = False
    """Whether frames distinguish struck notes from held ones."""
    short_notes: bool = True
    """Whether a note that rounds to no frame fills one. Unlike the rest it does not show in
    `differences`: runs and datasets older than the rule, read without, would differ from all."""
    kit: bool = False
    """Whether the rows are a drum kit's, struck by channel 10 alone; there are then no onsets."""
    pedal: bool = False
    """Whether notes last as long as the sustain pedal holds them: of a dataset, whether any do."""
    metre: Metre | None = None
    """The time signature that most frames of train have; None if none is known."""
    tempo: float | None = None
    """The median of its pieces' tempos, in beats per minute; None if none is known."""
    longest_chord: int | None = None
    """Frames of the longest chord in train; None if unknown."""
    marks: Mapping[str, Levels] = field(default_factory=dict)
    programs: tuple[int, ...] = ()
    """The commonest program of each part in train, from 0 on, or `DRUMS`; none without parts."""
    drum_keys: Mapping[int, int] = field(default_factory=dict)
    drum_table: tuple[int, ...] = ()
    """The drum on each row (88,), by MIDI key, as `kit.PART_KEYS`; none if they lie on their keys,
    among the notes, as in older datasets and runs."""
    known_labels: KnownLabels = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return DRUM_KIND if self.kit else self.medium

    @property
    def drum_parts(self) -> list[int]:
        programs = self.programs if self.drum_keys else ()
        return [part for part, program in enumerate(programs) if program == DRUMS]

    @property
    def drum_rows(self) -> NDArray[np.int64] | None:
        """The row of the drum on each MIDI key (128,), -1 if it has none; None: that of a note."""
        if not self.drum_table:
            return ROWS if self.kit else None
        rows = np.full(len(ROWS), -1)
        rows[[*self.drum_table]] = np.arange(NOTES)
        return rows

    @property
    def longest_hold(self) -> int | None:
        """As long as in train, but at least `BRIEF_SECONDS`: in a band chords last a frame."""
        if self.longest_chord is None:
            return None
        brief = BRIEF_SECONDS / self.grid.seconds_per_frame(self.tempo or DEFAULT_BPM)
        return max(self.longest_chord, round(brief))

    @property
    def variants(self) -> range:
        """Semitones to transpose by: each of the twelve keys once; a kit is in none."""
        return range(0) if self.kit else range(-5, 7)

    @property
    def part_names(self) -> tuple[str, ...]:
        return self.marks["part"].names if "part" in self.marks else ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """None if notes are kept without."""
        return tuple(map(Part, self.part_names, self.programs))

    @property
    def rows(self) -> range:
        return KIT if self.kit else PIANO

    @property
    def frame_size(self) -> int:
        return 2 * NOTES if self.onsets else len(self.rows)

    @property
    def marked_size(self) -> int:
        return self.frame_size + NOTES * len(MARKS) * bool(self.marks)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (-(-self.frame_size // 8) + NOTES * len(self.marks),)

    @property
    def fingerprint(self) -> bytes:
        """Whether there are onsets, or a kit: everything else shows in the frames."""
        return b"kit" if self.kit else b"onsets" if self.onsets else b""

    @property
    def labels(self) -> tuple[str, ...]:
        return (
            str(self.grid),
            f"restrike {self.restrike}",
            f"drums {'alone' if self.kit else 'kept' if self.drums else 'dropped'}"
            + " on rows of their own" * bool(self.drum_table),
            "transposed to C" if self.transpose_to_c else "in its own key",
            f"{'with' if self.onsets else 'without'} onsets",
            f"{'with' if self.pedal else 'without'} notes held by the pedal",
        )

    def decode(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return unpack(self.packed(rows), self.frame_size)

    def packed(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The frames of stored rows, packed, without marks; a view."""
        return rows[:, : -(-self.frame_size // 8)]

    def marks_of(self, rows: NDArray[np.uint8]) -> Mapping[str, NDArray[np.uint8]]:
        size = -(-self.frame_size // 8)
        begins = range(size, size + NOTES * len(self.marks), NOTES)
        of_notes = (rows[:, begin : begin + NOTES] for begin in begins)
        return dict(zip(self.marks, of_notes, strict=True))

    def decode_marked(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        frames = np.zeros((len(rows), self.marked_size), np.uint8)
        frames[:, : self.frame_size] = self.decode(rows)
        stored = self.marks_of(rows)
        for name, numbers in marks_in(frames).items():
            numbers[:] = stored.get(name, 0)
        return frames

    def encode(self, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        packed, marks = pack(values[:, : self.frame_size]), marks_in(values)
        none = np.zeros((len(values), NOTES), np.uint8)
        return np.concatenate([packed, *(marks.get(name, none) for name in self.marks)], axis=1)

    def canonical(self, rows: NDArray[np.uint8]) -> bytes:
        return rows.tobytes()

    def cut(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """With onsets, notes held into the first frame begin there: silence precedes it."""
        if not self.onsets:
            return rows
        cut = rows.copy()
        packed = pack(after_silence(self.decode(rows)))
        cut[:, : packed.shape[1]] = packed
        return cut

    def differences(
        self, other: FrameDefinition, contents: Mapping[str, Any] = MappingProxyType({})
    ) -> list[str]:
        """Where no pedal is pressed it makes no difference."""
        if isinstance(other, PianoRollFrames) and contents.get("pedal") == 0:
            return replace(self, pedal=other.pedal).differences(other)
        return super().differences(other)

    def vary(self, rows: NDArray[np.uint8], variant: int) -> NDArray[np.uint8]:
        frames = self.decode_marked(rows)
        return self.encode(transposed(frames, variant, drums_in(frames, self.parts)))

    def facts_from(self, facts: Mapping[str, Any], begin: int, end: int) -> Mapping[str, Any]:
        found = dict(facts)
        if "metre" in facts:
            found["metre"] = shifted(facts["metre"], begin)
        if "voices" in facts:
            found["voices"] = facts["voices"][begin:end]
        return found

    def metres(self, facts: Mapping[str, Any]) -> NDArray[np.int64]:
        """The time signatures, see `metre.signature_row`: the piece's "metre", or the usual one."""
        default = [[0, *(self.metre or COMMON_TIME)]]
        return signature_row(metre_from_json(facts.get("metre", default)), self.grid)

    def to_json(self) -> dict[str, Any]:
        """Of what was added later only what is true or known."""
        always = {
            "notes": len(self.rows),
            "grid": self.grid.to_json(),
            "restrike": self.restrike,
            "drums": self.drums,
            "transpose_to_c": self.transpose_to_c,
        }
        added = {
            **{name: getattr(self, name) for name in OPTIONAL_FLAGS},
            "metre": self.metre and metre_name(self.metre),
            "tempo": self.tempo,
            "longest_chord": self.longest_chord,
            **{name: levels.to_json() for name, levels in self.marks.items()},
            "programs": [*self.programs],
            "drum_keys": {str(key): hits for key, hits in self.drum_keys.items()},
            "drum_table": [*self.drum_table],
            LABELS: self.known_labels,
        }
        return always | {name: value for name, value in added.items() if value}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "PianoRollFrames":
        fields = Fields.of(values, "frame")
        restrike: Any = fields.text("restrike")
        if restrike not in get_args(Restrike):
            raise ValueError(f"frame.restrike must be one of {', '.join(get_args(Restrike))}")
        if "kit" in fields and "onsets" in fields:
            raise ValueError("frame.kit and frame.onsets exclude each other")
        flags: dict[str, Any] = {name: fields.flag(name) for name in ("drums", "transpose_to_c")}
        flags |= {name: name in fields and fields.flag(name) for name in OPTIONAL_FLAGS}
        return cls(
            Grid.from_json(dict(fields.fields("grid").values)),
            restrike,
            **flags,
            **_train_values(fields),
            **_marks(fields),
            known_labels=known_labels_of(fields),
        )

    def __str__(self) -> str:
        if self.kit:
            return f"{len(KIT)} drum sounds, {self.grid}"
        kept = [plural(len(each.names), n) if each.names else n for n, each in self.marks.items()]
        marked = f", with {listed(kept)}" if kept else ""
        return f"{NOTES} notes{' struck or held' * self.onsets}{marked}, {self.grid}"


def _marks(fields: Fields) -> dict[str, Any]:
    """The marks that a frame definition states; ValueError if it cannot have them."""
    marks = {name: Levels.from_json(fields, name) for name in MARKS if name in fields}
    for name in marks:
        if "onsets" not in fields:
            raise ValueError(f"frame.{name} needs frame.onsets")
    programs = fields.values.get("programs", [])
    valid = isinstance(programs, list) and all(p in range(DRUMS + 1) for p in programs)
    if not valid or len(programs) != (len(marks["part"].names) if "part" in marks else 0):
        raise ValueError(f"frame.programs must be one for each part, from 0 to {DRUMS}")
    hits = fields.values.get("drum_keys", {})
    keys = {str(key): key for key in PIANO if DRUMS in programs}
    counts = hits.values() if isinstance(hits, dict) and hits.keys() <= keys.keys() else [0]
    if not all(type(count) is int and count > 0 for count in counts):
        raise ValueError("frame.drum_keys must be hits by key, of parts of drums")
    hits = {keys[key]: count for key, count in hits.items()}
    table = fields.values.get("drum_table", [])
    whole = isinstance(table, list) and all(type(key) is int for key in table)
    if not whole or (table and sorted(table) != [*PIANO]):
        raise ValueError("frame.drum_table must be the keys of a piano, each once")
    found = {"marks": marks, "programs": tuple(programs)}
    return found | {"drum_keys": hits, "drum_table": tuple(table)}


def _train_values(fields: Fields) -> dict[str, Any]:
    """What is usual in train, as far as a frame definition states it; ValueError if it cannot."""
    values = dict[str, Any]()
    if "longest_chord" in fields:
        values["longest_chord"] = fields.integer("longest_chord", 1)
    if "metre" in fields:
        text = fields.text("metre")
        try:
            values["metre"] = parse_metre(text)
        except ValueError as error:
            raise ValueError(f"frame.metre must be {error}") from None
    if "tempo" in fields:
        values["tempo"] = fields.number("tempo")
        if not MIN_TEMPO <= values["tempo"] <= MAX_TEMPO:
            raise ValueError(f"frame.tempo must be from {MIN_TEMPO:g} to {MAX_TEMPO:g}")
    return values
