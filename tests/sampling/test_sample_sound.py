"""The sample-wise model: likelihood is frequency, and compiled sampling is plain sampling."""

import copy
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from seqmodel.config import resolve
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.medium import AUDIO
from seqmodel.model.build import build_model
from seqmodel.model.sound.steering import TrainingStatistics
from seqmodel.sampling import sampler as sample


def make_model(frame_size, *, end, unit="gru", layers=1, log_scale=-1.0):
    """A model whose past matters, and whose recordings may have been kept with 15 bits."""
    torch.manual_seed(2)
    config = {"model": "sample-wise", "unit": unit, "hidden": 6, "layers": layers, "end": end}
    frame = AudioFrames(8000, frame_size, 7, mean=0.1, deviation=0.25)
    model = build_model(resolve(config, presets=AUDIO.presets), frame).eval()
    output = model.output
    pushes, voices = torch.rand(2, 16, dtype=torch.float64) - 0.5
    ranges = torch.rand(16, 32, dtype=torch.float64) - 0.5 + torch.linspace(0, 0.4, 32)
    known = TrainingStatistics(0.4, 2.0, 50.0, 1.0, pushes, pushes, voices, voices, ranges)
    model.encoder.known.copy_(known.packed())
    with torch.no_grad():
        output.linear.weight.mul_(5 if log_scale > -2 else 0.02)
        output.linear.bias.view(3, -1)[2].add_(log_scale)
        if end:
            output.ending.weight.mul_(20)
            output.ending.bias.fill_(-1)
    return model


def nats_of(model, pieces, ended):
    """-log P of pieces (N, T, S) drawn up to T frames, which have `ended` (N,) there or not."""
    frames, T = pieces.transpose(0, 1), pieces.shape[1]
    last = torch.zeros(T, len(pieces), dtype=torch.float64)
    last[-1] = ended
    with torch.no_grad():
        reading = model.read(frames, model.start(len(pieces)))
        nats = model.output.score(reading.h, reading.frames, reading.past)
        return (nats + model.output.end_score(reading.h, last)).sum(0)


def test_likelihood_is_frequency(monkeypatch):
    """Whole pieces, drawn by compiled code, appear as often as their nats and those of ends say.

    Scales are about a step, so that a piece of two frames of two samples has few likely values.
    """
    monkeypatch.setattr(sample, "CHUNK", 4)
    model, draws = make_model(2, end=True, log_scale=-6.5), 5000
    sampler, found = sample.Sampler(model), Counter()
    for number in range(draws):
        piece = sampler.piece(2, seed=4, number=number)
        levels = (np.concatenate(list(piece)).ravel() * 32768).astype(int)
        found[tuple(levels.tolist()), piece.ended] += 1
    expected, seen = [], []
    for length in (2, 4):
        of_length = [key for key in found if len(key[0]) == length]
        pieces = torch.tensor([piece for piece, _ in of_length], dtype=torch.float64) / 32768
        ended = torch.tensor([ended for _, ended in of_length], dtype=torch.float64)
        p = torch.exp(-nats_of(model.double(), pieces.view(len(pieces), -1, 2), ended))
        expected += (p * draws).tolist()
        seen += [found[key] for key in of_length]
    likely = np.array(expected) > 10
    expected, seen = np.array(expected)[likely], np.array(seen)[likely]
    assert len(seen) > 60
    assert expected.sum() < draws
    expected, seen = (np.append(counts, draws - counts.sum()) for counts in (expected, seen))
    assert stats.chi2.sf(((seen - expected) ** 2 / expected).sum(), len(seen) - 1) > 1e-3


@pytest.mark.parametrize(("unit", "layers", "temperature"), [("gru", 1, 1.0), ("lstm", 2, 0.8)])
def test_compiled_and_plain_sampling_draw_the_same(unit, layers, temperature, monkeypatch):
    """Across chunks, from a primer, up to the same end, which only a whole frame may have."""
    monkeypatch.setattr(sample, "CHUNK", 20)
    model = make_model(3, end=True, unit=unit, layers=layers)
    model.output.ending.bias.requires_grad_(False).fill_(-4)
    plain = copy.deepcopy(model)
    for layer in plain.layers():
        layer.backend = "reference"
    prime = np.random.default_rng(1).normal(0, 0.01, (30, 3)).astype(np.float32)
    lengths = []
    for number in range(4):
        drawn = [
            sample.Sampler(each, temperature=temperature).piece(
                60, seed=7, number=number, prime=prime, shortest=5
            )
            for each in (model, plain)
        ]
        ours, theirs = (np.concatenate(list(piece)) for piece in drawn)
        np.testing.assert_array_equal(ours, theirs)
        assert drawn[0].ended == drawn[1].ended
        assert ours.shape[1] == 3
        lengths.append(len(ours))
    assert min(lengths) >= 5
    assert len(set(lengths)) > 2
