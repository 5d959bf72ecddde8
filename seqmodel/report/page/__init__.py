"""Report pages: plain data in, one self-contained HTML file out."""

from seqmodel.report.page.parts import (
    Cloud,
    Column,
    Curve,
    Curves,
    Detail,
    Dot,
    Facts,
    Page,
    Part,
    Point,
    Row,
    Sample,
    Samples,
    Scatter,
    Section,
    Table,
    Trace,
)
from seqmodel.report.page.render import render

__all__ = [
    "Cloud",
    "Column",
    "Curve",
    "Curves",
    "Detail",
    "Dot",
    "Facts",
    "Page",
    "Part",
    "Point",
    "Row",
    "Sample",
    "Samples",
    "Scatter",
    "Section",
    "Table",
    "Trace",
    "render",
]
