"""Reading of published piano-rolls: .mat, .pickle, .npz, .npy and .json files."""

import hashlib
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError
from seqmodel.media.definitions import SPLIT_NAMES
from seqmodel.media.input import Header, open_media, read_all, read_header
from seqmodel.media.marks import MARKS
from seqmodel.media.music.frames import HELD, OFF, STRUCK, from_states, hold, is_valid, marks_in
from seqmodel.media.music.grid import (
    HIGHEST_PITCH,
    KIT,
    LOWEST_PITCH,
    MAX_FRAMES,
    NOTES,
    PIANO,
    PUBLISHED_STEPS_PER_BEAT,
    REST,
    STEPS_PER_BEAT,
    Grid,
)
from seqmodel.media.music.parts import OTHER
from seqmodel.media.music.untrusted import MAX_SHOWN, Call, Items, load_plain, quoted, read_cells
from seqmodel.plain import parse


class Roll(NamedTuple):
    """A piece."""

    frames: NDArray[np.uint8]
    """(T, 88), (T, 176) with onsets or (T, 47) of a kit."""
    pitches: NDArray[np.int8] | None = None
    """(T, voices), 21 to 108 or `REST`, if the file has separate voices."""

    @classmethod
    def of_voices(cls, pitches: NDArray[np.int8]) -> "Roll":
        time, voice = np.nonzero(pitches != REST)
        frames = np.zeros((len(pitches), NOTES), np.uint8)
        frames[time, pitches[time, voice] - LOWEST_PITCH] = 1
        return cls(frames, pitches)

    def with_parts(self, parts: Sequence[str]) -> NDArray[np.uint8]:
        """(T, 440): with onsets, one where a voice moves to a pitch, and the part of each.

        Voice k is part k of `parts`; further ones are `OTHER` if that is a part, else of no part.
        If several voices begin a note at once, it belongs to the first.
        """
        assert self.pitches is not None
        named = [k for k, name in enumerate(parts, 1) if name != OTHER]
        others = len(parts) if len(named) < len(parts) else 0
        part_of = np.array([*named, *[others] * self.pitches.shape[1]], np.uint8)
        begins = np.diff(self.pitches, axis=0, prepend=np.int8(REST)) != 0
        time, voice = np.nonzero(begins & (self.pitches != REST))
        at = time[::-1], self.pitches[time, voice][::-1] - LOWEST_PITCH  # the last of several stays
        part_at_onset = np.zeros_like(self.frames)
        part_at_onset[at] = part_of[voice[::-1]]
        frames = np.pad(self.frames, ((0, 0), (0, (1 + len(MARKS)) * NOTES)))
        frames[:, NOTES : 2 * NOTES][at] = 1
        marks_in(frames)["part"][:] = hold(part_at_onset, frames)
        return frames


RollsBySplit = dict[str, list[Roll]]
"""Split -> pieces."""

MAT_VARIABLES = {"traindata": "train", "validdata": "valid", "testdata": "test"}

MAX_FILE_FRAMES = 2**22
"""Per file: 145 hours of sixteenths at 120 beats per minute, 370 MB as rolls. A megabyte can claim,
and even hold, a thousand times its size, so claims are counted before anything is unpacked."""

MAX_OBJECTS = 2**23
"""Bytes of pickles in a .npz, or of JSON: four times the chorales in sixteenths. A pickle can be
packed to a thousandth of its size, and objects built from either can be sixty times as large."""

BLOCK = 2**18

STATED = "stated"

SILENT_VALUES = (0, REST)
"""Values that stand for a silent voice, as NaN does."""

MAX_VOICES = 8
"""If there are more, only the roll is used."""

KNOWN_SETS: Mapping[str, tuple[str, int]] = {
    "2fda7f310aefd24acaaae2d9225188e02df3cdf7349017dee92aa186361139d2": ("JSB chorales", 1),
    "fe7a545cccc49232a7d3512d1c4c9448b08b98264fff23fc2731a2d9b18d8026": ("MuseData", 2),
    "8bab9dcc0868d6a3b84821f54eb6bc91d366142dbf5b94994ad18e5f489f62a1": ("Nottingham", 2),
    "895782087a4496a1ce4ba77b88cda05e4db5a07c614143ea1db55f3b60bc86f5": ("Piano-midi.de", 2),
}
"""The sets of Boulanger-Lewandowski et al. 2012: a hash of the lengths of the pieces in train ->
name and steps per beat. Lengths stay the same in any format and order, or if pieces are transposed,
as the published ones are: the JSB chorales are an octave above Bach's."""


