"""`sample` of music and of audio: files, pipes, primers, lengths and messages."""

import os
import shutil
import signal
import time
import wave
from pathlib import Path

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest
import soundfile
import soxr
from calling import PATIENCE, call_ok, call_refused, only, start, told
from noise import record

import seqmodel
from seqmodel.media.audio import sampling
from seqmodel.media.music.sampling import MusicSampling
from seqmodel.runs.folder import read_metrics
from seqmodel.sampling.sampler import Freeze, Pause, Sampler


def test_a_sampled_midi_file_prepared_again_gives_the_sampled_frames(run, seconds_run):
    """Guards the round trip, at any tempo and on both kinds of grid."""
    for trained, *grid in ((run,), (seconds_run, "--step-seconds", 0.1)):
        for name in ("o.npy", "o.mid"):
            drawn = ("--run", trained, "--length", 300, "--tempo", 93.7, "--temperature", 2)
            call_ok("sample", name, *drawn, "--force")
        call_ok("prepare", "o.mid", "--no-onsets", "--split-by=piece", "-o", "d", "--force", *grid)
        assert np.array_equal(only("d"), np.load("o.npy")), grid


@pytest.mark.parametrize(
    ("which", "kinds", "told"),
    [
        ("run", ("mid", "npy", "png"), "12 frames"),
        ("run", ("wav", "flac", "ogg", "mp3"), "12 frames, 1.6 s"),
        ("audio_run_folder", ("wav", "npy", "png"), "0.0 s (120 samples at 8,000 Hz)"),
    ],
)
def test_the_same_seed_gives_the_same_bytes(call, request, which, kinds, told):
    """Guards reproducible samples, in files, of which -n gives many, and on stdout alike."""
    run = request.getfixturevalue(which)
    options = ["--run", run, "--length", 12]
    for kind in kinds:
        streamed = call("sample", "-", "--format", kind, *options)
        assert (streamed.status, streamed.err) == (0, "")
        several = call("sample", f"b.{kind}", "-n", 2, *options)
        assert several.err == "".join(f"b-{k}.{kind}: {told} from {run}\n" for k in (1, 2))
        first, second = (Path(f"b-{k}.{kind}").read_bytes() for k in (1, 2))
        assert first == streamed.raw != second
        assert call("sample", "-", "--format", kind, "--seed", 2, *options).raw != first
        if kind not in ("mid", "npy", "png"):
            info = soundfile.info(f"b-1.{kind}")
            assert (info.format, info.channels) == (kind.upper(), 1)
    again = call("sample", f"b.{kind}", "-n", 2, "--run", run)
    assert again.err == f"seqmodel: b-1.{kind} already exists; add --force to replace it\n"


def test_seconds_count_at_the_tempo(call, run):
    """And 256 frames are the default."""
    for options, frames in (
        ([], 256),
        (["--seconds", 2, "--tempo", 120], 16),
        (["--seconds", 2, "--tempo", 60], 8),
        (["--seconds", 0.01], 1),
    ):
        call_ok("sample", "o.npy", "--force", "--run", run, *options)
        assert len(np.load("o.npy")) == frames


def test_each_piece_says_whether_the_model_or_the_limit_ended_it(call, seconds_run):
    """Guards a cut-off piece passed off as a whole one, in words, as JSON and in the file."""
    options = ["--run", seconds_run, "-n", 6, "--length", 38]
    values = told("sample", "o.npy", *options)
    lines = call("sample", "p.npy", *options).err.splitlines()
    assert (values["run"], values["seed"]) == (str(seconds_run), 1)
    for k, (piece, line) in enumerate(zip(values["pieces"], lines, strict=True), 1):
        assert (piece["path"], piece["frames"]) == (f"o-{k}.npy", len(np.load(f"o-{k}.npy")))
        cut = piece["ended_by"] == "limit"
        assert piece["frames"] == 38 if cut else piece["frames"] <= 38
        how = "cut off at the limit" if cut else "ended by the model"
        frames = "1 frame" if piece["frames"] == 1 else f"{piece['frames']} frames"
        shown, _, _ = line.partition("; a chord lasts")  # as it may be
        assert shown == f"p-{k}.npy: {frames} from {seconds_run}, {how}"
    assert {piece["ended_by"] for piece in values["pieces"]} == {"limit", "model"}


