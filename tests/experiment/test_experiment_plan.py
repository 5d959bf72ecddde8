"""Plans: what follows from them, and what makes two of them different experiments."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
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
from seqmodel.experiment.search import paper_rates


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
