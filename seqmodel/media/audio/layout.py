"""Where the sound of an audio file is, whatever its header says and whatever surrounds it.

Programs that crash, or write to a pipe, leave a size of 0 or of all ones in a header; others put
tags in front of a file, or append one to another. libsndfile then refuses the file, finds nothing
in it, or stops early, without a word. So it reads a `View`: one file, its header corrected.
"""

import re
import struct
from collections.abc import Callable
from functools import partial
from io import SEEK_CUR, SEEK_END, SEEK_SET
from typing import BinaryIO, NamedTuple

from seqmodel.errors import SourceError, reason

ENDLESS = 2**40
"""The size that an `endless` file seems to have; no file is larger."""


class Layout(NamedTuple):
    """What of a file libsndfile is to read."""

    start: int
    end: int
    replaced: tuple[int, bytes] = (0, b"")
    """A part of the header, from `start` on, and what is to be there."""
    samples: int | None = None
    """How many its header claims, 0 for none; None: as libsndfile says."""
    remark: str = ""
    """What is wrong with the header, and how the file is read."""
    endless: bool = False
    """Whether its size is not to be known: from it and its first frames libmpg123 would guess how
    many there are, and stop there."""
    following: int | None = None
    """Where another file begins, behind this one."""


class View:
    """A file as its `Layout` says, for libsndfile, through which no error can be raised."""

    def __init__(self, file: BinaryIO, layout: Layout) -> None:
        self._file, self._layout, self._at = file, layout, 0
        self._error: BaseException | None = None

    def check(self) -> None:
        """Raise what has interrupted a read, a signal perhaps: libsndfile saw the file end there.

        An OSError becomes a SourceError.
        """
        if isinstance(self._error, OSError):
            raise SourceError(reason(self._error)) from self._error
        if self._error is not None:
            raise self._error

    def tell(self) -> int:
        """As a file's."""
        return self._at

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """As a file's."""
        lie = self._layout.endless and (offset, whence) == (0, SEEK_END)
        size = ENDLESS if lie else self._layout.end - self._layout.start
        self._at = max(0, offset + {SEEK_SET: 0, SEEK_CUR: self._at, SEEK_END: size}[whence])
        return self._at

    def read(self, count: int) -> bytes:
        """As a file's; nothing after an error, see `check`."""
        start, end, (place, new), *_ = self._layout
        try:
            count = max(0, min(count, end - start - self._at))
            data = _read(self._file, start + self._at, count)
        except BaseException as error:
            self._error = error
            return b""
        first, last = max(place, self._at), min(place + len(new), self._at + len(data))
        if first < last:
            new = new[first - place : last - place]
            data = data[: first - self._at] + new + data[last - self._at :]
        self._at += len(data)
        return data


def layout_of(file: BinaryIO, start: int = 0) -> Layout:
    """Where the sound of the audio file is that begins at `start`; OSError if it cannot be read."""
    view = Layout(_past_tags(file, start), file.seek(0, SEEK_END))
    beginning = _read(file, view.start, 128)
    for magic, layout in LAYOUTS:
        if re.match(magic, beginning):
            return layout(file, view, beginning)
    return view._replace(start=start)


def _read(file: BinaryIO, place: int, count: int) -> bytes:
    file.seek(min(place, ENDLESS))  # no file system has more, and some refuse it
    return file.read(count)


def _past_tags(file: BinaryIO, place: int) -> int:
    """The end of the ID3 tags that begin at `place`, if any (id3.org)."""
    while True:
        tag = _read(file, place, 10)
        if tag[:3] == b"TAG":
            place += 128
        elif tag[:3] == b"ID3" and len(tag) == 10:
            size = sum((byte & 127) << 7 * k for k, byte in enumerate(reversed(tag[6:])))
            place += 10 + size + (10 if tag[5] & 16 else 0)
        else:
            return place


# ---- compressed ---------------------------------------------------------------------------------


def _flac(file: BinaryIO, view: Layout, beginning: bytes) -> Layout:
    """Of unknown length: libsndfile reads no more samples than its header counts (RFC 9639)."""
    word = int.from_bytes(beginning[21:26])  # four other bits, and the number in 36
    claimed = word & (2**36 - 1)
    return view._replace(replaced=(21, (word - claimed).to_bytes(5)), samples=claimed)


def _ogg(file: BinaryIO, view: Layout, beginning: bytes) -> Layout:
    """Up to the page that begins another file, or to the last page (RFC 3533)."""
    place, begun = view.start, False
    while (head := _read(file, place, 27))[:4] == b"OggS" and len(head) == 27:
        if begun and head[5] & 2:
            return view._replace(end=place, following=place)
        begun = begun or not head[5] & 2
        place += 27 + head[26] + sum(file.read(head[26]))
    damaged = place > view.end or b"OggS" in _read(file, place, 2**20)
    return view if damaged else view._replace(end=place)


XING = re.compile(
    rb"\xff[\xe0-\xff]..(?:..)?(?:.{9}|.{17}|.{32})(?:Xing|Info)...(.)(.{4})(.{4})", re.DOTALL
)
"""A first MPEG frame that holds no sound but flags, the number of frames, and of bytes."""


