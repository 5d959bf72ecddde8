"""Searches and plans: rates, the best run kept, resuming, what makes two plans differ."""

import itertools
import json
import math
import shutil
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from outcomes import left
from refusals import refused

from seqmodel.experiment import plan as planning
from seqmodel.experiment.plan import (
    Plan,
    Range,
    Source,
    Variant,
    default_space,
    parse_range,
    sources_of,
    variants_of,
)
from seqmodel.experiment.search import _suggest, begin_search, next_rates, paper_rates, search
from seqmodel.experiment.studies import Studies, open_storage
from seqmodel.runs import folder as runs
from seqmodel.runs.folder import load_run, read_metrics
from seqmodel.training import loop
from seqmodel.training.state import DivergedError
from seqmodel.training.stopping import InterruptError, StopRequest
from seqmodel.training.trackers import Listener

TPE = Plan([], [], {}, "tpe", trials=2, seeds=0, space=default_space("tpe", paper=False))


@pytest.fixture(scope="module")
def config(make_config):
    options = {"learning_rate_draws": 3, "epochs": 2, "schedule": "constant", "unit": "gru"}
    return make_config(**options)


@pytest.fixture(scope="module")
def finished(config, dataset, tmp_path_factory):
    """The search, whose listener has been called for each draw."""
    folder, draws = tmp_path_factory.mktemp("search") / "whole", []
    search(config, dataset, folder, listener=Listener(draw=lambda *draw: draws.append(draw)))
    rates = paper_rates(config.seed, 3)
    assert draws == [(k + 1, 3, rate) for k, rate in enumerate(rates)]
    return folder


def results(folder):
    return [json.loads(line) for line in (folder / "draws.jsonl").read_text().splitlines()]


def test_the_draw_that_is_best_on_valid_becomes_the_run(finished, config):
    draws = results(finished)
    assert [draw["learning_rate"] for draw in draws] == paper_rates(config.seed, 3)
    for draw in draws:
        lines = read_metrics(finished / "draws" / str(draw["draw"]))
        assert draw["valid_nats_per_frame"] == min(x["valid_nats_per_frame"] for x in lines)
    best = min(draws, key=lambda draw: draw["valid_nats_per_frame"])
    folder = finished / "draws" / str(best["draw"])
    for name in (runs.BEST, runs.LAST, runs.METRICS, runs.CURVE):
        assert (finished / name).read_bytes() == (folder / name).read_bytes()
    assert load_run(finished).config.learning_rate == best["learning_rate"]
    assert "learning_rate_draws: 3" in (finished / runs.CONFIG).read_text()  # what --resume reads


def test_a_stopped_search_ends_as_if_never_stopped(config, dataset, tmp_path, finished):
    """Stopped within its first draw, and at the end of that."""
    run = tmp_path / "run"
    for ticks in (4, 5):  # 8 a draw, of which the one that is stopped at comes again
        stop, seen = StopRequest(), itertools.count(1)

        def tick(_, stop=stop, seen=seen, ticks=ticks):
            stop.signal = 2 if next(seen) == ticks else None

        # To resume the draw would lose the search.
        with pytest.raises(InterruptError, match=f"--resume --run {run}`$"):
            search(config, dataset, run, listener=Listener(tick=tick), stop=stop)
        assert not (run / runs.BEST).exists()
    assert len(read_metrics(run / "draws" / "0")) == 1
    search(config, dataset, run)
    assert left(run) == left(finished)


@pytest.fixture(scope="module")
def by_bracket(make_config):
    return make_config(bracket_trials=7, epochs=3, unit="tanh", seed=2)


