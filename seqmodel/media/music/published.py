"""Reading of published piano-rolls: .mat, .pickle, .npz and .npy files."""

import struct
import zipfile
import zlib
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError
from seqmodel.media.input import opened, read_all
from seqmodel.media.music.grid import HIGHEST_PITCH, LOWEST_PITCH, MAX_FRAMES, NOTES
from seqmodel.media.music.matlab import Stream, read_cells
from seqmodel.media.music.onsets import HELD, OFF, STRUCK, from_states, possible
from seqmodel.media.music.plain_pickle import LONGEST_SHOWN, load_plain, shown
from seqmodel.media.music.suffixes import ROLL_SUFFIXES
from seqmodel.media.npy import read_header

Rolls = dict[str, list[NDArray[np.uint8]]]
"""Split -> frames, (T, 88), or (T, 176) with onsets."""

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "dev": "valid",
    "test": "test",
}
MAT_VARIABLES = {"traindata": "train", "validdata": "valid", "testdata": "test"}

MAX_FILE_FRAMES = 2**22
"""Per file: 145 hours of sixteenths at 120 beats per minute, 370 MB as rolls. A megabyte may claim,
and even hold, a thousand times its size, so claims are counted before anything is unpacked."""

VALUES_AT_ONCE = 2**18


def read_published(path: Path) -> Rolls:
    """Read a file of published piano-rolls, without executing anything in it.

    - `.mat`: cell arrays `traindata`, `validdata`, `testdata` of (T, 88) zeros and ones.
    - `.pickle`, `.pkl`: a dict of split -> pieces -> frames -> MIDI pitches 21 to 108.
    - `.npz`: one (T, 88) array per piece, named `<split>_<anything>` or `<split>/<anything>`, such
      as `train_0`; an array with any other name belongs to no split.
    - `.npy`: one (T, 88) array, of no split. If it contains twos, it states onsets: 0 is off, 1
      struck and 2 held.

    Returns:
        The rolls of every split, each uint8 (T, 88), in the file's order; where onsets are stated,
        frames (T, 176). The key is "train", "valid" or "test", or "" for pieces of no split.

    Raises:
        SourceError: if the file cannot be read or holds anything else; its message is one line
            without the file's name.
    """
    readers = {
        ".mat": _read_mat,
        ".pickle": _read_pickle,
        ".pkl": _read_pickle,
        ".npz": _read_npz,
        ".npy": _read_npy,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise SourceError(f"is none of {', '.join(ROLL_SUFFIXES)}")
    with opened(path) as file:
        if not file.peek(1):
            raise SourceError("is empty")
        rolls = reader(file)
    if not any(rolls.values()):
        raise SourceError("holds no pieces")
    return rolls


def _read_mat(file: BufferedReader) -> Rolls:
    frames = _Frames()
    rolls: Rolls = {}
    found: dict[str, dict[int, NDArray[np.uint8]]] = {}
    try:
        for part in read_cells(file, MAT_VARIABLES):
            if isinstance(part, str):
                found[part] = {}
                continue
            where = f"piece {part.number} of {part.variable}"
            if part.matrix is None:
                raise SourceError(f"holds no numbers in {where}")
            shape, dtype, stream = part.matrix
            frames.claim(shape, where)
            roll = _read_values(stream, dtype, shape[::-1], where)
            found[part.variable][part.number] = np.ascontiguousarray(roll.T)
    except (ValueError, zlib.error, struct.error) as error:
        raise SourceError("is damaged or not a .mat file of version 7 or before") from error
    for variable, pieces in found.items():
        rolls[MAT_VARIABLES[variable]] = [pieces[k] for k in sorted(pieces)]
    if not rolls:
        raise SourceError(f"holds none of {', '.join(MAT_VARIABLES)}")
    return rolls


def _read_pickle(file: BufferedReader) -> Rolls:
    data = read_all(file)
    splits = load_plain(data)
    if not isinstance(splits, dict):
        raise SourceError("is a pickle, but not of a dict of splits")
    # A pickle may refer to one piece a million times; an honest frame takes at least a byte.
    left = len(data)
    frames = _Frames()
    rolls: Rolls = {}
    for name, pieces in splits.items():
        split = SPLIT_NAMES.get(str(name).lower()) if isinstance(name, str) else None
        if split is None or not isinstance(pieces, list | tuple):
            raise SourceError(f"holds {shown(name)}, which is not a list of a split's pieces")
        rolls[split] = []
        for index, piece in enumerate(pieces):
            where = f"piece {index} of {split}"
            if not isinstance(piece, list | tuple):
                raise SourceError(f"holds no list of frames in {where}")
            left -= len(piece)
            if left < 0:
                raise SourceError("repeats its frames over and over; it is not a set of pieces")
            frames.claim((len(piece), NOTES), where)
            rolls[split].append(_roll_of_pitches(piece, where))
    return rolls


def _roll_of_pitches(frames: list[Any] | tuple[Any, ...], where: str) -> NDArray[np.uint8]:
    """The roll (T, 88) of T collections of MIDI pitches."""
    roll = np.zeros((len(frames), NOTES), dtype=np.uint8)
    rows: dict[int, list[int]] = {}  # by identity: a pickle may refer to one frame many times
    for time, frame in enumerate(frames):
        if id(frame) not in rows:
            rows[id(frame)] = _keys(frame, time, where)
        roll[time, rows[id(frame)]] = 1
    return roll


def _keys(frame: Any, time: int, where: str) -> list[int]:
    """Which of the 88 notes sound in a frame."""
    if not isinstance(frame, list | tuple) or len(frame) > NOTES:
        raise SourceError(f"holds no list of pitches in frame {time} of {where}")
    for pitch in frame:
        if type(pitch) is not int or not LOWEST_PITCH <= pitch <= HIGHEST_PITCH:
            raise SourceError(
                f"holds the pitch {shown(pitch)} in {where}; pitches are whole numbers from "
                f"{LOWEST_PITCH} to {HIGHEST_PITCH}"
            )
    return [pitch - LOWEST_PITCH for pitch in frame]


def _read_npz(file: BufferedReader) -> Rolls:
    frames = _Frames()
    rolls: Rolls = {}
    try:
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise SourceError("is packed in a way in which NumPy packs no .npz")
                name = member.filename.removesuffix(".npy")
                split = SPLIT_NAMES.get(name.replace("/", "_").split("_")[0].lower(), "")
                with archive.open(member) as stream:
                    roll = _read_array(cast(BinaryIO, stream), name[:LONGEST_SHOWN], frames)
                rolls.setdefault(split, []).append(roll)
    except SourceError:
        raise
    except Exception as error:  # a damaged archive makes zipfile raise nearly anything
        raise SourceError(f"is a damaged .npz file ({error})") from error
    return rolls


def _read_npy(file: BufferedReader) -> Rolls:
    array = _read_array(file, "the array", _Frames(), most=HELD)
    if not (array == HELD).any():
        return {"": [array]}
    frames = from_states(array)
    if not possible(frames):
        raise SourceError("holds a 2 (held) in the array where the note is off in the frame before")
    return {"": [frames]}


def _read_array(
    stream: BinaryIO, name: str, frames: "_Frames", *, most: int = STRUCK
) -> NDArray[np.uint8]:
    """Read one .npy stream, (T, 88) integers up to `most`."""
    try:
        header = read_header(stream)
    except ValueError as error:
        raise SourceError(f"holds a damaged array in {name}") from error
    if header.dtype.hasobject:
        raise SourceError(
            f"holds Python objects in {name}, readable only by running code; save one "
            f"(T, {NOTES}) array per piece instead, named like train_0"
        )
    if header.dtype.kind not in "biuf":
        raise SourceError(f"holds no numbers in {name}")
    frames.claim(header.shape, name)
    if header.fortran_order:
        values = _read_values(stream, header.dtype, header.shape[::-1], name, most).T
        return np.ascontiguousarray(values)
    return _read_values(stream, header.dtype, header.shape, name, most)


class _Frames:
    """Counts the frames that one file's headers claim, before the claims are trusted."""

    def __init__(self) -> None:
        self._left = MAX_FILE_FRAMES

    def claim(self, shape: tuple[int, ...], where: str) -> None:
        """Raise SourceError unless `shape` is a piece's and there is room for it."""
        if len(shape) != 2 or shape[1] != NOTES:
            raise SourceError(f"holds an array of shape {shape} in {where}, not (T, {NOTES})")
        if not 0 < shape[0] <= MAX_FRAMES:
            raise SourceError(f"holds {shape[0]} frames in {where}; a piece has 1 to {MAX_FRAMES}")
        self._left -= shape[0]
        if self._left < 0:
            raise SourceError(
                f"holds more than {MAX_FILE_FRAMES:,} frames; spread its pieces over several files"
            )


def _read_values(
    stream: Stream, dtype: np.dtype[Any], shape: tuple[int, ...], where: str, most: int = STRUCK
) -> NDArray[np.uint8]:
    """The next numbers of a stream, row by row: integers from 0 to `most`."""
    stored = np.dtype(np.uint8) if dtype.kind == "b" else dtype  # a damaged bool may be 7
    values = np.empty(shape, np.uint8)
    flat = values.reshape(-1)
    for start in range(0, flat.size, VALUES_AT_ONCE):
        count = min(VALUES_AT_ONCE, flat.size - start)
        data = stream.read(count * stored.itemsize)
        if len(data) < count * stored.itemsize:
            raise SourceError(f"is damaged: cut short in {where}")
        block = np.frombuffer(data, stored)
        good = (block == OFF) | (block == STRUCK)
        if most == HELD:
            good |= block == HELD
        if not good.all():
            held = ", or 2 for a note held" if most == HELD else ""
            raise SourceError(f"holds values other than 0 and 1 in {where}{held}")
        flat[start : start + count] = block
    return values