def test_a_continuation_that_the_model_soon_ends_says_so(call, seconds_run):
    """Guards half a second of music after a whole song, without a word of how to get more."""
    np.save("p.npy", (np.random.default_rng(1).random((300, 88)) < 0.03).astype(np.uint8))
    options = ["--run", seconds_run, "-n", 4, "--length", 60, "--prime", "p.npy"]
    pieces = told("sample", "o.npy", *options)["pieces"]
    soon = [piece["ended_by"] == "model" and 8 * piece["frames"] < 300 for piece in pieces]
    assert any(soon)
    lines = call("sample", "q.npy", *options).err.splitlines()
    assert sum("--no-end or --min-length" in line for line in lines) == sum(soon)


def test_a_piece_that_freezes_says_so(call, seconds_run, monkeypatch):
    """Once, in words, as JSON and in eval: such a piece was passed off as ended by the model."""
    monkeypatch.setattr(Freeze, "of", lambda run: Freeze(1, 3))
    options = ["--run", seconds_run, "-n", 6]
    pieces = told("sample", "o.npy", *options)["pieces"]
    lines = call("sample", "p.npy", *options).err.splitlines()
    frozen = [piece["ended_by"] == "freeze" for piece in pieces]
    assert any(frozen)
    assert [", ended where a chord outlasted any in training" in line for line in lines] == frozen
    cut_off = sum(piece["ended_by"] == "limit" for piece in pieces)
    ends = (
        f", {cut_off} cut off at the limit, {sum(frozen)} where a chord outlasted any in training"
    )
    assert ends in call("eval", seconds_run, "--samples", 6).out
    later = told("sample", "r.npy", *options, "--min-length", 30)["pieces"]
    assert min(piece["frames"] for piece in later) >= 30
    monkeypatch.setattr(MusicSampling, "_hint", lambda *_: "a chord lasts 9 frames")
    lines = call("sample", "q.npy", *options).err.splitlines()
    assert all(("outlasted" in line) + ("lasts 9" in line) == 1 for line in lines)


def test_ends_can_be_put_off_or_forbidden(seconds_run):
    """Without a length there is room for an end."""
    for name, way in (("model", ("--min-length", 90)), ("limit", ("--no-end",))):
        pieces = told("sample", f"{name}.npy", "-n", 3, "--run", seconds_run, *way)["pieces"]
        assert {piece["ended_by"] for piece in pieces} == {name}
        frames = {piece["frames"] for piece in pieces}
        assert name == "limit" or 90 <= min(frames) <= max(frames) <= 180
    command = ("sample", "o.npy", "--run", seconds_run, "--min-length", 9, "--length", 8)
    call_refused(*command, says="--min-length 9 is above the 8 of --length", status=2)


def test_a_primer_is_used_but_included_only_when_asked_for(music, run):
    """Guards against a primer that changes nothing, or slips into the file; at 60 bpm a frame lasts
    a quarter of a second, and a shorter file is used whole."""
    file = music / "train" / "0.mid"
    call_ok("prepare", file, "--no-onsets", "-o", "d", "--split-by", "piece")
    heard = only("d")

    def drawn(*options, prime=("--prime", file)):
        options = ("--run", run, "--length", 20, "--tempo", 60, *prime, *options)
        call_ok("sample", "o.npy", *options, "--force")
        return np.load("o.npy")

    plain, primed, both = drawn(prime=()), drawn(), drawn("--include-prime")
    assert np.array_equal(both, np.concatenate([heard, primed]))
    assert len(primed) == len(plain) == 20
    assert not np.array_equal(plain, primed)
    options = ("--run", run, "--length", 20, "--prime", file, "--prime-frames", 6)
    (piece,) = told("sample", "all.npy", *options, "--include-prime")["pieces"]
    assert (piece["frames"], piece["drawn_frames"]) == (6 + 20, 20)
    (piece,) = told("sample", "new.npy", *options)["pieces"]
    assert (piece["frames"], "drawn_frames" in piece) == (20, False)
    frames = drawn("--include-prime", "--prime-frames", 6)
    assert (len(frames), np.array_equal(frames[:6], heard[:6])) == (6 + 20, True)
    assert np.array_equal(frames, drawn("--include-prime", "--prime-seconds", 1.5))
    assert np.array_equal(both, drawn("--include-prime", "--prime-frames", 600))


