"""Pieces from the average of models: as frequent as it says they are."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from frequencies import assert_frequent
from piece_nats import frame_and_end_nats

from seqmodel import units
from seqmodel.evaluation.likelihood import Likelihood, average
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.model.encoder import WindowEncoder
from seqmodel.model.notes import NoteEncoder
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.bernoulli import BernoulliOutput
from seqmodel.outputs.note_unit import NoteUnitOutput
from seqmodel.outputs.notes_tied import below_size
from seqmodel.runs.folder import load_run
from seqmodel.sampling.sampler import AverageSampler, Sampler, plain_sampler


@pytest.fixture(scope="module")
def models():
    """A frame-wise and a tied model of two notes, which differ much, in what ends pieces too."""
    torch.manual_seed(4)
    wide = SequenceModel(
        WindowEncoder(2, binary=True), units.make("gru", 2, 3), BernoulliOutput(3, 2, end=True)
    )
    encoder = NoteEncoder(2, echo=True, ages=True)
    width = 3 + encoder.skip_size
    pitch = units.make("gru", width + below_size(onsets=False), 3)
    output = NoteUnitOutput(width, pitch, 2, end=True)
    tied = SequenceModel(encoder, units.make("gru", encoder.input_size, 3), output)
    for model in (wide, tied):
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=1.5)
        model.double().eval()
    return [wide, tied]


def scores(model, pieces):
    """Of pieces (T, 2), each with whether it ends there."""
    frame_nats, end_nats = [], []
    for piece, ended in pieces:
        found = frame_and_end_nats(model, torch.tensor(piece).double().unsqueeze(1), ended)
        for of_all, own in zip((frame_nats, end_nats), found, strict=True):
            of_all.append(own[:, 0].numpy())
    nats, first = np.array([(n.sum(), n[0]) for n in frame_nats]).T
    lengths = np.array([len(piece) for piece, _ in pieces])
    return Likelihood(lengths, nats, first, {}, frame_nats, end_nats)


def test_likelihood_is_frequency(models):
    """Of all pieces of at most two frames, whose probabilities add up to 1."""
    frames = list(product((0, 1), repeat=2))
    pieces = [([frame], True) for frame in frames]
    pieces += [([*pair], ended) for pair in product(frames, repeat=2) for ended in (False, True)]
    of_all = average([scores(model, pieces) for model in models])
    nats = [a.sum() + b.sum() for a, b in zip(of_all.frame_nats, of_all.end_nats, strict=True)]
    expected = np.exp(-np.array(nats))
    assert expected.sum() == pytest.approx(1, abs=1e-12)
    sampler, draws, found = AverageSampler(models), 800, Counter()
    for number in range(draws):
        piece = sampler.piece(2, seed=1, number=number)
        drawn = np.concatenate(list(piece))
        found[drawn.tobytes(), piece.ended] += 1
    seen = [found[np.array(piece, np.uint8).tobytes(), e] for piece, e in pieces]
    assert sum(seen) == draws
    assert_frequent(seen, draws * expected, draws, least=20)


def test_a_primer_and_the_shortest_length_are_kept(models):
    """Guards against an end too early, and a first frame that has not heard the primer."""
    sampler = AverageSampler(models)
    prime = np.array([[1, 0], [1, 1]], np.uint8)
    lengths = [
        sum(map(len, sampler.piece(9, seed=2, number=n, shortest=shortest)))
        for n in range(20)
        for shortest in (0, 4, np.inf)
    ]
    assert min(lengths[::3]) < 4 == min(lengths[1::3])
    assert set(lengths[2::3]) == {9}
    heard = [
        [np.concatenate(list(sampler.piece(1, seed=3, number=n, prime=p))) for n in range(40)]
        for p in (None, prime)
    ]
    assert not np.array_equal(*heard)


def test_a_frame_of_sound_is_the_chosen_models(logistic_run_folder, sample_wise_run_folder):
    """Guards against models chosen anew within a frame, of which one takes 1 step and one 10."""
    models = [load_run(folder).model for folder in (logistic_run_folder, sample_wise_run_folder)]
    for seed in (5, 6, 7, 8):
        uniforms = Uniforms(seed)
        model = models[int(uniforms.take(1)[0] * 2)]
        sampler, steps = Sampler(model), model.encoder.steps
        alone, _ = next(plain_sampler(sampler.double, steps, 0.8)(sampler.start, uniforms, 0))
        drawn = AverageSampler(models, temperature=0.8).draw(Uniforms(seed))
        frames = [next(drawn)[0] for _ in range(3)]
        np.testing.assert_array_equal(frames[0], alone)
        assert {frame.shape for frame in frames} == {(1, 10)}
