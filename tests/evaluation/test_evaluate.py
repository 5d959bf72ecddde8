"""Evaluation, recomputed from the checkpoint file alone: NumPy, float64, piece by piece."""

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
import torch
from refusals import refused
from scipy import special, stats
from scipy.special import expit

from seqmodel.data.dataset import DatasetWriter, open_dataset
from seqmodel.evaluation import likelihood as scoring
from seqmodel.evaluation.evaluate import evaluate
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.model import sequence
from seqmodel.runs.folder import check_average, load_run


def weights_of(folder):
    """The model's weights in a run's best checkpoint, by name, in float64."""
    stored = safetensors.numpy.load_file(folder / "best.safetensors")
    return {
        name.removeprefix("model."): tensor.astype(np.float64)
        for name, tensor in stored.items()
        if name.startswith("model.")
    }


def hidden(weights, inputs):
    """The lstm with peepholes over inputs (T, I): h (T, H)."""
    W, U, b = (weights[f"unit.{term}"] for term in "WUb")
    Vi, Vf, Vo = weights["unit.V"]
    h = c = np.zeros(len(Vi))
    found = []
    for x in inputs:
        i, f, g, o = (W @ x + U @ h + b).reshape(4, -1)
        i, f = expit(i + Vi * c), expit(f + Vf * c)
        c = f * c + i * np.tanh(g)
        h = expit(o + Vo * c) * np.tanh(c)
        found.append(h)
    return np.array(found)


def logits_of(weights, roll):
    """Of one piece: logits (T, 89), the last for the end."""
    h = hidden(weights, np.concatenate([np.zeros((1, 88)), roll[:-1]]))
    return h @ weights["output.linear.weight"].T + weights["output.linear.bias"]


def log_p(logits, x):
    return -np.logaddexp(0, np.where(x > 0, -logits, logits))


def figures(nats):
    """What `likelihood` reports of any model, from the nats (T,) of each piece."""
    every = np.concatenate(nats)
    return {
        "pieces": len(nats),
        "frames": len(every),
        "nats_per_frame": every.mean(),
        "nats_per_frame_skip_first": np.concatenate([piece[1:] for piece in nats]).mean(),
        "piece_mean_nats_per_frame": np.mean([piece.mean() for piece in nats]),
    }


@pytest.fixture(scope="session")
def recomputed(run_folder, rolls):
    """The nats of each piece of valid, and every figure of the run, by hand."""
    weights = weights_of(run_folder)
    nats, ends, predicted = [], [], []
    for roll in rolls["valid"]:
        logits = logits_of(weights, roll)
        nats.append(-log_p(logits[:, :88], roll).sum(1))
        ends.append(-log_p(logits[:, 88], np.arange(len(roll)) == len(roll) - 1).sum())
        predicted.append(logits[:, :88] > 0)
    on, said = np.concatenate(rolls["valid"]) > 0, np.concatenate(predicted)
    tp, fp, fn = (said & on).sum(), (said & ~on).sum(), (~said & on).sum()
    assert tp > 0  # else accuracy would test nothing
    return nats, {
        **figures(nats),
        "accuracy": tp / (tp + fp + fn),
        "precision": tp / (tp + fp),
        "recall": tp / (tp + fn),
        "end_nats_per_piece": np.mean(ends),
    }


@pytest.mark.parametrize(("batch_size", "window"), [(1, 1024), (3, 7), (32, 1), (32, 26)])
def test_the_figures_are_the_recomputed_ones(
    run, dataset, recomputed, monkeypatch, batch_size, window
):
    """For any batch size and for pieces longer than a window: padding and cuts never count."""
    monkeypatch.setattr(sequence, "FRAMES_AT_ONCE", window)
    scores = likelihood(run.model, dataset["valid"], batch_size=batch_size)
    ours = scores.to_json()
    assert ours.keys() == recomputed[1].keys()
    for name, value in recomputed[1].items():
        assert ours[name] == pytest.approx(value, abs=1e-5, rel=1e-6), name


