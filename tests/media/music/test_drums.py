"""Drums as the hits of a kit: placed, written, read back, counted, rendered."""

import io
from dataclasses import replace
from fractions import Fraction
from math import floor

import mido
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from midi_files import grids, midi_file, note, written
from midi_tracks import at_ticks

from seqmodel.media.music.evaluation import MusicComparison
from seqmodel.media.music.frames import PianoRollFrames, notes_of
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.kit import SOUNDS, drum_sound, sound_name
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.placing import Tally, place
from seqmodel.media.music.writing import render, velocities

BEATS = Grid.of_beats(4)
KIT = PianoRollFrames(BEATS, drums=True, kit=True)


def hits(seed, length, density):
    return (np.random.default_rng(seed).random((length, 47)) < density).astype(np.uint8)


frames_of_kits = st.builds(
    hits, st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([0, 0.02, 0.3, 1])
)


def by_mido(data, steps_per_beat):
    """The hits of a file, read without seqmodel: channel 10, rounded half up to the grid."""
    file, found = mido.MidiFile(file=io.BytesIO(data)), set()
    for track in file.tracks:
        for now, message in at_ticks(track):
            if message.type == "note_on" and message.velocity and message.channel == 9:
                steps = Fraction(now * steps_per_beat, file.ticks_per_beat)
                found.add((floor(steps + Fraction(1, 2)), message.note - 35))
    roll = np.zeros((1 + max((t for t, _ in found), default=-1), 47), np.uint8)
    for place_of in found:
        roll[place_of] = 1
    return roll


@settings(derandomize=True, max_examples=40)
@given(frames_of_kits, grids(), st.floats(3.6, 1000), st.booleans())
def test_hits_read_back_as_they_were_written(frames, grid, tempo, flat):
    """Guards against hits that merge where a sound is struck in every frame, and lost ends."""
    data = written(frames, grid, tempo_bpm=tempo, flat=flat)
    placed = place(read_score(data), replace(KIT, grid=grid))
    assert np.array_equal(placed.frames(onsets=False), frames)
    assert placed.tally(frames) == Tally(read=frames.sum())
    messages = [m for track in mido.MidiFile(file=io.BytesIO(data)).tracks for m in track]
    assert {m.channel for m in messages if not m.is_meta} == {9}
    if grid.steps_per_beat:
        heard = by_mido(data, grid.steps_per_beat)
        assert np.array_equal(heard, frames[: len(heard)])
        assert not frames[len(heard) :].any()


def test_hits_have_no_length_and_the_rest_of_the_band_is_left_out():
    """Guards against hits held on, pitched notes as drums, and keys that vanish unsaid."""
    data = midi_file(
        note(0, 960, pitch=60),
        note(0, 960, pitch=36, channel=9)
        + note(120, 0, pitch=42, channel=9)  # no length at all
        + note(240, 60, pitch=82, channel=9)  # a shaker of General MIDI level 2
        + note(240, 60, pitch=99, channel=9)
        + bytes([0, 0x99, 38, 64]),  # never ended
    )
    placed = place(read_score(data, hits=True), KIT)
    frames = placed.frames(onsets=False)
    tally = placed.tally(frames)
    assert frames.shape[1] == 47
    assert np.argwhere(frames)[:, 0].tolist() == [0, 9, 11, 14]
    struck = [sound_name(35 + row) for _, row in np.argwhere(frames)]
    assert struck == ["bass drum", "closed hi-hat", "maracas", "acoustic snare"]
    assert (tally.read, tally.related, tally.unknown) == (4, 1, 1)
    assert tally.lines(onsets=False, kit=True) == [
        "1 hit on keys outside 35 to 81, those of General MIDI, got a related sound",
        "left out 1 hit on keys for which a kit has no sound",
    ]


