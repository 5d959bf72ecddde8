"""Plots: learning curves, and what all plots share: colours, captions, conversion to files."""

import io
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodel.files import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Where HOME cannot be written, matplotlib warns on stderr and does without it.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

PRIMARY, ACCENT = "#1f4e79", "#c8782a"
DARK = "#0b1c2c", "#5c3310"
"""The same colours, for where a note begins."""


def caption(text: str) -> str:
    """The text for a plot, verbatim: without formulas, and with odd characters escaped."""
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
    """The figure as PNG; its bytes depend only on the data."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
    return buffer.getvalue()


def write_lines(path: Path, figure: "Figure", *axes: Any) -> None:
    """Write a figure of lines as PNG, with a grid in its axes and a legend in the last."""
    for each in axes:
        each.grid(linewidth=0.5, color="0.85")
    axes[-1].legend(frameon=False)
    write_file(path, png_bytes(figure))


def svg_text(figure: "Figure") -> str:
    """The figure as SVG on a transparent background; it depends only on the data."""
    from matplotlib import rc_context

    buffer, nothing = io.StringIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "seqmodel"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    return buffer.getvalue()


def plot_learning_curve(path: Path, metrics: Sequence[Mapping[str, Any]]) -> None:
    """Draw nats per frame on train and valid over a run's epochs, or parts, and mark the best."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7, 4))  # every run has one: an automatic layout takes half the time
    figure.subplots_adjust(left=0.1, right=0.98, bottom=0.13, top=0.92)
    axes = figure.subplots()
    epochs = [line["epoch"] for line in metrics]
    valid = [line["valid_nats_per_frame"] for line in metrics]
    train = [line["train_nats_per_frame"] for line in metrics]
    axes.plot(epochs, train, color="0.6", label="train (during training)")
    axes.plot(epochs, valid, color=PRIMARY, label="valid")
    best = int(np.argmin(valid))
    place, text = (epochs[best], valid[best]), f"{valid[best]:.3f}"
    axes.plot(*place, "o", color=ACCENT)
    axes.annotate(text, place, textcoords="offset points", xytext=(0, 8), ha="center")
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=all(type(epoch) is int for epoch in epochs)))
    axes.set_title("nats per frame", loc="left", fontsize="medium")
    write_lines(path, figure, axes)


def plot_curves(path: Path, title: str, curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Draw nats per frame on valid of several runs, against updates and against training time."""
    figure, (by_update, by_time) = wide_figure(4, 1, 2, sharey=True)
    for name, metrics in curves.items():
        valid = [line["valid_nats_per_frame"] for line in metrics]
        by_update.plot([line["updates"] for line in metrics], valid, label=caption(name))
        by_time.plot(np.cumsum([line["seconds"] for line in metrics]), valid, label=caption(name))
    by_update.set_xlabel("updates")
    by_time.set_xlabel("seconds")
    by_update.set_ylabel("nats per frame on valid")
    by_update.set_title(caption(title), loc="left")
    write_lines(path, figure, by_update, by_time)
