"""The sample speech, judged from its sound alone, independently of the synthesiser's code."""

import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import soundfile

ROOM = Path(__file__).resolve().parent.parent / "sample_data"
SPLITS = {"train": (14, 63), "valid": (3, 13), "test": (3, 13)}  # pieces, seconds
RATE = 8000
WINDOW = 320  # 40 ms


def windows(samples):
    """(K, WINDOW) of one piece, overlapping by half."""
    return np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[:: WINDOW // 2]


def periodicity(windows):
    """(K,) greatest autocorrelation at lags of 70 to 320 Hz, near 1 if pitched, and its lag."""
    centred = windows - windows.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * WINDOW)) ** 2
    correlation = np.fft.irfft(spectrum)[:, :WINDOW]
    fading = 1 - np.arange(WINDOW) / WINDOW
    lags = np.arange(RATE // 320, RATE // 70)
    normed = correlation[:, lags] / (correlation[:, :1] * fading[lags] + 1e-12)
    return normed.max(axis=1), lags[normed.argmax(axis=1)]


@pytest.fixture(scope="module")
def speech():
    """Split -> pieces (N,) in [-1, 1)."""
    return {
        split: [soundfile.read(path)[0] for path in sorted((ROOM / "speech" / split).iterdir())]
        for split in SPLITS
    }


def test_the_script_writes_what_is_committed(tmp_path):
    """Guards against a script changed without its speech, and unseeded randomness.

    Only samples are compared: the bytes around them carry the encoder's version.
    """
    subprocess.run([sys.executable, ROOM / "make_speech.py", tmp_path], check=True)
    made, there = tmp_path / "speech", ROOM / "speech"
    names = sorted(path.relative_to(there) for path in there.rglob("*.flac"))
    assert names == sorted(path.relative_to(made) for path in made.rglob("*.flac"))
    for name in names:
        ours, theirs = (soundfile.read(room / name, dtype="int16") for room in (made, there))
        assert ours[1] == theirs[1]
        np.testing.assert_array_equal(ours[0], theirs[0])


def test_enough_speech_in_little_space(speech):
    """Guards against a lost split, a changed format, or a corpus too large for the wheel."""
    paths = list((ROOM / "speech").rglob("*.*"))
    assert sum(path.stat().st_size for path in paths) < 1_000_000
    for split, (pieces, seconds) in SPLITS.items():
        lengths = [len(samples) / RATE for samples in speech[split]]
        assert len(lengths) == pieces
        assert sum(lengths) == pytest.approx(seconds, rel=0.05)
        assert 3.5 <= min(lengths) <= max(lengths) <= 6
    assert len(paths) == sum(pieces for pieces, _ in SPLITS.values())
    for path in paths:
        info = soundfile.info(path)
        assert (info.samplerate, info.channels, info.subtype) == (RATE, 1, "PCM_16")


def test_it_is_loud_enough_never_clips_and_is_never_quite_silent(speech):
    """Runs of equal samples would let a density grow without bound."""
    for samples in chain.from_iterable(speech.values()):
        assert 0.3 < np.abs(samples).max() < 0.8
        assert abs(samples.mean()) < 0.02
        changes = np.flatnonzero(np.diff(samples))
        assert np.diff(changes).max() < 8


def test_no_piece_twice(speech):
    """Guards against two names that draw the same babble: valid would not be unseen."""
    pieces = list(chain.from_iterable(speech.values()))
    assert len({samples.tobytes() for samples in pieces}) == len(pieces)


def test_every_split_has_voices_hisses_and_silences(speech):
    """Guards against a silent source: vowels without pitch, or consonants without noise."""
    for pieces in speech.values():
        frames = np.concatenate([windows(samples) for samples in pieces])
        level = np.sqrt((frames**2).mean(axis=1))
        pitched = periodicity(frames)[0]
        silent = level < 0.002
        voiced = ~silent & (pitched > 0.8)
        spectrum = np.abs(np.fft.rfft(frames * np.hanning(WINDOW))) ** 2
        high = spectrum[:, WINDOW // 4 :].sum(axis=1) > spectrum[:, : WINDOW // 4].sum(axis=1)
        hissing = ~silent & (pitched < 0.6) & high
        assert 0.06 < silent.mean() < 0.2
        assert 0.4 < voiced.mean() < 0.75
        assert 0.02 < hissing.mean() < 0.3
        assert level[hissing].mean() < level[voiced].mean()


def test_pitches_vary_within_and_between_voices(speech):
    """Guards against monotone babble: no melody to learn, and no speakers to tell apart."""
    medians, moves = [], []
    for samples in speech["train"]:
        pitched, lags = periodicity(windows(samples))
        pitches = RATE / lags[pitched > 0.9]
        medians.append(np.median(pitches))
        moves.append(np.quantile(pitches, 0.9) / np.quantile(pitches, 0.1))
    assert min(medians) < 120
    assert max(medians) > 190
    assert np.median(moves) > 1.1


def test_a_linear_predictor_learns_half_of_it_and_not_all(speech):
    """Guards against noise, which nothing predicts, and tones, which everything does.

    Real spoken digits in the telephone band, fitted like this, leave 0.42 of the deviation.
    """
    rows = {
        split: np.concatenate(
            [np.lib.stride_tricks.sliding_window_view(samples, 21) for samples in pieces]
        )
        for split, pieces in speech.items()
    }
    weights = np.linalg.lstsq(rows["train"][:, :20], rows["train"][:, 20], rcond=None)[0]
    left = rows["valid"][:, 20] - rows["valid"][:, :20] @ weights
    assert 0.3 < left.std() / rows["valid"][:, 20].std() < 0.7
