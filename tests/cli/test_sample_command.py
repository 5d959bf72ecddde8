"""What `sample` prints and writes for music when all is well."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from calling import call_ok, call_refused, only, told

import seqmodel
from seqmodel.media.music.sampling import MusicSampling
from seqmodel.runs.folder import read_metrics
from seqmodel.sampling.sampler import Freeze


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
        shown, _, _ = line.partition("; a chord is held")  # as it may be
        assert shown == f"p-{k}.npy: {frames} from {seconds_run}, {how}"
    assert {piece["ended_by"] for piece in values["pieces"]} == {"limit", "model"}


def test_a_piece_that_freezes_says_so(call, seconds_run, monkeypatch):
    """Once, in words, as JSON and in eval: such a piece was passed off as ended by the model."""
    monkeypatch.setattr(Freeze, "of", lambda run: Freeze(1, 3))
    options = ["--run", seconds_run, "-n", 6]
    pieces = told("sample", "o.npy", *options)["pieces"]
    lines = call("sample", "p.npy", *options).err.splitlines()
    frozen = [piece["ended_by"] == "freeze" for piece in pieces]
    assert any(frozen)
    assert [", ended where a chord outlasts train's longest" in line for line in lines] == frozen
    cut_off = sum(piece["ended_by"] == "limit" for piece in pieces)
    ends = f", {cut_off} cut off at the limit, {sum(frozen)} where a chord outlasts train's longest"
    assert ends in call("eval", seconds_run, "--samples", 6).out
    monkeypatch.setattr(MusicSampling, "_hint", lambda *_: "a chord is held for 9 frames")
    lines = call("sample", "q.npy", *options).err.splitlines()
    assert all(("outlasts" in line) + ("is held" in line) == 1 for line in lines)


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
