"""Evaluation, recomputed from the checkpoint file alone: NumPy, float64, one piece at a time."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
import torch

from seqmodel.evaluation.evaluate import evaluate
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.media.music.evaluation import baseline_nats_per_frame
from seqmodel.model import sequence
from seqmodel.runs.folder import load_run


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def logits_of(weights, roll):
    """The lstm with peepholes over one piece: logits (T, 89), the last for the end."""
    W, U, b = (weights[f"model.unit.{term}"] for term in "WUb")
    Vi, Vf, Vo = weights["model.unit.V"]
    n = len(Vi)
    h = c = np.zeros(n)
    logits = []
    for t in range(len(roll)):
        x = roll[t - 1] if t else np.zeros(88)
        i, f, g, o = (W @ x + U @ h + b).reshape(4, n)
        i, f = sigmoid(i + Vi * c), sigmoid(f + Vf * c)
        c = f * c + i * np.tanh(g)
        h = sigmoid(o + Vo * c) * np.tanh(c)
        logits.append(
            weights["model.output.linear.weight"] @ h + weights["model.output.linear.bias"]
        )
    return np.array(logits)


def log_p(logits, x):
    return -np.logaddexp(0, np.where(x > 0, -logits, logits))


@pytest.fixture(scope="session")
def recomputed(run_folder, rolls):
    """The nats of each piece of valid, and every figure of the run, by hand."""
    stored = safetensors.numpy.load_file(run_folder / "best.safetensors")
    weights = {name: tensor.astype(np.float64) for name, tensor in stored.items()}
    nats, ends, predicted = [], [], []
    for roll in rolls["valid"]:
        logits = logits_of(weights, roll)
        nats.append(-log_p(logits[:, :88], roll).sum(1))
        ends.append(-log_p(logits[:, 88], np.arange(len(roll)) == len(roll) - 1).sum())
        predicted.append(logits[:, :88] > 0)
    every, on, said = (
        np.concatenate(nats),
        np.concatenate(rolls["valid"]) > 0,
        np.concatenate(predicted),
    )
    tp, fp, fn = (said & on).sum(), (said & ~on).sum(), (~said & on).sum()
    assert tp > 0  # else accuracy would test nothing
    return nats, {
        "pieces": 5,
        "frames": 67,
        "nats_per_frame": every.mean(),
        "nats_per_frame_skip_first": np.concatenate([piece[1:] for piece in nats]).mean(),
        "piece_mean_nats_per_frame": np.mean([piece.mean() for piece in nats]),
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


def test_a_run_without_end_does_not_report_it(tmp_path, make_config, train, dataset):
    """It also scores a piece of a single frame."""
    train(make_config(unit="gru", layers=2, dropout=0.3, epochs=1), tmp_path / "run")
    run = load_run(tmp_path / "run")
    values = evaluate(run, dataset, "test")
    assert "end_nats_per_piece" not in values
    single = dataset["train"][1]
    assert len(single) == 1
    assert run.nll(single).sum() > 0


def test_scores_are_taken_without_dropout_and_the_mode_is_restored(
    make_config, train, tmp_path, dataset
):
    """Dropout at evaluation would make every figure worse and different each time."""
    trainer = train(make_config(layers=2, dropout=0.5, epochs=1), tmp_path / "run")
    trainer.state.model.train()
    first = likelihood(trainer.state.model, dataset["valid"]).to_json()
    assert trainer.state.model.training
    assert likelihood(trainer.state.model, dataset["valid"]).to_json() == first
    trainer.state.model.eval()
    assert likelihood(trainer.state.model, dataset["valid"]).to_json() == first
    assert not trainer.state.model.training


def test_silence_predicted_as_silence_has_accuracy_0_and_no_error(tmp_path, write_dataset, run):
    """A split of one-frame pieces is no error either: without first frames its score is 0."""
    silent = write_dataset(tmp_path, {"valid": [np.zeros((4, 88), np.uint8)]})
    with torch.no_grad():
        bias = run.model.output.linear.bias.clone()
        run.model.output.linear.bias.fill_(-30)
        try:
            scores = likelihood(run.model, silent["valid"])
        finally:
            run.model.output.linear.bias.copy_(bias)
    assert scores.figures | {"accuracy": 0, "precision": 0, "recall": 0} == scores.figures
    one = write_dataset(tmp_path / "one", {"valid": [np.ones((1, 88), np.uint8)] * 2})
    assert likelihood(run.model, one["valid"]).to_json()["nats_per_frame_skip_first"] == 0


def test_the_report_is_the_documented_json(run, dataset, recomputed):
    values = json.loads(json.dumps(evaluate(run, dataset, "valid")))
    assert [values[name] for name in ("run", "data", "split")] == [
        *(str(run.folder), str(dataset.folder), "valid")
    ]
    assert set(values) == {"run", "data", "split", "epoch", "baselines", "copies", *recomputed[1]}
    assert values["baselines"] == baseline_nats_per_frame(dataset["train"], dataset["valid"])


def test_other_data_without_train_is_measured_against_the_runs_own(
    run, dataset, rolls, tmp_path, write_dataset
):
    """Baselines counted on the data they are scored on would be unfairly good."""
    other = write_dataset(tmp_path, {"valid": rolls["valid"]})
    ours = evaluate(run, other, "valid")["baselines"]
    assert ours == baseline_nats_per_frame(dataset["train"], other["valid"])


def test_all_processes_of_a_group_report_progress_equally_often(run, dataset):
    """Each may then save together with the others: also one that has nothing to score at last."""
    events, last = [], None

    def all_of(scored):
        nonlocal last
        last = scored or last  # as if the other process had scored as much
        events.append("told")
        return [last, last]

    count = len(dataset["valid"])
    assert count % 2 == 1
    likelihood(
        run.model,
        dataset["valid"],
        batch_size=1,
        progress=lambda done, total: events.append("progress"),
        group=SimpleNamespace(rank=1, size=2, all=all_of),
    )
    assert events == ["told", "progress"] * ((count + 1) // 2)
