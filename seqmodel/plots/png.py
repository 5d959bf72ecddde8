"""Shared by all plots: colours, captions and conversion to PNG."""

import io
import struct
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRIMARY, ACCENT = "#1f4e79", "#c8782a"
DARK = "#0b1c2c", "#5c3310"
"""The same, where a note begins."""


def caption(text: str) -> str:
    """The text for verbatim display in a plot: no part of it is read as a formula.

    Characters missing from the font, and unprintable ones, are escaped.
    """
    from matplotlib.font_manager import FontProperties, findfont, get_font

    known = get_font(findfont(FontProperties())).get_charmap()
    shown = (
        c if c.isprintable() and ord(c) in known else c.encode("unicode_escape").decode()
        for c in text
    )
    return "".join(shown).replace("$", r"\$")


def wide_figure(height: float, *shape: int, **layout: Any) -> tuple["Figure", Any]:
    """A figure 10 inches wide, and its `subplots` of this shape."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, height), layout="constrained")
    return figure, figure.subplots(*shape, **layout)


def png_bytes(figure: "Figure") -> bytes:
    """The figure as PNG; its bytes depend on nothing but the data."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
    return buffer.getvalue()


def shades_png(columns: int, rows: int, values: bytes) -> bytes:
    """Ink on a transparent ground, from `values`: one per cell, from 0, nothing, to 255, opaque.

    In 32 shades, which halves the size. (PNG, W3C 2003: a palette whose colours are all black.)
    """
    dull = bytes(value >> 3 for value in range(256))
    alpha = bytes(round(255 * shade / 31) for shade in range(32))
    cells = values.translate(dull)
    lines = b"".join(b"\0" + cells[k : k + columns] for k in range(0, len(cells), columns))
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(3 * 32)),
        (b"tRNS", alpha),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
