"""The loop: what it saves, when it looks at valid and ends, and what it learns of sound."""

import itertools
import json
import math
import os
import signal
import time
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from noise import write_recordings
from outcomes import left
from refusals import refused

from seqmodel.config import resolve
from seqmodel.data.bundled import sample_dataset
from seqmodel.data.dataset import open_dataset
from seqmodel.evaluation import likelihood as evaluation
from seqmodel.evaluation.likelihood import Likelihood, likelihood
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.audio.evaluation import audio_nats_per_frame
from seqmodel.media.audio.medium import AUDIO
from seqmodel.media.music.evaluation import baseline_nats_per_frame
from seqmodel.media.words import epochs_text
from seqmodel.model import sequence
from seqmodel.model.build import build_model
from seqmodel.model.sound.steering import unpacked
from seqmodel.model.sound.survey import corrected
from seqmodel.runs import folder as runs
from seqmodel.runs.checkpoint import load_checkpoint
from seqmodel.runs.content import TimePlan, newest_run
from seqmodel.runs.files import VALID_PIECES
from seqmodel.runs.folder import load_run, read_metrics
from seqmodel.sampling.sampler import Sampler
from seqmodel.training import loop, schedule
from seqmodel.training.loop import Listener, Trainer, train_run
from seqmodel.training.schedule import Interval
from seqmodel.training.stopping import InterruptError, StopRequest, stop_on_signals


@pytest.fixture
def scripted(monkeypatch, make_config, dataset, tmp_path):
    """A function that trains with scripted figures on valid and returns what was reported."""

    def scripted(figures, **options):
        left, one = iter(figures), np.ones(1, np.int64)

        def likelihood(*given, **more):
            return Likelihood(one, np.array([next(left)]), one, {}, [], [])

        monkeypatch.setattr(loop, "likelihood", likelihood)
        config = make_config(**{"epochs": len(figures), "batch_size": 11} | options)
        trainer = Trainer(config, dataset, tmp_path / "run")
        heard = []

        def epoch(metrics, is_best):
            weights = {k: v.clone() for k, v in trainer.state.model.state_dict().items()}
            heard.append((metrics["valid_nats_per_frame"], is_best, weights))

        trainer.run(Listener(epoch=epoch), StopRequest())
        return heard

    return scripted


def test_training_ends_when_the_best_is_patience_epochs_old(scripted, tmp_path):
    """And keeps the best checkpoint, not the last: that one has overfitted."""
    figures = [5.0, 4.0, 4.5, 3.0, 3.0, 3.5, 9.0, 1.0]
    heard = scripted(figures, patience=3, learning_rate=0.1, schedule="constant")
    assert [figure for figure, _, _ in heard] == figures[:7]
    assert [is_best for _, is_best, _ in heard] == [True, True, False, True, False, False, False]
    run = load_run(tmp_path / "run")
    assert run.epoch == 4
    for name, weight in run.model.state_dict().items():
        assert torch.equal(weight, heard[3][2][name])
    last, _ = load_checkpoint(tmp_path / "run" / runs.LAST)
    assert torch.equal(last["model.unit.W"], heard[6][2]["unit.W"])
    assert not torch.equal(last["model.unit.W"], heard[3][2]["unit.W"])


def test_auto_goes_on_until_nothing_is_better(scripted):
    """Guards against a hidden limit, and against one that does not move with the best."""
    improving = [9.0 - k / 100 for k in range(60)]
    heard = scripted([*improving, 8.9, 8.9, 1.0], epochs=0, schedule="constant", patience=2)
    assert len(heard) == 62


def test_a_run_learns_and_its_figures_match_an_evaluation(run_folder, dataset):
    """metrics.jsonl agrees with `seqmodel eval` on the same epoch."""
    run = load_run(run_folder)
    lines = read_metrics(run_folder)
    scores = likelihood(run.model, dataset["valid"])
    assert lines[run.epoch - 1]["valid_nats_per_frame"] == pytest.approx(scores.nats_per_frame)
    assert lines[run.epoch - 1]["valid_accuracy"] == scores.figures["accuracy"]
    assert run.epoch - 1 == min(range(30), key=lambda k: lines[k]["valid_nats_per_frame"])
    assert [line["updates"] for line in lines] == [3 * epoch for epoch in range(1, 31)]
    baselines = baseline_nats_per_frame(dataset["train"], dataset["valid"])
    assert scores.nats_per_frame < baselines["marginal"] - 0.5


