"""Sampled audio compared with the data: `Comparison` of recordings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.audio.frames import BLOCK, AudioFrames, sample_blocks
from seqmodel.media.audio.statistics import (
    AUDIBLE,
    VOICED,
    Floats,
    Statistics,
    check_finite,
    measure,
)
from seqmodel.media.definitions import Comparison, Pieces
from seqmodel.media.distributions import comparison_lines, shares, total_variation

FIGURES = (
    ("piece length, seconds", "length", "10.2f"),
    ("  shortest", "shortest", "10.2f"),
    ("  longest", "longest", "10.2f"),
    (f"frames above {AUDIBLE:g} dB", "audible_share", "10.4f"),
    ("  level, dB", "level", "10.2f"),
    ("  autocorrelation peak", "periodicity", "10.4f"),
    (f"  voiced: peak above {VOICED:g}", "voiced_share", "10.4f"),
    ("  pitch, Hz", "pitch", "10.1f"),
    ("longest pause, seconds", "longest_pause", "10.2f"),
    ("longest burst, seconds", "longest_burst", "10.2f"),
    ("samples clipped", "clipped_share", "10.4f"),
)
DISTANCES = (
    ("  level", "levels", "10.4f"),
    ("  autocorrelation peak", "periodicities", "10.4f"),
    ("  pitch", "pitches", "10.4f"),
    ("  pauses", "pauses", "10.4f"),
    ("  bursts", "bursts", "10.4f"),
    ("  spectrum, dB", "spectrum", "10.2f"),
)


class AudioComparison(Comparison):
    """See evaluation/README.md for what the figures mean and why these were chosen."""

    def compare(
        self, drawn: Sequence[NDArray[Any]], split: Pieces | None, train: Pieces
    ) -> dict[str, Any]:
        """`Comparison.compare`; SeqmodelError if a drawn sample is not finite."""
        assert isinstance(train.frame, AudioFrames)
        reference, frame = _of(train), train.frame
        sets = {"drawn": measure(map(_blocks, drawn), frame.rate, frame.loudest)}
        if split is not None:
            sets["split"] = _of(split)
        values = {
            name: {**_figures(of), "distances": _distances(of, reference), **_distributions(of)}
            for name, of in sets.items()
        }
        return {**values, "train": {**_figures(reference), **_distributions(reference)}}

    def lines(self, values: Mapping[str, Any], split: str) -> list[str]:
        """`Comparison.lines`."""
        return comparison_lines(values, split, FIGURES, DISTANCES)


def _of(pieces: Pieces) -> Statistics:
    frame = pieces.frame
    assert isinstance(frame, AudioFrames)
    recordings = (sample_blocks(pieces, i) for i in range(len(pieces)))
    return measure(recordings, frame.rate, frame.loudest)


def _blocks(drawn: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """A drawn piece (T, F) in blocks (n,)."""
    check_finite(drawn)
    line = drawn.reshape(-1)
    return (line[start : start + BLOCK] for start in range(0, len(line), BLOCK))


def _figures(of: Statistics) -> dict[str, float | None]:
    seconds = of.lengths / of.rate
    return {
        "length": _median(seconds),
        "shortest": float(seconds.min()),
        "longest": float(seconds.max()),
        "audible_share": _share(of.levels > AUDIBLE),
        "level": _median(of.audible_levels),
        "periodicity": _median(of.periodicities),
        "voiced_share": _share(of.periodicities > VOICED),
        "pitch": _median(of.pitches),
        "longest_pause": float(of.pauses.max(initial=0)),
        "longest_burst": float(of.bursts.max(initial=0)),
        "clipped_share": of.clipped / int(of.lengths.sum()),
    }


def _distances(of: Statistics, train: Statistics) -> dict[str, float | None]:
    theirs = train.distributions()
    ours, reference = of.spectrum(train.rate), train.spectrum(train.rate)
    apart = None
    if ours is not None and reference is not None:
        apart = float(np.sqrt(np.mean((ours - reference) ** 2)))
    distances = {name: total_variation(v, theirs[name]) for name, v in of.distributions().items()}
    return {**distances, "spectrum": apart}


def _distributions(of: Statistics) -> dict[str, Any]:
    return {"distributions": {name: shares(v) for name, v in of.distributions().items()}}


def _median(values: Floats) -> float | None:
    return float(np.median(values)) if len(values) else None


def _share(mask: NDArray[np.bool_]) -> float | None:
    return float(mask.mean()) if len(mask) else None
