"""Finds the sound in an audio file, whatever its header claims and whatever surrounds it.

Programs that crash, or write to a pipe, leave a size of 0 or of all ones in a header; others put
tags in front of a file, or append one file to another. libsndfile then rejects the file, finds
nothing in it, or silently stops early. So it reads a `View`: one file, its header corrected.
"""

import re
import struct
from collections.abc import Callable
from functools import partial
from io import SEEK_CUR, SEEK_END, SEEK_SET
from typing import BinaryIO, NamedTuple

from seqmodel.errors import SourceError, reason

ENDLESS = 2**40
"""The size that an `endless` file appears to have; no file is larger."""


class View:
    """What libsndfile reads of the audio file that begins at some offset in another.

    Errors cannot be raised through libsndfile: see `check`. OSError if the file cannot be read.
    """

    samples: int | None = None
    """The number that its header claims, 0 for none; None: as libsndfile reports."""
    remark = ""
    """What is wrong with the header, and how the file is read."""
    endless = False
    """Whether its size is hidden: from that and the first frames libmpg123 would guess the number
    of frames, and stop there."""
    next_start: int | None = None
    """Where the next file begins, after this one."""
    patch = 0, b""
    """An offset from `start`, and the bytes to read there instead of the header's."""

    def __init__(self, file: BinaryIO, start: int) -> None:
        self._file, self._at = file, 0
        self._error: BaseException | None = None
        self.end = file.seek(0, SEEK_END)
        self.start = self.skip_tags(start)
        beginning = self.peek(self.start, 128)
        for magic, correct in LAYOUTS:
            if re.match(magic, beginning):
                correct(self, beginning)
                return
        self.start = start

    def check(self) -> None:
        """Raise the error of a read that libsndfile took for the end, an OSError as SourceError."""
        if isinstance(self._error, OSError):
            raise SourceError(reason(self._error)) from self._error
        if self._error is not None:
            raise self._error

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        hidden = self.endless and (offset, whence) == (0, SEEK_END)
        size = ENDLESS if hidden else self.end - self.start
        self._at = max(0, offset + {SEEK_SET: 0, SEEK_CUR: self._at, SEEK_END: size}[whence])
        return self._at

    def read(self, count: int) -> bytes:
        """Read bytes; none after an error, see `check`."""
        try:
            count = max(0, min(count, self.end - self.start - self._at))
            data = self.peek(self.start + self._at, count)
        except BaseException as error:
            self._error = error
            return b""
        offset, patch = self.patch
        first, last = max(offset, self._at), min(offset + len(patch), self._at + len(data))
        if first < last:
            patch = patch[first - offset : last - offset]
            data = data[: first - self._at] + patch + data[last - self._at :]
        self._at += len(data)
        return data

    def peek(self, offset: int, count: int) -> bytes:
        """The unchanged bytes at an offset in the whole file."""
        self._file.seek(min(offset, ENDLESS))  # no file system has more, and some reject it
        return self._file.read(count)

    def number(self, offset: int, kind: str) -> int:
        """The number of a `struct` type at an offset in the whole file; 0 beyond the end."""
        data = self.peek(offset, struct.calcsize(kind))
        return int(struct.unpack(kind, data)[0]) if len(data) == struct.calcsize(kind) else 0

    def skip_tags(self, offset: int) -> int:
        """The end of the ID3 tags that begin at `offset`, if any (id3.org)."""
        while True:
            tag = self.peek(offset, 10)
            if tag[:3] == b"TAG":
                offset += 128
            elif tag[:3] == b"ID3" and len(tag) == 10:
                size = sum((byte & 127) << 7 * k for k, byte in enumerate(reversed(tag[6:])))
                offset += 10 + size + (10 if tag[5] & 16 else 0)
            else:
                return offset


# ---- compressed ---------------------------------------------------------------------------------


def _flac(view: View, beginning: bytes) -> None:
    """FLAC of unknown length: libsndfile reads only what the header counts (RFC 9639)."""
    word = int.from_bytes(beginning[21:26])  # four other bits, and the number in 36
    view.samples = word & (2**36 - 1)
    view.patch = 21, (word - view.samples).to_bytes(5)


def _ogg(view: View, _: bytes) -> None:
    """Ogg, up to the page that begins another file, or to the last page (RFC 3533)."""
    offset, has_sound = view.start, False
    while (head := view.peek(offset, 27))[:4] == b"OggS" and len(head) == 27:
        if has_sound and head[5] & 2:
            view.end = view.next_start = offset
            return
        has_sound = has_sound or not head[5] & 2
        offset += 27 + head[26] + sum(view.peek(offset + 27, head[26]))
    damaged = offset > view.end or b"OggS" in view.peek(offset, 2**20)
    view.end = view.end if damaged else offset


XING = re.compile(
    rb"\xff[\xe0-\xff]..(?:..)?(?:.{9}|.{17}|.{32})(?:Xing|Info)...(.)(.{4})(.{4})", re.DOTALL
)
"""A first MPEG frame without sound: flags, the number of frames, and of bytes."""


