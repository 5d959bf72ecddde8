"""The contents of files, datasets and runs, against mido, NumPy and what was put in."""

import json
import shutil
from functools import partial

import mido
import numpy as np
import pytest
import soundfile
from midi_tracks import note, notes, save, tempo
from refusals import refused

from seqmodel.media.audio.inspection import inspect_audio
from seqmodel.media.music.inspection import inspect_midi
from seqmodel.report.inspection import inspect_run, kind_of
from seqmodel.runs import folder as runs


@pytest.fixture
def song(tmp_path):
    """C major in quarter notes at 100 bpm, then 50; a bass on channel 3, drums, a tempo change."""
    scale = enumerate((60, 62, 64, 65, 67, 69, 71, 72))
    head = [tempo(0, 600_000), tempo(4 * 96, 1_200_000)]
    tune = notes([(k, k + 1, pitch) for k, pitch in scale], step=96)
    bass = [*note(0, 96, 36, channel=2), *note(0, 1, 40, channel=9)]
    return save(tmp_path / "song.mid", [head, tune, bass], division=96)


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
    expected = {"path": str(tmp_path / "a.flac"), "kind": "audio", "container": "FLAC"}
    expected |= {"subtype": "PCM_16", "rate": 22050, "channels": 2, "samples": 20_005}
    expected |= {"seconds": round(20_005 / 22050, 3), "peak": 1.0, "clipped_samples": 2}
    expected["rms_db"] = round(20 * np.log10(np.sqrt((sound**2).mean())), 2)
    assert values == expected | {"frame_size": 10, "frames": 2000, "dtype": "int16", "remarks": []}


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
    draw = partial(inspect_run, tmp_path, tmp_path / "plot.png")
    refused(draw, "no complete epoch to draw yet")
    shutil.copy(run_folder / runs.BEST, tmp_path)
    values = inspect_run(tmp_path, None)
    assert (values["epochs"], "best" in values, "model" in values) == (0, False, True)


def test_kinds_are_told_apart(run_folder, dataset, song, tmp_path):
    for name in ("a.FLAC", "a.NPY", "text.txt"):
        (tmp_path / name).touch()
    upper = shutil.copy(song, tmp_path / "SONG.MID")
    for path, kind in (
        *((run_folder, "run"), (dataset.folder, "dataset"), (song, "midi"), (upper, "midi")),
        *((tmp_path / "a.FLAC", "audio"), (tmp_path / "a.NPY", "roll")),
    ):
        assert kind_of(path) == kind
    for path in (tmp_path, tmp_path / "text.txt"):
        refused(lambda path=path: kind_of(path), f"{path} is neither")
    refused(lambda: kind_of(tmp_path / "nowhere"), "no such file")
