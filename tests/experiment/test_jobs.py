"""The processes of an experiment, on one host or on several that share a database."""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from multiprocessing import forkserver
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import pytest
from calling import ENVIRONMENT, PATIENCE, call_ok, free_port, start, waited
from refusals import refused
from sqlalchemy import text
from sqlalchemy.exc import OperationalError, PendingRollbackError

from seqmodel.experiment import jobs
from seqmodel.experiment.database import retrying
from seqmodel.experiment.folder import Event
from seqmodel.experiment.jobs import Pool, Task, Worker, _process
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

    Pool(task, 1, 3, report=report, say=lambda line: None, stop=StopRequest()).run()
    return ended


def test_a_killed_process_is_replaced_and_all_outlive_their_server(task, kills):
    """Guards against nobody left, and against "status 255" of processes that had not ended."""
    kills.write_text("2")

    def take(event):
        if event.run.endswith("trial-0") and event.ended is not None:
            os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)

    assert run(task, take) == ["trial-0", "seed-0", "seed-1"]
    assert kills.read_text() == "0"
    assert [lock.name for lock in (task.folder / "locks").iterdir()] == ["queue"]
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


def exhausted(task, pipe):
    """The work of a process in which libraries lack memory."""

    def work(worker):
        raise RuntimeError("can't start new thread")

    Worker.work = work
    _process(task, pipe)


def test_a_process_without_memory_is_no_traceback(task, monkeypatch):
    """The command then advises fewer --jobs."""
    monkeypatch.setattr(jobs, "_process", exhausted)
    with pytest.raises(MemoryError):
        run(task)


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
    pool = Pool(Mock(), None, 99, report=Mock(), say=said.append, stop=Mock())
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
    assert line.startswith("using 6 of 16 processes, as each takes 1.5 GB of memory and 0.2 GB is ")
    rest = {"report": Mock(), "say": Mock(), "stop": Mock()}
    assert Pool(Mock(), 16, 99, **rest).can_start([big] * 15)
    assert not Pool(Mock(), 16, 7, **rest).can_start([big] * 7)


OPTIONS = ["--units", "tanh,gru", "--search", "paper", "--trials", "2", "--seeds", "2", "-q"]
for setting in ("model=frame-wise", "hidden=5", "epochs=3", "dropout=0", "batch_size=2"):
    OPTIONS += ["--set", setting]
TABLES = ("table.md", "table.csv", "table.tex")
PASSWORD = "se'cret"  # a quote is quoted in a command line
AWAY = re.compile(r"--storage postgresql://seqmodel\S*@\S+: .*; trying again for 10 minutes")


class Server(NamedTuple):
    """A PostgreSQL server that asks for a password."""

    port: int
    control: Callable[..., None]
    """Calls pg_ctl."""

    def address(self, password=""):
        return f"postgresql://seqmodel{password}@127.0.0.1:{self.port}/postgres"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Started for these tests."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("there is no PostgreSQL server here (initdb, pg_ctl)")
    pytest.importorskip("psycopg")
    user = None
    if os.getuid() == 0:  # the server refuses to run as root
        there = {entry.pw_name for entry in pwd.getpwall()}
        user = next((name for name in ("postgres", "nobody") if name in there), None)
        if user is None:
            pytest.skip("PostgreSQL does not run as root, and there is no other user")
    # Not under pytest's own folder, which other users cannot enter.
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True, user=user).strip())
    port = free_port()
    data, log = folder / "data", folder / "log"

    def run(*command):
        subprocess.run(command, user=user, check=True, cwd="/", stdout=subprocess.DEVNULL)

    given = subprocess.run(["mktemp"], text=True, user=user, capture_output=True, check=True)
    subprocess.run(["tee", given.stdout.strip()], input=PASSWORD, text=True, user=user, check=True)
    initial = ["initdb", "-D", data, "-U", "seqmodel", "--no-sync", "-A", "scram-sha-256"]
    run(*initial, f"--pwfile={given.stdout.strip()}")
    listen = f"-c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -p {port} -F"
    control = ["pg_ctl", "-D", data, "-l", log, "-o", listen, "-w"]
    run(*control, "start")
    yield Server(port, lambda *words: run(*control, *words))
    run(*control, "-m", "immediate", "stop")
    shutil.rmtree(folder)


