"""The picture of a piece above the nats of its frames."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seqmodel.files import write_file
from seqmodel.media.definitions import Picture
from seqmodel.plots import ACCENT, PRIMARY, caption, png_bytes


def plot_nats(path: Path, picture: Picture, nats: Sequence[float], title: str) -> None:
    """Draw a piece, and below it the nats of each of its frames (T,), to `path`."""
    from matplotlib.collections import PatchCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(10, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    scale = len(nats) / picture.width  # x of the picture in frames
    boxes = [Rectangle((b.x * scale, b.y), b.width * scale, b.height) for b in picture.boxes]
    edge = "white" if picture.apart else "none"
    above.add_collection(PatchCollection(boxes, facecolor=PRIMARY, edgecolor=edge, linewidth=0.3))
    if (grid := picture.shades) is not None:
        cells = np.frombuffer(grid.values, np.uint8).reshape(grid.rows, grid.columns)
        extent = (0, grid.columns * scale, picture.bottom, picture.top)
        above.imshow(cells, cmap="magma", vmin=0, vmax=255, extent=extent, aspect="auto")
    above.set_ylim(picture.bottom, picture.top)
    above.set_yticks([level.y for level in picture.levels], [lv.name for lv in picture.levels])
    above.set_title(caption(title), fontsize=10)
    below.stairs(nats, np.arange(len(nats) + 1), color=ACCENT)
    below.set_ylim(bottom=min(0.0, *nats))
    below.set(xlim=(0, len(nats)), xlabel="frame", ylabel="nats")
    for axes in (above, below):
        axes.grid(axis="y", linewidth=0.5, color="0.85")
        axes.set_axisbelow(True)
    write_file(path, png_bytes(figure))
