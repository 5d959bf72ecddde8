"""Music files as sound: when notes are heard, by mido's clock."""

import mido
import numpy as np
import pytest
import soundfile
from midi_tracks import notes, save, tempo

from seqmodel.media.music.midi import read_score
from seqmodel.media.music.writing import listen

ONSETS = (96, 288, 480, 600)
"""In ticks, of eighth notes; the tempo changes at 384 and within the last note."""


@pytest.fixture
def song(tmp_path):
    """Four eighths with rests between, 96 ticks a beat, at 100, 50, then 200 beats a minute."""
    changes = [tempo(0, 600_000), tempo(384, 1_200_000), tempo(612, 300_000)]
    eighths = notes((tick, tick + 48, 60) for tick in ONSETS)
    return save(tmp_path / "song.mid", [changes + eighths], division=96, kind=0)


def heard(path):
    """When sound begins after silence, in seconds, and how long the file is."""
    sound, rate = soundfile.read(path)
    assert rate == 44_100
    loud = np.flatnonzero(sound)
    return loud[np.diff(loud, prepend=-rate) > rate / 50] / rate, len(sound) / rate


def test_a_midi_file_is_heard_at_its_own_tempos_or_at_a_given_one(song, tmp_path):
    """Guards against sound that drifts from the score at tempo changes between or within notes."""
    listen(song, {}, tmp_path / "song.wav")
    now, onsets = 0.0, []
    for message in mido.MidiFile(song):  # its times are in seconds
        now += message.time
        if message.type == "note_on":
            onsets.append(now)
    begins, length = heard(tmp_path / "song.wav")
    assert begins == pytest.approx(onsets, abs=0.001)
    assert length == pytest.approx(now + 0.1, abs=0.001)
    score = read_score(song.read_bytes())
    times = score.seconds_at(np.array([0, 96.5, 384, 612, 613]))
    assert times == pytest.approx([0, 96.5 * 0.6 / 96, 2.4, 2.4 + 2.85, 5.25 + 0.3 / 96])
    listen(song, {"tempo": 240}, tmp_path / "song.flac")
    begins, length = heard(tmp_path / "song.flac")
    assert begins == pytest.approx([tick / 96 / 4 for tick in ONSETS], abs=0.001)
    assert length == pytest.approx(648 / 96 / 4 + 0.1, abs=0.001)


def test_a_roll_is_heard_on_the_given_grid_at_the_given_tempo(tmp_path):
    roll = np.zeros((10, 88), np.uint8)
    roll[[2, 7], 50] = 1
    np.save(tmp_path / "roll.npy", roll)
    for options, step in (({}, 0.125), ({"steps_per_beat": 2, "tempo": 60}, 0.5)):
        listen(tmp_path / "roll.npy", options, tmp_path / "roll.wav")
        begins, length = heard(tmp_path / "roll.wav")
        assert begins == pytest.approx([2 * step, 7 * step], abs=0.001)
        assert length == pytest.approx(10 * step + 0.1, abs=0.001)