def begin(data, out, options, environment=None):
    """Start the command in its own process group; its messages go to a log next to `out`."""
    out.parent.mkdir(exist_ok=True)
    with Path(f"{out}.log").open("a") as file:
        streams = {"stdout": subprocess.DEVNULL, "stderr": file, "start_new_session": True}
        env = {**ENVIRONMENT, **(environment or {})}
        return start("compare", data, *options, "--out", out, env=env, **streams)


@pytest.mark.usefixtures("no_pages")  # of the one that works alone, here
def test_kills_change_nothing_and_no_password_is_told(server, dataset, tmp_path):
    """Two folders stand for two hosts: neither sees the other's runs, locks or processes."""
    call_ok("compare", dataset.folder, *OPTIONS, "--jobs", 1, "--out", tmp_path / "alone" / "e")
    passwords = tmp_path / "passwords"
    passwords.write_text(f"127.0.0.1:{server.port}:*:seqmodel:{PASSWORD}\n")
    passwords.chmod(0o600)
    found = {"SEQMODEL_STORAGE": server.address(), "PGPASSFILE": str(passwords)}
    one, two, late = (tmp_path / host / "e" for host in ("one", "two", "late"))
    sharing = [*OPTIONS, "--artifacts", str(tmp_path / "shared")]

    def join(place):
        if place == two:
            return begin(dataset.folder, place, [*sharing, "--jobs", "1"], found)
        word = server.address(f":{PASSWORD}")
        jobs = [] if place == one else ["--jobs", "1"]  # a process of its own takes seconds to load
        return begin(dataset.folder, place, [*sharing, "--storage", word, *jobs])

    first = join(two)
    waited(lambda: first.poll() is not None or [*two.glob("runs/*/*/*/last.safetensors")])
    if first.poll() is None:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    hosts = {place: join(place) for place in (one, two)}
    for place, command in hosts.items():
        assert command.wait(PATIENCE) == 0, Path(f"{place}.log").read_text()
    assert join(late).wait(PATIENCE) == 0, Path(f"{late}.log").read_text()
    assert not [*late.glob("runs/*/*/*/last.safetensors")]  # else not all was fetched
    for name in TABLES:
        expected = (tmp_path / "alone" / "e" / name).read_bytes()
        assert [(place / name).read_bytes() for place in (one, two, late)] == [expected] * 3
    table = json.loads((one / "table.json").read_text())
    for unit, variant in zip(("tanh", "gru"), table["datasets"][0]["variants"], strict=True):
        valid = [trial["valid_nats_per_frame"] for trial in variant["trials"]]
        for run in (f"trial-{valid.index(min(valid))}", "seed-1"):
            path = Path("runs", dataset.folder.name, unit, run, "best.safetensors")
            expected = (tmp_path / "alone" / "e" / path).read_bytes()
            assert [(place / path).read_bytes() for place in (one, two, late)] == [expected] * 3
    assert (late / "report.html").read_text().count("<audio") >= 2
    assert "seqmodel:***@127.0.0.1" in (one / "report.html").read_text()
    for path in tmp_path.rglob("*"):  # the page shows the command, and is meant to be shared
        assert path == passwords or path.is_dir() or b"cret" not in path.read_bytes(), path


