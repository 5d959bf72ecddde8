"""Learning curves: of one run, and of several for comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqmodel.files import write_file
from seqmodel.plots.png import ACCENT, PRIMARY, caption, png_bytes, wide_figure


def plot_learning_curve(path: Path, metrics: Sequence[Mapping[str, Any]]) -> None:
    """Draw nats per frame on train and valid over the epochs of a run, marking the best."""
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
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("nats per frame", loc="left", fontsize="medium")
    axes.grid(linewidth=0.5, color="0.85")
    axes.legend(frameon=False)
    write_file(path, png_bytes(figure))


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
    for axes in (by_update, by_time):
        axes.grid(linewidth=0.5, color="0.85")
    by_time.legend(frameon=False)
    write_file(path, png_bytes(figure))
