"""Evaluation of audio, recomputed from the checkpoint file alone: NumPy, float64, by sample."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from test_evaluate import figures, hidden, weights_of

from seqmodel.data.dataset import DatasetWriter, open_dataset
from seqmodel.evaluation import likelihood as scoring
from seqmodel.evaluation.evaluate import evaluate
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.model import sequence
from seqmodel.runs.folder import load_run

C, F, K = 20, 10, 3
STEP = 1 / 32768


def gaussian_nats(weights, h, block, floor):
    """-log of the density of a standardised block (F,), and the share that the floor decides."""
    outputs = weights["output.linear.weight"] @ h + weights["output.linear.bias"]
    logits, means, logs = np.split(outputs.reshape(2 * F + 1, K), [1, F + 1])
    joint = special.log_softmax(logits[0]) + np.array(
        [stats.norm(means[:, k], floor + np.exp(logs[:, k])).logpdf(block).sum() for k in range(K)]
    )
    return -special.logsumexp(joint), (np.exp(logs[:, joint.argmax()]) < floor).mean()


def by_hand(weights, frame, pieces):
    """The nats (T,) and shares at the floor (T,) of each piece of levels (N,)."""
    nats, shares = [], []
    for piece in pieces:
        line = np.concatenate([np.zeros(C), piece / 32768])
        z = (line - frame.mean) / frame.deviation
        starts = range(0, len(piece), F)
        hs = hidden(weights, [z[t : t + C] for t in starts])
        blocks = [z[t + C : t + C + F] for t in starts]
        both = [
            gaussian_nats(weights, h, block, STEP / frame.deviation)
            for h, block in zip(hs, blocks, strict=True)
        ]
        nats.append(np.array([some for some, _ in both]))
        shares.append(np.array([share for _, share in both]))
    return nats, shares


def sound_figures(nats, shares):
    """The same for these nats and shares."""
    per_sample, share = np.concatenate(nats).mean() / F, np.concatenate(shares).mean()
    return figures(nats) | {"nats_per_sample": per_sample, "floor_share": share}


@pytest.fixture(scope="session")
def recomputed(audio_run_folder, audio_dataset, recordings):
    """The run, the nats of each piece of train, which has most, and every figure, by hand."""
    weights = weights_of(audio_run_folder)
    nats, shares = by_hand(weights, audio_dataset.frame, recordings["train"])
    return load_run(audio_run_folder), nats, sound_figures(nats, shares)


@pytest.mark.parametrize(("batch_size", "window"), [(1, 8192), (2, 7), (5, 14), (32, 1)])
def test_the_figures_are_the_recomputed_ones(
    audio_dataset, recomputed, monkeypatch, batch_size, window
):
    """For any batch size, and for pieces longer than a window: padding and cuts never count."""
    run, _, expected = recomputed
    monkeypatch.setattr(sequence, "FRAMES_AT_ONCE", window)
    scores = likelihood(run.model, audio_dataset["train"], batch_size=batch_size)
    ours = scores.to_json()
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        assert ours[name] == pytest.approx(value, abs=1e-4, rel=1e-5), name


def test_no_more_is_read_at_a_time_than_a_window(recomputed, audio_dataset, monkeypatch):
    """Guards against holding whole long recordings in memory, 32 of them at once."""
    monkeypatch.setattr(sequence, "FRAMES_AT_ONCE", 10)
    sizes, load = [], scoring.batches.load

    def loading(*given, **named):
        batch = load(*given, **named)
        sizes.append(batch.frames.size)
        return batch

    monkeypatch.setattr(scoring.batches, "load", loading)
    for batch_size in (1, 2, 5):
        likelihood(recomputed[0].model, audio_dataset["train"], batch_size=batch_size)
    assert max(sizes) == 100


def test_baselines_of_a_dataset_without_train_are_the_runs(
    recomputed, audio_dataset, recordings, tmp_path
):
    """Fitted to the run's training data, and in its standardisation, not the dataset's own."""
    run, frame = recomputed[0], audio_dataset.frame
    other = AudioFrames(8000, F, C, "int16", mean=0.3, deviation=0.7)
    alone = write(tmp_path / "alone", other, test=recordings["test"])
    ours, theirs = (evaluate(run, data, "test") for data in (alone, audio_dataset))
    assert ours["baselines"] == theirs["baselines"]
    assert ours["standardisation"]["deviation"] == frame.deviation
    assert ours["nats_per_frame"] == theirs["nats_per_frame"]


def write(folder, frame, **splits):
    """A dataset of pieces of levels (N,)."""
    folder.mkdir()
    with DatasetWriter(folder, frame) as writer:
        for split, pieces in splits.items():
            for k, levels in enumerate(pieces):
                writer.add(split, f"{k}.wav", [levels])
        writer.finish(frame, {"skipped": []})
    return open_dataset(folder)


def test_exact_digital_silence_is_scored_by_the_floor_and_the_share_shows_it(
    tmp_path, audio_run_folder
):
    """Density is unbounded where samples repeat: neither that nor padding is skill. The first
    component predicts silence, six samples of a block more exactly than the floor allows."""
    random = np.random.default_rng(3)
    pieces = [
        np.append(np.zeros(40 * k), random.normal(0, 3000, 200)).astype(np.int16) for k in (2, 9, 4)
    ]
    run = load_run(audio_run_folder)
    frame, output = run.frame, run.model.output
    with torch.no_grad():
        weight, bias = (
            w.view(2 * F + 1, K, *w.shape[1:]) for w in (output.linear.weight, output.linear.bias)
        )
        weight[1:, 0] = 0
        bias[1 : F + 1, 0] = -frame.mean / frame.deviation
        bias[F + 1 : F + 7, 0] = -30
        bias[F + 7 :, 0] = -3
    weights = {name: tensor.double().numpy() for name, tensor in run.model.state_dict().items()}
    expected = sound_figures(*by_hand(weights, frame, pieces))
    assert expected["floor_share"] == pytest.approx(0.6 * 60 / 120)  # in 60 blocks, and no others
    data = write(tmp_path / "data", frame, valid=pieces)
    for batch_size in (1, 2, 3):
        scores = likelihood(run.model, data["valid"], batch_size=batch_size)
        assert scores.figures["floor_share"] == pytest.approx(expected["floor_share"])
        assert scores.nats_per_frame == pytest.approx(expected["nats_per_frame"], rel=1e-5)
    narrow = math.log(math.exp(-30) + STEP / frame.deviation) * 6
    wide = math.log(math.exp(-3) + STEP / frame.deviation) * 4
    least = narrow + wide + F * math.log(2 * math.pi) / 2  # at the very mean nothing is denser
    silent = run.nll(np.zeros((8, F)))
    assert ((least <= silent) & (silent < least + 5)).all()
