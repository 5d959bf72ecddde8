"""Sampling audio: the compiled draws against the plain one, and the specified stream."""

import copy
import itertools

import numpy as np
import pytest
import torch
from same_draws import same_draws

from seqmodel.config import resolve
from seqmodel.kernels.uniforms import Uniforms
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
@kinds
def test_samples_are_16_bit_levels_within_their_range(kind):
    """Guards against samples that wrap around in a WAV file, or that the model reads unclamped."""
    frame = AudioFrames(8000, 3, 7, mean=0.1, deviation=3.0)
    levels = draw(make_model(kind, frame)) * 32768
    assert levels.min() == -32768
    assert levels.max() == 32767
    np.testing.assert_array_equal(levels, levels.round())


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
