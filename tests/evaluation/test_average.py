"""The average of runs, recomputed from their checkpoint files in NumPy, and runs without one."""

import numpy as np
import pytest
import safetensors.numpy
from test_evaluate import log_p, logits_of

from seqmodel.errors import UsageError
from seqmodel.evaluation.evaluate import evaluate
from seqmodel.evaluation.likelihood import check_average
from seqmodel.model import sequence
from seqmodel.runs.folder import load_run


@pytest.fixture(scope="module")
def other(tmp_path_factory, make_config, train):
    """A run like `run`, but smaller and of another seed."""
    folder = tmp_path_factory.mktemp("runs") / "other"
    train(make_config(end=True, hidden=4, learning_rate=0.05, epochs=9), folder)
    return load_run(folder)


def probabilities(run, roll):
    """Of each frame of a piece (T,), and of the piece ending or not with it (T,)."""
    stored = safetensors.numpy.load_file(run.folder / "best.safetensors")
    weights = {name: tensor.astype(np.float64) for name, tensor in stored.items()}
    logits = logits_of(weights, roll)
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
    every = np.concatenate(frames)
    values = evaluate(run, dataset, "valid", others=[other], per_frame=True)
    figures = {
        "pieces": 5,
        "frames": 67,
        "nats_per_frame": every.mean(),
        "nats_per_frame_skip_first": np.concatenate([piece[1:] for piece in frames]).mean(),
        "piece_mean_nats_per_frame": np.mean([piece.mean() for piece in frames]),
        "end_nats_per_piece": np.mean([piece.sum() for piece in ends]),
    }
    for name, figure in figures.items():
        assert values[name] == pytest.approx(figure, abs=1e-5, rel=1e-6), name
    for piece, nats in zip(values["per_piece"], frames, strict=True):
        np.testing.assert_allclose(piece["frame_nats"], nats, atol=2e-5)
        assert piece["nats"] == pytest.approx(nats.sum(), abs=1e-4)
    alone = [evaluate(one, dataset, "valid") for one in (run, other)]
    assert all(values["nats_per_frame"] < one["nats_per_frame"] + np.log(2) for one in alone)
    for one, each in zip(alone, values["runs"], strict=True):
        assert each == {name: one[name] for name in each}
    assert {*values} == {*figures, "runs", "data", "split", "baselines", "copies", "per_piece"}


def test_runs_that_predict_something_else_have_no_average(
    run, other, tmp_path, make_config, train, struck_dataset
):
    """Guards against adding up probabilities of different events: such a figure means nothing."""
    check_average([run, other])
    train(make_config(unit="gru", epochs=1), tmp_path / "endless")
    options = {"end": True, "data": str(struck_dataset.folder)}
    train(make_config(**options, epochs=1), tmp_path / "struck", data=struck_dataset)
    for name, why in (
        ("endless", "without ends, not with ends"),
        ("struck", "with onsets, not without onsets"),
    ):
        with pytest.raises(UsageError) as refused:
            check_average([run, other, load_run(tmp_path / name)])
        assert f"{tmp_path / name} differs from {run.folder} ({why}): " in str(refused.value)


def test_sound_has_bits_per_sample_whatever_the_models(
    logistic_run_folder, sample_wise_run_folder, audio_run_folder, audio_dataset
):
    """Frame-wise and sample-wise; guards figures per sample that stay those of the first run."""
    run, other, density = map(
        load_run, (logistic_run_folder, sample_wise_run_folder, audio_run_folder)
    )
    values = evaluate(run, audio_dataset, "valid", others=[other], per_frame=True)
    assert values["nats_per_sample"] == pytest.approx(values["nats_per_frame"] / 10)
    assert values["bits_per_sample"] == pytest.approx(values["nats_per_sample"] / np.log(2))
    assert len({one["bits_per_sample"] for one in (values, *values["runs"])}) == 3
    for piece, frames in zip(values["per_piece"], audio_dataset["valid"], strict=True):
        mean = np.mean([np.exp(100 - one.nll(frames)) for one in (run, other)], 0)  # e^-100 is 0
        np.testing.assert_allclose(piece["frame_nats"], 100 - np.log(mean), rtol=1e-5)
    with pytest.raises(UsageError, match=r"\(densities mean .+, not probabilities\)"):
        check_average([run, density])
