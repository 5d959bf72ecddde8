"""Which samples are drawn for a comparison; pieces from the average of models."""

import shutil
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from frequencies import assert_frequent
from piece_nats import frame_and_end_nats

from seqmodel import units
from seqmodel.data.dataset import open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.evaluation.likelihood import Likelihood, average
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.music.evaluation import MusicComparison
from seqmodel.model.encoder import WindowEncoder
from seqmodel.model.notes import NoteEncoder
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.bernoulli import BernoulliOutput
from seqmodel.outputs.note_unit import NoteUnitOutput
from seqmodel.outputs.notes_tied import below_size
from seqmodel.runs.folder import load_run
from seqmodel.sampling import comparison
from seqmodel.sampling.comparison import compare_samples
from seqmodel.sampling.sampler import AverageSampler, Sampler, plain_sampler


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory, make_config, train):
    """A run that does not predict when pieces end."""
    folder = tmp_path_factory.mktemp("runs") / "plain"
    train(make_config(epochs=1), folder)
    return load_run(folder)


@pytest.fixture
def judged(monkeypatch):
    """The arguments of the medium's comparison."""
    given = []

    def compare(self, drawn, split, train, limit):
        given.append((drawn, split, train))
        return {}

    monkeypatch.setattr(MusicComparison, "compare", compare)
    return given


@pytest.mark.parametrize(
    ("number", "lengths"), [(2, [13, 26]), (10, [13, 13, 2, 2, 26, 26, 7, 7, 19, 19])]
)
def test_samples_are_as_long_as_the_splits_pieces(plain_run, dataset, judged, number, lengths):
    """Lengths spread over the split, and samples as `sample` draws for the seed, cut to them."""
    calls = []
    found = compare_samples(
        plain_run, dataset, "valid", number=number, seed=9, progress=lambda *c: calls.append(c)
    )
    assert calls == [(k + 1, number) for k in range(number)]
    assert found == {
        "pieces": number,
        "frames": sum(lengths),
        "seed": 9,
        "temperature": 1.0,
        "guidance": 1.0,
        "lengths": "as long as pieces of valid",
    }
    ((drawn, split, train),) = judged
    sampler = Sampler(plain_run.model)
    for k, (piece, length) in enumerate(zip(drawn, lengths, strict=True)):
        expected = np.concatenate(list(sampler.piece(30, seed=9, number=k)))[:length]
        np.testing.assert_array_equal(piece, expected)
    assert (split.name, train.name) == ("valid", "train")


def test_a_run_that_predicts_ends_chooses_its_own_lengths(run, dataset, judged):
    found = compare_samples(run, dataset, "valid", number=8, seed=1)
    lengths = [len(piece) for piece in judged[0][0]]
    assert found["lengths"] == "lengths chosen by the model"
    assert found["frames"] == sum(lengths)
    assert len(set(lengths)) > 1
    assert found["cut_off"] == 0
    cold = compare_samples(run, dataset, "valid", number=1, seed=1, temperature=0.5)
    expected = np.concatenate(list(Sampler(run.model, temperature=0.5).piece(30, seed=1)))
    assert cold["temperature"] == 0.5
    np.testing.assert_array_equal(judged[1][0][0], expected)


def test_a_run_that_should_end_pieces_but_does_not_is_stopped(run, dataset, judged):
    """After as many frames as the longest training piece has, as `sample` does."""
    bias = run.model.output.linear.bias
    before = bias[88].item()
    with torch.no_grad():
        bias[88] = -100
        found = compare_samples(run, dataset, "valid", number=3, seed=1)
        bias[88] = before
    assert found["cut_off"] == 3
    assert [len(piece) for piece in judged[0][0]] == [30, 30, 30]


