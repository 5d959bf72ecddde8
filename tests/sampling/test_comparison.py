"""Which samples are drawn for the comparison, and what they are compared with."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from seqmodel.data.dataset import open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.media.music.evaluation import MusicComparison
from seqmodel.runs.folder import load_run
from seqmodel.sampling.comparison import compare_samples
from seqmodel.sampling.sampler import Sampler


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

    def compare(self, drawn, split, train):
        given.append((drawn, split, train))
        return {}

    monkeypatch.setattr(MusicComparison, "compare", compare)
    return given


@pytest.mark.parametrize(("number", "lengths"), [(2, [13, 26]), (5, [13, 2, 26, 7, 19])])
def test_samples_are_as_long_as_the_splits_pieces(plain_run, dataset, judged, number, lengths):
    """Lengths spread over the split, and samples as `sample` draws for the seed, cut to them."""
    told = compare_samples(plain_run, dataset, "valid", number=number, seed=9)
    assert told == {
        "pieces": number,
        "frames": sum(lengths),
        "seed": 9,
        "temperature": 1.0,
        "lengths": "as long as pieces of valid",
    }
    ((drawn, split, train),) = judged
    sampler = Sampler(plain_run.model)
    for k, (piece, length) in enumerate(zip(drawn, lengths, strict=True)):
        expected = np.concatenate(list(sampler.piece(30, seed=9, number=k)))[:length]
        np.testing.assert_array_equal(piece, expected)
    assert (split.name, train.name) == ("valid", "train")


def test_more_samples_than_pieces_use_every_length_equally_often(plain_run, dataset, judged):
    compare_samples(plain_run, dataset, "test", number=6, seed=1)
    assert [len(piece) for piece in judged[0][0]] == [11, 11, 1, 1, 6, 6]


def test_a_run_that_predicts_ends_chooses_its_own_lengths(run, dataset, judged):
    told = compare_samples(run, dataset, "valid", number=8, seed=1)
    lengths = [len(piece) for piece in judged[0][0]]
    assert told["lengths"] == "lengths chosen by the model"
    assert told["frames"] == sum(lengths)
    assert len(set(lengths)) > 1
    assert told["cut_off"] == 0
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
        told = compare_samples(run, dataset, "valid", number=3, seed=1)
        bias[88] = before
    assert told["cut_off"] == 3
    assert [len(piece) for piece in judged[0][0]] == [30, 30, 30]


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
        _, beside, train = judged.pop()
        assert beside.frames == other[split].frames
        assert train.frames == dataset["train"].frames


def test_data_that_has_moved_is_an_error_that_says_why(plain_run, dataset, tmp_path):
    moved = shutil.copytree(dataset.folder, tmp_path / "moved")
    config = replace(plain_run.config, data=str(tmp_path / "gone"))
    run = replace(plain_run, config=config)
    with pytest.raises(SeqmodelError) as caught:
        compare_samples(run, open_dataset(moved), "valid", number=1, seed=1)
    assert str(caught.value) == (
        f"--samples needs {run.folder}'s training data: {tmp_path}/gone is not a prepared "
        "dataset (no manifest.json); make one with `seqmodel prepare SOURCE --out DATA`"
    )


def test_samples_of_so_many_seconds(plain_run, dataset, audio_run_folder, audio_dataset, run):
    """Lengths as `sample --seconds` gives them, for any medium; the limit if pieces may end."""
    told = compare_samples(plain_run, dataset, "valid", number=2, seed=1, seconds=1.5)
    assert (told["frames"], told["lengths"]) == (2 * 12, "1.5 s each")  # at 120 bpm
    assert told["drawn"]["shortest"] == told["drawn"]["longest"] == 12
    ended = compare_samples(run, dataset, "valid", number=9, seed=1, seconds=0.5)
    assert ended["lengths"] == "at most 0.5 s each"
    assert ended["drawn"]["longest"] == 4
    assert ended["cut_off"] > 0
    audio = load_run(audio_run_folder)
    told = compare_samples(audio, audio_dataset, "valid", number=3, seed=1, seconds=0.25)
    assert (told["frames"], told["lengths"]) == (3 * 200, "0.25 s each")
    assert told["drawn"]["length"] == 0.25


def test_audio_that_is_not_finite_is_an_error(audio_run_folder, audio_dataset, monkeypatch):
    """Guards against statistics of nan."""
    frames = np.full((64, 10), np.nan, np.float32)
    monkeypatch.setattr(Sampler, "draw", lambda *_, **options: iter([(frames, False)]))
    with pytest.raises(SeqmodelError) as caught:
        compare_samples(load_run(audio_run_folder), audio_dataset, "valid", number=1, seed=1)
    assert str(caught.value) == "the run draws samples that are not finite: use another run"


def test_progress_counts_pieces(plain_run, dataset):
    calls = []
    compare_samples(
        plain_run, dataset, "valid", number=3, seed=1, progress=lambda *c: calls.append(c)
    )
    assert calls == [(1, 3), (2, 3), (3, 3)]
