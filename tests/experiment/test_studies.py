"""Studies: which trials are finals, who wins, and the progress that `--status` tells."""

from pathlib import Path

import pytest
from optuna.trial import TrialState

from seqmodel.experiment.plan import Plan, Source, variants_of
from seqmodel.experiment.processes import lock_of, new_name
from seqmodel.experiment.progress import Counts
from seqmodel.experiment.status import status_of
from seqmodel.experiment.storage import open_storage
from seqmodel.experiment.studies import SIZE, WORKER, Studies
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
            study._study.tell(study._study.ask(), state=TrialState.PRUNED)
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


def test_the_status_names_finals_by_their_trials(studies, tmp_path):
    """Guards against the times of looks taken for those of whole runs, and lost figures."""
    (cell,) = studies.plan.cells()
    trials, finals = studies.trials(cell), studies.finals(cell)
    for value in (5.0, 3.0, 6.0, 4.0, 2.0):
        trial = trials._study.ask()
        trial.set_user_attr(SIZE, 0.1)
        trials._study.tell(trial, value)
    worker = new_name(tmp_path)
    lock_of(tmp_path, worker).parent.mkdir(exist_ok=True)
    with held(lock_of(tmp_path, worker), wait=True):
        trial = finals._study.ask()
        trial.set_user_attr(WORKER, worker)
        trial.set_user_attr(SIZE, 0.9)
        trial.report(1.75, 21)
        status = status_of(studies, tmp_path)
    (running,) = status.running
    assert (running.run, running.valid, running.size) == ("tiny/gru/final-4", 1.75, 0.9)
    assert (status.cells[0].valid, status.done, status.total) == (2.0, 5, 9)