def test_frames_and_their_definition_are_stored_and_read():
    """Guards against the bit that 47 leave unused in 6 bytes, and definitions of before."""
    for density in (0, 0.3, 1):
        frames = hits(1, 40, density)
        rows = KIT.encode(frames)
        assert rows.shape[1:] == KIT.row_shape
        assert np.array_equal(KIT.decode(rows), frames)
    assert PianoRollFrames.from_json(KIT.to_json()) == KIT
    old = {"notes": 88, "grid": {"steps_per_beat": 4}, "restrike": "close", "drums": True,
           "transpose_to_c": False}  # fmt: skip
    definition = PianoRollFrames.from_json(old)
    assert definition == PianoRollFrames(BEATS, drums=True, short_notes=False)
    assert definition.to_json() == old
    with pytest.raises(ValueError, match="exclude each other"):
        PianoRollFrames.from_json({**KIT.to_json(), "onsets": True})


def test_accents_follow_the_bar_alone():
    """Guards against the highest sound of each frame played as if it were a melody."""
    frames = np.zeros((32, 47), np.uint8)
    frames[::4, [1, 7]] = 1
    notes = notes_of(frames)
    loud = velocities(notes, frames, BEATS).reshape(-1, 2)
    assert (loud[:, 0] == loud[:, 1]).all()
    assert loud[0, 0] - 68 == 14
    assert (notes[:, 1] - notes[:, 0] == 1).all()


def test_each_sound_is_heard_within_its_bounds_and_decays():
    """Guards against overflow, clicks at the end, and sounds that are silent or alike."""
    sounds = {sound_name(key): drum_sound(key, 44_100) for key in range(35, 82)}
    for name, sound in sounds.items():
        assert np.isfinite(sound).all(), name
        assert 0.1 < np.abs(sound).max() <= 1, name
        assert abs(sound[0]) < 1e-6, name
        assert np.abs(sound[-100:]).max() < 2e-4, name
    assert len({sound.tobytes() for sound in sounds.values()}) == 47


def test_a_hit_rings_on_and_the_whole_kit_does_not_clip():
    """Guards against hits cut off with their frame, and against samples beyond full scale."""
    times = np.arange(9) / 8
    alone = np.zeros((8, 47), np.uint8)
    alone[2, 14] = 1  # a crash cymbal
    (sound,) = render(notes_of(alone), times, np.ones(1), kit=True)
    begin = 2 * 44_100 // 8
    expected = 0.2 * drum_sound(49, 44_100)[: 44_100 - begin]
    assert np.allclose(sound[begin:44_100], expected, atol=1e-6)
    assert not sound[: begin - 1].any()
    assert len(sound) == 44_100 + 4410
    assert abs(sound[-1]) < 1e-3
    every = np.ones((8, 47), np.uint8)
    notes = notes_of(every)
    (loud,) = render(notes, times, np.ones(len(notes)), kit=True)
    assert np.abs(loud).max() < 1


def test_statistics_are_of_hits_alone(tmp_path):
    """Checks the figures of a set by hand: no intervals, no steps, no lengths of notes."""

    class Pieces(list):
        frame = KIT

    train = Pieces([np.zeros((32, 47), np.uint8), np.zeros((16, 47), np.uint8)])
    train[0][::4, 1] = 1
    train[0][2::4, 7] = 1
    drawn = [train[0][:16], np.zeros((16, 47), np.uint8)]
    values = MusicComparison().compare(drawn, None, train)
    assert values["train"]["hits_per_bar"] == pytest.approx(16 * 16 / 48)
    assert values["drawn"]["hits_per_bar"] == pytest.approx(8 * 16 / 32)
    beginnings = MusicComparison().compare(drawn, None, train, 2)["train"]
    assert beginnings["hits_per_bar"] == pytest.approx(1 * 16 / 4)
    assert set(beginnings["distributions"]["sounds"]) == {SOUNDS[1].name}
    assert values["drawn"]["silent_share"] == 0.5
    assert values["drawn"]["distributions"]["sounds"] == {"bass drum": 0.5, "closed hi-hat": 0.5}
    assert values["drawn"]["distances"]["sounds"] == 0
    assert not {"intervals", "melodic_steps", "pitch_classes"} & {*values["drawn"]["distributions"]}
    lines = MusicComparison().lines(values, "valid")
    assert any(line.split() == ["closed", "hi-hat", "0.5000", "0.5000"] for line in lines)