def test_no_more_of_train_is_loaded_at_a_time_than_a_window(
    make_config, dataset, tmp_path, train, monkeypatch
):
    """Memory would grow with the piece."""
    frames, load = [], loop.batches.load

    def loading(split, *given, **named):
        batch = load(split, *given, **named)
        frames.append((split.name, len(batch.frames)))
        return batch

    monkeypatch.setattr(loop.batches, "load", loading)
    train(make_config(truncate=5, batch_size=11), tmp_path / "run")
    assert max(count for split, count in frames if split == "train") == 5


def test_keys_are_transposed_only_when_asked(tmp_path, make_config, train, dataset, monkeypatch):
    loads, load = [], loop.batches.load

    def loading(split, indices, keys=None, **more):
        loads.append(keys)
        return load(split, indices, keys, **more)

    monkeypatch.setattr(loop.batches, "load", loading)
    train(make_config(epochs=1), tmp_path / "plain")
    assert all(keys is None for keys in loads)
    loads.clear()
    train(make_config(epochs=2, augment_keys=True), tmp_path / "keys")
    keys = [tuple(k.tolist()) for k in loads if k is not None]
    assert len(keys) == 6  # batches of train; valid is never transposed
    assert len(set(keys)) == 6


def test_divergence_keeps_the_epochs_before_it(tmp_path, make_config, train, monkeypatch):
    """A best checkpoint of diverged weights would lose all that had been learned."""

    def rate(config, progress):
        return 1e38 if progress * config.epochs >= 2 else config.learning_rate

    monkeypatch.setattr(loop, "learning_rate_at", rate)
    config = make_config(epochs=5, clip=0.0, optimizer="rmsprop", unit="tanh")
    refused(lambda: train(config, tmp_path / "run"), "of epoch 3 ", "--learning-rate")
    assert load_checkpoint(tmp_path / "run" / runs.BEST)[1]["epoch"] <= 2
    assert np.isfinite(load_run(tmp_path / "run").nll(np.zeros((3, 88), np.uint8))).all()
    assert [line["epoch"] for line in read_metrics(tmp_path / "run")] == [1, 2]
    assert {runs.CURVE, runs.LAST} < {path.name for path in (tmp_path / "run").iterdir()}


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_non_finite_valid_figure_is_an_error_that_ends_the_run(scripted, tmp_path, wrong):
    """Used to count as an epoch: no best was saved, and metrics.jsonl was not valid JSON."""
    says = f"the valid split scores {wrong} nats per frame after epoch 2: lower --learning-rate"
    refused(lambda: scripted([5.0, wrong, 4.0]), says)
    (line,) = (tmp_path / "run" / runs.METRICS).read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["valid_nats_per_frame"] == 5.0
    assert load_run(tmp_path / "run").epoch == 1


def test_a_run_trained_again_keeps_nothing_of_the_old_one(tmp_path, make_config, dataset, train):
    """A leftover best checkpoint would be evaluated as if it were the new run's."""
    train(make_config(epochs=1), tmp_path / "run")
    with pytest.raises(InterruptError):
        train(make_config(epochs=1), tmp_path / "run", stop_at=lambda seen, tick: True)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {runs.CONFIG, runs.LAST}


