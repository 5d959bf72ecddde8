"""The learning-rate search: the paper's rates and TPE, the best run kept, resuming."""

import itertools
import json
import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import optuna
import pytest
from optuna.trial import TrialState
from outcomes import left
from refusals import refused

from seqmodel.experiment.plan import Plan, default_space
from seqmodel.experiment.search import _suggest, next_rates, paper_rates, search
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
            search(
                *(config, dataset, run),
                resume=run.is_dir(),
                listener=Listener(tick=tick),
                stop=stop,
            )
        assert not (run / runs.BEST).exists()
    assert len(read_metrics(run / "draws" / "0")) == 1
    search(config, dataset, run, resume=True)
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
                search(by_bracket, dataset, run, resume=run.is_dir())
    search(by_bracket, dataset, run, resume=True)
    assert left(run) == left(whole_bracket)
    assert all((draw / runs.CURVE).is_file() for draw in (run / "draws").iterdir())


def test_resuming_a_finished_search_changes_nothing(config, dataset, finished):
    before, ticks = left(finished), []
    search(config, dataset, finished, listener=Listener(tick=ticks.append), resume=True)
    assert left(finished) == before
    assert not ticks


def test_every_draw_starts_from_the_weights_of_init_from(
    make_config, dataset, tmp_path, run_folder
):
    """Also a draw that begins only after the search was stopped and resumed."""
    start = load_run(run_folder)
    options = {"learning_rate_draws": 2, "epochs": 1, "seed": start.config.seed + 1}
    config = make_config(end=True, hidden=7, **options)
    search(config, dataset, tmp_path / "whole", init_from=start)
    for k in range(2):
        (line,) = read_metrics(tmp_path / "whole" / "draws" / str(k))
        best = read_metrics(run_folder)[start.epoch - 1]["valid_nats_per_frame"]
        assert line["valid_nats_per_frame"] == pytest.approx(best, rel=0.05)
    stop = StopRequest()
    stop.signal = 2  # at the first update of the first draw
    with pytest.raises(InterruptError):
        search(config, dataset, tmp_path / "run", stop=stop, init_from=start)
    search(config, dataset, tmp_path / "run", resume=True)
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


def test_a_figure_of_nan_never_wins(config, dataset, tmp_path, monkeypatch):
    """nan is neither less nor greater than anything: min() keeps it if it comes first."""
    rates, figure = paper_rates(config.seed, 3), loop.likelihood

    def nan_first(model, split, **options):
        scores = figure(model, split, **options)
        spoilt = (tmp_path / "run" / "draws" / "1").exists()
        return scores if spoilt else replace(scores, piece_nats=math.nan * scores.piece_nats)

    monkeypatch.setattr(loop, "likelihood", nan_first)
    search(config, dataset, tmp_path / "run")
    draws = results(tmp_path / "run")
    assert draws[0]["valid_nats_per_frame"] is None
    assert load_run(tmp_path / "run").config.learning_rate in rates[1:]
    lines = read_metrics(tmp_path / "run")
    assert all(math.isfinite(line["valid_nats_per_frame"]) for line in lines)


def test_a_search_whose_settings_changed_is_not_resumed(by_bracket, dataset, tmp_path):
    """With other settings, or rates as of another version, its draws would belong to neither."""
    stop, run = StopRequest(), tmp_path / "run"
    stop.signal = 2
    with pytest.raises(InterruptError):
        search(by_bracket, dataset, run, stop=stop)
    for change in ({"seed": 9}, {"hidden": 6}):
        changed = partial(search, replace(by_bracket, **change), dataset, run, resume=True)
        refused(changed, "was trained with ")
    path = run / "draws" / "0" / runs.CONFIG
    text = path.read_text()
    assert "learning_rate: 0.01\n" in text
    path.write_text(text.replace("learning_rate: 0.01\n", "learning_rate: 0.5\n"))
    again = partial(search, by_bracket, dataset, run, resume=True)
    refused(again, "draws/0 has a learning rate of 0.5, where the")
