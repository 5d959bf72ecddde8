"""What `seqmodel eval` always reports about a run: its likelihood next to trivial baselines."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.data.dataset import Dataset, Split
from seqmodel.errors import SeqmodelError
from seqmodel.evaluation.baselines import baselines
from seqmodel.evaluation.likelihood import BATCH_SIZE, Likelihood, average, likelihood
from seqmodel.files import write_file
from seqmodel.media.registry import medium_of
from seqmodel.media.samples import Picture, Progress, no_progress, part_progress
from seqmodel.plots import ACCENT, PRIMARY, caption, png_bytes, wide_figure
from seqmodel.runs.folder import Run


def evaluate(
    run: Run,
    dataset: Dataset,
    split: str,
    *,
    others: Sequence[Run] = (),
    batch_size: int = BATCH_SIZE,
    per_piece: bool = False,
    per_frame: bool = False,
    voice_nats: tuple[float, int] | None = None,
    classify: str | None = None,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """The score of a run on one split of a dataset, as plain values: see README.md.

    With `others` it is the score of the average of all these runs, which `check_average` allows.
    `voice_nats` are those of which voice sings what, and the number of notes: see `Medium.voices`.
    """
    pieces, train = dataset[split], run.train_of(dataset)
    runs, likelihoods = (run, *others), []
    hypotheses = _label_hypotheses(run, pieces, classify) if classify else []
    passes = len(runs) + len(hypotheses)
    for k, one in enumerate(runs):
        scores = likelihood(
            one.model, pieces, batch_size=batch_size, each_frame=per_frame or len(runs) > 1,
            progress=part_progress(progress, k, passes),
        )  # fmt: skip
        if not math.isfinite(scores.nats_per_frame):
            raise SeqmodelError(
                f"{one.folder} scores {scores.nats_per_frame} nats per frame on {split} of "
                f"{dataset.folder}: its weights are too large, or a piece holds impossible frames "
                "(`seqmodel inspect` checks all); use another run"
            )
        likelihoods.append(scores)
    by_value = [
        likelihood(run.model, pieces, batch_size=batch_size, labels=labels,
                   progress=part_progress(progress, k, passes))
        for k, labels in enumerate(hypotheses, len(runs))
    ]  # fmt: skip
    of_runs = [
        {"run": str(one.folder), "epoch": one.epoch, **scores.to_json()}
        for one, scores in zip(runs, likelihoods, strict=True)
    ]
    scores = average(likelihoods) if others else likelihoods[0]
    standardisation = run.frame.standardisation()
    trivial: dict[str, float] = {}
    copies: dict[str, float] = {}
    if train is not None:
        trivial = baselines(train, pieces, run.frame, discrete=run.model.output.discrete)
        if split != "train":
            copies = medium_of(run.frame).copies({split: pieces}, train).get(split, {})
    return {
        **({"runs": of_runs} if others else {"run": str(run.folder)}),
        "data": str(dataset.folder),
        "split": split,
        **({} if others else {"epoch": run.epoch}),
        **({} if standardisation is None else {"standardisation": standardisation}),
        **scores.to_json(),
        **({} if voice_nats is None else {"voices": _with_voices(scores, *voice_nats)}),
        **(_classified(run, pieces, classify, *by_value) if classify else {}),
        "baselines": trivial,
        **({"copies": copies} if copies else {}),
        **({"per_piece": _per_piece(pieces, scores)} if per_piece or per_frame else {}),
    }


def _label_hypotheses(run: Run, pieces: Split, label: str) -> list[NDArray[np.int64]]:
    """No labels (pieces, L), then each value of this label for all pieces, without other labels.

    The run must know it; SeqmodelError if no piece has it.
    """
    known = run.model.known_labels
    column = [*known].index(label)
    labels = pieces.labels(known)
    if not labels[:, column].any():
        raise SeqmodelError(f"no piece of {pieces.name} has a {label} that {run.folder} knows")
    values = range(1 + len(known[label]))
    return [np.where(np.arange(len(known)) == column, value, 0 * labels) for value in values]


def _classified(
    run: Run, pieces: Split, label: str, without: Likelihood, *by_value: Likelihood
) -> dict[str, Any]:
    """The figures without labels, and those of the value that makes each piece most likely.

    All values are equally probable a priori. `confusion` has a row for each true value, with the
    number of its pieces classified as each value.
    """
    known = run.model.known_labels
    true = pieces.labels(known)[:, [*known].index(label)]
    predicted = 1 + np.argmin([scores.piece_nats for scores in by_value], axis=0)
    confusion = np.zeros((1 + len(by_value),) * 2, np.int64)
    np.add.at(confusion, (true, predicted), 1)
    confusion = confusion[1:, 1:]  # without pieces whose value is unknown
    count = int(confusion.sum())
    figures = {
        "label": label,
        "pieces": count,
        "accuracy": float(confusion.trace()) / count,
        "values": list(known[label]),
        "confusion": confusion.tolist(),
    }
    return {"without_labels": without.to_json(), "classify": figures}


def _with_voices(scores: Likelihood, nats: float, notes: int) -> dict[str, float]:
    """The figures of pitches and voices together; `nats` are those of which voice sings what."""
    frames = int(scores.lengths.sum())
    total = scores.nats_per_frame * frames + nats
    return {
        "nats_per_frame": total / frames,
        "assignment_nats_per_frame": nats / frames,
        "nats_per_note": total / notes,
        "notes": notes,
    }


def _per_piece(pieces: Split, scores: Likelihood) -> list[dict[str, Any]]:
    rows = []
    for k, (source, frames) in enumerate(zip(pieces.sources, pieces.lengths.tolist(), strict=True)):
        nats = float(scores.piece_nats[k])
        row = {"source": source, "frames": frames, "nats": nats, "nats_per_frame": nats / frames}
        if scores.frame_nats:
            row["frame_nats"] = scores.frame_nats[k].tolist()
        rows.append(row)
    return rows


def plot_nats(path: Path, picture: Picture, nats: Sequence[float], title: str) -> None:
    """Draw a piece, with the nats of its frames (T,) below it, to `path`."""
    figure, (above, below) = wide_figure(6, 2, 1, sharex=True, height_ratios=(2, 1))
    draw_picture(above, picture, len(nats))
    above.set_title(caption(title), fontsize=10)
    below.stairs(nats, np.arange(len(nats) + 1), color=ACCENT)
    below.set_ylim(bottom=min(0.0, *nats))
    below.set(xlim=(0, len(nats)), xlabel="frame", ylabel="nats")
    below.grid(axis="y", linewidth=0.5, color="0.85")
    below.set_axisbelow(True)
    write_file(path, png_bytes(figure))


def draw_picture(
    axes: Any,
    picture: Picture,
    width: float,
    *,
    colour: str = PRIMARY,
    given: str = ACCENT,
    shades: Any = "magma",
) -> None:
    """Draw a piece on matplotlib's axes, x from 0 to `width`, with its levels marked.

    In `colour`, and what was given in the colour `given`; a grid in the colour map `shades`.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    scale = width / picture.width
    for name, boxes, fill in (("boxes", picture.boxes, colour), ("given", picture.given, given)):
        if boxes:  # as one path: a patch for each would make an SVG three times as large
            x, y, wide, high = np.array(boxes).T
            corners = [(x, y), (x + wide, y), (x + wide, y + high), (x, y + high), (x, y)]
            points = np.array(corners).transpose(2, 0, 1).reshape(-1, 2) * (scale, 1)
            steps = [Outline.MOVETO, *[Outline.LINETO] * 3, Outline.CLOSEPOLY] * len(boxes)
            outline = Outline(points, steps)
            axes.add_patch(PathPatch(outline, fc=fill, ec="white", linewidth=0.3, gid=name))
    if (cells := picture.heatmap) is not None:
        extent = (0, cells.shape[1] * scale, picture.bottom, picture.top)
        look = {"vmin": 0, "vmax": 255, "aspect": "auto", "interpolation": "none"}
        axes.imshow(cells, cmap=shades, extent=extent, **look)
    axes.set_ylim(picture.bottom, picture.top)
    axes.set_yticks([*picture.ticks], [*picture.ticks.values()])
    axes.grid(axis="y", linewidth=0.5, color="0.85")
    axes.set_axisbelow(True)
