"""Studies and their storage: which trials begin, who wins, what is told, what is repaired."""

import json
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from refusals import refused
from sqlalchemy import exc
from test_files import full_disk

from seqmodel.errors import SeqmodelError
from seqmodel.experiment.folder import (
    JOURNAL,
    Counts,
    Event,
    is_dead,
    lock_of,
    new_name,
    read_event,
    seconds_left,
    write_event,
)
from seqmodel.experiment.plan import Plan, Source, variants_of
from seqmodel.experiment.studies import (
    ENDED,
    EPOCHS,
    WORKER,
    Studies,
    Study,
    name_in,
    open_storage,
    status_of,
)
from seqmodel.files import held_lock


@pytest.fixture
def studies(tmp_path):
    """Five trials and two seeds of one unit."""
    sources = (Source("tiny", "/tiny", "0"),)
    plan = Plan(sources, variants_of(["gru"], []), {}, "tpe", trials=5, seeds=2)
    return Studies.begin(open_storage(tmp_path, None), "e", plan)


def tell(study, *values):
    """End a trial with each of the figures; None if it diverged at once."""
    for value in values:
        trial = study.optuna.ask()
        if value is None:
            trial.set_user_attr(ENDED, "diverged in epoch 1")
        study.optuna.tell(trial, value, TrialState.PRUNED if value is None else None)


@pytest.mark.parametrize(
    ("figures", "winner"), [([None, 2.0, 1.0, 1.0, 3.0], 2), ([None] * 5, None)]
)
def test_the_first_of_equals_wins_and_a_diverged_one_never_does(studies, figures, winner):
    """Guards against an experiment that waits for seeds of nothing."""
    (cell,) = studies.plan.cells()
    tell(studies.trials(cell), *figures[:4])
    assert not studies.trials(cell).complete()
    tell(studies.trials(cell), figures[4])
    assert studies.winner(cell) == winner
    assert studies.complete() == (winner is None)


def test_a_search_grows_and_its_seeds_stay_where_they_belong(studies, tmp_path):
    """Guards against runs of a former winner that count for the new one."""
    (cell,) = studies.plan.cells()
    tell(studies.trials(cell), 5.0, None, 6.0, 4.0, 2.0)
    assert (studies.trials(cell).complete(), studies.winner(cell)) == (True, 4)
    tell(studies.seeds(cell), 1.0, 1.1)
    surplus = studies.trials(cell).optuna.ask()  # as older versions ended those
    studies.trials(cell).optuna.tell(surplus, state=TrialState.PRUNED)
    assert studies.complete()
    storage = open_storage(tmp_path, None)
    grown = Studies.begin(storage, "e", replace(studies.plan, trials=8))
    assert grown.counts(cell) == Counts(8, 5, 2, 0)
    tell(grown.trials(cell), 1.0, 7.0, 8.0)
    assert grown.winner(cell) == 5
    assert (grown.seeds(cell).done(), grown.run_of_seed(cell, 1)) == (0, "trial-5-seed-1")
    tell(grown.seeds(cell), 0.5, 0.7)
    assert grown.complete()
    fewer = Studies.begin(open_storage(tmp_path, None), "e", replace(studies.plan, seeds=1))
    assert fewer.plan == grown.plan
    more = Studies.begin(storage, "e", replace(grown.plan, seeds=4))
    assert more.counts(cell) == Counts(8, 8, 4, 2)
    assert [more.run_of_seed(cell, k) for k in (0, 3)] == ["trial-5", "trial-5-seed-3"]


def test_a_trial_that_may_not_begin_yet_keeps_its_place(studies, tmp_path):
    """Two processes that take the last free place at once begin one too many of a bracket."""
    plan = replace(studies.plan, search="bracket")
    trials = Studies.begin(open_storage(tmp_path, None), "b", plan).trials(plan.cells()[0])
    tell(trials, 3.0, 2.0)
    last = trials.optuna.ask()
    assert (trials.has_unclaimed(), trials.done()) == (False, 2)
    trials.run_next(lambda trial, index: pytest.fail("it may not begin"))
    assert not trials.has_unclaimed()
    trials.optuna.tell(last, 4.0)
    assert trials.has_unclaimed()
    assert trials.runs()[3].state == TrialState.WAITING
    begun = []
    for _ in range(2):
        trials.run_next(lambda trial, index: begun.append(index) or 1.0)
    assert (begun, trials.complete()) == ([3, 4], True)


