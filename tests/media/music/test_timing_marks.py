"""How far notes lie from the grid: from files to datasets and back."""

import io
from dataclasses import replace

import mido
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from midi_tracks import notes, save, tempo
from onsets import as_frames, marked, random_states

from seqmodel.data.bundled import FRAMES
from seqmodel.media.marks import Levels
from seqmodel.media.music.corpus import load_midi
from seqmodel.media.music.frames import marks_in, struck
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.original import Original
from seqmodel.media.music.placing import place
from seqmodel.media.music.writing import RATE, midi_bytes, render

TIMED = replace(FRAMES, onsets=True, marks={"timing": Levels()})


@pytest.mark.parametrize(
    ("grid", "microseconds"), [(Grid.of_beats(4), 500_000), (Grid.of_seconds(0.125), 500_000),
                        (Grid.of_seconds(0.05), 200_000)],
)  # fmt: skip
def test_notes_keep_how_far_they_are_from_the_grid(tmp_path, grid, microseconds):
    # Guards signs, and steps of beats taken for steps of time: 120 ticks are a frame in all three.
    some = [(0, 110, 60), (130, 240, 61), (230, 300, 62), (480, 600, 60), (539, 720, 70)]
    save(tmp_path / "a.mid", [[tempo(0, microseconds), *notes(some)]])
    found = marks_in(load_midi(tmp_path / "a.mid", replace(TIMED, grid=grid)).frames)["timing"]
    for frame, pitch, off in ((0, 60, 0), (1, 61, 10), (2, 62, -10), (4, 60, 0), (4, 70, 59)):
        assert found[frame, pitch - 21] == round(64 + 126 * off / 120)
    assert found[5, 70 - 21] == found[4, 70 - 21]  # held on


grids = st.sampled_from([Grid.of_beats(4), Grid.of_beats(7), Grid.of_beats(480),
                         Grid.of_seconds(0.02), Grid.of_seconds(0.0333)])  # fmt: skip


@settings(deadline=None, database=None, derandomize=True, max_examples=30)
@given(grids, st.integers(0, 99), st.floats(20, 300))
def test_moved_notes_stay_in_their_frames(grid, seed, bpm):
    """Guards against onsets that fall into another frame, or notes that swallow the next."""
    states = np.zeros((30, 88), np.uint8)
    states[:, 40:46] = random_states(seed, 30, 6, density=0.7)
    frames = as_frames(states)
    timing = np.random.default_rng(seed).integers(1, 128, (30, 88))
    data = midi_bytes(marked(frames, timing=timing), grid, tempo_bpm=bpm)
    placed = place(read_score(data), grid, drums=False)
    again = placed.frames(onsets=True)
    assert np.array_equal(again, np.pad(frames, ((0, len(again) - len(frames)), (0, 0))))
    (track,) = mido.MidiFile(file=io.BytesIO(data)).tracks
    for pitch in range(61, 67):
        kinds = [m.type for m in track if m.type.startswith("note_") and m.note == pitch]
        assert kinds == ["note_on", "note_off"] * (len(kinds) // 2)


def test_samples_are_as_late_as_their_timing(tmp_path):
    # Guards the way back: what is read again is what was drawn, but for where a piece begins.
    frames = as_frames(np.where(np.random.default_rng(3).random((20, 88)) < 0.1, 1, 0))
    begins = struck(frames)
    timing = np.random.default_rng(4).integers(3, 126, begins.shape) * begins
    timing[0] = np.maximum(timing[0], 64) * begins[0]
    (tmp_path / "a.mid").write_bytes(midi_bytes(marked(frames, timing=timing), Grid.of_beats(4)))
    found = marks_in(load_midi(tmp_path / "a.mid", TIMED).frames)["timing"]
    assert np.abs(found[:20].astype(int) - timing)[begins].max() <= 1  # of 120 ticks


def test_sound_is_as_late():
    one, times = np.array([[1, 3, 69]]), np.arange(5) * 0.1
    plain, late = (
        np.concatenate([*render(one, times, np.ones(1), late=shift)])
        for shift in (np.zeros(1), np.full(1, 0.25))
    )
    moved = round(0.025 * RATE)
    assert (plain[: round(0.1 * RATE)] == 0).all()
    assert np.array_equal(late[moved : moved + 6000], plain[:6000])


def test_files_that_are_filled_get_notes_off_the_grid(tmp_path):
    """Guards --into and --fill against drawn notes that are straightened."""
    save(tmp_path / "a.mid", [notes([(0, 480, 60), (480, 960, 62)])])
    original = Original(tmp_path / "a.mid", TIMED, transposed=0)
    frames, free = original.frames.copy(), np.zeros((8, 88), bool)
    free[2:4], timing = True, np.zeros((8, 88))
    frames[2:4, 70], frames[[2, 3], 88 + 70] = 1, 1
    timing[2, 70], timing[3, 70] = 64 + 63, 64 - 32
    data = original.with_drawn(marked(frames, timing=timing), free)
    *_, drawn = mido.MidiFile(file=io.BytesIO(data)).tracks
    ons = [(at, m.type) for at, m in zip(np.cumsum([m.time for m in drawn]), drawn, strict=True)]
    assert [at for at, kind in ons if kind == "note_on"] == [240 + 58, 360 - 30]
    assert [at for at, kind in ons if kind == "note_off"] == [330, 480]
