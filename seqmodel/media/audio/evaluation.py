"""Figures of audio: trivial models, statistics of recordings, and samples compared with the data.

The trivial models, shown next to every figure, are

- `silence`: a Laplace distribution around zero: most samples are quiet;
- `gaussian`: a Gaussian at the mean of all samples;
- `flac`: the size of the samples as FLAC, at libFLAC's level 8, all pieces in one file, if the
  model gives probabilities of 16-bit levels. Other FLAC encoders, and other formats, take less;
  so may a file for each piece, if pieces are short and begin suddenly, in the midst of a block.

The first two are fitted to the training split, with no scale below one 16-bit step. Densities are
those of standardised samples. If the model gives probabilities of levels, so do these, from the
same distributions.

Statistics compare sampled recordings with the data.
Levels are RMS in dB re full scale, of frames of 20 ms. What distinguishes voices and instruments
from noise is measured in audible frames of 30 ms, one every 10 ms: their level; their
periodicity, which is the peak autocorrelation of the frame without its mean, relative to lag 0,
among lags of 2.5 to 20 ms; their pitch, one over that lag, if voiced; and their spectrum.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.media.audio import mu_law
from seqmodel.media.audio.frames import BLOCK, AudioFrames, Windows, sample_blocks
from seqmodel.media.definitions import (
    Classifier,
    Comparison,
    FrameDefinition,
    Measurements,
    Pieces,
    PieceSet,
)
from seqmodel.media.samples import comparison_lines
from seqmodel.media.sound import FULL_SCALE, LOUDEST, flac_bytes, to_levels

# ---- baselines -----------------------------------------------------------------------------------

Floats = NDArray[np.float64]

LEVEL_WIDTH = 1 / FULL_SCALE


def audio_nats_per_frame(
    train: Pieces, split: Pieces, frame: FrameDefinition, *, discrete: bool
) -> dict[str, float]:
    """Nats per frame of each baseline, fitted to `train`, on every frame of `split`.

    `frame` holds the standardisation of densities; `discrete` scores its levels instead.
    """
    sums = np.zeros(4)
    for samples in _samples(train):
        sums += len(samples), samples.sum(), (samples**2).sum(), np.abs(samples).sum()
    mean, square, size = sums[1:] / sums[0]
    scale, deviation = max(size, LEVEL_WIDTH), math.sqrt(max(square - mean**2, LEVEL_WIDTH**2))
    nats = {"silence": 0.0, "gaussian": 0.0}
    for samples in _samples(split):
        if discrete:
            (lower, low), (upper, high) = (
                (end / scale, (end - mean) / deviation) for end in _level_bounds(samples, frame)
            )
            nats["silence"] += _nats_of_levels(lower, upper, _log_laplace_cdf)
            nats["gaussian"] += _nats_of_levels(low, high, log_normal_cdf)
        else:
            z, to_standard = (samples - mean) / deviation, math.log(frame.deviation)
            silence = np.abs(samples) / scale + np.log(2 * scale) - to_standard
            gaussian = (z**2 + np.log(2 * np.pi)) / 2 + np.log(deviation) - to_standard
            nats["silence"] += float(silence.sum())
            nats["gaussian"] += float(gaussian.sum())
    if discrete and frame.values == "samples":
        nats["flac"] = 8 * math.log(2) * flac_bytes(_samples(split))
    return {name: float(total / split.frames) for name, total in nats.items()}


def _samples(pieces: Pieces) -> Iterator[Floats]:
    for i in range(len(pieces)):
        for samples in sample_blocks(pieces, i):
            yield samples.astype(np.float64)


TAIL_CUTOFF = 1e9


def _level_bounds(samples: Floats, frame: FrameDefinition) -> tuple[Floats, Floats]:
    """Where the level of each sample begins and ends; the outermost levels take the tails."""
    if frame.values == "levels":
        ends = np.concatenate([[-TAIL_CUTOFF], mu_law.BOUNDARIES, [TAIL_CUTOFF]])
        level = np.searchsorted(mu_law.BOUNDARIES, samples, side="right")
        return ends[level], ends[level + 1]
    low = np.where(samples <= -1.0, -TAIL_CUTOFF, samples - LEVEL_WIDTH / 2)
    return low, np.where(samples >= LOUDEST, TAIL_CUTOFF, samples + LEVEL_WIDTH / 2)


def _nats_of_levels(lower: Floats, upper: Floats, log_cdf: Callable[[Floats], Floats]) -> float:
    """The nats of levels by the ends of each, for a distribution symmetric about 0."""
    # Above the centre use the mirror image, in which the two probabilities do not cancel.
    mirrored = lower > 0
    below, above = np.where(mirrored, -upper, lower), np.where(mirrored, -lower, upper)
    log_p = log_cdf(above) + np.log1p(-np.exp(log_cdf(below) - log_cdf(above)))
    return -float(log_p.sum())


def log_normal_cdf(z: Floats) -> Floats:
    """log of the standard normal distribution function, to twelve digits in both tails.

    By the trapezoidal rule for erfcx(x) = exp(x^2) erfc(x), x = |z| / sqrt 2 (Chiarella and Reichel
    1968, "On the Evaluation of Integrals Related to the Error Function").
    """
    x, h = np.abs(z) / np.sqrt(2), 0.5
    scaled = sum(np.exp(-(t**2)) / (x**2 + t**2) for t in h * (np.arange(13) + 0.5))
    scaled = 2 * h / np.pi * x * scaled
    # The residue of the pole at i x, within the strip where the rule is exact without it.
    near = np.minimum(x, np.pi / h)
    scaled += np.where(
        x < np.pi / h, 2 / (np.exp(-(near**2)) * (1 + np.exp(2 * np.pi / h * near))), 0
    )
    tail = np.log(scaled / 2) - x**2
    return np.where(z < 0, tail, np.log1p(-np.exp(tail)))


def _log_laplace_cdf(z: Floats) -> Floats:
    below = np.minimum(z, 0) - np.log(2)
    above = np.log1p(-np.exp(-np.maximum(z, 0)) / 2)
    return np.where(z < 0, below, above)


# ---- statistics ----------------------------------------------------------------------------------

AUDIBLE_DB = -45.0
"""dB; a frame at or below it is a pause."""
SILENCE_DB = -96.0
"""dB; nothing counts as quieter, not even digital silence."""
VOICED_PERIODICITY = 0.5
"""A frame of higher periodicity is voiced."""
MIN_PITCH_HZ, MAX_PITCH_HZ = 50, 400
"""Pitches in Hz: lags of 20 and 2.5 ms."""
BANDS = 20
FAINTEST_DB = -80.0
"""dB of a band relative to all bands; fainter ones, such as rounding noise, do not count."""


@dataclass(frozen=True)
class Statistics(Measurements):
    """Statistics of a set of recordings at one rate, all pieces together.

    Attributes:
        lengths: of each piece, in samples.
        levels: of each frame of 20 ms.
        audible_levels, periodicities: of each audible frame of 30 ms.
        pitches: of each voiced frame, in Hz.
        pauses, bursts: the length in seconds of each stretch of inaudible, or audible, frames of
            20 ms.
        energies: of all audible frames of 30 ms, at frequencies from 0 to half the rate.
        clipped: the number of samples at full scale.
    """

    rate: int
    lengths: NDArray[np.int64]
    levels: Floats
    audible_levels: Floats
    periodicities: Floats
    pitches: Floats
    pauses: Floats
    bursts: Floats
    energies: Floats
    clipped: int

    def figures(self) -> dict[str, float | None]:
        seconds = self.lengths / self.rate
        return {
            "length": _median(seconds),
            "shortest": float(seconds.min()),
            "longest": float(seconds.max()),
            "audible_share": _share(self.levels > AUDIBLE_DB),
            "level": _median(self.audible_levels),
            "periodicity": _median(self.periodicities),
            "voiced_share": _share(self.periodicities > VOICED_PERIODICITY),
            "pitch": _median(self.pitches),
            "longest_pause": float(self.pauses.max(initial=0)),
            "longest_burst": float(self.bursts.max(initial=0)),
            "clipped_share": self.clipped / int(self.lengths.sum()),
        }

    def distributions(self) -> dict[str, Counter[float]]:
        """The lower edges of bins -> counts: 3 dB, 0.05, semitones above 50 Hz, octaves of seconds.

        The first and the last bin also count values beyond them.
        """
        octaves = (np.log2(lengths / 0.02) for lengths in (self.pauses, self.bursts))
        pauses, bursts = (0.02 * 2 ** _bins(lengths, 0, 7) for lengths in octaves)
        return {
            "levels": Counter((3 * _bins(self.levels / 3, -30, -1)).tolist()),
            "periodicities": Counter((_bins(self.periodicities * 20, 0, 19) / 20).tolist()),
            "pitches": Counter(_bins(12 * np.log2(self.pitches / MIN_PITCH_HZ), 0, 35).tolist()),
            "pauses": Counter(pauses.tolist()),
            "bursts": Counter(bursts.tolist()),
        }

    def against(self, train: Self) -> dict[str, Any]:
        own_spectrum, train_spectrum = self.spectrum(train.rate), train.spectrum(train.rate)
        distance = None
        if own_spectrum is not None and train_spectrum is not None:
            distance = float(np.sqrt(np.mean((own_spectrum - train_spectrum) ** 2)))
        return {"distances": {**super().against(train)["distances"], "spectrum": distance}}

    def spectrum(self, rate: int) -> Floats | None:
        """(BANDS,) of the long-term spectrum in dB re their sum; None if nothing is audible.

        The bands are `mel_bands` for `rate`.
        """
        if not self.energies.any():
            return None
        weights = mel_bands(BANDS, len(self.energies), self.rate, rate)
        energies = weights @ self.energies
        shares = energies / max(energies.sum(), np.finfo(float).tiny)
        return 10 * np.log10(np.maximum(shares, 10 ** (FAINTEST_DB / 10)))


def measure(
    recordings: Iterable[Iterable[NDArray[np.float32]]], rate: int, clip_level: float = LOUDEST
) -> Statistics:
    """Measure recordings, each in blocks (n,) of finite samples in [-1, 1); at least one.

    They are rounded to 16 bits, as in a file; samples from `clip_level` on count as clipped.
    """
    short, long, hop = (max(1, round(seconds * rate)) for seconds in (0.02, 0.03, 0.01))
    window = np.hanning(long + 1)[:-1] if long > 1 else np.ones(1)
    size = 1 << (long - 1).bit_length()
    energies, clipped = np.zeros(size // 2 + 1), 0
    lengths, collected = [], defaultdict[str, list[Floats]](list)
    for blocks in recordings:
        short_windows, long_windows = Windows(short, short), Windows(long, hop)
        samples, levels = 0, [np.zeros(0)]
        for block in blocks:
            rounded = to_levels(block).astype(np.float64) / FULL_SCALE
            samples += len(rounded)
            clipped += int((np.abs(rounded) >= clip_level).sum())
            levels.append(_levels(short_windows.of(rounded)))
            windows = long_windows.of(rounded)
            window_levels = _levels(windows)
            audible = windows[window_levels > AUDIBLE_DB]
            periodicities, pitches = periodicity(audible, rate)
            collected["audible_levels"].append(window_levels[window_levels > AUDIBLE_DB])
            collected["periodicities"].append(periodicities)
            collected["pitches"].append(pitches[periodicities > VOICED_PERIODICITY])
            energies += (np.abs(np.fft.rfft(audible * window, size)) ** 2).sum(0)
        piece_levels = np.concatenate(levels)
        lengths.append(samples)
        collected["levels"].append(piece_levels)
        collected["pauses"].append(stretches(piece_levels <= AUDIBLE_DB))
        collected["bursts"].append(stretches(piece_levels > AUDIBLE_DB))
    joined = {name: np.concatenate(parts) for name, parts in collected.items()}
    return Statistics(rate, np.array(lengths), energies=energies, clipped=clipped, **joined)


def periodicity(frames: Floats, rate: int) -> tuple[Floats, Floats]:
    """The periodicity of each frame of 30 ms (n, size), and its pitch in Hz if it is voiced."""
    first = max(1, round(rate / MAX_PITCH_HZ))
    last = max(first, round(rate / MIN_PITCH_HZ))
    size = 1 << (frames.shape[1] + last).bit_length()  # padded, so that no lag wraps around
    spectra = np.fft.rfft(frames - frames.mean(1, keepdims=True), size)
    acf = np.fft.irfft(np.abs(spectra) ** 2, size)[:, : last + 1]
    ratios = acf[:, first:] / np.maximum(acf[:, :1], np.finfo(float).tiny)  # 0 in a constant frame
    best = ratios.argmax(1)
    peaks: Floats = np.take_along_axis(ratios, best[:, np.newaxis], 1)[:, 0]
    pitches: Floats = rate / (best + first)
    return peaks, pitches


def check_finite(drawn: NDArray[np.float32]) -> None:
    """SeqmodelError unless all samples drawn by a run, of any shape, are finite."""
    if not np.isfinite(drawn).all():
        raise SeqmodelError("the run draws samples that are not finite: use another run")


def stretches(mask: NDArray[np.bool_]) -> Floats:
    """The length in seconds of each stretch of True in `mask` (n,), an element per 20 ms."""
    edges = np.diff(np.pad(mask.astype(np.int8), 1))
    frames = np.flatnonzero(edges < 0) - np.flatnonzero(edges > 0)
    return 0.02 * frames.astype(np.float64)


def _levels(frames: Floats) -> Floats:
    return 10 * np.log10(np.maximum((frames**2).mean(1), 10 ** (SILENCE_DB / 10)))


def _bins(values: Floats, least: int, most: int) -> NDArray[np.int64]:
    return np.floor(values).astype(np.int64).clip(least, most)


def mel_bands(count: int, frequencies: int, rate: int, common_rate: int | None = None) -> Floats:
    """Triangles (count, frequencies) over frequencies from 0 to half the rate, equally wide in mel.

    They cover 80 Hz to 0.95 of half the rate, or of half the `common_rate`.
    """
    bottom, top = _mel(np.array([80, 0.95 * (common_rate or rate) / 2]))
    edges = np.linspace(bottom, top, count + 1)
    centres, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    positions = _mel(np.linspace(0, rate / 2, frequencies))
    return np.maximum(0, 1 - np.abs(positions - centres[:, np.newaxis]) / width)


def _mel(hertz: Floats) -> Floats:
    """O'Shaughnessy 1987, "Speech Communication"."""
    return 2595 * np.log10(1 + hertz / 700)