def test_an_experiment_with_pruning_is_not_continued(studies, tmp_path):
    """Guards against looks of an older version that count as whole trials."""
    study = optuna.load_study(study_name="e", storage=studies.storage)
    for finals in (0, 2):
        study.set_user_attr("plan", json.dumps({**studies.plan.to_json(), "finals": finals}))
        if not finals:
            assert Studies.load(open_storage(tmp_path, None), "e").plan == studies.plan
    with pytest.raises(SeqmodelError, match="is damaged or from another version"):
        Studies.load(open_storage(tmp_path, None), "e")


def test_the_folder_here_has_its_own_name(tmp_path, monkeypatch):
    """In a database, where every folder given as "." used to be the same nameless experiment."""
    monkeypatch.chdir(tmp_path)
    assert name_in(open_storage(tmp_path, None), Path(), "sqlite://") == tmp_path.name


def test_the_status_tells_what_is_trained(studies, tmp_path, monkeypatch):
    """Guards against figures that are lost, and time for what is trained already."""
    monkeypatch.setattr("seqmodel.experiment.studies.seconds_left", lambda left, *_: left)
    trials = studies.trials(studies.plan.cells()[0])
    tell(trials, 5.0, 2.0, 6.0, 4.0)
    worker = new_name(tmp_path)
    lock = lock_of(tmp_path, worker)
    lock.parent.mkdir(exist_ok=True)
    with held_lock(lock, wait=True):
        trial = trials.optuna.ask()
        trial.set_user_attr(WORKER, worker)
        trial.report(1.75, 84)
        trial.set_user_attr(EPOCHS, 20.5)
        (unheard,) = status_of(studies, tmp_path)["running"]  # as of another host's run
        write_event(lock, Event("tiny/gru/trial-4", 21, 40, 1.75, begun=10))
        status = status_of(studies, tmp_path)
    (running,) = status["running"]
    assert unheard["epoch"] == 20.5
    assert [running[name] for name in ("run", "epoch", "epochs")] == ["tiny/gru/trial-4", 21, 40]
    assert running["best_valid_nats_per_frame"] == 1.75
    assert status["seconds_left"] == pytest.approx(2 - 21 / 40)
    (told,) = status["cells"]
    assert (told["best_valid_nats_per_frame"], status["done"], status["runs"]) == (2.0, 4, 6)
    assert status_of(studies, tmp_path)["running"] == []  # its process no longer holds the lock


def test_a_process_that_worked_in_a_moved_folder_is_dead(studies, tmp_path):
    """Otherwise an experiment killed and then moved or copied would wait for it for ever."""
    (cell,) = studies.plan.cells()
    trial = studies.trials(cell).optuna.ask()
    trial.set_user_attr(WORKER, new_name(Path("/elsewhere")))
    assert is_dead(tmp_path, trial.user_attrs[WORKER])
    assert not (tmp_path / "locks").exists()  # to ask leaves nothing behind
    studies.trials(cell).requeue_abandoned(lambda worker: is_dead(tmp_path, worker))
    assert studies.trials(cell).runs()[0].state == TrialState.WAITING


def test_a_trial_that_another_host_took_over_is_left_to_it(studies):
    """Our host had lost the database for longer than others wait; its own figure is not stored."""
    (cell,) = studies.plan.cells()
    trials = studies.trials(cell)

    def taken_over(trial, index):
        trials.optuna.tell(trial.number, state=TrialState.FAIL)
        if index == 1:
            trial.report(1.0, 1)
        return 1.0

    for _ in range(2):
        trials.run_next(taken_over)
    assert [t.state for t in trials.runs()] == [TrialState.FAIL] * 2
    with pytest.raises(ValueError, match="a fault of ours"):
        trials.run_next(Mock(side_effect=ValueError("a fault of ours")))


# ---- progress ------------------------------------------------------------------------------------


