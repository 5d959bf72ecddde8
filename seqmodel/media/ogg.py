"""Reproducible Ogg files, which depend on nothing but their sound.

libsndfile takes a stream's serial number, which only matters where several streams share a file,
from the clock, and has no setting for it. It is in the header of each page (RFC 3533, section 6).
"""

import zlib

SERIAL, CHECKSUM = slice(14, 18), slice(22, 26)
SEGMENTS = 26
"""Where a page's header holds the number of its segments; their sizes follow, one byte each."""

MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Each byte with its bits in reverse order."""


def without_serial(data: bytes) -> bytes:
    """The single-stream Ogg file `data` with its serial number set to 0."""
    file, start = bytearray(data), 0
    while start < len(file):
        body = start + SEGMENTS + 1 + file[start + SEGMENTS]
        end = body + sum(file[start + SEGMENTS + 1 : body])
        page = file[start:end]
        page[SERIAL] = page[CHECKSUM] = bytes(4)
        # zlib's polynomial, but most significant bit first, from 0, not inverted.
        mirrored = zlib.crc32(page.translate(MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
        page[CHECKSUM] = int(f"{mirrored:032b}"[::-1], 2).to_bytes(4, "little")
        file[start:end] = page
        start = end
    return bytes(file)
