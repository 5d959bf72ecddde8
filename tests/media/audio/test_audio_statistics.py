"""Statistics of recordings, recomputed frame by frame and lag by lag, and by hand."""

import math

import numpy as np
import pytest
from noise import in_memory

from seqmodel.media.audio.evaluation import AudioComparison, measure, periodicity
from seqmodel.media.audio.frames import AudioFrames


def in_blocks(samples, size=2**16):
    samples = np.asarray(samples, np.float32)
    return (samples[start : start + size] for start in range(0, len(samples), size))


def voice(seed, rate, seconds=0.4):
    """Levels / 32768: a buzz with a changing pitch, then a pause, then noise."""
    random = np.random.default_rng(seed)
    n = round(seconds * rate)
    phase = np.cumsum(random.uniform(90, 130) * np.linspace(1, 1.2, n)) / rate
    buzz = sum(np.cos(2 * np.pi * k * phase) / k for k in (1, 2, 3, 5) if 500 * k < rate)
    loud = np.repeat([0.2, 0.0005, 0.05, 0.002], -(-n // 4))[:n]
    line = loud * np.where(np.arange(n) < n / 2, buzz, random.normal(size=n))
    return np.rint(np.clip(line, -1, 1 - 2**-15) * 32768) / 32768


def db(frame):
    return max(-96.0, 10 * math.log10(max(np.mean(frame**2), 1e-30)))


def by_hand(pieces, rate):
    """Every figure from single frames and lags; the spectrum by an explicit DFT."""
    short, long, hop = round(0.02 * rate), round(0.03 * rate), round(0.01 * rate)
    found = {name: [] for name in ("levels", "loud", "peaks", "pitches", "pauses", "bursts")}
    n = 2 ** math.ceil(math.log2(long))
    dft = np.exp(-2j * np.pi * np.outer(np.arange(n // 2 + 1), np.arange(long)) / n)
    energies = np.zeros(n // 2 + 1)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(long) / long)
    for piece in pieces:
        kinds = []
        for start in range(0, len(piece) - short + 1, short):
            found["levels"].append(db(piece[start : start + short]))
            kinds.append(found["levels"][-1] > -45)
        for name, kind in (("pauses", False), ("bursts", True)):
            marks = "".join("x" if some is kind else " " for some in kinds)
            found[name] += [0.02 * len(run) for run in marks.split()]
        for start in range(0, len(piece) - long + 1, hop):
            frame = piece[start : start + long]
            if db(frame) <= -45:
                continue
            found["loud"].append(db(frame))
            x = frame - frame.mean()
            lags = range(round(rate / 400), round(rate / 50) + 1)
            ratios = [x[lag:] @ x[:-lag] / (x @ x) for lag in lags]
            found["peaks"].append(max(ratios))
            if max(ratios) > 0.5:
                found["pitches"].append(rate / lags[int(np.argmax(ratios))])
            energies += np.abs(dft @ (hann * frame)) ** 2
    return found, energies


def bands_by_hand(energies, rate):
    """20 triangles, equally wide in mel, one frequency at a time."""

    def mel(hertz):
        return 2595 * math.log10(1 + hertz / 700)

    width = (mel(0.95 * rate / 2) - mel(80)) / 20
    sums = []
    for band in range(20):
        centre = mel(80) + (band + 0.5) * width
        at = [mel(k * rate / 2 / (len(energies) - 1)) for k in range(len(energies))]
        parts = zip(at, energies, strict=True)
        sums.append(sum(max(0, 1 - abs(m - centre) / width) * e for m, e in parts))
    return [max(-80, 10 * math.log10(some / sum(sums))) for some in sums]


@pytest.mark.parametrize(("rate", "block"), [(8000, 2**16), (11025, 97)])
def test_every_statistic_is_the_recomputed_one(rate, block):
    """Guards windows that cross blocks, the ends of the lags, and rates that no frame divides."""
    pieces = [voice(seed, rate, 0.4 + 0.007 * seed) for seed in (1, 2, 3)]
    of = measure([in_blocks(piece, block) for piece in pieces], rate)
    found, energies = by_hand(pieces, rate)
    assert of.lengths.tolist() == [len(piece) for piece in pieces]
    np.testing.assert_allclose(of.levels, found["levels"], atol=1e-9)
    np.testing.assert_allclose(of.audible_levels, found["loud"], atol=1e-9)
    np.testing.assert_allclose(of.periodicities, found["peaks"], atol=1e-9)
    np.testing.assert_allclose(of.pitches, found["pitches"])
    np.testing.assert_allclose(of.pauses, found["pauses"])
    np.testing.assert_allclose(of.bursts, found["bursts"])
    assert 0 < len(of.pitches) < len(of.periodicities)
    assert len(of.pauses)
    np.testing.assert_allclose(of.energies, energies, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(of.spectrum(rate), bands_by_hand(energies, rate), atol=1e-9)


def test_distributions_count_bins_by_their_lower_edges():
    """Guards the bins that also take what is beyond them, and edges that belong above them."""
    rate = 8000
    levels = [0.0, 0.00003, 0.5, 1 - 2**-15]  # silence, below -90 dB, -6.02, -0.0003
    line = np.concatenate([np.full(160, level) for level in levels])
    tone = 0.5 * np.sin(2 * np.pi * 100 * np.arange(1600) / rate)
    of = measure([in_blocks(line), in_blocks(tone)], rate).distributions()
    assert of["levels"] == {-90: 2, -9: 1, -3: 1, -12: 10}
    assert of["pauses"] == {0.04: 1}  # two frames
    assert of["bursts"] == {0.04: 1, 0.16: 1}  # two frames, and ten
    of = measure([in_blocks(tone)], rate).distributions()
    assert of["pitches"] == {12: 18}  # an octave above 50 Hz
    assert of["periodicities"] == {0.65: 18}  # 2/3: after 10 ms, 20 of 30 ms overlap


@pytest.mark.parametrize(("lag", "pitch"), [(20, 400), (57, 8000 / 57), (160, 50)])
def test_the_pitch_of_two_clicks(lag, pitch):
    """Guards the shortest and the longest lag."""
    clicks = np.zeros((2, 240))
    clicks[0, [3, 3 + lag]] = clicks[1, [239 - lag, 239]] = 0.3
    peaks, pitches = periodicity(clicks, 8000)
    np.testing.assert_allclose(pitches, pitch)
    np.testing.assert_allclose(peaks, 0.5, atol=0.01)


def split_of(rate, *pieces, frame_size=10):
    """A split of pieces of samples in [-1, 1)."""
    frame = AudioFrames(rate, frame_size, 2 * frame_size)
    whole = [frame.encode(p[: len(p) // frame_size * frame_size]) for p in pieces]
    return in_memory(frame, *whole)


def frames_of(line):
    return np.asarray(line, np.float32).reshape(-1, 10)


def test_training_data_is_at_distance_0_and_noise_is_not():
    """The purpose of it all: the same levels without pitch, and a whistle, are told from voices."""
    pieces = [voice(seed, 8000) for seed in range(6)]
    train, random = split_of(8000, *pieces), np.random.default_rng(1)
    noise = [np.abs(piece) * random.normal(size=len(piece)) for piece in pieces]
    whistle = np.sin(2 * np.pi * 350 * np.arange(8000) / 8000) * 2
    comparison = AudioComparison()
    same = comparison.compare([frames_of(piece) for piece in pieces], train, train)
    for name in ("drawn", "split"):
        assert set(same[name]["distances"].values()) == {0}
        assert {k: v for k, v in same[name].items() if k != "distances"} == same["train"]
    hissed = comparison.compare([frames_of(piece) for piece in noise], None, train)["drawn"]
    assert hissed["voiced_share"] < 0.1
    assert same["train"]["voiced_share"] > 0.4
    assert hissed["distances"]["periodicities"] > 0.3
    assert hissed["distances"]["spectrum"] > 5
    whistled = comparison.compare([frames_of(whistle)], None, train)
    assert "split" not in whistled
    assert whistled["drawn"]["clipped_share"] > 0.5
    assert whistled["drawn"]["pitch"] == pytest.approx(8000 / 23)
    assert whistled["drawn"]["longest_burst"] == 1
    assert whistled["drawn"]["distances"]["levels"] == 1


def test_clipped_samples_are_those_of_the_loudest_level():
    """Guards against mu-law, whose loudest level is below that of 16 bits, never being clipped."""
    frame = AudioFrames(8000, dtype="mu-law")
    loud = np.array([0.98, -1, 0.9, 0.5, 0, 0, 0, 0, 0, 1], np.float32)
    rows = frame.encode(loud)
    train = in_memory(frame, rows)
    told = AudioComparison().compare([frame.decode(rows)], None, train)
    assert told["drawn"]["clipped_share"] == told["train"]["clipped_share"] == 3 / 10
    told = AudioComparison().compare([frames_of(loud)], None, split_of(8000, loud))
    assert told["drawn"]["clipped_share"] == 2 / 10


@pytest.mark.parametrize("rate", [3, 192_000])
def test_odd_recordings_have_figures_without_nan(rate):
    """Guards divisions by the energy, the number or the width of nothing."""
    random, n = np.random.default_rng(2), 10 * (rate // 10 + 2)
    odd = {
        "silence": np.zeros(n),
        "constant": np.full(n, 9833 / 32768),
        "square": np.where(np.arange(n) // max(1, rate // 200) % 2, 0.5, -1.0),
        "short": np.rint(random.normal(0, 3000, 10)) / 32768,
        "beyond": random.normal(0, 4, n),
    }
    train = split_of(rate, random.normal(0, 0.1, n), np.zeros(n), odd["short"])
    for name, piece in odd.items():
        told = AudioComparison().compare([frames_of(piece)], split_of(rate, piece), train)
        for of in (told["drawn"], told["split"]):
            values = [v for k, v in of.items() if k not in ("distances", "distributions")]
            values += of["distances"].values()
            assert all(v is None or math.isfinite(v) for v in values), name
        assert name == "beyond" or told["drawn"] == told["split"], name
        lines = AudioComparison().lines(told, "valid")
        assert not any("nan" in line or "None" in line for line in lines)
    silent = AudioComparison().compare([frames_of(odd["silence"])], None, train)["drawn"]
    unknown = ("level", "periodicity", "voiced_share", "pitch")
    assert all(silent[name] is None for name in unknown)
    assert (silent["audible_share"], silent["longest_burst"]) == (0, 0)
    assert silent["distances"]["spectrum"] is None
