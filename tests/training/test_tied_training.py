"""Training the tied model: the same update as for any other, over both axes."""

import math

import numpy as np
import pytest
import torch

from seqmodel.data import batches
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.model.build import build_model
from seqmodel.runs.checkpoint import model_tensors
from seqmodel.runs.folder import load_run, read_metrics
from seqmodel.training.state import TrainingState
from seqmodel.training.update import window_loss
from seqmodel.units.module import Unit

TIED = {"model": "tied", "unit": "gru", "hidden": 4, "learning_rate": 0.04}
NOTES = {"output": "note-unit", "note_unit": "lstm", "note_hidden": 3, "note_layers": 1}
NOTES |= {"first_change": True}
ALONE = {"output": "bernoulli", "first_change": False}
BOTH = pytest.mark.parametrize("options", [ALONE, NOTES], ids=["bernoulli", "nu"])


@BOTH
def test_training_lowers_the_valid_figure(options, make_config, dataset, train, tmp_path):
    """The notes of each chord in the data are 4 and 3 apart: there is a dependence to learn."""
    train(make_config(**TIED, **options, end=True, epochs=12, patience=12), tmp_path / "run")
    metrics = read_metrics(tmp_path / "run")
    assert metrics[-1]["valid_nats_per_frame"] < metrics[0]["valid_nats_per_frame"] / 1.5
    scores = likelihood(load_run(tmp_path / "run").model, dataset["valid"])
    assert scores.nats_per_frame == min(m["valid_nats_per_frame"] for m in metrics)
    assert set(scores.figures) == {"accuracy", "precision", "recall", "end_nats_per_piece"}


@BOTH
def test_the_loss_is_the_mean_over_frames_without_padding(options, make_config, dataset):
    """Pieces of 1 to 30 frames, whole and in windows: padding is not counted and costs nothing.

    Each piece ends once, with its last frame.
    """
    torch.manual_seed(2)
    model = build_model(make_config(**TIED, **options, end=True, input_noise=0.0), dataset.frame)
    whole = batches.load(dataset["train"], np.arange(11))
    loss = window_loss(model, torch.from_numpy(whole.frames), whole.lengths, model.start(11))
    with torch.no_grad():
        scores = likelihood(model, dataset["train"])
    expected = scores.nats_per_frame + 11 / 145 * scores.figures["end_nats_per_piece"]
    assert loss.total.item() == pytest.approx(expected, rel=1e-5)
    assert loss.frames == 145
    carry, total = model.start(11), 0.0
    for begin in (0, 9, 18, 27):
        cut = batches.load(dataset["train"], np.arange(11), begin=begin, window=9)
        part = window_loss(model, torch.from_numpy(cut.frames), cut.lengths, carry, 145)
        total, carry = total + part.total.item(), part.after
    assert total == pytest.approx(expected, rel=1e-5)


def test_the_start_is_the_share_of_notes_that_sound(make_config, dataset):
    """So that the first epochs are not spent on learning that most notes are silent."""
    model = build_model(make_config(**TIED, **NOTES, end=True), dataset.frame)
    model.output.start_at(dataset["train"])
    sounding = sum(int(roll.sum()) for roll in dataset["train"])
    odds = (sounding + 0.5) / (145 * 88 - sounding + 0.5)
    assert model.output.linear.bias.item() == pytest.approx(math.log(odds), rel=1e-6)
    assert model.output.ending.bias.item() == pytest.approx(math.log(11.5 / 134.5), rel=1e-6)


def test_weights_of_another_run_leave_the_clock_to_the_lengths_of_this_ones_data(
    make_config, dataset
):
    """Pieces of the new data would else end when those of the old did."""
    config = make_config(**TIED, **NOTES, clock=True, end=True, average=0.9)
    state = TrainingState(config, dataset["train"], torch.device("cpu"))
    other = build_model(config, dataset.frame)
    other.encoder.clock.start_at(np.array([500, 600]))
    state.load_weights(model_tensors(other), dataset["train"])
    assert torch.equal(state.model.unit.U, other.unit.U)
    lengths = sorted(dataset["train"].lengths.tolist())
    for model in (state.model, state.scored_model):
        assert model.encoder.clock.lengths[: len(lengths)].tolist() == lengths


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_every_layer_runs_on_the_backend_asked_for(make_config, dataset, backend):
    model = build_model(make_config(**TIED, **NOTES, backend=backend), dataset.frame)
    assert {m.backend for m in model.modules() if isinstance(m, Unit)} == {backend}
