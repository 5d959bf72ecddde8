"""Sampling audio, in frames and sample by sample: compiled against plain draws; frequencies."""

import copy
import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from frequencies import assert_frequent
from piece_nats import frame_and_end_nats
from same_draws import both_samplers, same_draws

from seqmodel.config import resolve
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.medium import AUDIO
from seqmodel.model.build import build_model
from seqmodel.model.encoder import Past
from seqmodel.model.sequence import Carry
from seqmodel.model.sound.predictors import predictors_at
from seqmodel.model.sound.steering import TrainingStatistics
from seqmodel.sampling import sampler as sample

kinds = pytest.mark.parametrize("kind", ["gaussian", "logistic"])
SMALL = AudioFrames(8000, 3, 7, mean=0.1, deviation=0.25)


def frame_wise_model(kind, frame=SMALL, *, unit="gru", hidden=9, components=4, layers=1):
    """A model with no parameter at zero and components unlike each other, whose past matters."""
    torch.manual_seed(5)
    config = {"unit": unit, "hidden": hidden, "layers": layers, "components": components}
    config["model"] = "frame-wise"
    model = build_model(resolve(config | {"output": kind}, presets=AUDIO.presets), frame)
    output, K = model.output, components
    with torch.no_grad():
        for layer in model.layers():
            for gate in layer.gates().values():
                for term in ("V", "b", "bU"):
                    if gate.get(term) is not None:
                        gate[term].uniform_(-1, 1)
        output.linear.weight.mul_(10)
        if kind == "gaussian":
            output.linear.bias.normal_()
            output.linear.bias[(frame.frame_size + 1) * K :].sub_(2)
        else:
            output.mixture.weight.mul_(20)
            output.mixture.bias[: 2 * K].normal_()
            output.mixture.bias[2 * K :].normal_(-2)
            output.predictor.copy_(0.9 ** torch.arange(1, frame.context + 1).flip(0) / 10)
            output.correction.normal_(0, 0.1)
            output.residual.fill_(0.4)
    return model


def draw(model, chunks=3, uniforms=None, temperature=1.0, prime=None):
    """The first `chunks` chunks, as frames (T, F)."""
    sampler = sample.Sampler(model, temperature=temperature)
    drawn = list(itertools.islice(sampler.draw(uniforms or Uniforms(3, 1), prime=prime), chunks))
    assert not any(ended for _, ended in drawn)
    return np.concatenate([frames for frames, _ in drawn])


@pytest.fixture
def short_chunks(monkeypatch):
    """Chunks of 20 frames: the plain path is slow."""
    monkeypatch.setattr(sample, "CHUNK", 20)


@pytest.mark.usefixtures("short_chunks")
def test_draws_follow_the_stated_stream():
    """Of the logistic output, which is not compiled, and whose draw reads the samples before."""
    model = frame_wise_model("logistic")
    double, temperature = copy.deepcopy(model).double(), 0.6
    stream, frames = Uniforms(3, 1), []
    with torch.no_grad():
        carry = double.start(1)
        for _ in range(2 * sample.CHUNK):
            uniforms = torch.from_numpy(stream.take(double.output.uniforms_per_frame))
            h, state = double.step(carry)
            past = carry.past.numbers
            frame = double.output.draw_frame(h, past, uniforms[None], temperature).frame
            carry = Carry(state, Past(torch.cat([past, frame], 1)[:, -7:]))
            frames.append(frame[0].numpy())
    ours = draw(model, 2, temperature=temperature)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, np.array(frames))


def test_hundreds_of_frames_of_the_papers_model_are_the_same():
    """Guards against rounding errors that add up over time, and reads beyond a panel's end."""
    frame, hidden = AudioFrames(8000, mean=0.001, deviation=0.08), AUDIO.paper_hidden["lstm"]
    model = frame_wise_model("gaussian", frame, unit="lstm", hidden=hidden, components=20)
    ours = same_draws(model, chunks=2)
    assert ours.shape == (512, 10)
    assert len(np.unique(ours)) > 1500


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize(
    ("frame_size", "context", "components", "layers"),
    [(1, 1, 1, 1), (8, 8, 8, 1), (9, 20, 1, 2), (2, 57, 11, 1), (17, 2, 11, 1)],
)
def test_compiled_and_plain_sampling_draw_the_same(frame_size, context, components, layers):
    """Of full and partial vectors; contexts lie within a frame or span more than a chunk."""
    frame = AudioFrames(8000, frame_size, context, mean=0.1, deviation=0.25)
    model = frame_wise_model("gaussian", frame, components=components, layers=layers)
    prime = np.random.default_rng(0).integers(-9000, 9000, (5, frame_size)) / 32768
    for temperature in (1.0, 0.5, 0.0) if layers == 2 else (1.0,):
        same_draws(model, temperature=temperature, prime=prime)


