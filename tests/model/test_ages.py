"""The ages of notes: their texts, run by Python and compiled, against a definition."""

import numpy as np
import pytest
import torch
from models import read_however_cut
from texts import compiled

from seqmodel.model.ages import (
    AGES,
    SILENT,
    SOUNDING,
    UNCHANGED,
    ages_size,
    count_ages,
    write_ages,
)
from seqmodel.model.notes import NoteEncoder
from seqmodel.outputs.notes import as_drawn

pytestmark = pytest.mark.usefixtures("unoptimised")


def piece(T, notes, *, onsets, seed=0):
    """Frames (T, F) with long notes, long rests, and spells in which nothing changes."""
    random = np.random.default_rng(seed)
    changes, again = random.random((2, T, notes)) < [[[0.08]], [[0.05]]]
    changes[T // 4 : T * 3 // 4] = again[T // 4 : T * 3 // 4] = False
    sounding = np.cumsum(changes, 0) % 2
    sounding[:, 0] = 0  # never
    if not onsets:
        return sounding.astype(float)
    drawn = torch.from_numpy(np.hstack([sounding, again]).astype(float))
    return as_drawn(drawn, torch.cat([torch.zeros(1, 2 * notes), drawn[:-1]])).numpy()


def by_definition(frames, notes):
    """The inputs (T, D, AGES) after each frame, from the whole piece at once."""
    sounding = frames[:, :notes] > 0
    before = np.vstack([np.zeros((1, notes), bool), sounding[:-1]])
    struck = frames[:, notes:] > 0 if frames.shape[1] > notes else sounding & ~before
    found = np.zeros((len(frames), notes, AGES))
    for t in range(len(frames)):
        moved = [k for k in range(t + 1) if (struck[k] | (sounding[k] != before[k])).any()]
        still = t - moved[-1] + 1 if moved else t + 1
        for n in range(notes):
            strikes, sounded = np.flatnonzero(struck[: t + 1, n]), sounding[: t + 1, n].nonzero()[0]
            age = t - strikes[-1] + 1 if sounding[t, n] else 0
            silent = t - sounded[-1] if len(sounded) and not sounding[t, n] else np.inf
            found[t, n] = [
                *(age >= k for k in SOUNDING),
                *(silent <= k for k in SILENT),
                *(still >= k for k in UNCHANGED),
            ]
    return found


def counted(frames, notes, count, write):
    """The same by the two texts."""
    ages, found = np.zeros(ages_size(notes), np.int64), np.zeros((len(frames), notes, AGES))
    for t, frame in enumerate(frames):
        count(frame=frame, ages=ages, D=notes)
        for n in range(notes):
            write(to=found[t, n], ages=ages, n=n, D=notes)
    return found


@pytest.mark.parametrize("onsets", [False, True])
def test_ages_are_those_of_the_definition(onsets):
    """Guards against a strike that does not begin anew, and silence before a note's first sound."""
    frames = piece(200, 5, onsets=onsets)
    example = {"frame": frames[0], "ages": np.zeros(1, np.int64), "D": 5}
    written = {"to": np.zeros(AGES), "ages": np.zeros(1, np.int64), "n": 0, "D": 5}
    expected = by_definition(frames, 5)
    assert expected.any((0, 1)).all()  # each threshold is passed somewhere
    fast = counted(
        frames, 5, compiled(count_ages, example, onsets=onsets), compiled(write_ages, written)
    )

    def plain(**given):
        count_ages(**given, onsets=onsets)

    assert (fast == expected).all()
    assert (counted(frames, 5, plain, write_ages) == expected).all()


@pytest.mark.parametrize("onsets", [False, True])
@pytest.mark.parametrize("echo", [False, True])
def test_the_encoder_reads_them_however_a_piece_is_cut(onsets, echo):
    """Guards the place of the counts in the memory, beside the echo's, and their carrying on."""
    frames = np.stack([piece(60, 7, onsets=onsets, seed=seed) for seed in (1, 2)], 1)
    encoder = NoteEncoder(7, onsets=onsets, ages=True, echo=echo)
    start = encoder.start(torch.zeros(1, dtype=torch.float64), 2)
    encoded = read_however_cut(encoder, torch.from_numpy(frames), start)
    found = encoded.skip.view(60, 2, 7, -1)[..., -AGES:].numpy()
    for b in range(2):
        # Before the first frame stands one of silence.
        heard = np.vstack([np.zeros((1, len(frames[0, 0]))), frames[:-1, b]])
        assert (found[:, b] == by_definition(heard, 7)).all()
