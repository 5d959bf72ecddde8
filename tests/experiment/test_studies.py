"""Studies: which trials are finals, who wins, and the progress that `--status` tells."""

from dataclasses import replace
from pathlib import Path

import pytest
from optuna.trial import TrialState

from seqmodel.experiment.folder import is_dead, lock_of, new_name
from seqmodel.experiment.plan import Plan, Source, variants_of
from seqmodel.experiment.progress import Counts, Event, write_event
from seqmodel.experiment.studies import ENDED, WORKER, Studies, name_in, open_storage, status_of
from seqmodel.locks import held


@pytest.fixture
def studies(tmp_path: Path) -> Studies:
    """Five trials, two finals and two seeds of one unit."""
    plan = Plan(
        sources=(Source("tiny", "/tiny", "0"),),
        variants=variants_of(["gru"], []),
        settings={},
        search="tpe",
        trials=5,
        seeds=2,
        finals=2,
    )
    return Studies.begin(open_storage(tmp_path, None), "e", plan)


def tell(study, *values):
    """End a trial with each of the figures; None if it diverged at once."""
    for value in values:
        if value is None:
            trial = study._study.ask()
            trial.set_user_attr(ENDED, "diverged in epoch 1")
            study._study.tell(trial, state=TrialState.PRUNED)
        else:
            study._study.tell(study._study.ask(), value)


def test_the_best_at_the_first_look_are_finals_and_the_best_of_these_wins(studies):
    """Guards against a winner named by its place among the finals."""
    (cell,) = studies.plan.cells()
    tell(studies.trials(cell), 5.0, 3.0, None, 4.0)
    assert studies.finalists(cell) == []
    tell(studies.trials(cell), 2.0)
    assert studies.finalists(cell) == [4, 1]
    assert not studies.searched(cell)
    tell(studies.finals(cell), 1.0, 1.5)
    assert studies.searched(cell)
    assert studies.winner(cell)[0] == 4
    assert studies.counts(cell) == Counts(5, 5, 2, 0, finals=2, finals_done=2)


@pytest.mark.parametrize(("figures", "finalists"), [([None, 3.0], [1]), ([None, None], [])])
def test_no_final_waits_for_a_trial_that_diverged(studies, figures, finalists):
    """Guards against an experiment that never ends, or an error in place of a result."""
    (cell,) = studies.plan.cells()
    tell(studies.trials(cell), *figures, None, None, None)
    assert studies.finalists(cell) == finalists
    assert studies.finals(cell).count == len(finalists)
    tell(studies.finals(cell), *[1.0] * len(finalists))
    assert studies.searched(cell)
    winner = studies.winner(cell)
    assert (winner and winner[0]) == (finalists[0] if finalists else None)


def test_a_search_grows_and_its_finals_and_seeds_stay_where_they_belong(studies, tmp_path):
    """Guards against runs of a former winner that count for the new one."""
    (cell,) = studies.plan.cells()
    tell(studies.trials(cell), 5.0, 3.0, 6.0, 4.0, 2.0)
    tell(studies.finals(cell), 1.0, 1.5)
    tell(studies.seeds(cell), 1.0, 1.1)
    surplus = studies.trials(cell)._study.ask()
    studies.trials(cell)._study.tell(surplus, state=TrialState.PRUNED)
    assert studies.complete()
    storage = open_storage(tmp_path, None)
    grown = Studies.begin(storage, "e", replace(studies.plan, trials=8, finals=3))
    assert not grown.complete()
    assert grown.counts(cell) == Counts(8, 5, 2, 0, finals=3, finals_done=2)
    assert not status_of(grown, tmp_path)["running"]  # used to be a traceback
    tell(grown.trials(cell), 1.0, 7.0, 8.0)
    assert grown.finalists(cell) == [4, 1, 5]
    tell(grown.finals(cell), 0.5)
    assert grown.winner(cell)[0] == 5
    assert (grown.seeds(cell).done(), grown.run_of_seed(cell, 1)) == (0, "trial-5-seed-1")
    tell(grown.seeds(cell), 0.5, 0.7)
    assert grown.complete()
    fewer = Studies.begin(open_storage(tmp_path, None), "e", replace(studies.plan, seeds=1))
    assert fewer.plan == grown.plan
    more = Studies.begin(storage, "e", replace(grown.plan, seeds=4))
    assert more.counts(cell) == Counts(8, 8, 4, 2, finals=3, finals_done=3)
    assert [more.run_of_seed(cell, k) for k in (0, 3)] == ["trial-5", "trial-5-seed-3"]


