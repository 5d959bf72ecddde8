"""Music as sound from the command line: `sample out.wav` and `inspect --listen`."""

import re
from pathlib import Path

import mido
import pytest
import soundfile
from calling import call_ok, write_piece


def test_the_sound_is_that_of_the_sampled_notes(call, run, seconds_run):
    """Covers -n, --tempo, --temperature, --length and --seconds, and both kinds of grid.

    Each must do to the sound what it does to the frames, which are rendered separately.
    """
    for trained, options, listen in (
        (run, ["--length", 40, "--temperature", 1.5], []),
        (run, ["--seconds", 4, "--tempo", 90], ["--tempo", 90]),
        (seconds_run, ["--seconds", 4, "--tempo", 90, "--seed", 3], ["--tempo", 150]),
    ):
        for suffix in ("npy", "wav"):
            call_ok("sample", f"o.{suffix}", "-n", 2, "--run", trained, "--force", *options)
        for k in (1, 2):
            call_ok("inspect", f"o-{k}.npy", "--listen", f"p-{k}.wav", "--force", *listen)
            assert Path(f"p-{k}.wav").read_bytes() == Path(f"o-{k}.wav").read_bytes()
        assert Path("o-1.wav").read_bytes() != Path("o-2.wav").read_bytes()


def test_the_sound_of_a_midi_file_is_that_of_its_roll(call, run):
    """Guards the file's own tempo, and the samples at which frames begin."""
    for name in ("o.mid", "o.npy"):
        call_ok("sample", name, "--run", run, "--length", 50, "--tempo", 125)
    shown = call("inspect", "o.mid", "--listen", "mid.wav")
    assert (shown.status, shown.err) == (0, "rendered to mid.wav\n")
    assert shown.out == call("inspect", "o.mid").out
    call_ok("inspect", "o.npy", "--listen", "npy.wav", "--tempo", 125, "-q")
    assert Path("mid.wav").read_bytes() == Path("npy.wav").read_bytes()
    sound, rate = soundfile.read("npy.wav")
    assert len(sound) / rate == pytest.approx(mido.MidiFile("o.mid").length + 0.1, abs=1e-4)


def test_an_unsupported_format_is_reported_before_sampling(call, run, here, monkeypatch):
    """Guards against an hour of sampling for a format that libsndfile does not support."""

    def refuse(*arguments):
        raise soundfile.LibsndfileError(1)

    monkeypatch.setattr("seqmodel.media.sound._encode", refuse)
    monkeypatch.setattr("seqmodel.sampling.sampler.Sampler.piece", None)
    write_piece(Path("p.mid"), seed=1)
    for command in (("sample", "o.mp3", "--run", run), ("inspect", "p.mid", "--listen", "o.mp3")):
        result = call(*command)
        assert (result.status, result.out) == (2, "")
        assert re.search(r"libsndfile [\d.]+ cannot write mp3 at [\d,]+ Hz: use a", result.err)
    assert [path.name for path in here.iterdir()] == ["p.mid"]
