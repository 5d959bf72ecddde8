"""The processes of an experiment: how many fit, and what becomes of those that are killed."""

import os
import signal
from multiprocessing import forkserver
from unittest.mock import Mock

import pytest
from refusals import refused

from seqmodel.experiment import jobs
from seqmodel.experiment.folder import Event
from seqmodel.experiment.jobs import Task, Worker, _process, work
from seqmodel.experiment.plan import Plan, sources_of, variants_of
from seqmodel.experiment.studies import ENDED, EPOCHS, SCORES, Studies, open_storage
from seqmodel.training.stopping import InterruptError, StopRequest

KILLS = "kills"


@pytest.fixture
def task(dataset, tmp_path):
    """Two runs of one unit, whose epochs take a while."""
    settings = {"model": "frame-wise", "hidden": 400, "epochs": 2, "batch_size": 1, "end": False}
    sources = sources_of([dataset.folder])
    plan = Plan(sources, variants_of(["gru"], []), settings, "none", trials=1, seeds=2)
    Studies.begin(open_storage(tmp_path / "e", None), "e", plan)
    return Task(tmp_path / "e", plan, None)


def dying(task, pipe):
    """The work of a process that is killed as its first run begins, while the task's kills last."""
    kills = task.folder / KILLS

    def publish(worker, event, publish=Worker._publish):
        publish(worker, event)
        if left := int(kills.read_text()):
            kills.write_text(str(left - 1))
            os.kill(os.getpid(), signal.SIGKILL)

    Worker._publish = publish
    _process(task, pipe)


@pytest.fixture
def kills(task, monkeypatch):
    """The file of how many more processes are killed."""
    monkeypatch.setattr(jobs, "_process", dying)
    return task.folder / KILLS


def run(task, take=lambda event: None):
    """Do all of it with one process; returns the names of the runs that ended."""
    ended: list[str] = []

    def report(event):
        take(event)
        ended.extend([event.run.rpartition("/")[2]] if event.ended is not None else [])

    work(task, 1, 3, report=report, say=lambda line: None, stop=StopRequest())
    return ended


def test_a_killed_process_is_replaced_and_all_outlive_their_server(task, kills):
    """Guards against nobody left, and against "status 255" of processes that had not ended."""
    kills.write_text("2")

    def take(event):
        if event.run.endswith("trial-0") and event.ended is not None:
            os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)

    assert run(task, take) == ["trial-0", "seed-0", "seed-1"]
    assert kills.read_text() == "0"
    # What `--status` tells of runs on other hosts.
    studies = Studies.load(open_storage(task.folder, None), "e")
    trials = studies.trials(studies.plan.cells()[0]).runs()
    assert {trial.user_attrs[EPOCHS] for trial in trials} == {2}


def test_one_that_is_killed_again_and_again_ends_the_experiment(task, kills):
    """Guards against an experiment that starts processes for ever where memory is short."""
    kills.write_text("9")
    says = "tiny/gru/trial-0 was killed 3 times in epoch 1 (by SIGKILL): run the same command"
    refused(lambda: run(task), says, "fewer --jobs")
    assert kills.read_text() == "6"


def test_a_stop_does_not_wait_until_a_winner_is_scored(task, monkeypatch):
    """Ctrl-C used to take as long as scoring all of train: seconds, or minutes."""
    stop, load = StopRequest(), jobs.load_run

    def stopped_then(folder):
        stop.signal = signal.SIGINT
        return load(folder)

    monkeypatch.setattr(jobs, "load_run", stopped_then)
    studies = Studies.load(open_storage(task.folder, None), "e")
    with pytest.raises(InterruptError):
        Worker(studies, task.folder, stop=stop).work()
    (seed, *_) = studies.seeds(studies.plan.cells()[0]).runs()
    assert (seed.user_attrs[ENDED], SCORES in seed.user_attrs) == ("complete", False)


def test_as_many_start_as_memory_holds(monkeypatch):
    """Guards against 16 processes of 1.2 GB each on a machine with 8 GB."""
    said: list[str] = []
    free = [8e9]
    monkeypatch.setattr(jobs, "cores", lambda: 16)
    monkeypatch.setattr(jobs, "available_memory", lambda: int(free[0]))
    pool = jobs._Pool(Mock(), None, 99, Mock(), said.append)
    others: list[Event | None] = []
    while pool.can_start(others):
        others.append(None)
    assert len(others) == 3  # 2 GiB each, before any is known
    big = Event("a/b/trial-0", 1, 2, None, memory=int(1.2e9))
    pool.largest = big.memory
    others = [big]
    while pool.can_start(others):
        others.append(big)
        free[0] -= 1.2e9
    assert len(others) == 6
    (line,) = said
    assert line.startswith("6 of 16 processes, because each takes 1.5 GB of memory and 0.2 GB is ")
    assert jobs._Pool(Mock(), 16, 99, Mock(), Mock()).can_start([big] * 15)
    assert not jobs._Pool(Mock(), 16, 7, Mock(), Mock()).can_start([big] * 7)