def test_the_folder_here_has_its_own_name(tmp_path, monkeypatch):
    """In a database, where every folder given as "." used to be the same nameless experiment."""
    monkeypatch.chdir(tmp_path)
    assert name_in(open_storage(tmp_path, None), Path(), "sqlite://") == tmp_path.name


def test_a_final_that_no_longer_leads_does_not_win(studies, tmp_path):
    """The table is as if all trials had been there from the start."""
    (cell,) = studies.plan.cells()
    tell(studies.trials(cell), 5.0, 3.0, 6.0, 4.0, 2.0)
    tell(studies.finals(cell), 1.0, 0.1)
    storage = open_storage(tmp_path, None)
    grown = Studies.begin(storage, "e", replace(studies.plan, trials=6))
    tell(grown.trials(cell), 1.0)
    assert grown.finalists(cell) == [4, 1, 5]
    tell(grown.finals(cell), 0.9)
    assert sorted(grown.finished(cell)) == [4, 5]
    assert grown.winner(cell)[0] == 5


def test_the_status_names_finals_by_their_trials(studies, tmp_path):
    """Guards against figures that are lost, and a time left that forgets the size of looks."""
    (cell,) = studies.plan.cells()
    trials, finals = studies.trials(cell), studies.finals(cell)
    tell(trials, 5.0, 3.0, 6.0, 4.0, 2.0)
    worker = new_name(tmp_path)
    lock = lock_of(tmp_path, worker)
    lock.parent.mkdir(exist_ok=True)
    with held(lock, wait=True):
        trial = finals._study.ask()
        trial.set_user_attr(WORKER, worker)
        trial.report(1.75, 21)
        write_event(lock, Event("tiny/gru/final-4", 21, 40, 1.75, begun=10))
        status = status_of(studies, tmp_path)
    (running,) = status["running"]
    assert [running[name] for name in ("run", "epoch", "epochs")] == ["tiny/gru/final-4", 21, 40]
    assert running["best_valid_nats_per_frame"] == 1.75
    (told,) = status["cells"]
    assert (told["best_valid_nats_per_frame"], status["done"], status["runs"]) == (2.0, 5, 9)
    assert status_of(studies, tmp_path)["running"] == []  # its process no longer holds the lock


def test_a_process_that_worked_in_a_moved_folder_is_dead(studies, tmp_path):
    """Otherwise an experiment killed and then moved or copied would wait for it for ever."""
    (cell,) = studies.plan.cells()
    trial = studies.trials(cell)._study.ask()
    trial.set_user_attr(WORKER, new_name(Path("/elsewhere")))
    assert is_dead(tmp_path, trial.user_attrs[WORKER])
    studies.trials(cell).queue_what_was_left(lambda worker: is_dead(tmp_path, worker))
    assert studies.trials(cell).indexed()[0].state == TrialState.WAITING


def test_a_trial_that_another_host_took_over_is_left_to_it(studies):
    """Our host had lost the database for longer than others wait; its own figure is not stored."""
    (cell,) = studies.plan.cells()
    trials = studies.trials(cell)

    def taken_over(trial, index):
        trials._study.tell(trial.number, state=TrialState.FAIL)
        if index == 1:
            trial.report(1.0, 1)
        return 1.0

    for _ in range(2):
        trials.run_next(taken_over)
    assert [t.state for t in trials.indexed().values()] == [TrialState.FAIL] * 2

    def wrong(trial, index):
        raise ValueError("a fault of ours")

    with pytest.raises(ValueError, match="a fault of ours"):
        trials.run_next(wrong)
