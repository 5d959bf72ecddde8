"""What `inspect` and `units` print, draw and render, and `sample out.wav`."""

import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import soundfile
from calling import PNG, call_ok, call_refused, told, write_piece
from midi_tracks import notes, save, tempo

from seqmodel.data.dataset import open_dataset
from seqmodel.plots import plot_learning_curve
from seqmodel.runs.folder import read_metrics


def test_inspect_midi(call):
    write_piece(Path("p.mid"), seed=3)
    result = call("inspect", "p.mid", "--plot", "p.png")
    values = told("inspect", "p.mid")
    assert result.out == (
        "p.mid: MIDI format 0, 1 track\n"
        f"  {values['notes']} notes from {values['lowest']} to {values['highest']}\n"
        "  4.0 s at 120 bpm\n"
        f"  tonic {values['tonic']} (estimated)\n"
        "  32 frames at 4 steps per beat, 2.00 notes per frame\n"
    )
    assert result.err == "drawn to p.png\n"
    assert Path("p.png").read_bytes().startswith(PNG)
    shutil.copy("p.mid", "tune")  # without a telling name, as `prepare` reads them too
    assert call("inspect", "tune").out == result.out.replace("p.mid", "tune")
    save(Path("two.mid"), [[tempo(0, 500_000), tempo(480, 900_000), *notes([(0, 960, 60)])]])
    assert told("inspect", "two.mid")["seconds"] == 0.5 + 0.9
    Path("text").write_text("MThis is none")
    call_refused("inspect", "text", says="text")


def test_inspect_dataset(call, data):
    result = call("inspect", data, "--plot", "p.png", "-q")
    assert result.err == ""
    *lines, valid, test, last = result.out.splitlines()
    assert lines == [
        f"{data}: dataset of 88 notes, 4 steps per beat",
        "  train  10 pieces  320 frames  2.00 notes per frame  longest 32",
        "  valid   3 pieces   96 frames  2.00 notes per frame  longest 32",
        "  test    2 pieces   64 frames  2.00 notes per frame  longest 32",
        "  metre: 4/4 assumed for 15 pieces",
    ]
    assert "% of valid repeats 8 or more frames of train" in valid
    assert "% of test repeats 8 or more frames of train" in test
    assert last == "  every piece matches its hash"
    assert Path("p.png").read_bytes().startswith(PNG)
    values = told("inspect", data)
    assert values["kind"] == "dataset"
    assert values["splits"]["valid"] == {"pieces": 3, "frames": 96, "longest": 32}


@pytest.mark.parametrize("what", ["p.mid", "dataset"])
def test_files_and_datasets_are_inspected_without_torch(data, here, what):
    """torch takes seconds to load, more than everything else."""
    write_piece(Path("p.mid"), seed=3)
    code = "import sys; sys.modules['torch'] = None; from seqmodel.cli.main import main; main()"
    path = data if what == "dataset" else what
    command = [sys.executable, "-c", code, "inspect", path]
    assert subprocess.run(command, check=True, capture_output=True).stderr == b""


def test_inspect_describes_a_recording_and_its_dataset(call):
    """Loudness is over all channels, and only samples at full scale count as clipped."""
    sound = np.round(np.random.default_rng(0).uniform(-0.4, 0.4, (20_005, 2)) * 32768) / 32768
    sound[[7, 9000, 20_000], [0, 1, 1]] = (-1, 32767 / 32768, 0.9)
    Path("train").mkdir()
    soundfile.write("train/a.flac", sound, 8000, subtype="PCM_16")
    level = round(20 * np.log10(np.sqrt((sound**2).mean())), 2)
    expected = {"path": "train/a.flac", "kind": "audio", "container": "FLAC", "subtype": "PCM_16"}
    expected |= {"rate": 8000, "channels": 2, "samples": 20_005, "seconds": 2.501, "peak": 1.0}
    expected |= {"rms_db": level, "clipped_samples": 2, "frame_size": 10, "frames": 2000}
    assert told("inspect", "train/a.flac") == {**expected, "dtype": "int16", "remarks": []}
    shown = call("inspect", "train/a.flac", "--plot", "a.png")
    assert (shown.status, shown.err) == (0, "drawn to a.png\n")
    for words in (
        "FLAC PCM_16, 8,000 Hz, 2 channels",
        "2.501 s, 20,005 samples",
        "peak 1.0000, RMS",
    ):
        assert words in shown.out
    call("prepare", "train", "-o", "d")
    shown, frame = call("inspect", "d", "--plot", "d.png").out, open_dataset("d").frame
    assert f"train has mean {frame.mean:.4g} and deviation {frame.deviation:.4g}\n" in shown
    assert "every piece matches its hash" in shown
    assert told("inspect", "d")["seconds"] == {"train": 2.5}
    assert all(Path(name).read_bytes().startswith(PNG) for name in ("a.png", "d.png"))


