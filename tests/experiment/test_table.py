"""Tables and pages: which differences are real, which variant leads, which learned nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest
from allocation import peak_of
from verdict_rates import LIKELY, Runs, behind_the_first, joint_rate, rate

from seqmodel.experiment import output as table
from seqmodel.experiment.output import comparison_page
from seqmodel.experiment.plan import Cell, Plan, Range, Source, Variant
from seqmodel.experiment.results import Attempt, Comparison, Difference, Outcome, jointly, quantile
from seqmodel.model.sequence import ParameterCounts

PLAN = Plan([], [], {}, "none", trials=1, seeds=3)
LENGTHS = np.full(30, 10)
PIECES = np.random.default_rng(5).normal(20, 2, 30)
"""Nats of each piece: 2 per frame."""


def outcome(name, *shifts):
    """A seed for each shift, in nats per frame; pieces differ at random, too."""
    chance = np.random.default_rng(len(name)).normal(0, 0.3, (len(shifts), 30))
    nats = PIECES + chance - chance.mean() + LENGTHS * np.array(shifts)[:, None]
    figures = [{"epoch": k, "valid_nats_per_frame": 3.1 - k / 10} for k in range(1, 4)]
    lines = [line | {"updates": 9, "seconds": 30.0, "train_nats_per_frame": 3} for line in figures]
    trial = Attempt({"learning_rate": 0.01}, "complete", lines)
    cell = Cell(Source("set", "/set", ""), Variant(name, {"unit": name}))
    counts, seeds = ParameterCounts(100, 150), [trial] * len(shifts)
    return Outcome(cell, None, 0, counts, [trial], seeds, {"test": nats}, range(len(shifts)))


def comparison(*outcomes, trivial):
    baselines = {"test": {"note_ngram": trivial, "marginal": trivial + 1}}
    return Comparison("set", {"test": LENGTHS}, baselines, outcomes, PLAN)


CLOSE = comparison(
    outcome("gru", 0.01, -0.01, 0),
    outcome("lstm", 0.01, 0, -0.01),
    outcome("tanh", 0.5, 0.6, 0.55),
    trivial=2.4,
)


def against(name, *outcomes, **more):
    return replace(comparison(*outcomes, trivial=9.0), plan=replace(PLAN, against=name, **more))


def values(made):
    (found,) = json.loads(table.as_json([made], {}))["datasets"]
    return found


def test_the_best_and_those_not_told_apart_from_it_are_marked():
    """Guards against a single winner where there is none."""
    line = next(x for x in table.as_markdown([CLOSE], []).splitlines() if x.startswith("| test"))
    cells = line.strip("| ").split(" | ")[1:]
    assert [cell.startswith("**") for cell in cells] == [True, True, False]
    assert "**" not in table.as_markdown([against(None, outcome("gru", 0.0))], [])
    assert table.as_latex([CLOSE]).count(r"\textbf{") == 2
    assert r"$\pm$" in table.as_latex([CLOSE])


def test_variants_no_better_than_a_trivial_model_are_reported():
    """Compared with the best trivial model, on the split that decides."""
    said = "tanh is no better than a trivial model on test"
    assert said in table.as_text([CLOSE], [])
    assert said in table.as_markdown([CLOSE], [])
    assert "no better" not in table.as_text([against(None, *CLOSE.outcomes)], [])


def test_a_seed_without_a_score_keeps_its_number_from_the_next():
    """Guards against the third seed's figure told as the second's, which diverged."""
    made = replace(outcome("gru", 0.01, -0.01), scored=[0, 2])
    lines = table.as_csv([against(None, made)]).splitlines()
    assert [line.split(",")[3] for line in lines] == ["seed", "0", "2"]


def page_of(found, folder):
    plan = Plan([Source("set", "/set", "")], [o.cell.variant for o in found.outcomes], {}, "", 1, 2)
    return comparison_page(plan, [found], folder, [], "seqmodel compare set")


@pytest.mark.parametrize(
    ("trivial", "verdict"), [(2.4, "scores 2.400"), (1.0, "is better, at 1.000")]
)
def test_the_page_begins_with_the_winner_and_its_caveats(tmp_path, trivial, verdict):
    """Guards against a headline that hides a tie, or a model that learned nothing."""
    found = comparison(*CLOSE.outcomes, trivial=trivial)
    page = page_of(found, tmp_path)
    assert page.title == "gru, lstm and tanh on set"
    nats = found.figures(found.ranked()[0], "test").mean()
    assert page.lead[0].endswith(
        "predicts test of set best, though lstm may be as good, with "
        f"{nats:.3f} nats per frame; the best trivial model (note ngram) {verdict}."
    )


@pytest.mark.parametrize(("seeds", "reason"), [(3, "2 pieces"), (1, "one seed")])
def test_too_few_pieces_or_seeds_are_no_verdict(seeds, reason, tmp_path):
    """Guards against one seed that makes equal models different; nothing is bold."""
    few = [
        replace(outcome(name, 0.0), nats={"test": np.array([[20.0, nats]] * seeds)})
        for name, nats in (("gru", 18.0), ("lstm", 37.0))
    ]
    told = Comparison("set", {"test": np.array([10, 9])}, {}, few, PLAN)
    needed = " (at least 6 are needed)" if seeds > 1 else ""
    assert table.verdicts(told.compared, "test") == [
        f"gru is 1.000 nats ahead of lstm on test, which {reason} cannot tell from chance{needed}"
    ]
    assert "**" not in table.as_markdown([told], [])
    assert "old" not in table.as_latex([told])  # neither bold nor a sentence on it
    assert page_of(told, tmp_path).lead == (
        "gru leads on test of set, on too few seeds or pieces for a verdict, with 2.000 nats per "
        "frame.",
    )
    interval = {"mean": 1.0, "low": None, "high": None, "seeds": seeds, "pieces": 2}
    above = values(told)["variants"][1]["above_the_best"]
    assert above == {**interval, "verdict": "too few", "doubt": ""}


RATES = {"learning_rate": Range(1e-3, 3e-2, log=True)}


def test_unfinished_training_and_rates_at_the_end_of_their_range_are_named(tmp_path):
    """Guards against a verdict on models that were not trained to completion, or with any rate."""
    gru, lstm, tanh = CLOSE.outcomes
    stopped = replace(lstm.seeds[0], ended="no better for 2 epochs")
    worse = {**gru.seeds[0].metrics[-1], "valid_nats_per_frame": 9.0}
    past = replace(gru.seeds[0], metrics=[*gru.seeds[0].metrics, worse])
    low, high = (replace(tanh.trials[0], params={"learning_rate": r}) for r in (0.001, 0.1))
    found = against(
        None,
        replace(gru, seeds=[past, past], trials=[gru.trials[0], low, high]),
        replace(lstm, seeds=[stopped, stopped], trials=[lstm.trials[0], low, high]),
        replace(tanh, seeds=[past, tanh.seeds[0]], trials=[high, low]),
        space=RATES,
    )
    told = table.as_text([found], []).splitlines()[-2:]
    assert told[0] == "tanh still improved in the last epoch: try a larger --set epochs=N"
    assert "the best learning rate of tanh is at an end of the range searched: " in told[1]
    assert table.as_markdown([found], []).splitlines()[-2:] == [f"- {line}" for line in told]
    notes = page_of(found, tmp_path).sections[0].notes
    assert notes[-2:] == tuple(f"{line}." for line in told)
    variants = values(found)["variants"]
    assert [each["still_improving"] for each in variants] == [False, False, True]
    assert [each["at_end_of_range"] for each in variants] == [[], [], ["learning_rate"]]


def withheld(worse, doubt):
    """Assert that nothing is said against tanh, the worst of three, in any of the outputs."""
    made = against("gru", *CLOSE.outcomes[:2], worse, space=RATES)
    for told in (table.as_text([made], []), table.as_markdown([made], [])):
        (line,) = (line for line in told.splitlines() if " ahead of tanh " in line)
        assert line.endswith(f", no verdict: {doubt}")
        assert "better than tanh" not in told
    assert table.differences_csv([made]).splitlines()[-1].endswith(f",withheld,{doubt}")
    tex = table.as_latex([made])
    assert f"No verdict: {doubt}.}}" in tex
    assert tex.count(r"\textbf{") == 3
    pair = values(made)["pairs"][-1]
    for gap in (values(made)["variants"][2]["above_the_best"], pair):
        assert (gap["verdict"], gap["doubt"]) == ("withheld", doubt)
    assert (pair["variant"], pair["against"]) == ("tanh", "gru")


def test_no_verdict_on_a_model_that_may_yet_catch_up():
    """Guards against "better" where the other one had the wrong rate, or too few epochs."""
    tanh = CLOSE.outcomes[2]
    rates = [replace(tanh.trials[0], params={"learning_rate": r}) for r in (0.01, 0.1, 0.001)]
    end = "the learning rate of tanh is at an end of the range searched"
    withheld(replace(tanh, trials=rates[:2]), end)
    # In three epochs it is 0.2 nats better than after the first, and 0.55 behind.
    settled = replace(tanh, trials=rates)
    assert not CLOSE.doubt(settled, 0.55)
    metrics = enumerate(tanh.seeds[0].metrics)
    lines = [{**line, "valid_nats_per_frame": 4.0 - k} for k, line in metrics]
    steep = replace(tanh.seeds[0], metrics=lines)
    withheld(replace(settled, seeds=[steep] * 3), "tanh still improved in its last epoch")
    ended = replace(steep, ended="no better for 2 epochs")
    assert not CLOSE.doubt(replace(settled, seeds=[ended] * 3), 0.55)


def test_a_joint_verdict_is_withheld_only_where_catching_up_would_change_it():
    """Guards against one doubtful data set, whose difference is next to nothing, undoing all."""
    clear, doubtful = Difference(0.5, 0.01, 3, 30), Difference(0.001, 0.01, 3, 30, "not yet")
    assert jointly([clear, doubtful]).verdict == "worse"
    assert jointly([clear._replace(mean=0.01), doubtful._replace(mean=0.5)]).verdict == "withheld"
    assert jointly([clear, doubtful._replace(mean=-0.1)]).verdict == "worse"


def test_each_variant_is_compared_with_the_one_that_was_named():
    """Guards against a table, a file or a verdict that goes by the best one all the same."""
    made = against("lstm", *CLOSE.outcomes)
    lines = table.as_text([made], []).splitlines()
    row = next(line for line in lines if line.startswith("above lstm"))
    gru, tanh = made.compared.values()
    shown = [f"{gap.mean:+.3f} ± {gap.margin:.3f}" for gap in (gru, tanh)]
    assert row.split()[2:] == " ".join(shown).split()
    assert list(made.compared) == [("lstm", "gru"), ("lstm", "tanh")]
    behind = made.figures(CLOSE.outcomes[2], "test").mean() - made.mean(CLOSE.outcomes[1])
    assert tanh.mean == pytest.approx(float(behind))
    assert sum(line.startswith("lstm is better than tanh on test by ") for line in lines) == 1
    assert "gru is better than tanh" not in "\n".join(lines)
    csv = table.differences_csv([made]).splitlines()
    low, high = tanh.interval
    assert csv[2] == f"set,test,tanh,lstm,{tanh.mean!r},{low!r},{high!r},worse,"
    assert "how many more than lstm $\\pm$ half an interval" in table.as_latex([made])
    assert table.as_latex([made]).count("+0.5") == 1
    told = table.verdicts(replace(made, plan=replace(PLAN, all_pairs=True)).compared, "test")
    assert len(told) == 3
    assert sum(" is better than tanh on test by " in line for line in told) == 2


@pytest.mark.parametrize(("name", "more"), [("lstm", {}), (None, {"all_pairs": True})])
def test_datasets_are_judged_together_whichever_leads_on_each(name, more):
    """Guards against a pair that is lost, or of the wrong sign, where its order changes."""
    first = against(name, outcome("gru", 0, 0.01, 0.02), outcome("lstm", 0.2, 0.21, 0.22), **more)
    second = against(name, outcome("gru", 0.1, 0.11, 0.1), outcome("lstm", 0, 0.01, 0.02), **more)
    (line,) = table.joint_verdicts([first, second])
    lead, lag = first.behind["lstm"], second.behind["gru"]
    mean, margin = (lead.mean - lag.mean) / 2, np.hypot(lead.margin, lag.margin) / 2
    assert mean > 0
    expected = f"by {mean:.3f} nats ({mean - margin:.3f} to {mean + margin:.3f})"
    assert line == f"over 2 datasets: gru is better than lstm on test {expected}"
    assert line in table.as_text([first, second], [])
    assert not table.joint_verdicts([CLOSE, CLOSE])


def test_valid_and_test_are_not_judged_together():
    """Guards against the mean of a split on which choices were made and of one on which not."""
    test = against("lstm", *CLOSE.outcomes)
    outcomes = [replace(o, nats={"valid": o.nats["test"]}) for o in test.outcomes]
    valid = replace(test, lengths={"valid": LENGTHS}, baselines={}, outcomes=outcomes)
    assert len(table.joint_verdicts([test, test])) == 2
    assert not table.joint_verdicts([test, valid])


def some(seed, pieces=60, gap=0.0, of_seeds=0.0, seeds=3):
    """Nats of two models, the second worse by `gap`, on pieces that differ far more."""
    random = np.random.default_rng(seed)
    lengths = random.integers(5, 200, pieces)
    nats = random.normal(8, 2, pieces) + random.normal(0, 0.1, (2, seeds, pieces))
    nats = nats + random.normal(0, of_seeds, (2, seeds, 1)) + np.array([0, gap])[:, None, None]
    return nats * lengths, lengths


@pytest.mark.parametrize(
    ("models", "freedom", "expected"),
    [(2, 1, 12.7062), (2, 4, 2.77645), (3, 6, 3.06827), (9, 9, 3.95606), (5, 1e6, 2.72777)],
)
def test_quantiles_are_those_of_student_and_tukey(models, freedom, expected):
    """Against scipy.stats.t.ppf(0.975, 4) and studentized_range.ppf(0.95, 9, 9) / sqrt(2)."""
    assert quantile(models, freedom, 0.05) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "runs",
    [
        Runs(2, 2, 30, LIKELY),
        Runs(2, 3, 30, 0.2, unequal=5),
        Runs(3, 2, 6, 0.2),
        Runs(9, 5, 6, 0.0),
        Runs(9, 3, 30, LIKELY, unequal=5),
    ],
)
def test_equal_models_are_told_apart_one_time_in_twenty_at_most(runs):
    """Guards against verdicts on the luck of a seed, of a few pieces, or of the best of many."""
    assert rate(runs, 400, all_pairs=True) < 0.05 + 2.5 * (0.05 * 0.95 / 400) ** 0.5


def test_several_datasets_tell_apart_what_one_cannot():
    """Guards against margins that are added up, and against false verdicts of their mean."""
    runs = Runs(3, 3, 30, LIKELY)
    one, four = (joint_rate(runs, datasets, 150, gap=0.1) for datasets in (1, 4))
    assert one < 0.5
    assert four > 0.8


def test_a_difference_is_found_and_more_seeds_narrow_the_interval():
    """Guards against caution without end, and draws that take one seed of several."""
    assert rate(Runs(3, 3, 77, LIKELY), 200, gap=0.2) > 0.9
    widths = [
        np.median([behind_the_first(*some(k, of_seeds=0.1, seeds=n))[0].margin for k in range(60)])
        for n in (3, 6, 12)
    ]
    assert widths[0] > 1.5 * widths[1] > 1.5 * 1.3 * widths[2]


def test_the_figure_is_of_frames_and_the_margin_of_paired_pieces():
    """Recomputed for seeds that agree: the jackknife of a ratio, piece left out by piece."""
    nats, lengths = some(1, pieces=40, gap=0.05)
    nats = nats[:, :1].repeat(2, axis=1)
    found = behind_the_first(nats, lengths)[0]
    gaps = nats[1, 0] - nats[0, 0]
    assert found.mean == pytest.approx(gaps.sum() / lengths.sum())
    without = [np.delete(gaps, k).sum() / np.delete(lengths, k).sum() for k in range(40)]
    error = ((np.array(without) - found.mean) ** 2).sum() * 39 / 40
    squares = lengths.astype(float) ** 2
    freedom = squares.sum() ** 2 / (squares**2).sum() - 1
    expected = error**0.5 * quantile(2, np.floor(freedom * 10) / 10)
    assert found.margin == pytest.approx(expected, rel=1e-9)


def test_one_seed_or_a_handful_of_pieces_is_no_verdict():
    """However large the difference: one piece, or one seed, has no variance to compare it with."""
    for pieces, seeds in ((1, 3), (5, 3), (60, 1), (1, 1)):
        found = behind_the_first(*some(7, pieces, gap=1.0, seeds=seeds))[0]
        assert (found.conclusive, found.real) == (False, False)
        assert found.mean == pytest.approx(1, abs=0.3)
    assert behind_the_first(*some(7, 6, gap=1.0))[0].real
    nats, lengths = some(7, gap=1.0)
    one_diverged = behind_the_first([nats[0], nats[1, :1], nats[1]], lengths)
    assert [found.real for found in one_diverged] == [False, True]


def test_ten_thousand_pieces_take_little_memory():
    """The bootstrap of older versions took 2.4 GB."""
    nats, lengths = some(2, pieces=10_000)
    assert peak_of(lambda: behind_the_first(nats, lengths)) < 20e6