def test_a_silent_sample_is_reported(call, run):
    """Guards against a plain success where, at temperature 0, no note is likelier on than off."""
    result = call("sample", "o.npy", "--run", run, "--temperature", 0, "--length", 8)
    assert not np.load("o.npy").any()
    advice = "silent: try --temperature 1 or another --seed, or train for longer"
    assert result.err == f"o.npy: 8 frames from {run}; {advice}\n"


@pytest.mark.parametrize("primed", [False, True])
def test_the_best_of_some_is_nearest_to_training(call, run, primed):
    """Of the same pieces that -n would draw, scored by `eval`; with a primer without its frames."""
    options, before = ["--run", run, "--length", 8], np.empty((0, 88), np.uint8)
    if not primed:
        options += ["--temperature", 0.5]  # likelier than train: the nearest is not the likeliest
    else:
        call_ok("sample", "p.npy", *options, "--seed", 9)
        before = np.load("p.npy")
        options += ["--prime", "p.npy"]
    loaded = seqmodel.load_run(run)
    best = min(read_metrics(run), key=lambda line: line["valid_nats_per_frame"])
    trained = best["train_nats_per_frame"]
    call_ok("sample", "o.npy", "-n", 4, *options)
    drawn = [np.load(f"o-{k}.npy") for k in (1, 2, 3, 4)]
    nats = [loaded.nll(np.concatenate([before, piece]))[len(before) :].mean() for piece in drawn]
    best = int(np.argmin(np.abs(np.array(nats) - trained)))
    assert primed or best != np.argmin(nats)
    said = call_ok("sample", "best.npy", "--best-of", 4, *options).err
    figures = f"{nats[best]:.3f} nats per frame (training {trained:.3f})"
    assert said == f"best.npy: 8 frames from {run}, {figures}\n"
    assert np.array_equal(np.load("best.npy"), drawn[best])
    (piece,) = told("sample", "b.npy", "--best-of", 4, *options)["pieces"]
    assert piece["nats_per_frame"] == pytest.approx(nats[best])


RATE, FRAME = 8000, 10


@pytest.fixture(params=["audio", "sample_wise"])
def speech(request):
    """A run of audio: frame-wise, of densities, or sample-wise, of levels."""
    return request.getfixturevalue(f"{request.param}_run_folder")


def sample_piece(run, length, prime=None):
    """The first piece (T, F) of seed 1."""
    return np.concatenate(list(Sampler(run.model).piece(length, seed=1, prime=prime)))


# ---- files --------------------------------------------------------------------------------------


def test_pauses_cut_short_are_counted(speech, monkeypatch):
    """In words, as JSON and in eval: such samples are not drawn from the model alone."""
    monkeypatch.setattr(Freeze, "of", lambda run: Pause(1.0, 29))  # all is quiet
    (piece,) = told("sample", "o.wav", "--run", speech, "--length", 100)["pieces"]
    assert (piece["frames"], piece["pauses_cut"]) == (100, 3)
    sample = ("sample", "p.wav", "--force", "--length", 100, "--run", speech)
    assert ", 3 pauses cut short" in call_ok(*sample).err
    shown = call_ok("eval", speech, "--samples", 2, "--seconds", 0.125).out
    assert "6 pauses cut short" in shown
    shutil.copytree(speech, "other")
    limits = iter([None, Pause(1.0, 29)])  # a run prepared before they were known, and one after
    monkeypatch.setattr(Freeze, "of", lambda run: next(limits))
    assert ", 3 pauses cut short" in call_ok(*sample, "--run", "other").err


