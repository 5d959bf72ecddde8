"""Where processes meet: what the dead leave behind is found, and what they tore is mended."""

import json
import resource
import time
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from seqmodel.errors import SeqmodelError
from seqmodel.experiment.storage import JOURNAL, open_storage
from seqmodel.experiment.studies import WORKER, Study


def test_a_line_torn_by_a_kill_is_cut_off(tmp_path):
    """Without the cut the next line joins the torn one, and nobody can read the journal again."""
    study = optuna.create_study(study_name="a", storage=open_storage(tmp_path, None))
    study.set_user_attr("one", 1)
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"op_code": 2, "worker')
    again = optuna.load_study(study_name="a", storage=open_storage(tmp_path, None))
    again.set_user_attr("two", 2)
    last = optuna.load_study(study_name="a", storage=open_storage(tmp_path, None))
    assert last.user_attrs == {"one": 1, "two": 2}


def test_a_journal_that_is_none_is_told_in_a_line(tmp_path):
    (tmp_path / JOURNAL).write_text("no journal\nat all\n")
    with pytest.raises(SeqmodelError) as caught:
        open_storage(tmp_path, None)
    assert str(caught.value) == (
        f"{tmp_path / JOURNAL} is damaged (line 1): move {tmp_path} away to start again"
    )


def test_a_line_that_was_changed_is_named(tmp_path, kept):
    figure = next(k for k, line in enumerate(kept) if b"8.5" in line)
    kept[figure] = kept[figure].replace(b"8.5", b"8.1")
    assert f"is damaged (line {figure + 1})" in read(tmp_path, b"".join(kept))


@pytest.fixture
def kept(tmp_path):
    """The lines of a journal with one trial, whose figure is 8.5."""
    study = optuna.create_study(study_name="a", storage=open_storage(tmp_path, None))
    study.tell(study.ask({"x": optuna.distributions.FloatDistribution(0, 1)}), 8.5)
    return (tmp_path / JOURNAL).read_bytes().splitlines(keepends=True)


def read(folder, content):
    """The figures in a journal of this content, or the error."""
    (folder / JOURNAL).write_bytes(content)
    try:
        study = optuna.load_study(study_name="a", storage=open_storage(folder, None))
    except SeqmodelError as error:
        return str(error)
    return [trial.value for trial in study.trials]


def test_every_flipped_byte_of_a_journal_is_noticed(tmp_path, kept):
    """A figure that reads 8.1 for 8.5 makes another unit the winner.

    Only a last line may be as if it had never been written, which is what a kill leaves.
    """
    whole = b"".join(kept)
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << at % 8
        found = read(tmp_path, flipped)
        last = at >= len(whole) - len(kept[-1]) - 1  # or the end of the one before
        assert "is damaged (line " in found or found == [8.5] or (last and found == [None])


@pytest.mark.parametrize("lost", range(1, 5))
def test_a_journal_that_lacks_a_line_is_told_in_a_line_or_has_less(tmp_path, kept, lost):
    found = read(tmp_path, b"".join(kept[:lost] + kept[lost + 1 :]))
    assert "is damaged (Optuna cannot read it)" in found or found in ([], [None], [8.5])


def test_a_journal_of_a_version_without_checksums_is_read(tmp_path):
    study = optuna.create_study(study_name="a", storage=open_storage(tmp_path, None))
    study.set_user_attr("one", 1)
    lines = [json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines()]
    assert all(line.pop("checksum") for line in lines)
    (tmp_path / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    again = optuna.load_study(study_name="a", storage=open_storage(tmp_path, None))
    assert again.user_attrs == {"one": 1}


def test_a_disk_that_fills_is_told_in_a_line_and_the_journal_goes_on(tmp_path):
    """Optuna's own error came as a traceback."""
    study = optuna.create_study(study_name="a", storage=open_storage(tmp_path, None))
    size = (tmp_path / JOURNAL).stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 7, before[1]))
    try:
        with pytest.raises(SeqmodelError) as caught:
            study.set_user_attr("one", 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(caught.value) == f"cannot write {tmp_path / JOURNAL}: file too large"
    study.set_user_attr("two", 2)
    again = optuna.load_study(study_name="a", storage=open_storage(tmp_path, None))
    assert again.user_attrs == {"two": 2}


@pytest.fixture
def study(tmp_path):
    inner = optuna.create_study(study_name="a", storage=open_storage(tmp_path, None))
    return Study(inner, 3)


def begin(study, worker=None):
    """A trial that runs in a process of this name."""
    trial = study._study.ask()
    if worker is not None:
        trial.set_user_attr(WORKER, worker)
    return trial


def test_what_a_dead_process_left_is_queued_under_its_index(study):
    """Guards against a trial that is lost, run twice, or takes the place of another."""
    begin(study, "alive")
    begin(study, "dead")
    study.queue_what_was_left(lambda worker: worker == "dead")
    study.queue_what_was_left(lambda worker: worker == "dead")  # once is enough
    states = {k: trial.state for k, trial in study.indexed().items()}
    assert states == {0: TrialState.RUNNING, 1: TrialState.WAITING}
    assert study.waits()
    taken = begin(study, "alive")
    assert study.indexed()[1].number == taken.number
    begin(study, "alive")
    assert list(study.indexed()) == [0, 1, 2]
    assert not study.waits()
    begin(study, "alive")  # two took the last at once
    assert list(study.indexed()) == [0, 1, 2]
    study._study.tell(taken, 1.0)
    assert (study.done(), study.complete()) == (1, False)


def test_a_trial_just_begun_is_nobodys_for_a_while(study, monkeypatch):
    """It has no time to say whose it is; later on its process must have died."""
    begin(study)
    study.queue_what_was_left(lambda worker: True)
    assert study.indexed()[0].state == TrialState.RUNNING
    monkeypatch.setattr("seqmodel.experiment.studies.GRACE", -1)
    study.queue_what_was_left(lambda worker: True)
    assert study.indexed()[0].state == TrialState.WAITING


def test_the_first_of_equals_wins_and_a_pruned_one_never(study):
    for value in (2.0, 1.0, 1.0):
        study._study.tell(begin(study), value)
    index, trial = study.winner()
    assert (index, trial.value) == (1, 1.0)
    other = Study(optuna.create_study(), 1)
    other._study.tell(begin(other), state=TrialState.PRUNED)
    assert other.complete()
    assert other.winner() is None


def test_a_database_that_is_not_there_is_told_in_a_line(tmp_path: Path):
    with pytest.raises(SeqmodelError) as caught:
        open_storage(tmp_path, "sqlite:////nowhere/at/all.db")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("--storage sqlite:////nowhere/at/all.db cannot be used: ")


def test_a_host_that_gives_no_sign_of_life_loses_its_trial(tmp_path, monkeypatch):
    """In a database nobody sees the locks of another host, and the dead one may never come back."""
    monkeypatch.setattr("seqmodel.experiment.storage.HEARTBEAT", 1)
    monkeypatch.setattr("seqmodel.experiment.storage.GRACE", 1)
    storage = open_storage(tmp_path, f"sqlite:///{tmp_path}/database")
    study = Study(optuna.create_study(study_name="a", storage=storage), 1)
    with pytest.warns(UserWarning, match="Heartbeat"):  # without optimize it does not beat
        lost = begin(study, "elsewhere")
    storage.record_heartbeat(lost._trial_id)
    study.queue_what_was_left(lambda worker: False)
    assert not study.waits()
    time.sleep(2.1)  # the database counts whole seconds
    study.queue_what_was_left(lambda worker: False)
    assert {k: trial.state for k, trial in study.indexed().items()} == {0: TrialState.WAITING}