# ---- comparison ----------------------------------------------------------------------------------

FIGURES = (
    ("piece length, seconds", "length", "10.2f"),
    ("  shortest", "shortest", "10.2f"),
    ("  longest", "longest", "10.2f"),
    (f"frames above {AUDIBLE_DB:g} dB", "audible_share", "10.4f"),
    ("  level, dB", "level", "10.2f"),
    ("  autocorrelation peak", "periodicity", "10.4f"),
    (f"  voiced: peak above {VOICED_PERIODICITY:g}", "voiced_share", "10.4f"),
    ("  pitch, Hz", "pitch", "10.1f"),
    ("longest pause, seconds", "longest_pause", "10.2f"),
    ("longest burst, seconds", "longest_burst", "10.2f"),
    ("samples clipped", "clipped_share", "10.4f"),
)
DISTANCES = (
    ("  level", "levels", "10.4f"),
    ("  autocorrelation peak", "periodicities", "10.4f"),
    ("  pitch", "pitches", "10.4f"),
    ("  pauses", "pauses", "10.4f"),
    ("  bursts", "bursts", "10.4f"),
    ("  spectrum, dB", "spectrum", "10.2f"),
)


def recordings(
    pieces: PieceSet, chosen: Iterable[int] | None = None
) -> Iterator[Iterable[NDArray[np.float32]]]:
    """All pieces, or those `chosen`, in blocks (n,); SeqmodelError unless samples are finite."""
    for i in range(len(pieces)) if chosen is None else chosen:
        if not isinstance(pieces, Sequence):
            yield sample_blocks(pieces, i)
            continue
        check_finite(pieces[i])
        line = pieces[i].reshape(-1)
        yield np.split(line, range(BLOCK, len(line), BLOCK))


