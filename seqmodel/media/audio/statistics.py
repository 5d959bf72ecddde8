"""Statistics of recordings, to compare sampled ones with the data.

Levels are RMS in dB re full scale, of frames of 20 ms. What tells voices and instruments from noise
is measured in frames of 30 ms, one every 10 ms, that are `AUDIBLE`: their level; their periodicity,
which is the autocorrelation of the frame without its mean, relative to lag 0, at its peak among
lags of 2.5 to 20 ms; their pitch, one over that lag, if they are voiced; and their spectrum.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SeqmodelError
from seqmodel.media.audio.frames import Windows
from seqmodel.media.sound import FULL_SCALE, to_levels

Floats = NDArray[np.float64]

AUDIBLE = -45.0
"""dB; a frame at or below it is a pause."""
SILENCE = -96.0
"""dB; nothing counts as quieter, not even digital silence."""
VOICED = 0.5
"""A frame of higher periodicity is voiced."""
LOWEST, HIGHEST = 50, 400
"""Pitches in Hz: lags of 20 and 2.5 ms."""
BANDS = 20
FAINTEST = -80.0
"""dB, of a band beside all others: what is fainter, such as rounding, is not heard."""


@dataclass(frozen=True)
class Statistics:
    """What a set of recordings at one rate sounds like, all pieces together."""

    rate: int
    lengths: NDArray[np.int64]
    """Of each piece, in samples."""
    levels: Floats
    """Of each frame of 20 ms."""
    audible_levels: Floats
    """Of each audible frame of 30 ms."""
    periodicities: Floats
    """Of each audible frame of 30 ms."""
    pitches: Floats
    """Of each voiced frame of 30 ms, in Hz."""
    pauses: Floats
    """The length in seconds of each stretch of frames of 20 ms that are not audible."""
    bursts: Floats
    """The same of those that are."""
    energies: Floats
    """Of all audible frames of 30 ms, at frequencies from 0 to half the rate."""
    clipped: int
    """Samples at full scale."""

    def distributions(self) -> dict[str, Counter[float]]:
        """The lower edges of bins -> counts: 3 dB, 0.05, semitones above 50 Hz, octaves of seconds.

        The first and the last bin also take what is beyond them.
        """
        octaves = (np.log2(some / 0.02) for some in (self.pauses, self.bursts))
        pauses, bursts = (0.02 * 2 ** _floor(some, 0, 7) for some in octaves)
        return {
            "levels": Counter((3 * _floor(self.levels / 3, -30, -1)).tolist()),
            "periodicities": Counter((_floor(self.periodicities * 20, 0, 19) / 20).tolist()),
            "pitches": Counter(_floor(12 * np.log2(self.pitches / LOWEST), 0, 35).tolist()),
            "pauses": Counter(pauses.tolist()),
            "bursts": Counter(bursts.tolist()),
        }

    def spectrum(self, rate: int) -> Floats | None:
        """(BANDS,) of the long-term spectrum in dB re their sum; None if nothing is audible.

        The bands are triangles, equally wide in mel, from 80 Hz to 0.95 of half of `rate`.
        """
        if not self.energies.any():
            return None
        bottom, top = _mel(np.array([80, 0.95 * rate / 2]))
        edges = np.linspace(bottom, top, BANDS + 1)
        centres, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
        at = _mel(np.linspace(0, self.rate / 2, len(self.energies)))
        weights = np.maximum(0, 1 - np.abs(at - centres[:, np.newaxis]) / width)
        energies = weights @ self.energies
        shares = energies / max(energies.sum(), np.finfo(float).tiny)
        bands: Floats = 10 * np.log10(np.maximum(shares, 10 ** (FAINTEST / 10)))
        return bands


def measure(
    recordings: Iterable[Iterable[NDArray[np.float32]]], rate: int, loudest: float = 1 - 2**-15
) -> Statistics:
    """Measure recordings, each in blocks (n,) of finite samples in [-1, 1); at least one.

    They are rounded to 16 bits, as in a file; samples from `loudest` on are clipped ones.
    """
    short, long, hop = (max(1, round(seconds * rate)) for seconds in (0.02, 0.03, 0.01))
    window = np.hanning(long + 1)[:-1] if long > 1 else np.ones(1)
    size = 1 << (long - 1).bit_length()
    energies, clipped = np.zeros(size // 2 + 1), 0
    lengths, found = [], defaultdict[str, list[Floats]](list)
    for blocks in recordings:
        frames, longer = Windows(short, short), Windows(long, hop)
        samples, levels = 0, [np.zeros(0)]
        for block in blocks:
            heard = to_levels(block).astype(np.float64) / FULL_SCALE
            samples += len(heard)
            clipped += int((np.abs(heard) >= loudest).sum())
            levels.append(_levels(frames.of(heard)))
            some = longer.of(heard)
            loud = _levels(some)
            audible = some[loud > AUDIBLE]
            periodicities, pitches = periodicity(audible, rate)
            found["audible_levels"].append(loud[loud > AUDIBLE])
            found["periodicities"].append(periodicities)
            found["pitches"].append(pitches[periodicities > VOICED])
            energies += (np.abs(np.fft.rfft(audible * window, size)) ** 2).sum(0)
        of_piece = np.concatenate(levels)
        lengths.append(samples)
        found["levels"].append(of_piece)
        found["pauses"].append(stretches(of_piece <= AUDIBLE))
        found["bursts"].append(stretches(of_piece > AUDIBLE))
    whole = {name: np.concatenate(parts) for name, parts in found.items()}
    return Statistics(rate, np.array(lengths), energies=energies, clipped=clipped, **whole)


def periodicity(frames: Floats, rate: int) -> tuple[Floats, Floats]:
    """The periodicity of each frame of 30 ms (n, size), and the pitch in Hz that it would have."""
    first = max(1, round(rate / HIGHEST))
    last = max(first, round(rate / LOWEST))
    size = 1 << (frames.shape[1] + last).bit_length()  # padded, so that no lag wraps around
    spectra = np.fft.rfft(frames - frames.mean(1, keepdims=True), size)
    acf = np.fft.irfft(np.abs(spectra) ** 2, size)[:, : last + 1]
    ratios = acf[:, first:] / np.maximum(acf[:, :1], np.finfo(float).tiny)  # 0 in a constant frame
    best = ratios.argmax(1)
    peaks: Floats = np.take_along_axis(ratios, best[:, np.newaxis], 1)[:, 0]
    pitches: Floats = rate / (best + first)
    return peaks, pitches


def check_finite(drawn: NDArray[np.float32]) -> None:
    """SeqmodelError unless all samples that a run has drawn are numbers."""
    if not np.isfinite(drawn).all():
        raise SeqmodelError("the run draws samples that are not finite: use another run")


def stretches(mask: NDArray[np.bool_]) -> Floats:
    """The length in seconds of each stretch of True in `mask` (n,), one for each 20 ms."""
    edges = np.diff(np.pad(mask.astype(np.int8), 1))
    frames = np.flatnonzero(edges < 0) - np.flatnonzero(edges > 0)
    return 0.02 * frames.astype(np.float64)


def _levels(frames: Floats) -> Floats:
    """(n,) in dB."""
    levels: Floats = 10 * np.log10(np.maximum((frames**2).mean(1), 10 ** (SILENCE / 10)))
    return levels


def _floor(values: Floats, least: int, most: int) -> NDArray[np.int64]:
    return np.floor(values).astype(np.int64).clip(least, most)


def _mel(hertz: Floats) -> Floats:
    """O'Shaughnessy 1987, "Speech Communication"."""
    mel: Floats = 2595 * np.log10(1 + hertz / 700)
    return mel