def _mpeg(view: View, beginning: bytes) -> None:
    """MPEG, as long as the header says, so that an encoder's padding is skipped; or endless."""
    header = XING.match(beginning)
    flags = header[1][0] if header else 0
    if header is None or not flags & 1 or header[2] == bytes(4):
        view.endless, view.samples = True, 0
        return
    next_start = view.skip_tags(view.start + int.from_bytes(header[3]))
    # A damaged file of 0 bytes would follow itself, for ever.
    if flags & 2 and next_start > view.start and XING.match(view.peek(next_start, 128)):
        view.next_start = next_start


# ---- with a size in bytes -----------------------------------------------------------------------


class Chunks(NamedTuple):
    """A format made of chunks, each of a name, a size and as much data.

    The first is at `first`. A name has `name` bytes; a size has the `struct` type `size` and
    includes `overhead` bytes of name and size; chunks begin at multiples of `alignment`. The name
    of the sound's chunk begins with `sound`, and it holds `prefix` bytes before the first sample.
    The total size of all chunks is at `total`, if anywhere.
    """

    first: int
    name: int
    size: str
    overhead: int
    alignment: int
    sound: bytes
    prefix: int = 0
    total: int | None = None

    def at(self, view: View, offset: int) -> tuple[bytes, int, int] | None:
        """The name of the chunk at `offset`, and where its data begin and end; None without one."""
        width = struct.calcsize(self.size)
        head = view.peek(offset, self.name + width)
        if len(head) < self.name + width or not re.match(rb"[ -~]{4}", head):
            return None
        size = struct.unpack(self.size, head[self.name :])[0] - self.overhead
        return head[: self.name], offset + len(head), offset + len(head) + max(0, size)


RIFF = Chunks(12, 4, "<I", 0, 2, b"data", total=4)
RIFX = RIFF._replace(size=">I")
AIFF = Chunks(12, 4, ">I", 0, 2, b"SSND", prefix=8, total=4)
CAF = Chunks(8, 4, ">q", 0, 1, b"data", prefix=4)
W64 = Chunks(40, 16, "<q", 24, 8, b"data", total=16)

UNKNOWN_SIZES = (-1, 2**32 - 1)
"""Sizes of all ones, as written to a pipe."""
METADATA = re.compile(rb"TAG|ID3|APETAGEX|LYRICSBEGIN")


def _chunked(chunks: Chunks, view: View, beginning: bytes) -> None:
    offset = view.start + chunks.first
    while chunk := chunks.at(view, offset):
        name, body, end = chunk
        if name.startswith(chunks.sound):
            break
        offset = end + -(end - view.start) % chunks.alignment
    else:
        return
    field = body - struct.calcsize(chunks.size), chunks.size, chunks.overhead + chunks.prefix
    if beginning[12:16] == b"ds64":  # RF64, which has its sizes there
        field = view.start + 28, "<q", 0
    total_size = chunks.total and view.number(view.start + chunks.total, chunks.size)
    _sized(view, field, body + chunks.prefix, chunks, unreliable=total_size in (0, *UNKNOWN_SIZES))


def _au(view: View, beginning: bytes) -> None:
    body = view.start + int.from_bytes(beginning[4:8])
    _sized(view, (view.start + 8, ">I", 0), body, RIFX, unreliable=False)


def _sized(
    view: View, field: tuple[int, str, int], body: int, chunks: Chunks, *, unreliable: bool
) -> None:
    """Read to the end of the file if a size in the header is too low for the sound from `body` on.

    `field` is the size's offset, its type and how much of it is not sound. If `unreliable`, it may
    be too low even if it is not 0.
    """
    offset, kind, overhead = field
    size, available = view.number(offset, kind), view.end - body
    claimed = 0 if size in UNKNOWN_SIZES else max(0, size - overhead)
    remark = f"its header claims {claimed:,} bytes but {available:,} are there; read "
    if claimed > available:
        view.remark = remark + "as far as it goes"
        return
    next_chunk = chunks.at(view, body + claimed)
    if (
        claimed == available
        or (claimed and not unreliable)
        or (next_chunk and next_chunk[2] <= view.end)
        or METADATA.match(view.peek(body + claimed, 11))
    ):
        if chunks is W64:  # libsndfile would read all of it
            view.end = body + claimed
        return
    corrected = available + overhead if kind[1] == "q" else min(available + overhead, 2**32 - 2)
    view.patch = offset - view.start, struct.pack(kind, corrected)
    view.remark = "" if size in UNKNOWN_SIZES else remark + "to the end"


LAYOUTS: tuple[tuple[bytes, Callable[[View, bytes], None]], ...] = (
    (rb"fLaC[\x00\x80]", _flac),
    (rb"OggS", _ogg),
    (rb"\xff[\xe0-\xff]", _mpeg),
    (rb"RIFF", partial(_chunked, RIFF)),
    (rb"RIFX", partial(_chunked, RIFX)),
    (rb"RF64", partial(_chunked, RIFF._replace(total=None))),
    (rb"FORM....AIF", partial(_chunked, AIFF)),
    (rb"caff", partial(_chunked, CAF)),
    (rb"riff", partial(_chunked, W64)),
    (rb"\.snd", _au),
)
"""How files begin, and the function for each kind."""
