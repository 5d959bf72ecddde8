"""Shared by all plots: colours, captions and conversion to PNG."""

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRIMARY, ACCENT = "#1f4e79", "#c8782a"
DARK_PRIMARY, DARK_ACCENT = "#0b1c2c", "#5c3310"
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


def png_bytes(figure: "Figure") -> bytes:
    """The figure as PNG; its bytes depend on nothing but the data."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
    return buffer.getvalue()