def test_run_nll_is_each_frames_score(run, rolls, recomputed):
    for roll, nats in zip(rolls["valid"], recomputed[0], strict=True):
        np.testing.assert_allclose(run.nll(roll), nats, atol=2e-5)
    total = sum(run.nll(roll).sum() for roll in rolls["valid"])
    assert total / 67 == pytest.approx(recomputed[1]["nats_per_frame"], abs=1e-5)


def test_scores_are_taken_without_dropout_and_the_mode_is_restored(
    make_config, train, tmp_path, dataset
):
    """A run without ends has no figure of them; and it scores a piece of a single frame."""
    trainer = train(make_config(unit="gru", layers=2, dropout=0.5, epochs=1), tmp_path / "run")
    model, found = trainer.state.model, []
    for training in (True, True, False):
        model.train(training)
        found.append(likelihood(model, dataset["valid"]).to_json())
        assert model.training == training
    assert found[0] == found[1] == found[2]
    assert "end_nats_per_piece" not in found[0]
    single = dataset["train"][1]
    assert len(single) == 1
    assert load_run(tmp_path / "run").nll(single).sum() > 0


def test_silence_predicted_as_silence_has_accuracy_0_and_no_error(tmp_path, write_dataset, run):
    """A split of one-frame pieces is no error either: without first frames its score is 0."""
    silent = write_dataset(tmp_path, {"valid": [np.zeros((4, 88), np.uint8)]})
    model = copy.deepcopy(run.model)
    torch.nn.init.constant_(model.output.linear.bias, -30)
    scores = likelihood(model, silent["valid"])
    assert scores.figures | {"accuracy": 0, "precision": 0, "recall": 0} == scores.figures
    one = write_dataset(tmp_path / "one", {"valid": [np.ones((1, 88), np.uint8)] * 2})
    assert likelihood(run.model, one["valid"]).to_json()["nats_per_frame_skip_first"] == 0


