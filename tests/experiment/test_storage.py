"""The shared storage: trials of dead processes are found, and torn lines are repaired."""

import json
import resource
import time

import optuna
import pytest
from optuna.trial import TrialState
from refusals import refused

from seqmodel.errors import SeqmodelError
from seqmodel.experiment.folder import JOURNAL
from seqmodel.experiment.studies import WORKER, Study, open_storage


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


def test_a_file_that_is_no_journal_is_a_one_line_error(tmp_path):
    (tmp_path / JOURNAL).write_text("no journal\nat all\n")
    says = f"{tmp_path / JOURNAL} is damaged (line 1): move {tmp_path} away to start again"
    refused(lambda: open_storage(tmp_path, None), says)


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
        told = isinstance(found, str) and f"is damaged (line {line}" in found
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
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 7, before[1]))
    try:
        says = f"cannot write {tmp_path / JOURNAL}: file too large"
        refused(lambda: study.set_user_attr("one", 1), says)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
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
