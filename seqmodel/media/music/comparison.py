"""Sampled music compared with the data: `Comparison` of piano-rolls."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.definitions import Comparison, Pieces
from seqmodel.media.distributions import comparison_lines, shares, total_variation
from seqmodel.media.music.statistics import Statistics, mean

DISTRIBUTIONS = ("notes_per_frame", "note_lengths", "intervals", "pitch_classes", "melodic_steps")

Rolls = Sequence[NDArray[np.uint8]] | Pieces


class MusicComparison(Comparison):
    """See evaluation/README.md for what the figures mean and why these were chosen."""

    def compare(
        self, drawn: Sequence[NDArray[Any]], split: Pieces | None, train: Pieces
    ) -> dict[str, Any]:
        """`Comparison.compare`."""
        reference = Statistics.of(train)
        sets: dict[str, Rolls] = {"drawn": drawn, **({} if split is None else {"split": split})}
        values: dict[str, Any] = {"voices": reference.voices}
        for name, pieces in sets.items():
            statistics = Statistics.of(pieces)
            values[name] = {
                **_figures(statistics, reference.voices),
                **_against(statistics, reference),
                **_copies(pieces, train),
                "distributions": _distributions(statistics),
            }
        values["train"] = {
            **_figures(reference, reference.voices),
            "distributions": _distributions(reference),
        }
        return values

    def lines(self, values: Mapping[str, Any], split: str) -> list[str]:
        """`Comparison.lines`."""
        figures = (
            ("piece length, frames", "length", "10,g"),
            ("  shortest", "shortest", "10,"),
            ("  longest", "longest", "10,"),
            ("  within training's range", "length_share", "10.4f"),
            ("last chord, frames", "last_chord", "10,g"),
            ("  share on the tonic", "tonic_share", "10.4f"),
            ("notes per frame", "notes_per_frame", "10.4f"),
            (f"frames of {values['voices']} notes", "voices_share", "10.4f"),
            ("note length, frames", "note_length", "10.4f"),
            ("  longest", "longest_note", "10,"),
            ("  pieces with a note drone", "long_note_share", "10.4f"),
            ("longest chord, frames", "longest_chord", "10,"),
            ("  pieces with a chord drone", "long_chord_share", "10.4f"),
            ("dissonant intervals", "dissonance", "10.4f"),
            ("melodic step, semitones", "melodic_step", "10.4f"),
            ("copied in a row, frames", "copied_frames", "10.4f"),
            ("  share of the piece", "copied_share", "10.4f"),
            ("  most, frames", "most_copied_frames", "10,"),
        )
        distances = [(f"  {name.replace('_', ' ')}", name, "10.4f") for name in DISTRIBUTIONS]
        return comparison_lines(values, split, figures, distances)


def _figures(of: Statistics, voices: int) -> dict[str, float]:
    steps = of.melodic_steps
    return {
        "length": float(np.median(of.lengths)),
        "shortest": min(of.lengths),
        "longest": max(of.lengths),
        "last_chord": float(np.median(of.last_chords)),
        "tonic_share": sum(of.on_tonic) / len(of.on_tonic),
        "notes_per_frame": mean(of.notes_per_frame),
        "voices_share": of.notes_per_frame[voices] / of.notes_per_frame.total(),
        "note_length": mean(of.note_lengths),
        "longest_note": max(of.longest_notes),
        "longest_chord": max(of.longest_chords),
        "dissonance": of.dissonance,
        "melodic_step": sum(abs(k) * n for k, n in steps.items()) / max(steps.total(), 1),
    }


def _against(of: Statistics, train: Statistics) -> dict[str, Any]:
    lengths = np.array(of.lengths)
    fitting = (min(train.lengths) <= lengths) & (lengths <= max(train.lengths))
    return {
        "length_share": float(fitting.mean()),
        "long_note_share": _share_above(max(train.longest_notes), of.longest_notes),
        "long_chord_share": _share_above(max(train.longest_chords), of.longest_chords),
        "distances": {
            name: total_variation(getattr(of, name), getattr(train, name)) for name in DISTRIBUTIONS
        },
    }


def _share_above(limit: int, values: Sequence[int]) -> float:
    return sum(value > limit for value in values) / len(values)


def _copies(pieces: Rolls, train: Pieces) -> dict[str, float]:
    copied = longest_copies(pieces, train)
    lengths = np.array([len(piece) for piece in pieces])
    return {
        "copied_frames": float(copied.mean()),
        "copied_share": float((copied / lengths).mean()),
        "most_copied_frames": int(copied.max()),
    }


def _distributions(of: Statistics) -> dict[str, dict[int, float]]:
    """Each distribution as value -> share."""
    return {name: shares(getattr(of, name)) for name in DISTRIBUTIONS}


def longest_copies(
    pieces: Iterable[NDArray[np.uint8]], train: Iterable[NDArray[np.uint8]]
) -> NDArray[np.int64]:
    """For each piece the length (n,), in frames, of its longest run that is in a piece of `train`.

    Frames (T, F) of zeros and ones are equal only if equal note by note: a transposed copy does not
    count. Exact, and never sorts more values than there are frames: runs of L frames that occur on
    both sides are numbered by content, and only they can grow to L + 1.
    """
    theirs, ours = [_packed(piece) for piece in train], [_packed(piece) for piece in pieces]
    longest = np.zeros(len(ours), np.int64)
    lengths = np.array([len(piece) for piece in [*theirs, *ours]], np.int64)
    owner = np.repeat(np.arange(len(lengths)) - len(theirs), lengths)  # below 0 in train
    end = np.repeat(np.cumsum(lengths), lengths)
    if not len(owner):
        return longest
    content, frame = np.unique(np.concatenate([*theirs, *ours]), return_inverse=True)
    at, stretch, length = np.arange(len(owner)), np.zeros(len(owner), np.int64), 0
    while len(at):
        # The runs of `length` frames that begin at `at`, extended by one frame.
        inside = at + length < end[at]
        at = at[inside]
        grown = stretch[inside] * len(content) + frame[at + length]
        known, stretch = np.unique(grown, return_inverse=True)
        length += 1
        sampled = owner[at] >= 0
        shared = np.zeros((2, len(known)), bool)
        shared[0, stretch[sampled]] = shared[1, stretch[~sampled]] = True
        both = (shared[0] & shared[1])[stretch]
        at, stretch = at[both], stretch[both]
        longest[owner[at[owner[at] >= 0]]] = length
    return longest


def _packed(frames: NDArray[np.uint8]) -> NDArray[np.void]:
    """Frames (T, F) as T opaque values that sort and compare bit by bit."""
    packed = np.packbits(frames, axis=1)
    return packed.view(np.dtype((np.void, packed.shape[1])))[:, 0]