def test_all_processes_of_a_group_report_progress_equally_often(run, dataset):
    """Each may then save together with the others: also one that has nothing to score at last."""
    events, last = [], None

    def all_of(scored):
        nonlocal last
        last = scored or last  # as if the other process had scored as much
        events.append("told")
        return [last, last]

    valid, group = dataset["valid"], SimpleNamespace(rank=1, size=2, all=all_of)
    assert len(valid) % 2 == 1
    tell = lambda done, total: events.append("progress")  # noqa: E731
    likelihood(run.model, valid, batch_size=1, progress=tell, group=group)
    assert events == ["told", "progress"] * ((len(valid) + 1) // 2)


@pytest.fixture(scope="module")
def other(tmp_path_factory, make_config, train):
    """A run like `run`, but smaller and of another seed."""
    folder = tmp_path_factory.mktemp("runs") / "other"
    train(make_config(end=True, hidden=4, learning_rate=0.05, epochs=9), folder)
    return load_run(folder)


def probabilities(run, roll):
    """Of each frame of a piece (T,), and of the piece ending or not with it (T,)."""
    logits = logits_of(weights_of(run.folder), roll)
    last = np.arange(len(roll)) == len(roll) - 1
    return np.exp(log_p(logits[:, :88], roll).sum(1)), np.exp(log_p(logits[:, 88], last))


def test_the_average_is_the_recomputed_one(run, other, dataset, rolls, monkeypatch):
    """Guards against means of nats, of whole pieces, or of ends apart from their frames."""
    monkeypatch.setattr(sequence, "FRAMES_AT_ONCE", 26)  # windows of 5 frames
    frames, ends = [], []
    for roll in rolls["valid"]:
        (p, p_end), (q, q_end) = probabilities(run, roll), probabilities(other, roll)
        frames.append(-np.log((p + q) / 2))
        ends.append(-np.log((p * p_end + q * q_end) / (p + q)))
    values = evaluate(run, dataset, "valid", others=[other], per_frame=True)
    right = figures(frames) | {"end_nats_per_piece": np.mean([piece.sum() for piece in ends])}
    for name, figure in right.items():
        assert values[name] == pytest.approx(figure, abs=1e-5, rel=1e-6), name
    for piece, nats in zip(values["per_piece"], frames, strict=True):
        np.testing.assert_allclose(piece["frame_nats"], nats, atol=2e-5)
        assert piece["nats"] == pytest.approx(nats.sum(), abs=1e-4)
    alone = [evaluate(one, dataset, "valid") for one in (run, other)]
    assert all(values["nats_per_frame"] < one["nats_per_frame"] + np.log(2) for one in alone)
    for one, each in zip(alone, values["runs"], strict=True):
        assert each == {name: one[name] for name in each}
    assert {*values} == {*right, "runs", "data", "split", "baselines", "copies", "per_piece"}


def test_runs_that_predict_something_else_have_no_average(run, other, struck_dataset):
    """Guards against adding up probabilities of different events: such a figure means nothing."""
    check_average([run, other])
    endless = replace(other, config=replace(other.config, end=False))
    struck = replace(other, frame=struck_dataset.frame)
    ways = ("without ends, not with ends", "with onsets, not without onsets")
    for third, why in zip((endless, struck), ways, strict=True):
        says = f"{third.folder} differs from {run.folder} ({why}): "
        refused(lambda third=third: check_average([run, other, third]), says)


def test_sound_has_bits_per_sample_whatever_the_models(
    logistic_run_folder, sample_wise_run_folder, audio_run_folder, audio_dataset
):
    """Frame-wise and sample-wise; guards figures per sample that stay those of the first run."""
    folders = (logistic_run_folder, sample_wise_run_folder, audio_run_folder)
    run, other, density = map(load_run, folders)
    values = evaluate(run, audio_dataset, "valid", others=[other], per_frame=True)
    assert values["nats_per_sample"] == pytest.approx(values["nats_per_frame"] / 10)
    assert values["bits_per_sample"] == pytest.approx(values["nats_per_sample"] / np.log(2))
    assert len({one["bits_per_sample"] for one in (values, *values["runs"])}) == 3
    for piece, frames in zip(values["per_piece"], audio_dataset["valid"], strict=True):
        mean = np.mean([np.exp(100 - one.nll(frames)) for one in (run, other)], 0)  # e^-100 is 0
        np.testing.assert_allclose(piece["frame_nats"], 100 - np.log(mean), rtol=1e-5)
    refused(lambda: check_average([run, density]), "(densities mean ", ", not probabilities)")


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
def recomputed_sound(audio_run_folder, audio_dataset, recordings):
    """The run, the nats of each piece of train, which has most, and every figure, by hand."""
    weights = weights_of(audio_run_folder)
    nats, shares = by_hand(weights, audio_dataset.frame, recordings["train"])
    return load_run(audio_run_folder), nats, sound_figures(nats, shares)


@pytest.mark.parametrize(("batch_size", "window"), [(1, 8192), (2, 7), (5, 14), (32, 1)])
def test_the_figures_of_audio_are_the_recomputed_ones(
    audio_dataset, recomputed_sound, monkeypatch, batch_size, window
):
    """For any batch size, and for pieces longer than a window: padding and cuts never count."""
    run, _, expected = recomputed_sound
    monkeypatch.setattr(sequence, "FRAMES_AT_ONCE", window)
    scores = likelihood(run.model, audio_dataset["train"], batch_size=batch_size)
    ours = scores.to_json()
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        assert ours[name] == pytest.approx(value, abs=1e-4, rel=1e-5), name


def test_no_more_is_read_at_a_time_than_a_window(recomputed_sound, audio_dataset, monkeypatch):
    """Guards against holding whole long recordings in memory, 32 of them at once."""
    monkeypatch.setattr(sequence, "FRAMES_AT_ONCE", 10)
    sizes, load = [], scoring.batches.load

    def loading(*given, **named):
        batch = load(*given, **named)
        sizes.append(batch.frames.size)
        return batch

    monkeypatch.setattr(scoring.batches, "load", loading)
    for batch_size in (1, 2, 5):
        likelihood(recomputed_sound[0].model, audio_dataset["train"], batch_size=batch_size)
    assert max(sizes) == 100


def test_baselines_of_a_dataset_without_train_are_the_runs(
    recomputed_sound, audio_dataset, recordings, tmp_path
):
    """Fitted to the run's training data, and in its standardisation, not the dataset's own."""
    run, frame = recomputed_sound[0], audio_dataset.frame
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
