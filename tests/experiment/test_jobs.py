"""The processes of an experiment: how many fit, and what becomes of those that are killed."""

import os
import signal
from multiprocessing import forkserver
from pathlib import Path

import pytest

from seqmodel.errors import SeqmodelError
from seqmodel.experiment import jobs
from seqmodel.experiment.folder import Event
from seqmodel.experiment.jobs import Task, work
from seqmodel.experiment.plan import Plan, sources_of, variants_of
from seqmodel.experiment.studies import EPOCHS, Studies, open_storage
from seqmodel.training.stopping import StopRequest


@pytest.fixture
def task(dataset, tmp_path):
    """Two runs of one unit, whose epochs take a while."""
    settings = {"model": "frame-wise", "hidden": 400, "epochs": 2, "batch_size": 1, "end": False}
    sources = sources_of([dataset.folder])
    plan = Plan(sources, variants_of(["gru"], []), settings, "none", trials=1, seeds=2)
    Studies.begin(open_storage(tmp_path / "e", None), "e", plan)
    return Task(tmp_path / "e", plan, None)


def killer(task, times, killed):
    """Takes events, and kills the process at work as a run begins, as often as `times`."""

    def take(event):
        if event.ended is None and event.epoch == 0 and len(killed) < times:
            locks = [path for path in (task.folder / "locks").iterdir() if len(path.name) == 32]
            held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
            for lock in locks:
                for words in held:
                    if words[5].endswith(f":{lock.stat().st_ino}"):
                        killed.append(int(words[4]))
                        os.kill(killed[-1], signal.SIGKILL)

    return take


def run(task, take):
    """Do all of it with one process; returns the names of the runs that ended."""
    ended: list[str] = []

    def report(event):
        take(event)
        ended.extend([event.run.rpartition("/")[2]] if event.ended is not None else [])

    work(task, 1, 3, report=report, say=lambda line: None, stop=StopRequest())
    return ended


def test_a_killed_process_is_replaced(task):
    """It used to be missed to the end, and nobody was left if it was the only one."""
    killed: list[int] = []
    assert run(task, killer(task, 2, killed)) == ["trial-0", "seed-0", "seed-1"]
    assert len(killed) == 2
    # What `--status` tells of runs on other hosts.
    studies = Studies.begun(open_storage(task.folder, None), "e")
    trials = studies.trials(studies.plan.cells()[0]).indexed().values()
    assert {trial.user_attrs[EPOCHS] for trial in trials} == {2}


def test_processes_outlive_their_server(task):
    """The command used to end with "every process ended by status 255", though they had not."""

    def kill(event):
        if event.run.endswith("trial-0") and event.ended is not None:
            os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)

    assert run(task, kill) == ["trial-0", "seed-0", "seed-1"]


def test_one_that_is_killed_again_and_again_ends_the_experiment(task):
    """Guards against an experiment that starts processes for ever where memory is short."""
    with pytest.raises(SeqmodelError) as caught:
        run(task, killer(task, 9, []))
    assert str(caught.value) == (
        "tiny/gru/trial-0 was killed 3 times in epoch 1 (by SIGKILL): run the same command to "
        "resume, with fewer --jobs if memory is short"
    )


def test_as_many_start_as_memory_holds(monkeypatch):
    """Guards against 16 processes of 1.2 GB each on a machine with 8 GB."""
    said: list[str] = []
    monkeypatch.setattr(jobs, "cores", lambda: 16)
    monkeypatch.setattr(jobs, "available_memory", lambda: int(8e9))
    room = jobs._Room(None, 99, said.append)
    others: list[Event | None] = []
    while room.for_another(others):
        others.append(None)
    assert len(others) == 3  # 2 GiB each, before any is known
    big = Event("a/b/trial-0", 1, 2, None, memory=int(1.2e9))
    room.largest = big.memory
    free = [8e9]
    monkeypatch.setattr(jobs, "available_memory", lambda: int(free[0]))
    others = [big]
    while room.for_another(others):
        others.append(big)
        free[0] -= 1.2e9
    assert len(others) == 6
    assert said == [
        "6 of 16 processes, because each takes 1.5 GB of memory and 0.2 GB is left (override with "
        "--jobs)"
    ]
    assert jobs._Room(16, 99, said.append).for_another([big] * 15)
    assert not jobs._Room(16, 7, said.append).for_another([big] * 7)