def test_sampled_audio_prepared_again_gives_the_sampled_values(call, speech):
    """Guards the round trip, bit for bit, and the rate, which is the run's."""
    for name in ("o.npy", "o.wav", "o.flac", "o.raw"):
        call_ok("sample", name, "--run", speech, "--length", 300)
    drawn = np.load("o.npy")
    assert (drawn.shape, drawn.dtype) == ((300, FRAME), np.float32)
    assert drawn.any()
    assert np.array_equal(drawn, sample_piece(seqmodel.load_run(speech), 300))
    for suffix in ("wav", "flac"):
        call_ok("prepare", f"o.{suffix}", "--split-by", "piece", "-o", suffix)
        frame = seqmodel.open_dataset(suffix).frame
        assert (frame.rate, frame.dtype) == (RATE, "int16")
        assert np.array_equal(only(suffix), drawn)
    assert np.array_equal(np.fromfile("o.raw", "<i2"), drawn.reshape(-1) * 32768)


def test_a_header_states_the_length_at_which_the_model_ended(call, audio_dataset):
    """Guards a WAV said to be as long as the limit, and a .npy that NumPy could not read."""
    options = ("--hidden", 4, "--epochs", 1, "--batch-size", 4, "--end", "--run", "run")
    call_ok("train", audio_dataset.folder, *options)
    (piece,) = told("sample", "o.wav", "--run", "run", "--seconds", 60)["pieces"]
    assert piece["ended_by"] == "model"
    call_ok("sample", "o.npy", "--run", "run", "--seconds", 60)
    drawn = np.load("o.npy")
    assert drawn.shape == (piece["frames"], FRAME)
    with wave.open("o.wav") as file:
        assert file.getnframes() == drawn.size


def test_lengths_and_temperatures(call, audio_run_folder):
    """Guards the default of two seconds, and seconds converted at the run's rate."""
    drawn = []
    for options in ((), ("--temperature", 0.5), ("--seconds", 0.5), ("--seconds", 0.001)):
        call_ok("sample", "o.npy", "--force", "--run", audio_run_folder, *options)
        drawn.append(np.load("o.npy"))
    assert [len(frames) for frames in drawn] == [1600, 1600, 400, 1]
    assert drawn[1].std() < drawn[0].std()


LOUD = "; {}% of the samples at full scale: train longer or, if the recordings clip too, make "


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((0.25, 0.25), "; silent: try a higher --temperature"),
        ((0.2, 0.25), ""),
        ((1.0, 1.0), LOUD.format(100)),  # once called silent
        ((-1.0, 7658.0, *[0.2, 0.1] * 19), LOUD.format(5)),
        ((1.0, *[0.2, 0.1] * 40)[:80], ""),
        ((np.nan,), "seqmodel: the run draws samples that are not finite: use another run"),
    ],
)
def test_odd_samples_are_reported(values, said, call, audio_run_folder, monkeypatch):
    """Guards against a plain success where nothing can be heard, a constant included."""
    frames = np.resize(np.array(values, np.float32), (8, FRAME))
    monkeypatch.setattr(Sampler, "draw", lambda *_, **options: iter([(frames, False)]))
    result = call("sample", "o.wav", "--run", audio_run_folder, "--length", 8)
    assert Path("o.wav").exists() == (result.status == 0) == bool(np.isfinite(values).all())
    usual = f"o.wav: 0.0 s (80 samples at 8,000 Hz) from {audio_run_folder}"
    assert result.err.startswith(f"{usual}{said}" if result.status == 0 else said)
    assert result.err.count("\n") == 1