def test_ctrl_c_before_the_first_update_stops_at_once(tmp_path, make_config, dataset, monkeypatch):
    """Used to wait for the update to be compiled and made; resuming, as it advises, works."""

    def compiling(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("went on")

    with monkeypatch.context() as patch, stop_on_signals() as stop:
        patch.setattr(loop, "update", compiling)
        with pytest.raises(InterruptError, match="with `seqmodel train --resume") as caught:
            train_run(make_config(), dataset, tmp_path / "run", stop=stop)
        assert stop.immediate_message is None
    assert caught.value.exit_status == 128 + signal.SIGINT
    for name, resume in (("run", True), ("whole", False)):
        train_run(make_config(), dataset, tmp_path / name, resume=resume)
    same = [(tmp_path / name / runs.BEST).read_bytes() for name in ("run", "whole")]
    assert same[0] == same[1]


HUGE = {"weight_noise": 1e30, "unit": "tanh", "activation": "relu"}


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (HUGE, "lower --weight-noise, now 1e+30"),
        ({"unit": "gru"}, "look for damaged pieces in train with `seqmodel inspect`"),
    ],
)
def test_divergence_at_the_first_update_leaves_no_files_and_blames_no_learning_rate(
    tmp_path, make_config, dataset, monkeypatch, options, advice
):
    """No step has been taken yet; the files it used to leave would diverge again when resumed."""
    if options is not HUGE:
        monkeypatch.setattr(loop, "update", lambda *a, **k: (math.nan, math.nan))
    refused(lambda: train_run(make_config(**options), dataset, tmp_path / "run"), advice)
    assert list((tmp_path / "run").iterdir()) == []


def test_the_coarse_clock_of_windows_does_not_time_updates(
    tmp_path, make_config, train, monkeypatch
):
    """Until Python 3.13 its monotonic clock stands still for 16 ms: frames were divided by 0 s."""
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    train(make_config(epochs=1), tmp_path / "run")
    assert len(read_metrics(tmp_path / "run")) == 1


# ---- looks at valid within epochs, and minutes ---------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """A clock for the loop: each update and each look takes as long as `clock.seconds`."""
    clock, now = SimpleNamespace(seconds=1.0), itertools.count()

    def perf_counter():
        clock.now += clock.seconds * (next(now) % 2)  # asked before and after
        return clock.now

    clock.now = 0.0
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=perf_counter))
    return clock


def test_looks_within_epochs_change_nothing_but_what_is_best(tmp_path, make_config, train):
    """Guards against a look that moves the weights, or a part of an epoch that is counted twice."""
    config = {"epochs": 2, "truncate": 7, "average": 0.8}
    train(make_config(**config), tmp_path / "whole")
    train(make_config(**config, valid_every="3"), tmp_path / "looks")
    whole, looks = (read_metrics(tmp_path / name) for name in ("whole", "looks"))
    assert [line["epoch"] for line in whole] == [1, 2]
    ends = [line for line in looks if type(line["epoch"]) is int]
    assert len(looks) > len(ends) == 2
    assert [line["epoch"] for line in looks] == sorted({line["epoch"] for line in looks})
    assert all(0 < b["updates"] - a["updates"] <= 5 for a, b in itertools.pairwise(looks))
    for name in ("updates", "valid_nats_per_frame", "learning_rate"):
        assert [line[name] for line in ends] == [line[name] for line in whole]
    tensors = [load_checkpoint(tmp_path / name / runs.LAST)[0] for name in ("whole", "looks")]
    assert all(torch.equal(tensor, tensors[1][name]) for name, tensor in tensors[0].items())


def test_a_look_scores_the_same_part_of_valid_each_time(
    tmp_path, make_config, train, dataset, monkeypatch
):
    monkeypatch.setattr(loop, "MIN_PIECES", 1)
    train(make_config(epochs=2, truncate=7, valid_every="4"), tmp_path / "run")
    lines, run = read_metrics(tmp_path / "run"), load_run(tmp_path / "run")
    assert {line[VALID_PIECES] for line in lines} == {1}
    assert len(dataset["valid"]) > 1
    best = min(lines, key=lambda line: line["valid_nats_per_frame"])
    assert (run.epoch, run.metrics()) == (best["epoch"], best)
    each = likelihood(run.model, dataset["valid"]).piece_nats
    frames = dataset["valid"].lengths[0]
    assert best["valid_nats_per_frame"] == pytest.approx(each[0] / frames)