class AudioComparison(Comparison):
    """Recordings are measured whole, whatever the limit, because they are alike throughout."""

    def measure(self, pieces: PieceSet, train: Pieces, limit: int | None) -> Statistics:
        frame = train.frame if isinstance(pieces, Sequence) else pieces.frame
        assert isinstance(frame, AudioFrames)
        return measure(recordings(pieces), frame.rate, frame.full_scale)

    def classifier(self, train: Pieces, values: NDArray[np.int64]) -> Classifier:
        """See `Comparison`; UsageError without scikit-learn, or unless there are several values."""
        try:
            from sklearn.pipeline import make_pipeline
            from sklearn.preprocessing import StandardScaler
            from sklearn.svm import SVC
        except ModuleNotFoundError as error:
            advice = "--judge needs scikit-learn: pip install 'seqmodel[judge]'"
            raise UsageError(advice) from error
        frame, labelled = train.frame, np.flatnonzero(values)
        count = min(len(labelled), MAX_TRAINING_PIECES)
        chosen = labelled[np.arange(count) * len(labelled) // max(1, count)]
        if len({*values[chosen]}) < 2:
            raise UsageError("--judge needs a label with several values in train")
        features = [_features(blocks, frame.rate) for blocks in recordings(train, chosen.tolist())]
        model = make_pipeline(StandardScaler(), SVC(C=10.0)).fit(features, values[chosen])

        def classify(pieces: PieceSet) -> NDArray[np.int64]:
            features = [_features(blocks, frame.rate) for blocks in recordings(pieces)]
            return np.asarray(model.predict(features))

        return classify

    def lines(self, values: Mapping[str, Any], split: str) -> list[str]:
        return comparison_lines(values, split, FIGURES, DISTANCES)


def _median(values: Floats) -> float | None:
    return float(np.median(values)) if len(values) else None


def _share(mask: NDArray[np.bool_]) -> float | None:
    return float(mask.mean()) if len(mask) else None


# ---- judge ---------------------------------------------------------------------------------------

# It reads mel-frequency cepstra, the usual description of speech (Davis, Mermelstein 1980,
# "Comparison of parametric representations for monosyllabic word recognition"), of 30 ms every
# 10 ms, sampled evenly between the beginning and the end of the sound.
JUDGED_BANDS, CEPSTRA, FRAMES = 24, 13, 20
"""Bands of the spectrum, cepstral coefficients used, and frames used of a recording."""
ENERGY_FLOOR, LEVEL_RANGE = 1e-6, 7.0
"""The constant added to all energies; sound begins and ends with frames in which a band has at
least e^-7 of the maximum energy."""
MAX_TRAINING_PIECES = 5000
"""At most so many pieces, evenly spaced in train, are learned from: time grows with the square."""


def _features(blocks: Iterable[NDArray[np.float32]], rate: int) -> Floats:
    """Features (FRAMES CEPSTRA + 1,) of a recording: cepstra, and the logarithm of its length."""
    size, hop = max(1, round(0.03 * rate)), max(1, round(0.01 * rate))
    windows, bands = Windows(size, hop), mel_bands(JUDGED_BANDS, size // 2 + 1, rate)
    hann = np.hanning(size + 2)[1:-1]
    silence = np.zeros(size, np.float32)  # so that there is at least one window
    spectra = (np.abs(np.fft.rfft(windows.of(block) * hann)) for block in (*blocks, silence))
    levels = np.log(ENERGY_FLOOR + np.concatenate([each**2 @ bands.T for each in spectra]))
    loudest = levels.max(1)
    (audible,) = np.nonzero(loudest >= loudest.max() - LEVEL_RANGE)
    levels = levels[audible[0] : audible[-1] + 1]
    angles = np.outer(np.arange(CEPSTRA), np.arange(JUDGED_BANDS) + 0.5)
    cosines = np.cos(np.pi / JUDGED_BANDS * angles)
    frames = np.arange(len(levels))
    positions = np.linspace(0, frames[-1], FRAMES)
    resampled = [np.interp(positions, frames, each) for each in cosines @ levels.T]
    return np.append(np.concatenate(resampled), np.log(len(levels)))
