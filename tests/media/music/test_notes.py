"""Rolls as notes: filled in again they give the roll, and no two could be joined into one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onsets import HELD, OFF, STRUCK, as_frames, random_states

from seqmodel.media.music.frames import notes_of


@settings(deadline=None, database=None, derandomize=True)
@given(
    length=st.integers(1, 30),
    density=st.sampled_from([0, 0.05, 0.5, 0.95]),
    seed=st.integers(0, 99),
)
def test_a_note_struck_again_is_a_new_one(length, density, seed):
    """Guards against repeated notes joined, in MIDI files and in sound, with the wrong ends, or out
    of order; also at the roll's edges."""
    states = random_states(seed, length, 88, density=density)
    again = np.full_like(states, OFF)
    notes = notes_of(as_frames(states)).tolist()
    assert notes == sorted(notes, key=lambda note: (note[0], note[2]))
    for begin, end, pitch in notes:
        assert (again[begin:end, pitch - 21] == OFF).all()
        again[begin, pitch - 21], again[begin + 1 : end, pitch - 21] = STRUCK, HELD
    assert np.array_equal(again, states)
