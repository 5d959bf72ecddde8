"""Rolls as notes: filled in again they give the roll, and no two could be joined into one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onsets import HELD, OFF, STRUCK, as_frames, random_states

from seqmodel.media.music.frames import notes_of


@settings(deadline=None, database=None, derandomize=True)
@given(
    length=st.integers(1, 30),
    density=st.sampled_from([0, 0.05, 0.5, 0.95, 1]),
    seed=st.integers(0, 99),
)
def test_notes_filled_in_again_are_the_roll(length, density, seed):
    """Guards against notes cut in two or paired with another's end, also at the roll's edges."""
    roll = (np.random.default_rng(seed).random((length, 88)) < density).astype(np.uint8)
    notes = notes_of(roll)
    again = np.zeros((length + 1, 88), np.uint8)  # one more frame, to see notes that end too late
    for begin, end, pitch in notes:
        assert begin < end
        again[begin:end, pitch - 21] += 1
        assert not roll[end:, pitch - 21][:1].any()
    assert np.array_equal(again[:-1], roll)
    assert not again[-1].any()
    assert sorted(map(tuple, notes[:, [0, 2, 1]])) == list(map(tuple, notes[:, [0, 2, 1]]))


@settings(deadline=None, database=None, derandomize=True)
@given(
    length=st.integers(1, 30),
    density=st.sampled_from([0, 0.05, 0.5, 0.95]),
    seed=st.integers(0, 99),
)
def test_a_note_struck_again_is_a_new_one(length, density, seed):
    """Guards against repeated notes joined, in MIDI files and in sound, or with the wrong ends."""
    states = random_states(seed, length, 88, density=density)
    again = np.full_like(states, OFF)
    for begin, end, pitch in notes_of(as_frames(states)):
        assert (again[begin:end, pitch - 21] == OFF).all()
        again[begin, pitch - 21], again[begin + 1 : end, pitch - 21] = STRUCK, HELD
    assert np.array_equal(again, states)
