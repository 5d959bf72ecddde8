"""The model: dropout, sizes, labels; compiled and plain draws the same."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from models import random_model
from onsets import as_frames, random_states
from refusals import refused
from same_draws import assert_strikes_are_possible, same_draws

from seqmodel.config import Config, resolve
from seqmodel.data.batches import Batch
from seqmodel.data.bundled import FRAMES, FRAMES_WITH_ONSETS
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.labels import combinations, natsorted
from seqmodel.media.registry import medium_of
from seqmodel.model import sequence
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.sequence import LABEL_DROPOUT
from seqmodel.outputs.note_unit import NoteUnitOutput
from seqmodel.sampling import sampler
from seqmodel.training.update import window_gradient
from seqmodel.units.module import Unit


def test_dropout_acts_before_the_output_while_training_only():
    options = {"model": "frame-wise", "unit": "gru", "end": True, "dropout": 0.5}
    model, frames = random_model(options).double(), (torch.rand(7, 3, 88) < 0.4).double()

    def predicted():
        return model.output(model.read(frames, model.start(3)).h)

    torch.testing.assert_close(predicted(), predicted(), rtol=0, atol=0)
    model.train()
    h, _ = model.unit(torch.cat([torch.zeros_like(frames[:1]), frames[:-1]]))
    torch.manual_seed(1)
    kept = model.dropout(h)
    assert (kept == 0).any()
    torch.manual_seed(1)
    torch.testing.assert_close(predicted(), model.output.linear(kept))


@pytest.mark.parametrize("frame", [FRAMES, AudioFrames(8000)], ids=["music", "audio"])
def test_the_papers_sizes_and_equal_budgets(frame):
    """Chung et al. 2014, section 4: some 20,000 weights for music, 169,000 for speech."""
    medium, hidden = medium_of(frame), [36, 46, 100] if frame is FRAMES else [195, 227, 400]
    for unit, size in zip(("lstm", "gru", "tanh"), hidden, strict=True):
        paper = resolve({"preset": "paper", "unit": unit}, presets=medium.presets)
        assert with_sizes(paper, frame).hidden == size
        assert (paper.optimizer, paper.weight_noise, paper.clip) == ("rmsprop", 0.075, 1.0)
        assert (paper.learning_rate_draws, paper.schedule) == (10, "constant")
        if frame is not FRAMES:
            assert (frame.context, frame.frame_size, paper.components) == (20, 10, 20)
        for model in ("frame-wise", "tied") if frame is FRAMES else ("frame-wise",):
            options = {"model": model, "unit": unit, "params": 20_000}
            config = with_sizes(resolve(options), frame)
            layers = build_model(config, frame).modules()
            counts = [m.parameter_count() for m in layers if isinstance(m, Unit)]
            assert len(counts) == (2 if model == "tied" else 1)  # of time, and of pitch
            assert sum(counts) == pytest.approx(20_000, rel=0.03), unit
            assert config.params is None  # solved: the size now replaces it


KNOWN = {"who": ("ann", "bob"), "digit": ("1", "2", "10")}
LABELLED = replace(FRAMES, known_labels=KNOWN)


def test_a_label_is_a_bias_of_the_unit_and_of_the_output():
    """By a model without, to whose biases the weights of two values are added."""
    both = [random_model({"model": "frame-wise"}, frame).double() for frame in (LABELLED, FRAMES)]
    told, plain = both
    with torch.no_grad():
        for name, bias in (("unit.W", "unit.b"), ("output.linear.weight", "output.linear.bias")):
            weight, own = told.get_parameter(name), plain.get_parameter(name)
            own.copy_(weight[:, : own.shape[1]])
            columns = weight[:, own.shape[1] :][:, [1, 4]]  # bob, who says 10
            plain.get_parameter(bias).copy_(told.get_parameter(bias) + columns.sum(1))
        plain.unit.U.copy_(told.unit.U)

    def nats(model, carry, frames):
        reading = model.read(frames, carry)
        return model.output.score(reading.h, reading.frames, reading.past)

    frames = torch.rand(30, 2, 88, dtype=torch.float64).round()
    with torch.no_grad():
        expected = nats(plain, plain.start(2), frames)
        found = nats(told, told.with_labels(told.start(2), np.array([[2, 3], [0, 0]])), frames)
        of_all = nats(told, told.conditioned([2, 3]).start(2), frames)
        untold = nats(told, told.start(2), frames)
    assert torch.allclose(found[:, 0], expected[:, 0], rtol=1e-12)
    assert torch.equal(found[:, 1], untold[:, 1])
    assert not torch.allclose(found[:, 0], untold[:, 0], rtol=1e-3)
    assert torch.allclose(of_all, expected, rtol=1e-12)


def test_in_training_a_tenth_of_each_label_is_left_out():
    """Half of them with all others: else a model of several would know no piece without any."""
    model = random_model({"model": "frame-wise"}, LABELLED)
    labels = np.tile([2, 3], (20_000, 1))
    torch.manual_seed(3)
    columns = model.with_labels(model.start(20_000), labels, dropout=True).labels
    shares = [float((columns[:, place] == 0).float().mean()) for place in (1, 4)]
    assert shares == pytest.approx([1 - (1 - LABEL_DROPOUT) ** 2] * 2, abs=0.006)
    assert float((columns.sum(1) == 0).float().mean()) == pytest.approx(LABEL_DROPOUT, abs=0.006)
    assert model.with_labels(model.start(2), labels[:2]).labels.sum() == 4


def test_a_window_goes_on_with_the_labels_of_its_pieces(monkeypatch):
    """Where a batch is joined to the one before, whose pieces were others; later windows keep."""
    monkeypatch.setattr(sequence, "LABEL_DROPOUT", 0.0)
    model = random_model({"model": "frame-wise"}, LABELLED).train()
    carries = {0: model.with_labels(model.start(2), np.array([[1, 0], [2, 2]]))}
    config = Config(weight_noise=0.0)
    state = SimpleNamespace(model=model, config=config, device="cpu", carries=carries)
    frames, lengths = np.zeros((5, 2, 88), np.uint8), np.array([9, 4])
    own = np.array([[2, 3], [0, 1]])
    for labels, expected in ((own, [[0, 1, 0, 0, 1], [0, 0, 1, 0, 0]]), (None, carries[0].labels)):
        _, after = window_gradient(state, Batch(frames, lengths, labels=labels), 0)
        assert after.labels.tolist() == torch.as_tensor(expected).tolist()


def test_what_is_asked_for():
    """Guards ranges by the alphabet, where 10 comes before 2, and values with signs of ours."""
    known = {"n": natsorted(["10", "2", "1", "x"]), "odd": ("a..b", "a=b", "a,b", "🎹")}
    assert known["n"] == ("1", "2", "10", "x")
    assert natsorted(["10", "3", "02"]) == ("02", "3", "10")
    assert natsorted(["1" * 101, "2" * 100]) == ("2" * 100, "1" * 101)
    asked = combinations(["n=1..10"], known, "run")
    assert asked == [{"n": "1"}, {"n": "2"}, {"n": "10"}]
    for value in known["odd"]:
        assert combinations([f"odd={value}"], known, "run") == [{"odd": value}]
    both = combinations(["odd=🎹", "n=x,1"], known, "run")
    assert both == [{"odd": "🎹", "n": "x"}, {"odd": "🎹", "n": "1"}]
    assert combinations([], known, "run") == [{}]
    refused(
        lambda: combinations(["n=3"], known, "run"), "--label n=3", "no n '3'", "1, 2, 10 and x"
    )
    refused(lambda: combinations(["m=3"], known, "run"), "no label 'm'", "knows n, odd")
    refused(lambda: combinations(["m=3"], {}, "run"), "knows none")
    refused(lambda: combinations(["n=10..2"], known, "run"), "10 comes after 2")
    assert combinations(["n=2", "n=1,2"], known, "run") == [{"n": "2"}, {"n": "1"}]
    refused(lambda: random_model({"labels": "none"}, FRAMES), "--labels none is for data")


STRUCK, SAMPLED = FRAMES_WITH_ONSETS, AudioFrames(8000, 9)
KIT = replace(FRAMES, drums=True, kit=True)
WIDE, TIED = {"model": "frame-wise"}, {"model": "tied"}
CASES = {
    "one number": (FRAMES, WIDE | {"unit": "lstm", "hidden": 1}),
    "a panel and more": (STRUCK, WIDE | {"unit": "gru-reset-after", "hidden": 13}),
    "means": (STRUCK, WIDE | {"unit": "lstm-layer-norm", "hidden": 21, "layers": 2, "end": True}),
    "layers": (FRAMES, WIDE | {"unit": "tanh", "hidden": 25, "layers": 3, "end": True}),
    "module for each note": (FRAMES, TIED | {"unit": "own_modules:Attention", "end": True}),
    "nade": (FRAMES, WIDE | {"output": "nade", "nade_hidden": 64, "unit": "lstm", "end": True}),
    "nade, onsets": (STRUCK, WIDE | {"output": "nade", "nade_hidden": 13, "end": True}),
    "notes alone": (
        FRAMES,
        TIED | {"output": "bernoulli", "clock": True, "layers": 2, "end": True},
    ),
    "metre": (FRAMES, TIED | {"output": "bernoulli", "metre": True}),
    "layers on both axes": (STRUCK, TIED | {"unit": "lstm", "layers": 2, "note_layers": 2}),
    "drums": (KIT, TIED | {"unit": "tanh", "first_change": True}),
    "all": (FRAMES, TIED | {"motifs": True, "metre": True, "end": True}),
    "labels of a module": (FRAMES, WIDE | {"unit": "own_modules:LayerNormLSTM"}),
    "labels of notes alone": (STRUCK, TIED | {"output": "bernoulli", "rests": True}),
    "labels of notes": (STRUCK, TIED | {"rests": True}),
    "labels of sound": (SAMPLED, {"model": "sample-wise"}),
    "sound": (SAMPLED, {"model": "sample-wise", "components": 33, "end": True}),
    "sound, one component": (SAMPLED, {"model": "sample-wise", "components": 1}),
    "levels": (AudioFrames(8000, 9, dtype="mu-law"), {"model": "sample-wise"}),
}


def made(name):
    """A model that ends pieces after some dozen frames if it ends any, and frames before."""
    frame, options = CASES[name]
    frame = replace(frame, known_labels=KNOWN) if name.startswith("labels") else frame
    model = random_model({"end": False} | options, frame)
    clock, output = getattr(model.encoder, "clock", None), model.output
    with torch.no_grad():
        if clock and clock.end:
            clock.start_at(np.array([9, 11, 11, 12, 14]))
            output.start_ends_at(model.encoder.end_odds)
        elif output.end:
            (output.ending if frame is SAMPLED else output.linear).bias[-1].sub_(4)
        if clock and clock.held is not None:
            clock.fit_held(np.arange(1, n) for n in (9, 14, 17))
    if frame.frame_size == 176:
        return model, as_frames(random_states(3, 7, 88, density=0.2))
    prime = np.random.default_rng(3).random((7, frame.frame_size)) < 0.2
    return model, prime * (1 if frame.values == "binary" else 0.01)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", CASES)
def test_the_same_is_drawn(name, monkeypatch):
    """Across chunks, after a primer, to the end, hot and cold; labels, if any, tell."""
    model, prime = made(name)
    chunk = 2 if isinstance(model.output, NoteUnitOutput) else 32  # by PyTorch that is slow
    monkeypatch.setattr(sampler, "CHUNK", chunk)
    told = [model, model.conditioned([1, 3])] if model.known_labels else [model]
    hot, *other = (same_draws(each, temperature=0.8, chunks=3, prime=prime) for each in told)
    cold = same_draws(model, temperature=0.0, prime=prime)
    assert not any(np.array_equal(hot, each) for each in (cold, *other))
    if hot.dtype == np.uint8:
        assert (len(hot) < 3 * chunk) == model.output.end
        assert 0.01 < hot.mean() < 0.9
    if hot.shape[1] == 176:
        again = assert_strikes_are_possible(hot, prime[-1:, :88])
        assert 0.02 < again.mean() < 0.98