@pytest.fixture(scope="module")
def whole_bracket(by_bracket, dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bracket") / "run"
    search(by_bracket, dataset, folder)
    return folder


def test_tpe_begins_with_the_given_settings_if_they_are_in_range(make_config):
    """Guards against a search that ends worse than no search."""
    for given in (0.02, 0.5):
        config, trial = make_config(learning_rate=given), optuna.create_study().ask()
        rate = _suggest(trial, 0, TPE, config, [])["learning_rate"]
        assert rate == given if given == 0.02 else 1e-3 <= rate <= 3e-2


def test_a_trial_killed_before_it_had_a_rate_draws_the_same_one(make_config):
    """Guards against rates that depend on how many trials were begun, kills included."""
    rates = []
    for killed in (False, True):
        study = optuna.create_study()
        study.tell(study.ask(), 1.0)
        if killed:
            study.tell(study.ask(), state=TrialState.FAIL)
        rates.append(_suggest(study.ask(), 1, TPE, make_config(), [])["learning_rate"])
    assert rates[0] == rates[1]


def test_a_bracket_finds_the_best_rate_wherever_it_lies():
    """Guards against a range that ends before the best, and against pairs that see each other."""
    widest = default_space("bracket", paper=False)["learning_rate"]
    for best in (1e-5, 3e-4, 0.02, 0.5):
        figures = {0.01: math.log(best / 0.01) ** 2}
        while len(figures) < 13:
            pair = next_rates(figures, widest)
            assert all(rate in widest and rate not in figures for rate in pair)
            figures |= {rate: math.log(best / rate) ** 2 for rate in pair}
        assert best / 1.5 < min(figures, key=figures.__getitem__) < best * 1.5
    failed = {0.01: math.inf, 0.04: math.inf}
    assert next_rates(failed, widest)[0] == pytest.approx(0.0025)  # lower, not between
    for end in (widest.low, widest.high):  # which used to be tried twice
        lower, upper = next_rates({end: 1.0}, widest)
        assert all(rate in widest for rate in (lower, upper))
        assert len({lower, upper, end}) == 3


def test_a_bracket_goes_on_from_what_was_best(whole_bracket, by_bracket):
    """Guards against a trial that is chosen by one that another process has yet to end."""
    rates = [draw["learning_rate"] for draw in results(whole_bracket)]
    figures = [draw["valid_nats_per_frame"] for draw in results(whole_bracket)]
    assert rates[:3] == pytest.approx([0.01, 0.0025, 0.04])
    widest = default_space("bracket", paper=False)["learning_rate"]
    for k in (3, 5):
        pair = next_rates(dict(zip(rates[:k], figures[:k], strict=True)), widest)
        assert rates[k : k + 2] == pytest.approx(pair)
    plan = replace(TPE, search="bracket", trials=8, space={"learning_rate": widest})
    trials = [  # the lower of a pair is the best so far, which the upper must not go by
        SimpleNamespace(params={"learning_rate": rate}, value=nats, state=TrialState.COMPLETE)
        for rate, nats in ((0.01, 2.0), (0.0025, 1.0))
    ]
    upper = _suggest(optuna.create_study().ask(), 2, plan, by_bracket, trials)
    assert upper["learning_rate"] == pytest.approx(0.04)
    begun = [SimpleNamespace(params={}, value=None, state=TrialState.RUNNING)] * 3
    assert _suggest(optuna.create_study().ask(), 0, plan, by_bracket, begun) == {
        "learning_rate": 0.01
    }
    assert [plan.ready(k) for k in range(9)] == [3, 3, 3, 5, 5, 7, 7, 8, 8]
    assert replace(plan, trials=2).ready(0) == 2
    assert TPE.ready(0) == 2


def test_a_bracket_resumes_after_kills(by_bracket, dataset, tmp_path, whole_bracket, monkeypatch):
    """Also between the checkpoint and the metrics line: that epoch has been told to nobody."""
    run = tmp_path / "run"
    for draw, epoch, method in ((3, 2, "_write_metrics"), (4, 1, "save"), (6, 3, "_draw_curve")):
        place, original = run / "draws" / str(draw), getattr(loop.Trainer, method)

        def killed(trainer, at=(place, epoch), original=original):
            if (trainer.folder, trainer.state.progress.epoch) == at:
                raise KeyboardInterrupt
            original(trainer)

        with monkeypatch.context() as patch:
            patch.setattr(loop.Trainer, method, killed)
            with pytest.raises(KeyboardInterrupt):
                search(by_bracket, dataset, run)
    search(by_bracket, dataset, run)
    assert left(run) == left(whole_bracket)
    assert all((draw / runs.CURVE).is_file() for draw in (run / "draws").iterdir())


def test_resuming_a_finished_search_changes_nothing(config, dataset, finished):
    before, ticks = left(finished), []
    search(config, dataset, finished, listener=Listener(tick=ticks.append))
    assert left(finished) == before
    assert not ticks


def test_every_draw_starts_from_the_weights_of_init_from(
    make_config, dataset, tmp_path, run_folder
):
    """Also a draw that begins only after the search was stopped and resumed."""
    start = load_run(run_folder)
    options = {"learning_rate_draws": 2, "epochs": 1, "seed": start.config.seed + 1}
    config = make_config(end=True, hidden=7, **options)
    begin_search(config, dataset, tmp_path / "whole", start)
    search(config, dataset, tmp_path / "whole")
    for k in range(2):
        (line,) = read_metrics(tmp_path / "whole" / "draws" / str(k))
        best = read_metrics(run_folder)[start.epoch - 1]["valid_nats_per_frame"]
        assert line["valid_nats_per_frame"] == pytest.approx(best, rel=0.05)
    stop = StopRequest()
    stop.signal = 2  # at the first update of the first draw
    begin_search(config, dataset, tmp_path / "run", start)
    with pytest.raises(InterruptError):
        search(config, dataset, tmp_path / "run", stop=stop)
    search(config, dataset, tmp_path / "run")
    assert left(tmp_path / "run") == left(tmp_path / "whole")


def test_rates_that_diverge_end_the_search_only_if_all_do(config, dataset, tmp_path, monkeypatch):
    """Guards against losing hours of other draws to a rate that is too high."""
    rates, update = paper_rates(config.seed, 3), loop.Trainer._update
    too_high = rates[:1]

    def diverge(trainer, *arguments):
        if trainer.config.learning_rate in too_high:
            raise DivergedError("the loss is no number")
        return update(trainer, *arguments)

    monkeypatch.setattr(loop.Trainer, "_update", diverge)
    search(config, dataset, tmp_path / "run")
    assert results(tmp_path / "run")[0]["valid_nats_per_frame"] is None
    assert load_run(tmp_path / "run").config.learning_rate in rates[1:]
    too_high = rates
    none = partial(search, replace(config, epochs=1), dataset, tmp_path / "none")
    refused(none, "every learning rate diverged")


def test_a_draw_that_diverged_late_counts_with_its_best_epoch(
    config, dataset, tmp_path, monkeypatch
):
    """Its best epoch may be the best of all; it used to be dropped with the rest of the draw."""
    config, rate_at = replace(config, seed=2), loop.learning_rate_at
    rates = paper_rates(config.seed, 3)
    best = max(rates)  # the best after one epoch, as all rates are low

    def diverging(config, done):
        late = config.learning_rate == best and done >= 0.5
        return math.inf if late else rate_at(config, done)

    monkeypatch.setattr(loop, "learning_rate_at", diverging)
    search(config, dataset, tmp_path)
    draws, winner = results(tmp_path), rates.index(best)
    lines = [read_metrics(tmp_path / "draws" / str(draw["draw"])) for draw in draws]
    assert [len(line) for line in lines] == [1 if k == winner else 2 for k in range(3)]
    assert draws[winner]["valid_nats_per_frame"] == lines[winner][0]["valid_nats_per_frame"]
    assert min(draws, key=lambda draw: draw["valid_nats_per_frame"])["draw"] == winner
    kept = load_run(tmp_path)
    assert (kept.config.learning_rate, kept.epoch) == (best, 1)
    assert (tmp_path / runs.CURVE).is_file()


def test_with_auto_every_draw_ends_by_its_patience(make_config, dataset, tmp_path):
    """Guards against draws that count as cut short: no verdict would be given against them."""
    options = {"learning_rate": 0.5, "bracket_trials": 2, "epochs": 0, "patience": 1}
    search(make_config(**options, schedule="constant"), dataset, tmp_path)
    for draw in results(tmp_path):
        assert draw["ended"] == "no better for 1 epochs"
        lines = read_metrics(tmp_path / "draws" / str(draw["draw"]))
        assert lines[-2]["valid_nats_per_frame"] == draw["valid_nats_per_frame"]


def test_a_search_whose_settings_changed_is_not_resumed(by_bracket, dataset, tmp_path):
    """With other settings, or rates as of another version, its draws would belong to neither."""
    stop, run = StopRequest(), tmp_path / "run"
    stop.signal = 2
    with pytest.raises(InterruptError):
        search(by_bracket, dataset, run, stop=stop)
    for change in ({"seed": 9}, {"hidden": 6}):
        changed = partial(search, replace(by_bracket, **change), dataset, run)
        refused(changed, "was trained with ")
    path = run / "draws" / "0" / runs.CONFIG
    text = path.read_text()
    assert "learning_rate: 0.01\n" in text
    path.write_text(text.replace("learning_rate: 0.01\n", "learning_rate: 0.5\n"))
    again = partial(search, by_bracket, dataset, run)
    refused(again, "draws/0 has a learning rate of 0.5, where the")


@pytest.fixture
def plan(dataset):
    source = Source("tiny", str(dataset.folder), dataset.fingerprint())
    variants = variants_of(["tanh", "lstm"], ["dropout=0,0.2"])
    settings = {"model": "frame-wise", "params": 2000, "epochs": 2, "seed": 5}
    space = default_space("paper", paper=False)
    return Plan((source,), variants, settings, "paper", trials=4, seeds=3, space=space)


def test_a_plan_survives_storage_as_json(plan):
    """Guards against a finished experiment that is searched again, and its table lost."""
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    values = {k: v for k, v in plan.to_json().items() if k != "quick"}
    assert Plan.from_json(values) == replace(plan, quick=False)


def test_variants_are_all_combinations():
    names = [variant.name for variant in variants_of(["gru", "mgu"], ["bias=true,false"])]
    assert names == ["gru bias=true", "gru bias=false", "mgu bias=true", "mgu bias=false"]
    assert variants_of([], ["hidden=3,4"])[1] == Variant("hidden=4", {"hidden": 4})


def test_every_unit_gets_the_size_that_meets_the_budget(plan, dataset):
    """Guards fairness: no other hidden size is nearer to the budget."""
    for cell in plan.cells():
        config = plan.config(cell, dataset, {"learning_rate": 0.001}, 2)
        assert (config.seed, config.learning_rate, config.params) == (7, 0.001, None)
        sizes = {"tanh": lambda H: H * (88 + H + 1), "lstm": lambda H: 4 * H * (89 + H) + 3 * H}
        count = sizes[config.unit]
        distances = [abs(count(H) - 2000) for H in range(1, 60)]
        assert config.hidden == 1 + int(np.argmin(distances))


@pytest.mark.parametrize(("share", "epochs"), [(0.5, 1), (1, 1), (2.9, 2), (500, 60)])
def test_the_size_of_the_data_sets_the_epochs_of_a_quick_run(
    plan, dataset, monkeypatch, share, epochs
):
    """Guards against a fixed four epochs: a few updates on small data, ten minutes on large."""
    monkeypatch.setattr(planning, "QUICK_FRAMES", int(share * dataset["train"].frames))
    cell = plan.cells()[0]
    quick = replace(plan, quick=True, settings={"model": "frame-wise", "params": 2000})
    assert quick.config(cell, dataset, {}, 0).epochs == epochs
    assert replace(plan, quick=True).config(cell, dataset, {}, 0).epochs == 2  # as set
    assert Plan.from_json(json.loads(json.dumps(quick.to_json()))).quick


def test_an_experiment_of_an_older_version_keeps_its_epochs(plan, dataset, tmp_path):
    """Guards seeds of 800 updates of a winner of 14 epochs, and runs that cannot be resumed."""
    new = replace(plan, settings={"model": "frame-wise", "params": 2000})
    (cell, *_), by_default = new.cells(), replace(new, settings={**new.settings, "epochs": 40})
    assert new.config(cell, dataset, {}, 0).epochs > 40
    values = {k: v for k, v in new.to_json().items() if k != "enough_epochs"}
    storage = open_storage(tmp_path, None)
    Studies.begin(storage, "e", Plan.from_json(values))
    resumed = Studies.begin(storage, "e", replace(new, seeds=9)).plan
    assert resumed.config(cell, dataset, {}, 0) == by_default.config(cell, dataset, {}, 0)


def test_an_experiment_may_move_and_grow_and_never_shrinks(plan):
    """Guards against a refusal to add seeds, and against runs that a later command drops."""
    moved = replace(plan, sources=(replace(plan.sources[0], path="/elsewhere"),))
    assert plan.differs(moved) is moved.differs(plan) is None
    other = replace(plan, sources=(replace(plan.sources[0], fingerprint="0"),))
    assert plan.differs(other) == "data of tiny"
    assert plan.differs(replace(plan, settings={})) == "settings"
    assert plan.differs(replace(plan, quick=True)) == "--quick"
    for name, more in (("trials", 5), ("seeds", 4)):
        grown = replace(plan, **{name: more})
        assert (grown.differs(plan), plan.differs(grown)) == (None, name)
        assert plan.at_least(grown) == grown.at_least(plan) == grown
    fewer = replace(plan, variants=plan.variants[:-1])
    says = f"variants (to extend it, list its {plan.variants[-1].name} too)"
    assert (plan.differs(fewer), fewer.differs(plan)) == (None, says)
    another = replace(plan, variants=(*fewer.variants, Variant(plan.variants[-1].name, {})))
    assert another.differs(plan) == "variants"
    two = replace(plan, sources=(*plan.sources, Source("other", "/other", "1")))
    assert (two.differs(plan), plan.differs(two)) == (
        None,
        "datasets (to extend it, list its other too)",
    )


def test_the_papers_rates_are_log_uniform_and_the_same_for_all():
    rates = np.log(paper_rates(1, 4000))
    assert -12 < rates.min() < -11.99
    assert -6.01 < rates.max() < -6
    assert rates.mean() == pytest.approx(-9, abs=0.1)
    assert paper_rates(1, 10) == paper_rates(1, 12)[:10] != paper_rates(2, 10)


def test_a_range_has_the_type_of_its_setting():
    assert parse_range("learning_rate=1e-4..1e-2") == ("learning_rate", Range(1e-4, 1e-2, log=True))
    assert parse_range("hidden=3..9") == ("hidden", Range(3, 9, whole=True))
    assert parse_range("dropout=0..0.5") == ("dropout", Range(0, 0.5))


INVALID = {
    "dropout=0": "--tune takes KEY=LOW..HIGH, not 'dropout=0'",
    "unit=1..2": "--tune unit: only numeric settings have a range",
    "dropout=0.5..0.1": "a range goes from a low to a high number, not 0.5..0.1",
    "learning_rate=0..1": "learning rates must be above 0, not 0.0..1.0",
    "hiden=1..2": "there is no setting 'hiden'; did you mean hidden?",
}


@pytest.mark.parametrize("text", INVALID)
def test_invalid_ranges_are_refused(text):
    refused(lambda: parse_range(text), INVALID[text])


def test_datasets_whose_names_cannot_be_folders_are_refused_at_once(dataset, tmp_path):
    """Guards hours of runs that macOS or Windows mix up, or whose picture cannot be written."""
    for name, words in ((dataset.folder.name.upper(), "rename one"), ("x" * 241, "too long")):
        both = [dataset.folder, shutil.copytree(dataset.folder, tmp_path / name)]
        refused(lambda both=both: sources_of(both), words)
