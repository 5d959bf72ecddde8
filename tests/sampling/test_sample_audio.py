"""Sampling audio: the compiled draws against the plain one, and the specified stream."""

import copy
import itertools
import operator
from functools import reduce

import numpy as np
import pytest
import torch
from same_draws import both_samplers, same_draws

from seqmodel.config import resolve
from seqmodel.kernels.uniforms import GAMMA, MIXING, Uniforms
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.medium import AUDIO
from seqmodel.model.build import build_model
from seqmodel.model.encoder import Past
from seqmodel.model.sequence import Carry
from seqmodel.sampling import sampler as sample

kinds = pytest.mark.parametrize("kind", ["gaussian", "logistic"])
SMALL = AudioFrames(8000, 3, 7, mean=0.1, deviation=0.25)


def make_model(kind, frame=SMALL, *, unit="gru", hidden=9, components=4, layers=1):
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


@kinds
def test_draws_follow_the_stated_stream(kind):
    """So that another program or release can draw the same piece.

    Uniforms are taken in order, frame by frame, whatever the chunk.
    """
    model = make_model(kind)
    double, temperature = copy.deepcopy(model).double(), 0.6
    stream, frames = Uniforms(3, 1), []
    with torch.no_grad():
        carry = double.start(1)
        for _ in range(2 * sample.CHUNK):
            uniforms = torch.from_numpy(stream.take(double.output.uniforms_per_frame))
            h, state = double.step(carry)
            frame = double.output.draw_frame(
                h, carry.past.numbers, uniforms[None], temperature
            ).frame
            carry = Carry(state, Past(torch.cat([carry.past.numbers, frame], 1)[:, -7:]))
            frames.append(frame[0].numpy())
    ours = draw(model, 2, temperature=temperature)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, np.array(frames))


def test_a_thousand_frames_of_the_papers_model_are_the_same():
    """Guards against rounding errors that add up over time, and reads beyond a panel's end."""
    frame, hidden = AudioFrames(8000, mean=0.001, deviation=0.08), AUDIO.paper_hidden["lstm"]
    model = make_model("gaussian", frame, unit="lstm", hidden=hidden, components=20)
    ours = same_draws(model, chunks=4)
    assert ours.shape == (1024, 10)
    assert len(np.unique(ours)) > 3000


@pytest.mark.usefixtures("short_chunks")
def test_compiled_and_plain_sampling_draw_the_same():
    """Stacks, temperatures and primers, across chunk boundaries; units are those of music."""
    model = make_model("gaussian", layers=2)
    prime = np.random.default_rng(0).integers(-9000, 9000, (5, 3)) / 32768
    for temperature in (1.0, 0.5, 0.0):
        same_draws(model, temperature=temperature, prime=prime)


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize(
    ("frame_size", "context", "components"),
    [(1, 1, 1), (8, 8, 8), (9, 20, 1), (2, 57, 11), (17, 2, 11)],
)
def test_any_sizes(frame_size, context, components):
    """Vectors that are full, partial or a single number.

    Contexts lie within one frame, span several, or (57) span more than a chunk.
    """
    frame = AudioFrames(8000, frame_size, context, mean=0.1, deviation=0.25)
    same_draws(make_model("gaussian", frame, components=components))


@pytest.mark.usefixtures("short_chunks")
def test_float64_weights_are_read_unchanged():
    """Guards against weights rounded to float32, or changed in place in the model."""
    model = make_model("gaussian").double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + 1e-9 * torch.randn_like(weight))
    same_draws(model)


def stream_with(number, bits):
    """A stream whose uniform `number` is bits / 2^53."""
    for shift, factor in reversed(MIXING):
        bits = bits * pow(factor, -1, 2**64) % 2**64
        bits = reduce(operator.xor, (bits >> k for k in range(0, 64, shift)))
    stream = Uniforms(0)
    stream._state = (bits - (number + 1) * GAMMA) % 2**64
    return stream


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("temperature", [1.0, 1e-3, 0.0])
def test_the_outermost_uniforms(temperature):
    """Guards against infinite noise, and against choosing a component past the last.

    Also against choosing a component without weight for a uniform of 0.
    """
    model = make_model("gaussian")
    with torch.no_grad():
        model.output.linear.bias[[0, 3]] = -3000.0
    samplers = both_samplers(model, temperature=temperature)
    for number, whole in itertools.product(range(4), (0, 1, 2**53 - 1)):
        ours, theirs = (
            next(sampler.draw(stream_with(number, whole << 11)))[0] for sampler in samplers
        )
        np.testing.assert_array_equal(ours, theirs)
        assert np.isfinite(ours).all()


@pytest.mark.usefixtures("short_chunks")
@kinds
def test_samples_are_16_bit_levels_within_their_range(kind):
    """Guards against samples that wrap around in a WAV file, or that the model reads unclamped."""
    frame = AudioFrames(8000, 3, 7, mean=0.1, deviation=3.0)
    levels = draw(make_model(kind, frame)) * 32768
    assert levels.min() == -32768
    assert levels.max() == 32767
    np.testing.assert_array_equal(levels, levels.round())


@kinds
def test_where_the_learned_scale_vanishes_the_floor_remains(kind):
    """Guards against a scale of nan or 0: the floor is a level, or a tenth for the logistic."""
    model = make_model(kind, components=1)
    output = model.output
    with torch.no_grad():
        linear = output.linear if kind == "gaussian" else output.mixture
        linear.weight.zero_()
        linear.bias[-3 if kind == "gaussian" else -1 :] = -800.0
        if kind == "logistic":
            output.predictor.zero_()
            output.correction.zero_()
    errors = (draw(model, 1) - draw(model, 1, temperature=0.0)) * 32768
    rms = np.sqrt((errors**2).mean())
    assert 0.9 < rms < 1.2 if kind == "gaussian" else 0 < rms < 0.5


@pytest.mark.usefixtures("short_chunks")
@kinds
def test_temperature_zero_takes_the_first_of_equally_likely_components(kind):
    """Guards against leaving the choice, or the noise, to chance where logits are equal."""
    model = make_model(kind)
    linear = model.output.linear if kind == "gaussian" else model.output.mixture
    with torch.no_grad():
        linear.weight[:4].zero_()
        linear.bias[:4] = torch.tensor([-1.0, 2.0, 2.0, 2.0])
    drawn = draw(model, temperature=0.0)
    with torch.no_grad():
        linear.bias[2:4] -= 1
    for sampler in both_samplers(model, temperature=0.0):
        again, _ = next(sampler.draw(Uniforms(8)))
        np.testing.assert_array_equal(again, drawn[: len(again)])


@kinds
def test_a_primer_is_read_to_its_last_sample(kind):
    """Guards against a primer cut off, or missing from the unit's input or the samples' windows."""
    model = make_model(kind)
    prime = np.random.default_rng(0).integers(-9000, 9000, (4, 3)) / 32768
    other = prime.copy()
    other[-1, -1] += 0.2
    ours = draw(model, 1, prime=prime, temperature=0.0)
    assert (draw(model, 1, prime=other, temperature=0.0) != ours).any()
    nothing = draw(model, 1, prime=prime[:0], temperature=0.0)
    np.testing.assert_array_equal(nothing, draw(model, 1, temperature=0.0))


def test_generators_do_not_share_or_outlive_their_memory():
    """Two at once, and one whose chunk is kept: nothing may be overwritten."""
    model = make_model("gaussian")
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