@dataclass(frozen=True)
class RollFile:
    """The content of a file of rolls."""

    pieces: RollsBySplit
    grid: Grid
    origin: str
    """The source of the grid: the set's name, or `STATED`; "" if it is assumed."""

    @property
    def splits(self) -> dict[str, list[NDArray[np.uint8]]]:
        """Split -> frames."""
        return {split: [roll.frames for roll in rolls] for split, rolls in self.pieces.items()}


def read_published(path: Path) -> RollFile:
    """Read a file of published piano-rolls, one of `ROLL_SUFFIXES`, without executing anything.

    - `.mat`: cell arrays `traindata`, `validdata`, `testdata` of (T, 88) zeros and ones.
    - `.pickle`, `.pkl`: a dict of split -> pieces -> frames -> MIDI pitches 21 to 108. A piece may
      also be an array (T, voices) of one pitch for each voice; NaN, 0 and -1 are rests.
    - `.npz`: one (T, 88) array per piece, named `<split>_<anything>` or `<split>/<anything>`; with
      any other name it belongs to no split, "". Or, as Jsb16thSeparated.npz, one array of Python
      objects per split, its pieces as in a pickle.
    - `.json`: a dict of split -> pieces -> frames -> one pitch for each voice, rests as above.
    - `.npy`: one (T, 88) array, of no split. If it contains twos, it states onsets: 0 is off, 1
      struck and 2 held. Or one of the hits of a kit, (T, 47). A sampled one also states its grid.

    SourceError if the file cannot be read or holds anything else.
    """
    readers = {".mat": _read_mat, ".npz": _read_npz, ".npy": _read_npy, ".json": _read_json}
    reader = readers.get(path.suffix.lower(), _read_pickle)
    claims = _Claims()
    with open_media(path) as file:
        if not file.peek(1):
            raise SourceError("is empty")
        found = reader(file, claims)
    if not any(found.values()):
        raise SourceError("holds no pieces")
    if claims.grid is not None:
        return RollFile(found, claims.grid, STATED)
    lengths = sorted(len(roll.frames) for roll in found.get("train", []))
    name, steps = "", claims.assumed_steps
    for finer in (1, 2, 4):  # sets may be two or four times as fine
        coarse = [length / finer for length in lengths]
        digest = hashlib.sha256(repr(coarse).encode()).hexdigest()
        if digest in KNOWN_SETS:
            name, steps = KNOWN_SETS[digest][0], KNOWN_SETS[digest][1] * finer
    return RollFile(found, Grid.of_beats(steps), name)


def _read_mat(file: BufferedReader, claims: "_Claims") -> RollsBySplit:
    rolls: RollsBySplit = {}
    try:
        for name, cells in read_cells(read_all(file), MAT_VARIABLES):
            found = rolls[MAT_VARIABLES[name]] = []
            for k, cell in enumerate(cells):
                where = f"piece {k} of {name}"
                if cell is None:
                    raise SourceError(f"holds no numbers in {where}")
                claims.frames(cell.shape, where)
                found.append(Roll(np.ascontiguousarray(_digits(cell, where))))
    except (ValueError, zlib.error, struct.error) as error:
        raise SourceError("is damaged or not a .mat file of version 7 or before") from error
    if not rolls:
        raise SourceError(f"holds none of {', '.join(MAT_VARIABLES)}")
    return rolls


def _read_pickle(file: BufferedReader, claims: "_Claims") -> RollsBySplit:
    data = read_all(file)
    splits = load_plain(data)
    if not isinstance(splits, Items):
        raise SourceError("is a pickle, but not of a dict of splits")
    claims.bytes_left = len(data)
    named = ((_split_named(name), pieces) for name, pieces in splits)
    return {split: _pieces_of_pitches(pieces, split, claims) for split, pieces in named}


def _split_named(name: Any) -> str:
    split = SPLIT_NAMES.get(name.lower()) if isinstance(name, str) else None
    if split is None:
        raise _pieces_error(name)
    return split


def _pieces_error(name: Any) -> SourceError:
    return SourceError(f"holds {quoted(name)}, which is not a list of a split's pieces")