def test_the_time_left_follows_from_the_pace_so_far():
    """Guards against one that promises the winner's run once more, or runs trained long before."""
    runs = [Counts(4, 1, 3, 0), Counts(4, 4, 3, 0), Counts(4, 4, 3, 1), Counts(4, 4, 0, 0)]
    # The winner's first seed is a trial: once counted as a run, it still has to be scored.
    assert [(c.done, c.total) for c in runs] == [(1, 6), (4, 6), (4, 6), (4, 4)]
    assert [c.processes for c in (*runs, Counts(4, 4, 1, 0))] == [5, 2, 2, 0, 1]
    assert seconds_left(left=3.0, gained=1.5, spent=60.0, processes=2) == 60.0
    assert seconds_left(left=3.0, gained=0.0, spent=60.0, processes=2) is None
    assert seconds_left(left=3.0, gained=1.0, spent=60.0, processes=0) is None
    event = Event("a/b/trial-0", 9, 10, 1.0, share=0.5, begun=9)
    assert (event.done, event.gained) == (pytest.approx(0.95), pytest.approx(0.05))
    ended = Event("a/b/trial-0", 9, 10, 1.0, ended="no better for 3 epochs", begun=8)
    assert ended.gained == pytest.approx(0.2)


def test_the_last_event_is_read_from_the_file(tmp_path):
    """Guards against the tail of a longer event left after a shorter one."""
    path = tmp_path / "lock"
    path.touch()
    assert read_event(path) is None
    long = Event(f"{'音楽' * 40}/gru/trial-10", 10, 100, 10.123456789012345, None, 0.123456, 7)
    short = Event("a/b/seed-1", 0, 1, None)
    for event in (long, short, long):
        write_event(path, event)
        assert read_event(path) == event
    path.write_bytes(path.read_bytes()[:40])
    assert read_event(path) is None
    gone = tmp_path / "gone" / "lock"  # somebody cleared the folder
    write_event(gone, short)
    assert read_event(gone) is None


def begun(folder):
    """A study in the journal of a folder, new or as it is there."""
    storage = open_storage(folder, None)
    return optuna.create_study(study_name="a", storage=storage, load_if_exists=True)


def test_a_line_torn_by_a_kill_is_cut_off(tmp_path):
    """Otherwise the next line would join the torn one, and the journal would be unreadable."""
    study = begun(tmp_path)
    study.set_user_attr("one", 1)
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"op_code": 2, "worker')
    begun(tmp_path).set_user_attr("two", 2)
    assert begun(tmp_path).user_attrs == {"one": 1, "two": 2}


@pytest.fixture
def kept(tmp_path):
    """The lines of a journal with one trial, whose figure is 8.5."""
    study = begun(tmp_path)
    study.tell(study.ask({"x": optuna.distributions.FloatDistribution(0, 1)}), 8.5)
    return (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)


def read(folder, content):
    """The figures in a journal with this content, or the error."""
    (folder / JOURNAL).write_bytes(content)
    try:
        return [trial.value for trial in begun(folder).trials]
    except SeqmodelError as error:
        return str(error)


def test_every_flipped_byte_of_a_journal_is_noticed(tmp_path, kept):
    """A figure read as 8.1 instead of 8.5 would make another unit the winner."""
    whole = b"".join(kept)
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << at % 8
        found = read(tmp_path, flipped)
        last = at >= len(whole) - len(kept[-1]) - 1  # or the end of the one before
        line = whole[:at].count(b"\n") + 1
        told = isinstance(found, str) and f"is damaged (line {line}): move" in found
        assert told or found == [8.5] or (last and found == [None])