def test_samples_have_the_metres_of_the_splits_pieces(run, dataset, judged, monkeypatch):
    """Guards against samples that are all in train's commonest metre, beside pieces in several."""
    stated = {k: {"metre": [[0, 3 + k % 2, 4]]} for k in range(len(dataset["valid"]))}
    facts = [replace(piece, facts=stated[k]) for k, piece in enumerate(dataset["valid"].pieces)]
    valid = replace(dataset["valid"], pieces=facts)
    monkeypatch.setattr(type(dataset), "__getitem__", lambda self, name: valid)
    told = []

    class Recorded(Sampler):
        def __init__(self, *args, metres, **options):
            super().__init__(*args, **options)
            self.metres = metres

        def piece(self, *args, **options):
            told.append(self.metres)
            return super().piece(*args, **options)

    monkeypatch.setattr(comparison, "Sampler", Recorded)
    compare_samples(run, dataset, "valid", number=4, seed=9)
    at = np.arange(4) * len(valid) // 4
    np.testing.assert_array_equal(told, [run.frame.metres(stated[k]) for k in at.tolist()])


def test_train_is_not_compared_with_itself(plain_run, dataset, judged):
    compare_samples(plain_run, dataset, "train", number=1, seed=1)
    assert judged[0][1] is None


def test_copies_are_sought_in_what_the_run_was_trained_on(
    plain_run, dataset, rolls, tmp_path, write_dataset, judged
):
    """Guards against looking for copies in a train split that the run has never seen."""
    other = write_dataset(tmp_path, {"train": rolls["test"], "valid": rolls["valid"][:1]})
    for split in ("valid", "train"):
        compare_samples(plain_run, other, split, number=1, seed=1)
        _, pieces, train = judged.pop()
        assert pieces.frames == other[split].frames
        assert train.frames == dataset["train"].frames


def test_data_that_has_moved_is_found_and_other_data_is_an_error_that_says_why(
    plain_run, dataset, rolls, tmp_path, write_dataset
):
    moved = open_dataset(shutil.copytree(dataset.folder, tmp_path / "moved"))
    other = write_dataset(tmp_path / "other", {**rolls, "valid": rolls["test"]})
    config = replace(plain_run.config, data=str(tmp_path / "gone"))
    run = replace(plain_run, config=config)
    compare_samples(run, moved, "valid", number=1, seed=1)
    with pytest.raises(SeqmodelError) as caught:
        compare_samples(run, other, "valid", number=1, seed=1)
    assert f"--samples needs {run.folder}'s training data: {tmp_path}/gone" in str(caught.value)


def test_samples_of_so_many_seconds(plain_run, dataset, audio_run_folder, audio_dataset, run):
    """Lengths as `sample --seconds` gives them, for any medium; the limit if pieces may end."""
    found = compare_samples(plain_run, dataset, "valid", number=2, seed=1, seconds=1.5)
    assert (found["frames"], found["lengths"]) == (2 * 12, "1.5 s each")  # at 120 bpm
    assert found["drawn"]["shortest"] == found["drawn"]["longest"] == 12
    beginnings = np.concatenate([piece[:12] for piece in dataset["train"]])
    assert found["train"]["notes_per_frame"] == beginnings.sum() / len(beginnings)
    ended = compare_samples(run, dataset, "valid", number=9, seed=1, seconds=0.5)
    assert ended["lengths"] == "at most 0.5 s each"
    assert ended["drawn"]["longest"] == 4
    assert ended["cut_off"] > 0
    audio = load_run(audio_run_folder)
    found = compare_samples(audio, audio_dataset, "valid", number=3, seed=1, seconds=0.25)
    assert (found["frames"], found["lengths"]) == (3 * 200, "0.25 s each")
    assert found["drawn"]["length"] == 0.25


@pytest.fixture(scope="module")
def models():
    """A frame-wise and a tied model of two notes, which differ much, in what ends pieces too."""
    torch.manual_seed(4)
    wide = SequenceModel(
        WindowEncoder(2, sparse=True), units.make("gru", 2, 3), BernoulliOutput(3, 2, end=True)
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


def test_the_likelihood_of_an_average_is_frequency(models):
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


def test_an_average_keeps_a_primer_and_the_shortest_length(models):
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
