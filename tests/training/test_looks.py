"""Looks at valid within epochs, and trainings of so many minutes."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from test_resume import outcome

from seqmodel.evaluation.likelihood import likelihood
from seqmodel.media.words import epochs_text
from seqmodel.runs import folder as runs
from seqmodel.runs.checkpoint import TimePlan, load_checkpoint
from seqmodel.runs.files import PART
from seqmodel.runs.folder import load_run, newest_run, read_metrics
from seqmodel.training import loop, schedule
from seqmodel.training.schedule import Interval
from seqmodel.training.stopping import InterruptError


@pytest.fixture
def clock(monkeypatch):
    """A clock for the loop: each update and each look takes as long as `clock.seconds`."""
    clock, now = SimpleNamespace(seconds=1.0), itertools.count()

    def monotonic():
        clock.now += clock.seconds * (next(now) % 2)  # asked before and after
        return clock.now

    clock.now = 0.0
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=monotonic))
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
    monkeypatch.setattr(loop, "LEAST_PIECES", 1)
    train(make_config(epochs=2, truncate=7, valid_every="4"), tmp_path / "run")
    lines, run = read_metrics(tmp_path / "run"), load_run(tmp_path / "run")
    assert {line[PART] for line in lines} == {1}
    assert len(dataset["valid"]) > 1
    best = min(lines, key=lambda line: line["valid_nats_per_frame"])
    assert (run.epoch, run.metrics()) == (best["epoch"], best)
    each = likelihood(run.model, dataset["valid"]).piece_nats
    frames = dataset["valid"].lengths[0]
    assert best["valid_nats_per_frame"] == pytest.approx(each[0] / frames)


def test_minutes_are_kept_and_the_schedule_ends_with_them(tmp_path, make_config, train, clock):
    """Also where the machine becomes three times slower half way."""

    def slower(tick):
        clock.seconds = 3.0 if clock.now > 300 else 1.0

    plans = []
    config = make_config(minutes=10.0, epochs=0, truncate=7, schedule="cosine")
    hears = {"tick": slower, "planned": lambda epochs, updates: plans.append((epochs, updates))}
    progress = train(config, tmp_path / "run", **hears).state.progress
    assert clock.now == pytest.approx(600, rel=0.03)  # of updates and looks
    assert progress.metrics[-1]["learning_rate"] < 0.01 * config.learning_rate
    [(until, updates)] = plans
    assert progress.update < 0.8 * updates
    assert progress.metrics[-1]["epoch"] < 0.8 * until
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
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_a_plan_spreads_what_is_left():
    plan = TimePlan(at=2.0, share=0.4, until=5.0)
    assert [plan.share_at(x) for x in (2.0, 3.5, 5.0, 6.0)] == pytest.approx([0.4, 0.7, 1.0, 1.0])
    assert TimePlan().share_at(9.0) == 0.0


def test_long_epochs_have_looks_by_themselves(make_config, train, tmp_path, dataset, monkeypatch):
    trainer = train(make_config(epochs=1, truncate=7), tmp_path / "run")
    model, updates = trainer.state.model, trainer.state.progress.update
    assert Interval.of(trainer.config, dataset["train"], model) == Interval()
    work = dataset["train"].frames * sum(weight.numel() for weight in model.parameters())
    monkeypatch.setattr(schedule, "WORK", work / 3.5)
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
    shown = [epochs_text(count) for count in (14, 2.012542, 0.25, 123_456)]
    assert shown == ["14", "2.0125", "0.25", "123456"]