def test_inspect_run(call, data, run):
    result = call("inspect", run, "--plot", "p.png")
    values = told("inspect", run)
    best = values["best"]
    assert best == read_metrics(run)[1]
    assert result.out == (
        f"{run}: run of 2 epochs\n"
        "  lstm 4, bernoulli\n"
        "  1,500 parameters, 1,940 with the output\n"
        f"  trained on {data}, 88 notes, 4 steps per beat\n"
        f"  best valid {best['valid_nats_per_frame']:.4f} nats per frame, epoch 2; "
        f"accuracy {best['valid_accuracy']:.4f}\n"
    )
    plot_learning_curve(Path("expected.png"), read_metrics(run))
    assert Path("p.png").read_bytes() == Path("expected.png").read_bytes()
    assert values["config"]["hidden"] == 4


def test_units_prints_equations_and_counts(call):
    shown = call("units", "gru1", "--inputs", 3, "--hidden", 2)
    assert shown.out == (
        "# gru1  (Dey, Salem 2017, GRU1)\n"
        "z = s(Uz h' + bz)\n"
        "r = s(Ur h' + br)\n"
        "n = phi(W x + U (r (.) h') + b)\n"
        "h = (1 - z) (.) h' + z (.) n\n"
        "# 3 inputs, 2 hidden: 24 parameters\n\n"
    )
    values = told("units", "--params", 20000)["units"]
    assert len(values) == 9
    keys = {"unit", "equations", "starts", "forms", "gates", "source"}
    keys |= {"inputs", "hidden", "parameters"}
    assert all(set(unit) == keys for unit in values)
    assert all(abs(unit["parameters"] - 20000) < 1000 for unit in values)


def test_inspect_reads_the_rolls_that_prepare_reads(call):
    """Guards against wrong figures, and against refusing files of rolls."""
    rolls = {"train_0": np.eye(5, 88, dtype=np.uint8), "train_1": np.eye(9, 88, dtype=np.uint8)}
    np.savez_compressed("a.npz", **rolls, valid_0=np.ones((2, 88), np.uint8))
    result = call("inspect", "a.npz", "--plot", "p.png")
    assert (result.status, result.out) == (
        0,
        "a.npz: piano-rolls from A0 to C8\n"
        "  2 steps per beat (assumed)\n"
        "  train: 2 pieces, 14 frames, longest 9, 1.00 notes per frame\n"
        "  valid: 1 piece, 2 frames, longest 2, 88.00 notes per frame\n",
    )
    assert Path("p.png").read_bytes().startswith(PNG)
    train = {"pieces": 2, "frames": 14, "longest": 9, "notes_per_frame": 1.0}
    assert told("inspect", "a.npz")["splits"]["train"] == train
    says = "--listen renders files of music, and a.npz is a file of rolls"
    call_refused("inspect", "a.npz", "--listen", "o.wav", says=says, status=2)


def test_verify_reads_every_byte(call, run, data, music):
    """Guards the last checkpoint, which nothing else reads until a resume."""
    shutil.copytree(run, "r")
    assert "unchanged: best.safetensors, last.safetensors" in call("inspect", "r", "--verify").out
    assert "every piece matches its hash" in call("inspect", data, "--verify").out
    last = Path("r/last.safetensors")
    content = bytearray(last.read_bytes())
    content[-1] ^= 1
    last.write_bytes(content)
    last.write_bytes(content[:-1])
    assert call("inspect", "r").out.splitlines()[-1].startswith("  r may not have finished trai")
    last.write_bytes(content)
    assert "finished" not in call("inspect", "r").out
    call_refused("inspect", "r", "--verify", says="r/last.safetensors is damaged")
    call_refused("inspect", music / "train" / "0.mid", "--verify", says="...", status=2)


# ---- sound --------------------------------------------------------------------------------------


def test_the_sound_is_that_of_the_sampled_notes(run, seconds_run):
    """Each option does to the sound what it does to the frames, which are rendered separately."""
    for trained, options, listen in (
        (run, ["--length", 40, "--temperature", 1.5], []),
        (run, ["--seconds", 4, "--tempo", 90], ["--tempo", 90]),
        (seconds_run, ["--seconds", 4, "--tempo", 90, "--seed", 3], ["--tempo", 150]),
    ):
        for suffix in ("npy", "wav"):
            call_ok("sample", f"o.{suffix}", "-n", 2, "--run", trained, "--force", *options)
        for k in (1, 2):
            rendered = ("--listen", f"p-{k}.wav", "--force", *listen)
            shown = call_ok("inspect", f"o-{k}.npy", *rendered)
            assert shown.err == f"rendered to p-{k}.wav\n"
            assert Path(f"p-{k}.wav").read_bytes() == Path(f"o-{k}.wav").read_bytes()
        assert Path("o-1.wav").read_bytes() != Path("o-2.wav").read_bytes()


def test_an_unsupported_format_is_reported_before_sampling(run, here, monkeypatch):
    """Guards against an hour of sampling for a format that libsndfile does not support."""
    refuse = Mock(side_effect=soundfile.LibsndfileError(1))
    monkeypatch.setattr("seqmodel.media.sound._encode", refuse)
    monkeypatch.setattr("seqmodel.sampling.sampler.Sampler.piece", None)
    write_piece(Path("p.mid"), seed=1)
    says = "...libsndfile ... cannot write mp3 at ... Hz: use a"
    for command in (("sample", "o.mp3", "--run", run), ("inspect", "p.mid", "--listen", "o.mp3")):
        call_refused(*command, says=says, status=2)
    assert [path.name for path in here.iterdir()] == ["p.mid"]
