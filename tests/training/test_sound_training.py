"""Training on sound: steering, likelihoods, draws, odd sounds."""

from itertools import islice

import numpy as np
import pytest
import torch
from noise import write_recordings

from seqmodel.config import resolve
from seqmodel.data.bundled import sample_dataset
from seqmodel.data.dataset import open_dataset
from seqmodel.evaluation import likelihood as evaluation
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.audio.evaluation import audio_nats_per_frame
from seqmodel.media.audio.medium import AUDIO
from seqmodel.model import sequence
from seqmodel.model.build import build_model
from seqmodel.model.sound.steering import unpacked
from seqmodel.model.sound.survey import corrected
from seqmodel.runs.folder import load_run, read_metrics
from seqmodel.sampling.sampler import Sampler
from seqmodel.training import loop

SMALL = {"model": "sample-wise", "output": "auto", "hidden": 4}
SMALL |= {"truncate": 205, "carry_over": 0.0, "input_noise": 0.0, "steering": 0.0}


# ---- what is learned ----------------------------------------------------------------------------


def test_two_epochs_of_the_bundled_speech_beat_the_trivial_models(tmp_path, train):
    """Guards against defaults that do not learn speech; the README has the logistic output."""
    speech = open_dataset(sample_dataset(tmp_path, "speech"))
    options = {"unit": "gru", "hidden": 32, "epochs": 2, "output": "gaussian"}
    config = resolve({**options, "model": "frame-wise"}, presets=AUDIO.presets)
    train(config, tmp_path / "run", data=speech)
    first, second = read_metrics(tmp_path / "run")
    assert second["train_nats_per_frame"] < first["train_nats_per_frame"] - 0.5
    assert second["valid_nats_per_frame"] < first["valid_nats_per_frame"]
    trivial = audio_nats_per_frame(speech["train"], speech["valid"], speech.frame, discrete=False)
    assert second["valid_nats_per_frame"] < min(trivial.values()) - 1


# ---- sample-wise: steering -----------------------------------------------------------------------


@pytest.fixture(scope="module", params=["linear", "mu-law"])
def data(request, tmp_path_factory, recordings):
    """The recordings with either levels: the logistic and the categorical output."""
    return write_recordings(tmp_path_factory.mktemp("levels"), recordings, levels=request.param)


@pytest.fixture(scope="module")
def run(tmp_path_factory, make_audio_config, train, data):
    folder = tmp_path_factory.mktemp("sample-wise") / "run"
    train(make_audio_config(**SMALL, layers=2, epochs=1), folder, data=data)
    return load_run(folder)


@pytest.fixture(scope="module")
def steered(tmp_path_factory, make_audio_config, train, audio_dataset):
    """The folder of a run of one epoch."""
    folder = tmp_path_factory.mktemp("steered")
    options = {**SMALL, "steering": 1.0, "average": 0.8, "end": True}
    train(make_audio_config(**options, epochs=1, seed=3), folder, data=audio_dataset)
    return folder


def test_after_an_epoch_steering_is_corrected_by_what_is_drawn(steered, audio_dataset):
    """In the average that is kept and scored, by its own samples: their seed is the run's."""
    model, train = load_run(steered).model, audio_dataset["train"]
    kept = unpacked(model.encoder.known.clone(), 16)
    model.encoder.start_at(train)
    first = unpacked(model.encoder.known.clone(), 16)
    frames = model.encoder.free_frames(train.frames)
    assert frames == train.frames // 16
    drawn = np.concatenate(list(Sampler(model).piece(frames, seed=3, shortest=np.inf))).ravel()
    model.encoder.known.copy_(corrected(first, drawn, 8000).packed())
    assert torch.equal(model.encoder.known, kept.packed())
    assert not torch.equal(first.pushes, kept.pushes)
    valid = likelihood(model, audio_dataset["valid"]).nats_per_frame
    assert valid == read_metrics(steered)[0]["valid_nats_per_frame"]


def test_free_running_does_not_end(steered, audio_dataset, monkeypatch):
    """And goes by the epoch: else each would draw the same numbers."""
    model, drawn, train = load_run(steered).model, [], audio_dataset["train"]
    torch.nn.init.constant_(model.output.ending.bias, 50.0)
    monkeypatch.setattr(model.encoder, "correct", lambda frames, _: drawn.append(frames))
    for epoch in range(2):
        loop.run_free(model, train, 3, epoch, lambda: None)
    assert [len(frames) for frames in drawn] == [model.encoder.free_frames(train.frames)] * 2
    assert (drawn[0] != drawn[1]).any()


def test_levels_of_a_softmax_are_not_steered(make_audio_config, data):
    """It has no anchor: the unit would read features that training has not shown it."""
    model = build_model(make_audio_config(**{**SMALL, "steering": 1.0}), data["train"].frame)
    steered = model.encoder.free_frames(data["train"].frames) is not None
    assert steered == (data["train"].frame.values == "samples")


# ---- likelihoods --------------------------------------------------------------------------------


