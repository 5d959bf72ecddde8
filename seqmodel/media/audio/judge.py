"""A judge of samples: a classifier trained on real recordings, independent of any model of them.

It reads mel-frequency cepstra, the usual description of speech (Davis, Mermelstein 1980,
"Comparison of parametric representations for monosyllabic word recognition"), of 30 ms every 10 ms,
sampled evenly between the beginning and the end of the sound.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import UsageError
from seqmodel.media.audio.evaluation import Floats, mel_bands, recordings
from seqmodel.media.audio.frames import Windows
from seqmodel.media.definitions import Classifier, Pieces, PieceSet

BANDS, CEPSTRA, FRAMES = 24, 13, 20
"""Bands of the spectrum, cepstral coefficients used, and frames used of a recording."""
ENERGY_FLOOR, LEVEL_RANGE = 1e-6, 7.0
"""The constant added to all energies; sound begins and ends with frames in which a band has at
least e^-7 of the maximum energy."""
MAX_TRAINING_PIECES = 5000
"""At most so many pieces, evenly spaced in train, are learned from: time grows with the square."""


def classifier(train: Pieces, values: NDArray[np.int64]) -> Classifier:
    """A classifier of recordings by the value of a label, trained on train's `values` (pieces,).

    0 means unknown. UsageError without scikit-learn, or unless there are several values.
    """
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


def _features(blocks: Iterable[NDArray[np.float32]], rate: int) -> Floats:
    """Features (STEPS CEPSTRA + 1,) of a recording: cepstra, and the logarithm of its length."""
    size, hop = max(1, round(0.03 * rate)), max(1, round(0.01 * rate))
    windows, bands = Windows(size, hop), mel_bands(BANDS, size // 2 + 1, rate)
    hann = np.hanning(size + 2)[1:-1]
    silence = np.zeros(size, np.float32)  # so that there is at least one window
    spectra = (np.abs(np.fft.rfft(windows.of(block) * hann)) for block in (*blocks, silence))
    levels = np.log(ENERGY_FLOOR + np.concatenate([each**2 @ bands.T for each in spectra]))
    loudest = levels.max(1)
    (audible,) = np.nonzero(loudest >= loudest.max() - LEVEL_RANGE)
    levels = levels[audible[0] : audible[-1] + 1]
    cosines = np.cos(np.pi / BANDS * np.outer(np.arange(CEPSTRA), np.arange(BANDS) + 0.5))
    frames = np.arange(len(levels))
    positions = np.linspace(0, frames[-1], FRAMES)
    resampled = [np.interp(positions, frames, each) for each in cosines @ levels.T]
    return np.append(np.concatenate(resampled), np.log(len(levels)))
