"""What `sample` prints and writes for music when all is well."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from calling import PNG, call_ok

import seqmodel
from seqmodel.sampling.sampler import Freeze


def test_a_sampled_midi_file_prepared_again_gives_the_sampled_frames(call, data, run, seconds_run):
    """Guards the round trip, at any tempo and for both kinds of grid, bit for bit."""
    circles = [
        (run, [], []),
        (run, ["--tempo", "93.7", "--temperature", "2"], []),
        (seconds_run, ["--tempo", "93"], ["--step-seconds", "0.1"]),
    ]
    for k, (trained, options, grid) in enumerate(circles):
        for suffix in ("npy", "mid"):
            call_ok("sample", f"{k}.{suffix}", "--run", trained, "--length", 300, *options)
        call_ok("prepare", f"{k}.mid", "--no-onsets", "--split-by", "piece", "-o", f"d{k}", *grid)
        again = seqmodel.open_dataset(f"d{k}")
        split = again[again.splits[0]]
        assert np.array_equal(split[0], np.load(f"{k}.npy")), options


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
    told = json.loads(call("sample", "o.npy", "--json", *options).out)
    lines = call("sample", "p.npy", *options).err.splitlines()
    assert (told["run"], told["seed"]) == (str(seconds_run), 1)
    for k, (piece, line) in enumerate(zip(told["pieces"], lines, strict=True), 1):
        assert (piece["path"], piece["frames"]) == (f"o-{k}.npy", len(np.load(f"o-{k}.npy")))
        cut = piece["ended_by"] == "limit"
        assert piece["frames"] == 38 if cut else piece["frames"] <= 38
        how = "cut off at the limit" if cut else "ended by the model"
        frames = "1 frame" if piece["frames"] == 1 else f"{piece['frames']} frames"
        shown, _, _ = line.partition(", a chord is held")  # as it may be
        assert shown == f"p-{k}.npy: {frames} from {seconds_run}, {how}"
    assert {piece["ended_by"] for piece in told["pieces"]} == {"limit", "model"}


def test_a_piece_that_freezes_says_so(call, seconds_run, monkeypatch):
    """Guards against a piece passed off as ended by the model, in words, as JSON and in eval."""
    monkeypatch.setattr(Freeze, "of", lambda run: Freeze(1, 3))
    options = ["--run", seconds_run, "-n", 6]
    pieces = json.loads(call("sample", "o.npy", "--json", *options).out)["pieces"]
    lines = call("sample", "p.npy", *options).err.splitlines()
    frozen = [piece["ended_by"] == "freeze" for piece in pieces]
    assert any(frozen)
    assert [", ended where a chord outlasts train's longest" in line for line in lines] == frozen
    cut_off = sum(piece["ended_by"] == "limit" for piece in pieces)
    told = call("eval", seconds_run, "--samples", 6).out
    ends = f", {cut_off} cut off at the limit, {sum(frozen)} where a chord outlasts train's longest"
    assert ends in told


def test_ends_can_be_put_off_or_forbidden(call, seconds_run):
    """Without a length there is room for an end; the beginning stays that of the same seed."""
    for name, options in {"free": [], "least": ["--min-length", 90], "never": ["--no-end"]}.items():
        told = call("sample", f"{name}.npy", "-n", 3, "--run", seconds_run, *options, "--json").out
        pieces = json.loads(told)["pieces"]
        if name == "least":
            assert all(90 <= piece["frames"] <= 180 for piece in pieces)
            assert {piece["ended_by"] for piece in pieces} == {"model"}
        if name == "never":
            assert {piece["ended_by"] for piece in pieces} == {"limit"}
        for k in (1, 2, 3):
            free, other = np.load(f"free-{k}.npy"), np.load(f"{name}-{k}.npy")
            shorter = min(len(free), len(other))
            assert np.array_equal(free[:shorter], other[:shorter])
    wrong = call("sample", "o.npy", "--run", seconds_run, "--min-length", 9, "--length", 8)
    assert wrong.err == "seqmodel: --min-length 9 is above the 8 of --length\n"
    assert wrong.status == 2


def test_only_the_beginning_of_a_primer(call, music, run):
    """At 60 beats per minute a frame is a quarter of a second; a shorter file is used whole."""
    primer = ["--prime", music / "train" / "0.mid", "--include-prime"]
    options = ["--run", run, "--length", 20, "--tempo", 60]
    call_ok("sample", "all.npy", *options, *primer)
    call_ok("sample", "frames.npy", *options, *primer, "--prime-frames", 6)
    call_ok("sample", "seconds.npy", *options, *primer, "--prime-seconds", 1.5)
    call_ok("sample", "more.npy", *options, *primer, "--prime-frames", 600)
    whole, frames = np.load("all.npy"), np.load("frames.npy")
    assert len(frames) == 6 + 20
    assert np.array_equal(frames[:6], whole[:6])
    np.save("six.npy", whole[:6])
    call_ok("sample", "again.npy", *options, "--prime", "six.npy", "--include-prime")
    assert np.array_equal(frames, np.load("again.npy"))
    assert np.array_equal(frames, np.load("seconds.npy"))
    assert np.array_equal(whole, np.load("more.npy"))


def test_a_primer_is_used_but_included_only_when_asked_for(call, music, run):
    """Guards against a primer that changes nothing, or that slips into the file."""
    primer = music / "train" / "0.mid"
    options = ["--run", run, "--length", 300]
    call_ok("sample", "plain.npy", *options)
    call_ok("sample", "primed.npy", *options, "--prime", primer)
    call_ok("sample", "both.npy", *options, "--prime", primer, "--include-prime")
    call_ok("sample", "both.png", *options, "--prime", primer, "--include-prime")
    plain, primed, both = (np.load(f"{name}.npy") for name in ("plain", "primed", "both"))
    call_ok("prepare", primer, "--no-onsets", "-o", "d", "--split-by", "piece")
    heard = seqmodel.open_dataset("d")
    assert np.array_equal(both, np.concatenate([heard[heard.splits[0]][0], primed]))
    assert len(primed) == len(plain) == 300
    assert not np.array_equal(plain, primed)
    assert Path("both.png").read_bytes().startswith(PNG)


def test_a_sampled_roll_primes_like_its_midi_file(call, run):
    """Guards against sampled frames that cannot be used as a primer."""
    for name in ("o.npy", "o.mid"):
        call_ok("sample", name, "--run", run, "--length", 50, "--seed", 2)
    for name in ("npy", "mid"):
        prime = ["--prime", f"o.{name}", "--include-prime"]
        result = call("sample", f"{name}.npy", "--run", run, "--length", 50, *prime)
        assert (result.status, result.err) == (0, f"{name}.npy: 100 frames from {run}\n")
    assert np.array_equal(np.load("npy.npy")[:50], np.load("o.npy"))
    assert Path("npy.npy").read_bytes() == Path("mid.npy").read_bytes()


def test_a_silent_sample_is_reported(call, run):
    """Guards against a plain success where, at temperature 0, no note is likelier on than off."""
    result = call("sample", "o.npy", "--run", run, "--temperature", 0, "--length", 8)
    assert not np.load("o.npy").any()
    advice = "silent: try --temperature 1 or another --seed, or train for longer"
    assert result.err == f"o.npy: 8 frames from {run}, {advice}\n"


def test_the_best_of_some_is_nearest_to_training(call, run):
    """Of the same pieces that -n would draw, scored by `eval`; with a primer without its frames."""
    call_ok("sample", "p.npy", "--run", run, "--length", 6, "--seed", 9)
    (trained,) = (
        line["train_nats_per_frame"]
        for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        if line["epoch"] == 2
    )
    for more in ((), ("--prime", "p.npy")):
        options = ("--run", run, "--length", 8, "--force", *more)
        call_ok("sample", "o.npy", "-n", 4, *options)
        drawn = [np.load(f"o-{k}.npy") for k in (1, 2, 3, 4)]
        before = np.load("p.npy") if more else np.empty((0, 88), np.uint8)
        loaded = seqmodel.load_run(run)
        nats = [
            loaded.nll(np.concatenate([before, piece]))[len(before) :].mean() for piece in drawn
        ]
        best = int(np.argmin(np.abs(np.array(nats) - trained)))
        told = call_ok("sample", "best.npy", "--best-of", 4, *options)
        assert told.err == (
            f"best.npy: 8 frames from {run}, {nats[best]:.3f} nats per frame "
            f"(training {trained:.3f})\n"
        )
        assert np.array_equal(np.load("best.npy"), drawn[best])
    (piece,) = json.loads(call_ok("sample", "best.npy", "--best-of", 4, "--json", *options).out)[
        "pieces"
    ]
    assert piece["nats_per_frame"] == pytest.approx(nats[best])