def test_figures_do_not_depend_on_batches_or_windows(run, data, monkeypatch):
    """`Run.nll`, piece by piece, gives what `eval` sums; padding and windows change nothing."""
    split = data["train"]
    whole = likelihood(run.model, split, each_frame=True)
    for piece, nats in zip(split, whole.frame_nats, strict=True):
        np.testing.assert_allclose(run.nll(piece), nats, rtol=1e-5)
    assert whole.nats_per_frame == pytest.approx(whole.piece_nats.sum() / split.frames)
    monkeypatch.setattr(sequence, "FRAMES_AT_ONCE", 340)  # windows of 34, 17 and 6 frames
    for batch_size in (1, 2, 5):
        cut = likelihood(run.model, split, batch_size=batch_size)
        np.testing.assert_allclose(cut.piece_nats, whole.piece_nats, rtol=1e-6)
    np.testing.assert_allclose(run.nll(split[1]), whole.frame_nats[1], rtol=1e-5)


def test_windows_hold_a_bounded_number_of_steps(run, data, monkeypatch):
    """Guards against memory that grows with the samples of a frame."""
    assert run.model.window(4) * 4 * run.model.encoder.steps <= sequence.FRAMES_AT_ONCE
    rows, start = [], run.model.start
    monkeypatch.setattr(evaluation, "STEPS_AT_ONCE", 2 * run.model.encoder.steps)
    monkeypatch.setattr(run.model, "start", lambda size, given: rows.append(size) or start(size))
    likelihood(run.model, data["train"], batch_size=5)
    assert max(rows) == 2


# ---- draws --------------------------------------------------------------------------------------


def drawn(sampler, chunks, uniforms=None, prime=None):
    draws = islice(sampler.draw(uniforms or Uniforms(3), prime=prime), chunks)
    return np.concatenate([frames for frames, _ in draws])


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_primed_piece_goes_on_as_it_did(run, backend):
    """Guards against a sample heard twice or not at all between the primer and the first draw."""
    model = load_run(run.folder).model
    for layer in model.layers():
        layer.backend = backend
    sampler = Sampler(model)
    whole = drawn(sampler, 2)
    assert len(np.unique(whole)) > 50
    for k in (1, 24):
        uniforms = Uniforms(3)
        uniforms.take(10 * k, model.output.uniforms_per_frame)
        rest = drawn(sampler, 1, uniforms, whole[:k])
        np.testing.assert_array_equal(rest, whole[k : k + len(rest)])


def test_a_piece_depends_neither_on_its_length_nor_on_others_in_progress(run):
    """Guards against predictors whose memory is shared or is left as another piece left it."""
    sampler = Sampler(run.model)
    alone = np.concatenate(list(sampler.piece(60, seed=2, number=1)))
    pieces = [iter(sampler.piece(60, seed=2, number=k)) for k in (0, 1)]
    chunks = [[next(piece) for piece in pieces][1] for _ in range(3)]
    np.testing.assert_array_equal(np.concatenate(chunks), alone)
    (short,) = sampler.piece(7, seed=2, number=1)
    np.testing.assert_array_equal(short, alone[:7])


# ---- odd sounds ---------------------------------------------------------------------------------

random = np.random.default_rng(0)
T = np.arange(1600)
SOUNDS = {  # rate and samples
    "one frame": (8000, random.normal(0, 0.1, 10)),
    "silence": (8000, 0.0 * T),
    "square wave of each sample": (8000, np.where(T % 2, 1.0, -1.0)),
    "clicks": (8000, 1.0 * (T % 400 == 399)),
    "192 kHz": (192_000, 0.3 * np.sin(T / 50) + random.normal(0, 0.001, 1600)),
    "stereo": (8000, random.normal(0, 0.1, (1600, 2))),
}


@pytest.fixture(scope="module")
def of_tones(tmp_path_factory, make_audio_config, train, audio_dataset):
    """A model of quiet tones at 8 kHz."""
    folder = tmp_path_factory.mktemp("tones") / "run"
    train(make_audio_config(**SMALL, epochs=1), folder, data=audio_dataset)
    return load_run(folder)


@pytest.mark.parametrize("name", SOUNDS)
def test_odd_sounds_cost_no_more_than_their_bits(
    tmp_path, make_audio_config, train, of_tones, name
):
    """From the first epoch on, and for a model of quiet tones; draws are 16-bit audio."""
    rate, samples = SOUNDS[name]
    data = write_recordings(tmp_path, {"train": [samples], "valid": [samples]}, rate)
    config = make_audio_config(**{**SMALL, "truncate": 1000, "input_noise": 0.6}, epochs=2)
    train(config, tmp_path / "run", data=data)
    for line in read_metrics(tmp_path / "run"):
        assert line["valid_bits_per_sample"] < 20
        assert line["train_nats_per_frame"] < 20 * 10 * np.log(2)
    if rate == of_tones.frame.rate:
        assert likelihood(of_tones.model, data["valid"]).figures["bits_per_sample"] < 20
    levels = 32768 * drawn(Sampler(load_run(tmp_path / "run").model), 1)
    np.testing.assert_array_equal(levels, levels.round().clip(-32768, 32767))