@pytest.mark.usefixtures("short_chunks")
@kinds
def test_samples_are_16_bit_levels_within_their_range(kind):
    """Guards against samples that wrap around in a WAV file, or that the model reads unclamped."""
    frame = AudioFrames(8000, 3, 7, mean=0.1, deviation=3.0)
    levels = draw(frame_wise_model(kind, frame)) * 32768
    assert levels.min() == -32768
    assert levels.max() == 32767
    np.testing.assert_array_equal(levels, levels.round())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@kinds
def test_numbers_that_are_not_finite_are_drawn_as_such(kind, temperature):
    """Guards against an error of Python's `round` for what `sample` refuses in one line."""
    model = frame_wise_model(kind)
    layer = model.output.linear if kind == "gaussian" else model.output.mixture
    with torch.no_grad():
        layer.bias.fill_(torch.nan)
    assert np.isnan(draw(model, temperature=temperature)).all()


@pytest.mark.usefixtures("short_chunks")
@kinds
def test_a_primer_is_read_to_its_last_sample(kind):
    """Guards against a primer cut off, or missing from the unit's input or the samples' windows."""
    model = frame_wise_model(kind)
    prime = np.random.default_rng(0).integers(-9000, 9000, (4, 3)) / 32768
    other = prime.copy()
    other[-1, -1] += 0.2
    ours = draw(model, 1, prime=prime, temperature=0.0)
    assert (draw(model, 1, prime=other, temperature=0.0) != ours).any()
    nothing = draw(model, 1, prime=prime[:0], temperature=0.0)
    np.testing.assert_array_equal(nothing, draw(model, 1, temperature=0.0))


@pytest.mark.usefixtures("short_chunks")
def test_generators_do_not_share_or_outlive_their_memory():
    """Two at once, and one whose chunk is kept: nothing may be overwritten."""
    model = frame_wise_model("gaussian")
    whole = draw(model, 2)
    sampler = sample.Sampler(model)
    first = sampler.draw(Uniforms(3, 1))
    kept = next(first)[0]
    other = sampler.draw(Uniforms(9))
    del sampler
    next(other)
    rest = next(first)[0]
    del first
    next(other)
    np.testing.assert_array_equal(np.concatenate([kept, rest]), whole)


def sample_wise_model(frame_size, *, unit="gru", layers=1, log_scale=-1.0, rate=8000):
    """A model whose past matters, and whose recordings may have been kept with 15 bits."""
    torch.manual_seed(2)
    config = {"model": "sample-wise", "unit": unit, "hidden": 6, "layers": layers, "end": True}
    frame = AudioFrames(rate, frame_size, 7, mean=0.1, deviation=0.25)
    model = build_model(resolve(config, presets=AUDIO.presets), frame).eval()
    output = model.output
    pushes, voices = torch.rand(2, 16, dtype=torch.float64) - 0.5
    M = 2 * predictors_at(rate).reported_coefficients
    ranges = torch.rand(16, M, dtype=torch.float64) - 0.5 + torch.linspace(0, 0.4, M)
    known = TrainingStatistics(0.4, 2.0, 50.0, 50.0, pushes, pushes, voices, voices, ranges)
    model.encoder.known.copy_(known.packed())
    with torch.no_grad():
        output.linear.weight.mul_(5 if log_scale > -2 else 0.02)
        output.linear.bias.view(3, -1)[2].add_(log_scale)
        output.ending.weight.mul_(20)
        output.ending.bias.fill_(-1)
    return model


def test_likelihood_is_frequency(monkeypatch):
    """Of whole pieces of two frames of two samples, with scales of about a step."""
    monkeypatch.setattr(sample, "CHUNK", 4)
    model, draws = sample_wise_model(2, log_scale=-6.5), 5000
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
        frames = pieces.view(len(pieces), -1, 2).transpose(0, 1)
        p = torch.exp(-sum(frame_and_end_nats(model.double(), frames, ended)).sum(0))
        expected += (p * draws).tolist()
        seen += [found[key] for key in of_length]
    assert_frequent(seen, expected, draws, least=60)


@pytest.mark.parametrize(
    ("unit", "layers", "temperature", "rate"), [("gru", 1, 1.0, 44100), ("lstm", 2, 0.8, 8000)]
)
def test_compiled_and_plain_sampling_of_single_samples_draw_the_same(
    unit, layers, temperature, rate, monkeypatch
):
    """Across chunks, from a primer, up to the same end, which only a whole frame may have."""
    monkeypatch.setattr(sample, "CHUNK", 20)
    model = sample_wise_model(3, unit=unit, layers=layers, rate=rate)
    model.output.ending.bias.requires_grad_(False).fill_(-4)
    prime = np.random.default_rng(1).normal(0, 0.01, (30, 3)).astype(np.float32)
    samplers, lengths = both_samplers(model, temperature=temperature), []
    for number in range(4):
        drawn = [
            each.piece(60, seed=7, number=number, prime=prime, shortest=5) for each in samplers
        ]
        ours, theirs = (np.concatenate(list(piece)) for piece in drawn)
        np.testing.assert_array_equal(ours, theirs)
        assert drawn[0].ended == drawn[1].ended
        assert ours.shape[1] == 3
        lengths.append(len(ours))
    assert min(lengths) >= 5
    assert len(set(lengths)) > 2