def test_the_newest_run_that_can_write_the_file_is_taken(
    call, run, audio_run_folder, sample_wise_run_folder
):
    """Guards against refusing out.raw because of a run of music trained since, out.wav from an
    older run than need be, and music, unremarked, for somebody who expects sound."""
    for k, folder in enumerate([audio_run_folder, sample_wise_run_folder, run]):
        shutil.copytree(folder, f"runs/{k}")
        os.utime(f"runs/{k}/best.safetensors", (1000 + k, 1000 + k))
    newest_that_can = {"o.raw": 1, "o.mid": 2, "o.npy": 2, "o.wav": 2, "o.ogg": 2}
    for name, newest in newest_that_can.items():
        result = call_ok("sample", name, "--length", 5)
        remark = "using runs/2; the newest run of audio is runs/1: name it with --run\n"
        assert result.err.startswith(f"{remark if name == 'o.wav' else ''}{name}: ")
        assert result.err.endswith(f" from runs/{newest}\n")
    call_ok("sample", "-", "--format", "raw", "--length", 5)
    os.utime("runs/0/best.safetensors", (2000, 2000))
    unwritten = "using runs/2; the newest run of audio is runs/0: audio is written as wav, flac, "
    for name, newest, remark in (("o.wav", 0, ""), ("p.ogg", 2, unwritten), ("p.mid", 2, "")):
        result = call("sample", name, "--length", 5, "--force")
        assert result.err.startswith(remark or f"{name}: ")
        assert result.err.endswith(f" from runs/{newest}\n")
    named = call_ok("sample", "p.ogg", "--run", "runs/2", "--length", 5, "--force")
    assert named.err.startswith("p.ogg: ")
    says = "runs/2 was trained on music (88 notes, 4 steps per beat), which cannot be written as "
    says += "raw: use one of mid, wav, flac, ogg, mp3, npy, png, or another run with --run"
    call_refused("sample", "p.raw", "--run", "runs/2", says=says, status=2)


# ---- pipes --------------------------------------------------------------------------------------


def test_a_pipe_plays_while_sampling_continues(audio_run_folder):
    """Guards `| aplay`: sound arrives long before the end, after a header with its length."""
    options = ["--format", "wav", "--run", audio_run_folder, "--seconds", 3600]
    with start("sample", "-", *options) as process:
        header, sound = (process.stdout.buffer.read(count) for count in (44, 4000))
        assert process.poll() is None  # most of the hour is yet to be sampled
        process.stdout.close()  # and the command ends silently
        assert process.stderr.read() == ""
    assert process.returncode == 128 + signal.SIGPIPE
    assert (header[:4], header[36:40]) == (b"RIFF", b"data")
    assert int.from_bytes(header[40:44], "little") == 3600 * RATE * 2
    begin = sample_piece(seqmodel.load_run(audio_run_folder), 200)
    assert np.array_equal(np.frombuffer(sound, "<i2"), begin.reshape(-1) * 32768)


def test_a_signal_removes_the_unfinished_file(audio_run_folder, here):
    """Guards against a leftover file, temporary file or folder, and against buffering it all."""
    process = start("sample", "o.wav", "--run", audio_run_folder, "--seconds", 3600, "-q")
    while not [path for path in here.glob(".o.wav.*") if path.stat().st_size > 10_000]:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    said = "seqmodel: ended by SIGTERM; nothing half-written is left\n"
    assert process.communicate(timeout=PATIENCE) == ("", said)
    assert process.returncode == 128 + signal.SIGTERM
    assert not list(here.iterdir())


# ---- primers ------------------------------------------------------------------------------------