def _read_json(file: BufferedReader, claims: "_Claims") -> RollsBySplit:
    data = file.read(MAX_OBJECTS + 1)
    if len(data) > MAX_OBJECTS:
        raise SourceError(f"holds more than {MAX_OBJECTS // 2**20} MiB of JSON")
    try:
        splits = parse(data, constants=True)
    except ValueError as error:
        raise SourceError(f"is not valid JSON: {error}") from error
    if not isinstance(splits, dict):
        raise SourceError("is JSON, but not of a dict of splits")
    found: RollsBySplit = {}
    for name, pieces in splits.items():
        split = _split_named(name)
        if not isinstance(pieces, list):
            raise _pieces_error(name)
        found[split] = []
        for index, piece in enumerate(pieces):
            where = f"piece {index} of {split}"
            if not isinstance(piece, list) or not all(isinstance(frame, list) for frame in piece):
                raise SourceError(f"holds no list of frames in {where}")
            claims.frames((len(piece), NOTES), where)
            kinds = {type(pitch) for frame in piece for pitch in frame}
            if not kinds or not kinds <= {int, float} or len(set(map(len, piece))) > 1:
                raise SourceError(f"holds frames in {where} that are not one number for each voice")
            try:
                found[split].append(_voices(np.array(piece, np.float64), where))
            except OverflowError:
                raise SourceError(f"holds a pitch out of range in {where}") from None
    claims.assumed_steps = STEPS_PER_BEAT
    return found


def _pieces_of_pitches(pieces: Any, name: str, claims: "_Claims") -> list[Roll]:
    """The rolls of pieces that are lists of frames, rolls or arrays of voices."""
    found = pieces.value() if isinstance(pieces, Call) else pieces
    if not isinstance(found, list | tuple):
        raise _pieces_error(name)
    rolls = list[Roll]()
    for index, piece in enumerate(found):
        where = f"piece {index} of {name}"
        frames = piece.value() if isinstance(piece, Call) else piece
        matrix = isinstance(frames, np.ndarray) and frames.ndim == 2
        if not matrix and not isinstance(frames, list | tuple):
            raise SourceError(f"holds no list of frames in {where}")
        claims.bytes(frames.nbytes if matrix else len(frames))
        claims.frames((len(frames), NOTES), where)
        if not matrix:
            rolls.append(_roll_of_pitches(frames, where))
        elif frames.shape[1] == NOTES and np.isin(frames, (OFF, STRUCK)).all():
            rolls.append(Roll(frames.astype(np.uint8)))
        else:
            claims.assumed_steps = STEPS_PER_BEAT
            rolls.append(_voices(frames, where))
    return rolls


def _voices(pitches: NDArray[Any], where: str) -> Roll:
    """The roll of pitches (T, voices), without the voices if there are too many."""
    silent = np.isnan(pitches) | np.isin(pitches, SILENT_VALUES)
    known = silent | np.isin(pitches, PIANO)
    if not known.all():
        raise _pitch_error(pitches[~known][0].item(), where)
    roll = Roll.of_voices(np.where(silent, REST, pitches).astype(np.int8))
    return roll if pitches.shape[1] <= MAX_VOICES else Roll(roll.frames)


def _pitch_error(pitch: object, where: str) -> SourceError:
    return SourceError(
        f"holds the pitch {quoted(pitch)} in {where}; pitches are whole numbers from "
        f"{LOWEST_PITCH} to {HIGHEST_PITCH}"
    )


def _roll_of_pitches(frames: list[Any] | tuple[Any, ...], where: str) -> Roll:
    roll = np.zeros((len(frames), NOTES), dtype=np.uint8)
    for time, frame in enumerate(frames):
        if not isinstance(frame, list | tuple) or len(frame) > NOTES:
            raise SourceError(f"holds no list of pitches in frame {time} of {where}")
        for stated in frame:
            pitch = stated.value() if isinstance(stated, Call) else stated
            if isinstance(pitch, np.ndarray) and not pitch.ndim:
                pitch = pitch.item()
            if type(pitch) is not int or not LOWEST_PITCH <= pitch <= HIGHEST_PITCH:
                raise _pitch_error(pitch, where)
            roll[time, pitch - LOWEST_PITCH] = 1
    return Roll(roll)


def _read_npz(file: BufferedReader, claims: "_Claims") -> RollsBySplit:
    rolls: RollsBySplit = {}
    try:
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise SourceError("is compressed in a way that NumPy never uses in a .npz")
                name = member.filename.removesuffix(".npy")
                split = SPLIT_NAMES.get(name.replace("/", "_").split("_")[0].lower(), "")
                with archive.open(member) as stream:
                    found = _read_member(cast(BinaryIO, stream), name[:MAX_SHOWN], claims)
                rolls.setdefault(split, []).extend(found)
    except SourceError:
        raise
    except Exception as error:  # a damaged archive makes zipfile raise nearly anything
        raise SourceError(f"is a damaged .npz file ({error})") from error
    return rolls


