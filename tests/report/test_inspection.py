"""The contents of files, datasets and runs, against mido, NumPy and what was put in."""

import json
import shutil

import mido
import numpy as np
import pytest
import soundfile

from seqmodel.errors import SeqmodelError
from seqmodel.media.audio.inspection import inspect_audio
from seqmodel.media.music.inspection import inspect_midi
from seqmodel.report.inspection import inspect_run, kind_of
from seqmodel.runs import folder as runs


@pytest.fixture
def song(tmp_path):
    """C major in quarter notes at 100 bpm, then 50; a bass on channel 3, drums, a tempo change."""
    head = mido.MidiTrack()
    head.append(mido.MetaMessage("set_tempo", tempo=600_000, time=0))
    head.append(mido.MetaMessage("set_tempo", tempo=1_200_000, time=4 * 96))
    tune = mido.MidiTrack()
    for pitch in (60, 62, 64, 65, 67, 69, 71, 72):
        tune.append(mido.Message("note_on", note=pitch, velocity=64, time=0))
        tune.append(mido.Message("note_off", note=pitch, velocity=0, time=96))
    bass = mido.MidiTrack()
    bass.append(mido.Message("note_on", note=36, channel=2, velocity=64, time=0))
    bass.append(mido.Message("note_on", note=40, channel=9, velocity=64, time=0))
    bass.append(mido.Message("note_off", note=40, channel=9, velocity=0, time=1))
    bass.append(mido.Message("note_off", note=36, channel=2, velocity=0, time=95))
    path = tmp_path / "song.mid"
    mido.MidiFile(type=1, ticks_per_beat=96, tracks=[head, tune, bass]).save(path)
    return path


def test_a_midi_file_is_described_as_by_mido(song):
    values = inspect_midi(song, {"steps_per_beat": 4}, None)
    assert json.loads(json.dumps(values)) == values
    assert values["seconds"] == pytest.approx(mido.MidiFile(song).length) == 4 * 0.6 + 4 * 1.2
    expected = {"kind": "midi", "format": 1, "tracks": 3, "channels": [1, 3, 10], "remarks": []}
    expected |= {"notes": 10, "drum_notes": 1, "lowest": "C2", "highest": "C5", "tonic": "C"}
    expected |= {"tempo_bpm": 100.0, "tempo_changes": 1, "grid": "4 steps per beat"}
    expected |= {"frames": 32, "notes_per_frame": round((32 + 4) / 32, 2)}
    assert {name: values[name] for name in expected} == expected


def test_an_audio_file_is_described_as_by_numpy(tmp_path):
    """Loudness is over all channels, and only samples at full scale count as clipped."""
    random = np.random.default_rng(0)
    sound = np.round(random.uniform(-0.4, 0.4, (20_005, 2)) * 32768) / 32768
    sound[[7, 9000, 20_000], [0, 1, 1]] = (-1, 32767 / 32768, 0.9)
    soundfile.write(tmp_path / "a.flac", sound, 22050, subtype="PCM_16")
    values = inspect_audio(tmp_path / "a.flac", {}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(json.dumps(values)) == values
    assert values == {
        "path": str(tmp_path / "a.flac"),
        "kind": "audio",
        "container": "FLAC",
        "subtype": "PCM_16",
        "rate": 22050,
        "channels": 2,
        "samples": 20_005,
        "seconds": round(20_005 / 22050, 3),
        "peak": 1.0,
        "rms_db": round(20 * np.log10(np.sqrt((sound**2).mean())), 2),
        "clipped_samples": 2,
        "frame_size": 10,
        "frames": 2000,
        "dtype": "int16",
        "remarks": [],
    }


def test_silence_has_no_level(tmp_path):
    """The logarithm of 0 is not finite, and JSON cannot hold it."""
    soundfile.write(tmp_path / "a.wav", np.zeros(8), 8000)
    values = inspect_audio(tmp_path / "a.wav", {}, tmp_path / "plot.png")
    assert (values["peak"], values["rms_db"], values["clipped_samples"]) == (0.0, None, 0)
    assert (values["frames"], values["dtype"]) == (0, "int16")


def test_a_run_without_an_epoch_can_be_inspected(run_folder, tmp_path):
    """Also if the best checkpoint, which is written first, is there without its line of metrics."""
    shutil.copy(run_folder / runs.CONFIG, tmp_path)
    assert inspect_run(tmp_path, None) == {"path": str(tmp_path), "kind": "run", "epochs": 0}
    with pytest.raises(SeqmodelError, match="no complete epoch to draw yet"):
        inspect_run(tmp_path, tmp_path / "plot.png")
    shutil.copy(run_folder / runs.BEST, tmp_path)
    values = inspect_run(tmp_path, None)
    assert (values["epochs"], "best" in values, "model" in values) == (0, False, True)


def test_kinds_are_told_apart(run_folder, dataset, song, tmp_path):
    assert kind_of(run_folder) == "run"
    assert kind_of(dataset.folder) == "dataset"
    assert kind_of(song) == "midi"
    (tmp_path / "a.FLAC").touch()
    assert kind_of(tmp_path / "a.FLAC") == "audio"
    (tmp_path / "a.NPY").touch()
    assert kind_of(tmp_path / "a.NPY") == "roll"
    upper = song.rename(tmp_path / "SONG.MID")
    assert kind_of(upper) == "midi"
    (tmp_path / "text.txt").touch()
    for path in (tmp_path, tmp_path / "text.txt"):
        with pytest.raises(SeqmodelError, match=f"{path} is neither"):
            kind_of(path)
    with pytest.raises(SeqmodelError, match="no such file"):
        kind_of(tmp_path / "nowhere")