def test_minutes_are_kept_and_the_schedule_ends_with_them(tmp_path, make_config, train, clock):
    """Also where the machine becomes three times slower half way."""

    def slower(tick):
        clock.seconds = 6.0 if clock.now > 300 else 2.0

    plans = []
    config = make_config(minutes=10.0, epochs=0, truncate=7, schedule="cosine")
    hears = {"tick": slower, "planned": lambda epochs, updates: plans.append((epochs, updates))}
    progress = train(config, tmp_path / "run", **hears).state.progress
    assert clock.now == pytest.approx(600, rel=0.03)  # of updates and looks
    assert progress.metrics[-1]["learning_rate"] < 0.01 * config.learning_rate
    until, updates = plans[0]
    assert progress.update < 0.8 * updates
    assert progress.metrics[-1]["epoch"] < 0.8 * until
    assert progress.metrics[-1]["epoch"] == pytest.approx(plans[-1][0], rel=0.1)
    assert newest_run(tmp_path) == (tmp_path / "run", "")  # it is over


def test_a_run_of_minutes_stopped_at_every_update_ends_as_if_never_stopped(
    tmp_path, make_config, train, clock
):
    """By a clock that stands still between them: its plan and its times are saved."""
    config = make_config(minutes=0.5, epochs=0, truncate=7, schedule="cosine", average=0.8)
    train(config, tmp_path / "whole")
    stops = 0
    while True:
        try:
            stop_at = {"stop_at": lambda seen, tick: tick.nats_per_frame is not None}
            train(config, tmp_path / "run", resume=stops > 0, **stop_at)
        except InterruptError:
            stops += 1
        else:
            break
    assert stops > 15
    assert left(tmp_path / "run") == left(tmp_path / "whole")


def test_a_plan_spreads_what_is_left():
    plan = TimePlan(at=2.0, share=0.4, until=5.0)
    assert [plan.share_at(x) for x in (2.0, 3.5, 5.0, 6.0)] == pytest.approx([0.4, 0.7, 1.0, 1.0])
    assert TimePlan().share_at(9.0) == 0.0


def test_long_epochs_have_looks_by_themselves(make_config, train, tmp_path, dataset, monkeypatch):
    trainer = train(make_config(epochs=1, truncate=7), tmp_path / "run")
    model, updates = trainer.state.model, trainer.state.progress.update
    assert Interval.of(trainer.config, dataset["train"], model) == Interval()
    work = dataset["train"].frames * sum(weight.numel() for weight in model.parameters())
    monkeypatch.setattr(schedule, "LOOK_WORK", work / 3.5)
    assert Interval.of(trainer.config, dataset["train"], model).updates == -(-updates // 3)


def test_a_run_without_a_best_has_its_last_mean(tmp_path, make_config, train):
    with pytest.raises(InterruptError):
        train(make_config(average=0.8), tmp_path / "run", stop_at=lambda seen, tick: seen == 2)
    run = load_run(tmp_path / "run")
    assert "has no best weights yet: using those after 2 updates" in run.remark
    tensors, _ = load_checkpoint(tmp_path / "run" / runs.LAST)
    assert torch.equal(run.model.unit.W, tensors["average.module.unit.W"])
    assert not torch.equal(run.model.unit.W, tensors["model.unit.W"])


def test_parts_of_epochs_are_shown_with_few_digits():
    """Guards tables against seven digits, and long trainings against powers of ten."""
    shown = [epochs_text(count) for count in (14, 2.012542, 0.25, 0.078334, 123_456)]
    assert shown == ["14", "2.0125", "0.25", "0.0783", "123456"]


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
    limits = [float(limit) for limit in (model.encoder.most_dc, model.encoder.loudest)]
    model.encoder.start_at(train)
    assert limits == [float(model.encoder.most_dc), float(model.encoder.loudest)]
    assert 0 < limits[0] < limits[1] < 2 * 32768
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
        backwards = piece.astype(np.float32)[::-1]
        backwards.flags.writeable = False
        np.testing.assert_array_equal(run.nll(backwards), run.nll(backwards.copy()))
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