def _read_member(stream: BinaryIO, name: str, claims: "_Claims") -> list[Roll]:
    """The rolls in one array of a .npz: itself, or its pieces."""
    header = _read_header(stream, name)
    if not header.dtype.hasobject:
        return [Roll(_read_array(stream, header, name, claims))]
    data = stream.read(claims.pickled_left + 1)
    claims.bytes_left = len(data)
    claims.pickled_left -= len(data)
    if claims.pickled_left < 0:
        raise SourceError(
            f"holds more than {MAX_OBJECTS // 2**20} MiB of Python objects; save one (T, {NOTES}) "
            "array per piece instead, named like train_0"
        )
    return _pieces_of_pitches(load_plain(data), name, claims)


def _read_npy(file: BufferedReader, claims: "_Claims") -> RollsBySplit:
    header = _read_header(file, "the array")
    claims.grid = _stated_grid(header.comment)
    kit = header.shape[1:] == (len(KIT),)
    rows, most = (len(KIT), STRUCK) if kit else (NOTES, HELD)
    if header.dtype.kind == "f" and header.shape[1:] != (rows,):
        what = f"{header.dtype} of shape {header.shape}"
        raise SourceError(f"holds {what}, such as sound, not (T, {NOTES})")
    array = _read_array(file, header, "the array", claims, rows=rows, most=most)
    if not (array == HELD).any():
        return {"": [Roll(array)]}
    frames = from_states(array)
    if not is_valid(frames):
        raise SourceError("holds a 2 (held) in the array where the note is off in the frame before")
    return {"": [Roll(frames)]}


def _stated_grid(comment: str) -> Grid | None:
    try:
        values = parse(comment)
    except ValueError:  # there is none, or it is another program's
        return None
    if not isinstance(values, dict) or not values.keys() & {"steps_per_beat", "step_nanoseconds"}:
        return None
    return Grid.from_json(values)


def _read_header(stream: BinaryIO, name: str) -> Header:
    try:
        return read_header(stream)
    except ValueError as error:
        raise SourceError(f"holds a damaged array in {name}") from error


def _read_array(
    stream: BinaryIO, header: Header, name: str, claims: "_Claims", *, rows: int = NOTES,
    most: int = STRUCK,
) -> NDArray[np.uint8]:  # fmt: skip
    if header.dtype.kind not in "biuf":
        raise SourceError(f"holds no numbers in {name}")
    claims.frames(header.shape, name, rows)
    roll = np.empty(header.shape, np.uint8, order="F" if header.fortran_order else "C")
    flat = roll.reshape(-1, order="A")
    for start in range(0, flat.size, BLOCK):
        part = flat[start : start + BLOCK]
        size = len(part) * header.dtype.itemsize
        data = stream.read(size)
        if len(data) < size:
            raise SourceError(f"is damaged: cut short in {name}")
        part[:] = _digits(np.frombuffer(data, header.dtype), name, most)
    return np.ascontiguousarray(roll)


def _digits(values: NDArray[Any], where: str, most: int = STRUCK) -> NDArray[np.uint8]:
    """Values as integers from 0 to `most`; SourceError if they are anything else."""
    numbers = values.view(np.uint8) if values.dtype.kind == "b" else values  # a bool may be 7
    with np.errstate(invalid="ignore"):  # values that do not fit then compare unequal
        digits = numbers.astype(np.uint8)
    if (digits > most).any() or (digits != numbers).any():
        hint = ", or 2 for a note held" if most == HELD else ""
        raise SourceError(f"holds values other than 0 and 1 in {where}{hint}")
    return digits


class _Claims:
    """Counts what one file claims, before the claims are trusted, and notes its grid."""

    def __init__(self) -> None:
        self._left = MAX_FILE_FRAMES
        self.pickled_left = MAX_OBJECTS
        self.bytes_left = 0
        """Bytes of a pickle not yet accounted for by its pieces."""
        self.grid: Grid | None = None
        """The grid that the file states."""
        self.assumed_steps = PUBLISHED_STEPS_PER_BEAT

    def bytes(self, count: int) -> None:
        """Account for a piece: a pickle can refer to one a million times.

        A genuine frame takes at least a byte.
        """
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise SourceError("repeats its frames over and over; it is not a set of pieces")

    def frames(self, shape: tuple[int, ...], where: str, rows: int = NOTES) -> None:
        """Raise SourceError unless `shape` is a piece's and there is room for it."""
        if len(shape) != 2 or shape[1] != rows:
            raise SourceError(f"holds frames of shape {shape} in {where}, not (T, {NOTES})")
        if not 0 < shape[0] <= MAX_FRAMES:
            raise SourceError(f"holds {shape[0]} frames in {where}; a piece has 1 to {MAX_FRAMES}")
        self._left -= shape[0]
        if self._left < 0:
            raise SourceError(
                f"holds more than {MAX_FILE_FRAMES:,} frames; spread its pieces over several files"
            )