def test_a_journal_of_a_version_without_checksums_is_read(tmp_path):
    begun(tmp_path).set_user_attr("one", 1)
    lines = [json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines()]
    assert all(line.pop("checksum") for line in lines)
    (tmp_path / JOURNAL).write_text(
        "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    )
    assert begun(tmp_path).user_attrs == {"one": 1}


def test_a_full_disk_is_a_one_line_error_and_the_journal_stays_usable(tmp_path):
    """Optuna's own error used to end in a traceback."""
    study = begun(tmp_path)
    size = (tmp_path / JOURNAL).stat().st_size
    with full_disk(size + 7):
        says = f"cannot write {tmp_path / JOURNAL}: file too large"
        refused(lambda: study.set_user_attr("one", 1), says)
    study.set_user_attr("two", 2)
    assert begun(tmp_path).user_attrs == {"two": 2}


@pytest.fixture
def study(tmp_path):
    return Study("trial", begun(tmp_path), 3)


def begin(study, worker=None):
    """A trial that runs in the process of this name."""
    trial = study.optuna.ask()
    if worker is not None:
        trial.set_user_attr(WORKER, worker)
    return trial


def test_the_trial_of_a_dead_process_is_queued_under_its_index(study):
    """Guards against a trial that is lost, runs twice, or takes the place of another."""
    begin(study, "alive")
    begin(study, "dead")
    study.requeue_abandoned(lambda worker: worker == "dead")
    study.requeue_abandoned(lambda worker: worker == "dead")  # the second call changes nothing
    states = {k: trial.state for k, trial in enumerate(study.runs())}
    assert states == {0: TrialState.RUNNING, 1: TrialState.WAITING}
    assert study.has_unclaimed()
    taken = begin(study, "alive")
    assert study.runs()[1].number == taken.number
    begin(study, "alive")
    assert len(study.runs()) == 3
    assert not study.has_unclaimed()
    begin(study, "alive")  # two processes took the last one at once
    assert len(study.runs()) == 3
    study.optuna.tell(taken, 1.0)
    assert (study.done(), study.complete()) == (1, False)


def test_a_trial_may_stay_unclaimed_for_a_while(study, monkeypatch):
    """Its process has had no time to claim it; later, that process must have died."""
    begin(study)
    study.requeue_abandoned(lambda worker: True)
    assert study.runs()[0].state == TrialState.RUNNING
    monkeypatch.setattr("seqmodel.experiment.studies.GRACE", -1)
    study.requeue_abandoned(lambda worker: True)
    assert study.runs()[0].state == TrialState.WAITING


@pytest.mark.parametrize("kind", [exc.OperationalError, exc.ProgrammingError])
def test_tables_that_another_host_is_creating_are_waited_for(tmp_path, monkeypatch, kind):
    """Guards against one of two hosts that stops at once: databases report this differently."""
    error = kind("CREATE TABLE", None, Exception("table studies already exists"))
    really, attempts = RDBStorage.__init__, []

    def connect(self, *arguments, **options):
        attempts.append(arguments)
        if len(attempts) < 3:
            raise error
        really(self, *arguments, **options)

    monkeypatch.setattr(RDBStorage, "__init__", connect)
    storage = open_storage(tmp_path, f"sqlite:///{tmp_path}/database")
    assert len(attempts) == 3
    storage.engine.dispose()


def test_a_database_whose_creation_was_killed_is_completed(tmp_path):
    """SQLite commits each table by itself: without this index a second study took the name."""
    for killed in (True, False):
        storage = open_storage(tmp_path, f"sqlite:///{tmp_path}/database")
        with storage.engine.begin() as connection:
            if killed:
                connection.exec_driver_sql("DROP INDEX ix_studies_study_name")
        storage.engine.dispose()
    optuna.create_study(study_name="a", storage=storage)
    with pytest.raises(optuna.exceptions.DuplicatedStudyError):
        optuna.create_study(study_name="a", storage=storage)
    storage.engine.dispose()


def test_a_host_without_heartbeats_loses_its_trial(tmp_path, monkeypatch):
    """Locks are not visible across the hosts of a database, and a dead host may never return."""
    storage = open_storage(tmp_path, f"sqlite:///{tmp_path}/database")
    study = Study("trial", optuna.create_study(study_name="a", storage=storage), 1)
    with pytest.warns(UserWarning, match="Heartbeat"):  # heartbeats are only sent in optimize
        lost = begin(study, "elsewhere")
    storage.record_heartbeat(lost._trial_id)
    study.requeue_abandoned(lambda worker: False)
    assert not study.has_unclaimed()
    monkeypatch.setattr(storage, "grace_period", 1)
    time.sleep(2.1)  # the database counts whole seconds
    study.requeue_abandoned(lambda worker: False)
    assert {k: trial.state for k, trial in enumerate(study.runs())} == {0: TrialState.WAITING}
    storage.engine.dispose()  # Python 3.13 warns of a connection that is left open
