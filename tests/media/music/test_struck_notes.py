"""Notes struck and held: edge cases of the rule, storage, transposition, .npy of 0, 1 and 2."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from midi_files import midi_file, note, piano_roll
from onsets import HELD, OFF, STRUCK, as_frames, random_states

from seqmodel.errors import SourceError
from seqmodel.media.music.corpus import MusicCorpus, load_roll
from seqmodel.media.music.frames import (
    PianoRollFrames,
    after_silence,
    from_states,
    possible,
    states,
    with_onsets,
)
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_score
from seqmodel.media.registry import definition_from_json

GRID = Grid.of_beats(1)
FRAME = PianoRollFrames(GRID, onsets=True)
random_frames = st.builds(
    lambda seed, length, density: as_frames(random_states(seed, length, 88, density=density)),
    *(st.integers(0, 2**32), st.integers(1, 30), st.sampled_from([0.01, 0.3, 0.9])),
)


HOLD = note(0, 40)
AGAIN = b"\x00\x90\x3c\x40\x14\x90\x3c\x40\x14\x80\x3c\x40"  # on, 20 later on again, 20 later off


@pytest.mark.parametrize(
    ("tracks", "restrike", "expected"),
    [
        ([HOLD], "close", [1, 2, 2, 2]),
        ([AGAIN], "close", [1, 2, 1, 2]),
        ([AGAIN], "discard", [0, 0, 1, 2]),  # the first note is gone, and its strike with it
        ([note(0, 20) + note(0, 20)], "close", [1, 2, 1, 2]),
        ([note(0, 20) + note(0, 20)], "discard", [1, 2, 1, 2]),  # it had ended
        ([note(0, 17) + note(3, 20)], "close", [1, 2, 1, 2]),  # a rest too short for a frame
        ([note(0, 24) + note(12, 14)], "close", [1, 2, 0, 0, 1]),  # struck off the grid
        ([note(0, 10) + note(0, 2) + note(0, 28)], "close", [1, 1, 2, 2]),  # two within one frame
        ([note(0, 20) + note(0, 3), HOLD], "close", [1, 2, 1, 2]),  # shorter than a frame
        ([note(0, 2) + note(8, 2) + note(0, 2) + note(8, 20)], "close", [1, 1, 1, 2]),
        ([note(0, 2) + note(0, 2) + note(0, 24)], "close", [1, 2, 2]),  # three within one frame
        ([note(0, 2) + note(12, 2, pitch=61) + note(4, 0)], "close", [1, 0, 1]),  # of length 0
        ([HOLD, note(10, 10)], "close", [1, 1, 2, 2]),  # by another track into the first
        ([HOLD, note(0, 20)], "close", [1, 2, 2, 2]),  # by both at once
        ([HOLD, note(10, 10, channel=1)], "discard", [1, 1, 2, 2]),  # nothing to discard
        ([HOLD, note(20, 10, channel=9)], "close", [1, 2, 2, 2]),  # drums
        ([HOLD, note(20, 10, channel=9)], "drums", [1, 2, 1, 2]),  # where they are kept
        ([note(0, 40, pitch=12), note(20, 10, pitch=24)], "close", [1, 2, 1, 2]),  # both fold to 24
    ],
)
def test_where_a_note_is_struck(tracks, restrike, expected):
    """Guards the rule: a note is struck in its first frame, whatever else its pitch does there."""
    pitch, drums = 24 if tracks[0] == note(0, 40, pitch=12) else 60, restrike == "drums"
    data = midi_file(*tracks, division=10)  # at ten ticks a frame
    score = read_score(data, restrike="close" if drums else restrike)
    found = states(piano_roll(score, GRID, drums=drums, onsets=True))
    assert found[:, pitch - 21].tolist() == expected


@settings(max_examples=50)
@given(random_frames)
def test_frames_are_stored_in_22_bytes_and_read_back(frames):
    rows = FRAME.encode(frames)
    assert rows.shape == (len(frames), *FRAME.row_shape) == (len(frames), 22)
    assert np.array_equal(FRAME.decode(rows), frames)
    assert not FRAME.decode(np.zeros_like(rows)).any()
    assert np.array_equal(from_states(states(frames)), frames)
    assert possible(frames)


@settings(max_examples=50)
@given(random_frames, st.sampled_from(FRAME.variants))
def test_transposed_notes_keep_their_strikes(frames, semitones):
    """Recomputed note by note: two that folding brings together are struck if either is."""
    found = states(frames)
    expected = np.zeros_like(found)
    for t, pitch in np.argwhere(found):
        place = pitch + semitones
        place += 12 * (place < 0) - 12 * (place > 87)
        both = found[t, pitch], expected[t, place]
        expected[t, place] = STRUCK if STRUCK in both else HELD
    batch = np.stack([frames, frames], axis=1)  # a column of which is not contiguous
    moved = FRAME.vary(batch[:, 1], semitones)
    assert np.array_equal(moved, as_frames(expected))
    assert possible(moved)


def test_only_frames_with_onsets_say_so():
    """Guards old manifests, whose bytes and fingerprint must not change."""
    plain = PianoRollFrames(GRID)
    assert "onsets" not in plain.to_json()
    assert "short_notes" not in replace(plain, short_notes=False).to_json()
    assert (plain.fingerprint, plain.row_shape, plain.frame_size) == (b"", (11,), 88)
    for frame in (plain, FRAME, replace(plain, short_notes=False)):
        assert definition_from_json("music", json.loads(json.dumps(frame.to_json()))) == frame
    assert FRAME.fingerprint != plain.fingerprint
    assert FRAME.frame_size == FRAME.context == 176
    assert FRAME.differences(plain) == ["with onsets, not without onsets"]
    assert str(FRAME) == "88 notes struck or held, 1 step per beat"


def test_strikes_of_a_plain_roll():
    """A note after silence is struck, also in the first frame; one that continues is held."""
    roll = np.zeros((4, 88), np.uint8)
    roll[:, 7] = [1, 1, 0, 1]
    frames = with_onsets(roll)
    assert states(frames)[:, 7].tolist() == [STRUCK, HELD, OFF, STRUCK]
    cut = frames[1:]
    assert not possible(cut)
    assert states(after_silence(cut))[:, 7].tolist() == [STRUCK, OFF, STRUCK]
    assert states(cut)[0, 7] == HELD  # unchanged


def test_a_npy_of_states_is_read_with_and_without_onsets(tmp_path):
    """Guards its split too: one content with or without onsets, other than the plain roll's."""
    found = random_states(1, 9, 88, density=0.3)
    path = tmp_path / "a.npy"
    np.save(path, found.astype(np.float64))
    assert np.array_equal(load_roll(path)[0], as_frames(found))
    (told,) = MusicCorpus(FRAME).works(path)
    (plain,) = MusicCorpus(PianoRollFrames(GRID)).works(path)
    for work, frames in ((told, as_frames(found)), (plain, found > 0)):
        (rows,) = work.rows(0, work.frames)
        assert np.array_equal(rows, np.packbits(frames, axis=1))
    np.save(tmp_path / "b.npy", found > 0)
    (roll,) = MusicCorpus(PianoRollFrames(GRID)).works(tmp_path / "b.npy")
    assert told.content == plain.content != roll.content
    assert plain.prepared == roll.prepared


def test_rolls_without_onsets_are_refused(tmp_path):
    """Guards against made-up strikes: in a roll a repeated note and a long one look alike."""
    roll = np.ones((3, 88), np.uint8)
    np.save(tmp_path / "a.npy", roll)
    np.savez(tmp_path / "a.npz", train_0=roll)
    np.savez(tmp_path / "held.npz", train_0=np.where(np.arange(3)[:, None] > 0, 2, roll))
    needed = r"as MIDI files do, and \.npy of 0 \(off\)"
    for name, why in (("a.npy", needed), ("a.npz", needed), ("held.npz", "other than 0 and 1")):
        with pytest.raises(SourceError, match=why):
            list(MusicCorpus(FRAME).works(tmp_path / name))