def _mpeg(file: BinaryIO, view: Layout, beginning: bytes) -> Layout:
    """As long as the header says, with which an encoder's padding can be left out, or endless."""
    header = XING.match(beginning)
    flags = header[1][0] if header else 0
    if header is None or not flags & 1 or header[2] == bytes(4):
        return view._replace(endless=True, samples=0)
    after = _past_tags(file, view.start + int.from_bytes(header[3]))
    if flags & 2 and XING.match(_read(file, after, 128)):
        return view._replace(following=after)
    return view


# ---- with a size in bytes -----------------------------------------------------------------------


class Chunks(NamedTuple):
    """How a format is made of chunks, each of a name, a size and as much data.

    The first is at `first`. A name has `name` bytes; a size is of the type `size`, for `struct`,
    and counts `own` bytes of the two; chunks begin at multiples of `multiple`. The name of the one
    with the sound begins with `sound`, and it holds `before` bytes before the first sample. The
    size of all chunks together is at `whole`, if anywhere.
    """

    first: int
    name: int
    size: str
    own: int
    multiple: int
    sound: bytes
    before: int = 0
    whole: int | None = None

    def at(self, file: BinaryIO, place: int) -> tuple[bytes, int, int] | None:
        """The name of the chunk at `place`, where its data begin and end; None if there is none."""
        width = struct.calcsize(self.size)
        head = _read(file, place, self.name + width)
        if len(head) < self.name + width or not re.match(rb"[ -~]{4}", head):
            return None
        size = struct.unpack(self.size, head[self.name :])[0] - self.own
        return head[: self.name], place + len(head), place + len(head) + max(0, size)


RIFF = Chunks(12, 4, "<I", 0, 2, b"data", whole=4)
RIFX = RIFF._replace(size=">I")
AIFF = Chunks(12, 4, ">I", 0, 2, b"SSND", before=8, whole=4)
CAF = Chunks(8, 4, ">q", 0, 1, b"data", before=4)
W64 = Chunks(40, 16, "<q", 24, 8, b"data", whole=16)

OPEN = (-1, 2**32 - 1)
"""Sizes of all ones: of what was written to a pipe."""
METADATA = re.compile(rb"TAG|ID3|APETAGEX|LYRICSBEGIN")


def _chunked(chunks: Chunks, file: BinaryIO, view: Layout, beginning: bytes) -> Layout:
    place = view.start + chunks.first
    while chunk := chunks.at(file, place):
        name, body, end = chunk
        if name.startswith(chunks.sound):
            break
        place = end + -(end - view.start) % chunks.multiple
    else:
        return view
    field = body - struct.calcsize(chunks.size), chunks.size, chunks.own + chunks.before
    if beginning[12:16] == b"ds64":  # RF64, which has its sizes there
        field = view.start + 28, "<q", 0
    whole = chunks.whole and _number(file, view.start + chunks.whole, chunks.size)
    return _sized(file, view, field, body + chunks.before, chunks, unsure=whole in (0, *OPEN))


def _au(file: BinaryIO, view: Layout, beginning: bytes) -> Layout:
    body = view.start + int.from_bytes(beginning[4:8])
    return _sized(file, view, (view.start + 8, ">I", 0), body, RIFX, unsure=False)


def _sized(
    file: BinaryIO,
    view: Layout,
    field: tuple[int, str, int],
    body: int,
    chunks: Chunks,
    unsure: bool,
) -> Layout:
    """Up to the end of the file if a size in the header is too low for the sound from `body` on.

    `field` is the size's place, its type and how much of it is no sound. If `unsure`, it may be too
    low though it is not 0.
    """
    place, kind, more = field
    size, there = _number(file, place, kind), view.end - body
    claimed = 0 if size in OPEN else max(0, size - more)
    remark = f"its header claims {claimed:,} bytes but {there:,} are there; read "
    if claimed > there:
        return view._replace(remark=remark + "as far as it goes")
    # Of Wave64 libsndfile would read all.
    trusted = view._replace(end=body + claimed) if chunks is W64 else view
    after = chunks.at(file, body + claimed)
    if (
        claimed == there
        or (claimed and not unsure)
        or (after and after[2] <= view.end)
        or METADATA.match(_read(file, body + claimed, 11))
    ):
        return trusted
    new = there + more if kind[1] == "q" else min(there + more, 2**32 - 2)
    return view._replace(
        replaced=(place - view.start, struct.pack(kind, new)),
        remark="" if size in OPEN else remark + "to the end",
    )


def _number(file: BinaryIO, place: int, kind: str) -> int:
    """The number at `place`; 0 beyond the end."""
    data = _read(file, place, struct.calcsize(kind))
    return int(struct.unpack(kind, data)[0]) if len(data) == struct.calcsize(kind) else 0


LAYOUTS: tuple[tuple[bytes, Callable[[BinaryIO, Layout, bytes], Layout]], ...] = (
    (rb"fLaC[\x00\x80]", _flac),
    (rb"OggS", _ogg),
    (rb"\xff[\xe0-\xff]", _mpeg),
    (rb"RIFF", partial(_chunked, RIFF)),
    (rb"RIFX", partial(_chunked, RIFX)),
    (rb"RF64", partial(_chunked, RIFF._replace(whole=None))),
    (rb"FORM....AIF", partial(_chunked, AIFF)),
    (rb"caff", partial(_chunked, CAF)),
    (rb"riff", partial(_chunked, W64)),
    (rb"\.snd", _au),
)
"""How files begin, and what is known of each kind."""