def test_a_primer_is_read_at_the_rate_of_the_run_to_its_very_end(call, speech, monkeypatch):
    """Guards the mean of its channels, resampling, its end, and against a primer in the file."""
    stereo = record(Path("prime.flac"), 2222, rate=16_000, channels=2)
    heard = soxr.resample(stereo.mean(axis=1), 16_000, RATE, quality="HQ")
    assert len(heard) % FRAME
    heard = heard[len(heard) % FRAME :].reshape(-1, FRAME)
    options = ["--run", speech, "--length", 50]
    said = "prime.flac: resampled from 16,000 to 8,000 Hz\n"
    primed = call("sample", "primed.npy", *options, "--prime", "prime.flac")
    assert primed.err == f"{said}primed.npy: 0.1 s (500 samples at 8,000 Hz) from {speech}\n"
    call_ok("sample", "plain.npy", *options)
    both = call("sample", "both.npy", *options, "--prime", "prime.flac", "--include-prime")
    length = "0.2 s (1,610 samples at 8,000 Hz, 500 drawn)"
    assert both.err == f"{said}both.npy: {length} from {speech}\n"
    after, whole = np.load("primed.npy"), np.load("both.npy")
    np.testing.assert_allclose(whole[:-50], heard, atol=0.51 / 32768)
    assert not (whole[:-50] * 32768 % 1).any()  # what prepare would store, as in training
    assert np.array_equal(whole[-50:], after)
    assert not np.array_equal(after, np.load("plain.npy"))
    assert np.array_equal(after, sample_piece(seqmodel.load_run(speech), 50, prime=whole[:-50]))
    monkeypatch.setattr("seqmodel.model.sequence.FRAMES_AT_ONCE", 7)  # each window goes on
    call_ok("sample", "windows.npy", *options, "--prime", "prime.flac")
    assert np.array_equal(after, np.load("windows.npy"))


def test_a_primer_beyond_full_scale_says_how_much_was_clipped(call, audio_run_folder, here):
    """Guards against a distorted primer in the file without a word; what is left out is silent."""
    loud = np.float32([0.5] * 15 + [3, -3, 1] + [0.5] * 12)
    soundfile.write("p.wav", loud, RATE, "FLOAT")
    options = ["--run", audio_run_folder, "--length", 50, "--prime", "p.wav", "--force"]
    said = call("sample", "o.wav", *options).err
    assert said.startswith("p.wav: clipped 2 samples beyond full scale\n")
    assert "clipped" not in call("sample", "o.wav", *options, "--prime-frames", 1).err


def test_only_the_beginning_of_a_recording(audio_run_folder, monkeypatch):
    """Whole frames from its first sample on, unchanged; more than fits in memory is not read."""
    samples = record(Path("p.wav"), 3005)
    monkeypatch.setattr(sampling, "MAX_PRIMER_SAMPLES", 3000)
    monkeypatch.setattr("seqmodel.media.audio.reader.BLOCK", 100)
    options = ["--run", audio_run_folder, "--length", 50, "--prime", "p.wav", "--include-prime"]
    says = "--prime p.wav: is longer than 0:00; add --prime-seconds"
    call_refused("sample", "o.npy", *options, says=says)
    call_ok("sample", "frames.npy", *options, "--prime-frames", 13)
    call_ok("sample", "seconds.npy", *options, "--prime-seconds", 130 / 8000)
    frames = np.load("frames.npy")
    assert len(frames) == 13 + 50
    assert np.array_equal(frames[:13].ravel(), samples[:130, 0])
    assert np.array_equal(frames, np.load("seconds.npy"))
    np.save("p.npy", np.resize(frames, (301, 10)))
    options[5] = "p.npy"
    call_refused("sample", "o.npy", *options, says=says.replace("wav", "npy"))
    call_ok("sample", "npy.npy", *options[:6], "--prime-frames", 13)
    assert np.array_equal(frames[13:], np.load("npy.npy"))
    options[5] = "p.wav"
    call_ok("sample", "o.png", *options, "--prime-frames", 13)
    image = matplotlib.image.imread("o.png")[:, :, :3]
    orange = np.abs(image - matplotlib.colors.to_rgb("#c8782a")).max(axis=2) < 0.02
    assert orange.any()
    assert np.nonzero(orange)[1].max() < 0.5 * image.shape[1]