def test_a_restart_of_the_server_is_waited_for_and_told_once(server, dataset, tmp_path):
    """It used to end every host with a hundred lines of traceback, also of heartbeats."""
    word = server.address(f":{PASSWORD}")
    more = ["--units", "gru", "--trials", "1", "--seeds", "1", "--set", "epochs=30"]
    more += ["--set", "patience=100", "--jobs", "2", "--storage", word]
    options = [word for word in [*OPTIONS, *more] if word != "-q"]
    for number in count():
        place = tmp_path / f"restarted-{number}"
        command, log = begin(dataset.folder, place, options), Path(f"{place}.log")

        def wait_for(there, command=command):
            waited(lambda: there() or command.poll() is not None)

        wait_for(lambda place=place: [*place.glob("runs/*/*/*/metrics.jsonl")])
        server.control("-m", "fast", "stop")
        wait_for(lambda log=log: "--storage" in log.read_text())
        server.control("start")
        if "--storage" in log.read_text():
            break
        assert command.returncode == 0, log.read_text()  # it was done before the server stopped
    status, said = command.wait(PATIENCE), log.read_text()
    assert status == 0, said
    (away,) = [line for line in said.splitlines() if "--storage" in line]
    assert AWAY.fullmatch(away), said
    assert "Traceback" not in said
    assert said.endswith(f"written to {place}\n"), said


def test_a_connection_that_ends_within_a_transaction_is_tried_again(server, tmp_path):
    """SQLAlchemy says something else of the rollback, which ended a process with a traceback."""
    storage, attempts = open_storage(tmp_path, server.address(f":{PASSWORD}")), []
    ended = []

    def call():
        attempts.append(1)
        with storage.engine.connect() as line, storage.engine.connect() as other:
            process = line.scalar(text("select pg_backend_pid()"))
            if len(attempts) == 1:
                ended.append(line.connection.driver_connection)
                other.execute(text(f"select pg_terminate_backend({process})"))
                with suppress(OperationalError):
                    line.scalar(text("select 1"))
            return "there" if line.scalar(text("select 1")) else ""

    with pytest.raises(PendingRollbackError):
        call()
    attempts.clear()
    assert retrying(lambda storage: call())(storage) == "there"
    assert len(attempts) == 2
    storage.engine.dispose()
    for connection in ended:
        connection.close()


def test_an_outage_is_told_once_and_remembered(monkeypatch):
    """Guards a line for each attempt, and hosts taken for dead since they had no database."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    away = OperationalError("select 1", {}, Exception("gone"))
    method, said = Mock(side_effect=[away, away, away, "there"], __name__="get"), list[str]()
    storage = Mock(_shown="db", _reason=str, _say=said.append, _stop=StopRequest(), _last_outage=0)
    assert retrying(method)(storage, 3) == "there"
    assert method.call_args.args == (storage, 3)
    assert len(said) == 1
    assert time.monotonic() - storage._last_outage < PATIENCE


def test_a_wait_for_the_server_ends_on_ctrl_c(server, tmp_path):
    """And once it has taken longer than anybody restarts a server for."""
    said, stop = [], StopRequest()
    storage = open_storage(tmp_path, server.address(f":{PASSWORD}"), said.append, stop)
    storage.engine.dispose()
    server.control("-m", "fast", "stop")
    try:
        stop.signal = signal.SIGINT
        with pytest.raises(InterruptError):
            storage.get_all_studies()
        stop.signal = None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("seqmodel.experiment.database.PATIENCE", 0)
            refused(storage.get_all_studies, "refused; run the same command to resume")
    finally:
        server.control("start")
    assert len(said) == 1
    assert AWAY.fullmatch(said[0])


@pytest.mark.parametrize(
    ("password", "query", "shown"),
    [(":wr'ongcret", "", ":***"), ("", "", ""), ("", "?password=wrongcret", "?password=***")],
)
def test_a_password_that_is_refused_or_missing_is_a_one_line_error(
    server, tmp_path, password, query, shown
):
    address = server.address("" if query else shown) + ("" if not query else shown)
    bad = server.address(password) + query
    says = f"--storage {address} cannot be used: "
    message = refused(lambda: open_storage(tmp_path, bad), says, "password")
    assert "cret" not in message


def test_a_password_may_stand_in_the_query(server, tmp_path):
    open_storage(tmp_path, f"{server.address()}?password={PASSWORD}").engine.dispose()
