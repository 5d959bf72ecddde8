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
    following: int | None = None
    """Where the next file begins, after this one."""
    patch = 0, b""
    """An offset from `start`, and the bytes to read there instead of the header's."""

    def __init__(self, file: BinaryIO, start: int) -> None:
        self._file, self._at = file, 0
        self._error: BaseException | None = None
        self.end = file.seek(0, SEEK_END)
        self.start = self.past_tags(start)
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
        lie = self.endless and (offset, whence) == (0, SEEK_END)
        size = ENDLESS if lie else self.end - self.start
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
        place, new = self.patch
        first, last = max(place, self._at), min(place + len(new), self._at + len(data))
        if first < last:
            new = new[first - place : last - place]
            data = data[: first - self._at] + new + data[last - self._at :]
        self._at += len(data)
        return data

    def peek(self, place: int, count: int) -> bytes:
        """The unchanged bytes at an offset in the whole file."""
        self._file.seek(min(place, ENDLESS))  # no file system has more, and some reject it
        return self._file.read(count)

    def number(self, place: int, kind: str) -> int:
        """The number of a `struct` type at an offset in the whole file; 0 beyond the end."""
        data = self.peek(place, struct.calcsize(kind))
        return int(struct.unpack(kind, data)[0]) if len(data) == struct.calcsize(kind) else 0

    def past_tags(self, place: int) -> int:
        """The end of the ID3 tags that begin at `place`, if any (id3.org)."""
        while True:
            tag = self.peek(place, 10)
            if tag[:3] == b"TAG":
                place += 128
            elif tag[:3] == b"ID3" and len(tag) == 10:
                size = sum((byte & 127) << 7 * k for k, byte in enumerate(reversed(tag[6:])))
                place += 10 + size + (10 if tag[5] & 16 else 0)
            else:
                return place


# ---- compressed ---------------------------------------------------------------------------------


def _flac(view: View, beginning: bytes) -> None:
    """FLAC of unknown length: libsndfile reads only what the header counts (RFC 9639)."""
    word = int.from_bytes(beginning[21:26])  # four other bits, and the number in 36
    view.samples = word & (2**36 - 1)
    view.patch = 21, (word - view.samples).to_bytes(5)


def _ogg(view: View, _: bytes) -> None:
    """Ogg, up to the page that begins another file, or to the last page (RFC 3533)."""
    place, begun = view.start, False
    while (head := view.peek(place, 27))[:4] == b"OggS" and len(head) == 27:
        if begun and head[5] & 2:
            view.end = view.following = place
            return
        begun = begun or not head[5] & 2
        place += 27 + head[26] + sum(view.peek(place + 27, head[26]))
    damaged = place > view.end or b"OggS" in view.peek(place, 2**20)
    view.end = view.end if damaged else place


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
    after = view.past_tags(view.start + int.from_bytes(header[3]))
    if flags & 2 and XING.match(view.peek(after, 128)):
        view.following = after


# ---- with a size in bytes -----------------------------------------------------------------------


class Chunks(NamedTuple):
    """A format made of chunks, each of a name, a size and as much data.

    The first is at `first`. A name has `name` bytes; a size has the `struct` type `size` and
    includes `own` bytes of name and size; chunks begin at multiples of `multiple`. The name of the
    sound's chunk begins with `sound`, and it holds `before` bytes before the first sample. The
    total size of all chunks is at `whole`, if anywhere.
    """

    first: int
    name: int
    size: str
    own: int
    multiple: int
    sound: bytes
    before: int = 0
    whole: int | None = None

    def at(self, view: View, place: int) -> tuple[bytes, int, int] | None:
        """The name of the chunk at `place`, and where its data begin and end; None without one."""
        width = struct.calcsize(self.size)
        head = view.peek(place, self.name + width)
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
"""Sizes of all ones, as written to a pipe."""
METADATA = re.compile(rb"TAG|ID3|APETAGEX|LYRICSBEGIN")


def _chunked(chunks: Chunks, view: View, beginning: bytes) -> None:
    place = view.start + chunks.first
    while chunk := chunks.at(view, place):
        name, body, end = chunk
        if name.startswith(chunks.sound):
            break
        place = end + -(end - view.start) % chunks.multiple
    else:
        return
    field = body - struct.calcsize(chunks.size), chunks.size, chunks.own + chunks.before
    if beginning[12:16] == b"ds64":  # RF64, which has its sizes there
        field = view.start + 28, "<q", 0
    whole = chunks.whole and view.number(view.start + chunks.whole, chunks.size)
    _sized(view, field, body + chunks.before, chunks, unsure=whole in (0, *OPEN))


def _au(view: View, beginning: bytes) -> None:
    body = view.start + int.from_bytes(beginning[4:8])
    _sized(view, (view.start + 8, ">I", 0), body, RIFX, unsure=False)


def _sized(
    view: View, field: tuple[int, str, int], body: int, chunks: Chunks, *, unsure: bool
) -> None:
    """Read to the end of the file if a size in the header is too low for the sound from `body` on.

    `field` is the size's offset, its type and how much of it is not sound. If `unsure`, it may be
    too low even if it is not 0.
    """
    place, kind, more = field
    size, there = view.number(place, kind), view.end - body
    claimed = 0 if size in OPEN else max(0, size - more)
    remark = f"its header claims {claimed:,} bytes but {there:,} are there; read "
    if claimed > there:
        view.remark = remark + "as far as it goes"
        return
    after = chunks.at(view, body + claimed)
    if (
        claimed == there
        or (claimed and not unsure)
        or (after and after[2] <= view.end)
        or METADATA.match(view.peek(body + claimed, 11))
    ):
        if chunks is W64:  # libsndfile would read all of it
            view.end = body + claimed
        return
    new = there + more if kind[1] == "q" else min(there + more, 2**32 - 2)
    view.patch = place - view.start, struct.pack(kind, new)
    view.remark = "" if size in OPEN else remark + "to the end"


LAYOUTS: tuple[tuple[bytes, Callable[[View, bytes], None]], ...] = (
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
"""How files begin, and the function for each kind."""
