"""Two hosts that share only a database arrive at the tables of a single process."""

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

OPTIONS = ["--units", "tanh,gru", "--search", "paper", "--trials", "3", "--seeds", "2", "-q"]
for setting in ("model=frame-wise", "hidden=5", "epochs=3", "dropout=0", "batch_size=2"):
    OPTIONS += ["--set", setting]
TABLES = ("table.md", "table.csv", "table.tex")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a PostgreSQL server started for these tests."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("there is no PostgreSQL server here (initdb, pg_ctl)")
    pytest.importorskip("psycopg")
    user = None
    if os.getuid() == 0:  # the server refuses to run as root
        user = next((name for name in ("postgres", "nobody") if has_user(name)), None)
        if user is None:
            pytest.skip("PostgreSQL does not run as root, and there is no other user")
    # Not under pytest's own folder, which other users cannot enter.
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True, user=user).strip())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data, log = folder / "data", folder / "log"

    def run(*command: object) -> None:
        subprocess.run(command, user=user, check=True, cwd="/", stdout=subprocess.DEVNULL)

    run("initdb", "-D", data, "-U", "seqmodel", "-A", "trust", "--no-sync")
    listen = f"-c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -p {port} -F"
    run("pg_ctl", "-D", data, "-l", log, "-o", listen, "-w", "start")
    yield f"postgresql+psycopg://seqmodel:secret@127.0.0.1:{port}/postgres"
    run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    shutil.rmtree(folder)


def has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def begin(data: Path, out: Path, *more: str) -> "subprocess.Popen[bytes]":
    """Start the command in its own process group; its messages go to a log next to `out`."""
    out.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "seqmodel", "compare", str(data), *OPTIONS, *more]
    with Path(f"{out}.log").open("ab") as file:
        return subprocess.Popen(
            [*command, "--out", str(out)],
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
        )


def test_two_hosts_on_a_database_and_kills_change_nothing(server, dataset, tmp_path):
    """Two folders stand for two hosts: neither sees the other's runs, locks or processes."""
    alone = begin(dataset.folder, tmp_path / "alone" / "e", "--jobs", "1")
    places = [tmp_path / host / "e" for host in ("one", "two")]
    hosts = {place: begin(dataset.folder, place, "--storage", server) for place in places}
    chance = random.Random(2)
    for _ in range(6):
        time.sleep(chance.uniform(2, 5))
        place = chance.choice(places)
        if hosts[place].poll() is None:
            os.killpg(hosts[place].pid, signal.SIGKILL)
            hosts[place].wait()
        hosts[place] = begin(dataset.folder, place, "--storage", server)
    for command, log in [(alone, "alone"), *zip(hosts.values(), ("one", "two"), strict=True)]:
        assert command.wait(180) == 0, (tmp_path / log / "e.log").read_text()
    for name in TABLES:
        expected = (tmp_path / "alone" / "e" / name).read_bytes()
        assert [(place / name).read_bytes() for place in places] == [expected, expected]
    for place in places:  # pages show the command, and are meant to be shared
        page = (place / "report.html").read_text()
        assert "seqmodel:***@127.0.0.1" in page
        assert "secret" not in page


def test_other_data_under_the_same_name_are_refused(
    server, dataset, write_dataset, rolls, tmp_path
):
    """Guards against a host whose copy of the data is outdated."""
    place = tmp_path / "first" / "other"
    assert begin(dataset.folder, place, "--storage", server, "--jobs", "1").wait(180) == 0
    fewer = {split: pieces[:-1] for split, pieces in rolls.items()}
    folder = tmp_path / dataset.folder.name
    write_dataset(folder, fewer)
    second = tmp_path / "second" / "other"
    assert begin(folder, second, "--storage", server).wait(60) == 1
    assert Path(f"{second}.log").read_text() == (
        f"seqmodel: there is another experiment other, which differs in data of {folder.name}: "
        "name a new folder with --out\n"
    )


def test_a_server_that_does_not_answer_is_a_one_line_error(dataset, tmp_path):
    pytest.importorskip("psycopg")
    place = tmp_path / "host" / "e"
    url = "postgresql+psycopg://seqmodel@127.0.0.1:1/postgres"
    assert begin(dataset.folder, place, "--storage", url).wait(60) == 1
    said = Path(f"{place}.log").read_text()
    assert said.startswith(f"seqmodel: --storage {url} cannot be used: ")
    assert said.count("\n") == 1
