"""Piano-rolls as others publish them: .mat, .pickle, .npz and .npy files."""

import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SourceError
from seqmodel.media.music.grid import HIGHEST_PITCH, LOWEST_PITCH, MAX_FRAMES, NOTES
from seqmodel.media.music.onsets import HELD, OFF, STRUCK, from_states, possible
from seqmodel.media.music.plain_pickle import load_plain

Rolls = dict[str, list[NDArray[np.uint8]]]
"""Split -> frames, (T, 88) or with onsets (T, 176)."""

SUFFIXES = (".mat", ".pickle", ".pkl", ".npz", ".npy")
"""Of the files that `read_published` reads, in lower case."""

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


def read_published(path: Path) -> Rolls:
    """Read a file of published piano-rolls, without executing anything in it.

    - `.mat`: cell arrays `traindata`, `validdata`, `testdata` of (T, 88) zeros and ones.
    - `.pickle`, `.pkl`: a dict of split -> pieces -> frames -> MIDI pitches 21 to 108.
    - `.npz`: one (T, 88) array per piece, named `<split>_<anything>` or `<split>/<anything>`, such
      as `train_0`; an array with any other name belongs to no split.
    - `.npy`: one (T, 88) array, of no split. With twos in it, it states onsets: 0 is off, 1 struck
      and 2 held.

    Returns:
        The rolls of every split, each uint8 (T, 88), in the file's order; where onsets are stated,
        frames (T, 176). The key is "train", "valid" or "test", or "" for pieces of no split.

    Raises:
        SourceError: if the file cannot be read or holds anything else; one line without the
            file's name.
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
        raise SourceError(f"is none of {', '.join(SUFFIXES)}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from error
    if not data:
        raise SourceError("is empty")
    rolls = reader(data)
    if not any(rolls.values()):
        raise SourceError("holds no pieces")
    return rolls


def _read_mat(data: bytes) -> Rolls:
    import scipy.io

    try:
        variables = scipy.io.loadmat(io.BytesIO(data), variable_names=list(MAT_VARIABLES))
    except Exception as error:  # a damaged file makes scipy raise nearly anything
        raise SourceError("is damaged or not a .mat file of version 7 or before") from error
    rolls: Rolls = {}
    for variable, split in MAT_VARIABLES.items():
        if variable in variables:
            cells = variables[variable]
            if cells.size and cells.dtype != object:
                raise SourceError(f"holds no cell array in {variable}")
            rolls[split] = [
                _checked_roll(piece, f"piece {index} of {variable}")
                for index, piece in enumerate(cells.ravel())
            ]
    if not rolls:
        raise SourceError(f"holds none of {', '.join(MAT_VARIABLES)}")
    return rolls


def _read_pickle(data: bytes) -> Rolls:
    splits = load_plain(data)
    if not isinstance(splits, dict):
        raise SourceError("is a pickle, but not of a dict of splits")
    # A pickle may refer to one piece a million times; an honest frame takes at least a byte.
    left = len(data)
    rolls: Rolls = {}
    for name, pieces in splits.items():
        split = SPLIT_NAMES.get(str(name).lower())
        if split is None or not isinstance(pieces, list | tuple):
            raise SourceError(f"holds {name!r}, which is not a list of a split's pieces")
        rolls[split] = []
        for index, piece in enumerate(pieces):
            where = f"piece {index} of {split}"
            if not isinstance(piece, list | tuple):
                raise SourceError(f"holds no list of frames in {where}")
            left -= len(piece)
            if left < 0:
                raise SourceError("repeats its frames over and over; it is not a set of pieces")
            rolls[split].append(_roll_of_pitches(piece, where))
    return rolls


def _roll_of_pitches(frames: list[Any] | tuple[Any, ...], where: str) -> NDArray[np.uint8]:
    """The roll (T, 88) of T collections of MIDI pitches."""
    _check_length(len(frames), where)
    roll = np.zeros((len(frames), NOTES), dtype=np.uint8)
    for time, frame in enumerate(frames):
        if not isinstance(frame, list | tuple) or len(frame) > NOTES:
            raise SourceError(f"holds no list of pitches in frame {time} of {where}")
        for pitch in frame:
            if type(pitch) is not int or not LOWEST_PITCH <= pitch <= HIGHEST_PITCH:
                raise SourceError(
                    f"holds the pitch {pitch!r} in {where}; pitches are whole numbers from "
                    f"{LOWEST_PITCH} to {HIGHEST_PITCH}"
                )
            roll[time, pitch - LOWEST_PITCH] = 1
    return roll


def _read_npz(data: bytes) -> Rolls:
    rolls: Rolls = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.namelist():
                name = member.removesuffix(".npy")
                split = SPLIT_NAMES.get(name.replace("/", "_").split("_")[0].lower(), "")
                with archive.open(member) as stream:
                    roll = _checked_roll(_read_array(stream, name), name)
                rolls.setdefault(split, []).append(roll)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise SourceError(f"is a damaged .npz file ({error})") from error
    return rolls


def _read_npy(data: bytes) -> Rolls:
    array = _read_array(io.BytesIO(data), "the array")
    if array.dtype.kind not in "biuf" or not (array == HELD).any():
        return {"": [_checked_roll(array, "the array")]}
    if not ((array == OFF) | (array == STRUCK) | (array == HELD)).all():
        raise SourceError("holds values other than 0 and 1 in the array, or 2 for a note held")
    frames = from_states(array)
    if not possible(frames):
        raise SourceError("holds a 2 (held) in the array where the note is off in the frame before")
    return {"": [frames]}


def _read_array(stream: Any, name: str) -> NDArray[Any]:
    """Read one .npy stream; its header is checked before anything is allocated."""
    try:
        version = np.lib.format.read_magic(stream)
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read_header(stream)
        if dtype.hasobject:
            raise SourceError(
                f"holds Python objects in {name}, readable only by running code; save one "
                f"(T, {NOTES}) array per piece instead, named like train_0"
            )
        _check_shape(shape, name)
        stream.seek(0)
        array = np.lib.format.read_array(stream, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise SourceError(f"holds a damaged array in {name}") from error
    checked: NDArray[Any] = array
    return checked


def _checked_roll(array: NDArray[Any], where: str) -> NDArray[np.uint8]:
    """The array as a roll, uint8 (T, 88) of zeros and ones."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise SourceError(f"holds no numbers in {where}")
    _check_shape(array.shape, where)
    if not ((array == 0) | (array == 1)).all():
        raise SourceError(f"holds values other than 0 and 1 in {where}")
    return np.ascontiguousarray(array, dtype=np.uint8)


def _check_shape(shape: tuple[int, ...], where: str) -> None:
    if len(shape) != 2 or shape[1] != NOTES:
        raise SourceError(f"holds an array of shape {shape} in {where}, not (T, {NOTES})")
    _check_length(shape[0], where)


def _check_length(frames: int, where: str) -> None:
    if not 0 < frames <= MAX_FRAMES:
        raise SourceError(f"holds {frames} frames in {where}; a piece has 1 to {MAX_FRAMES}")
