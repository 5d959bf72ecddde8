"""One model on several processes: the same bits whatever their number."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from calling import PATIENCE
from forking import Forked
from hypothesis import given
from hypothesis import strategies as st
from outcomes import left
from refusals import refused
from test_resume import EVERYTHING, SAMPLES

from seqmodel.data import batches
from seqmodel.training.processes import (
    check_equal_weights,
    rendezvous,
    started_before,
    torchrun_rendezvous,
    tree_sum,
)

PARTS = {"parts": 4, "batch_size": 5}
"""The last batch of 11 pieces is a single one, which leaves three parts without any."""
MUSIC = {
    "all": {**EVERYTHING, **PARTS, "unit": "lstm"},
    "nade": {**PARTS, "unit": "tanh", "truncate": 7, "output": "nade", "nade_hidden": 4},
}
SOUND = {"samples": {**SAMPLES, **PARTS, "truncate": 200, "end": True}}


class Peers:
    """Four processes that wait for runs to train, some of them together."""

    def __init__(self):
        command = [str(Path(__file__).with_name("peer.py"))]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.processes = [Forked(command, text=True, **streams) for _ in range(4)]

    def train(self, size, config, folder, *, resume=False, stop_at=0, stopped_by=0, threads=1):
        """Train a run on `size` of them; returns what each says."""
        store = rendezvous()
        order = {
            "size": size, "port": store.port, "config": config.to_json(), "data": config.data,
            "folder": str(folder), "resume": resume, "stop_at": stop_at, "stopped_by": stopped_by,
            "threads": threads,
        }  # fmt: skip
        for rank, process in enumerate(self.processes[:size]):
            process.stdin.write(json.dumps(order | {"rank": rank}) + "\n")
            process.stdin.flush()
        return [process.stdout.readline().strip() for process in self.processes[:size]]


@pytest.fixture(scope="module")
def peers():
    peers = Peers()
    yield peers
    for process in peers.processes:
        process.stdin.close()
        process.wait(PATIENCE)
        process.stdout.close()


@pytest.fixture(scope="module")
def config_of(make_config, make_audio_config):
    def config_of(name):
        if name in MUSIC:
            return make_config(**MUSIC[name])
        return make_audio_config(**SOUND[name])

    return config_of


@pytest.mark.parametrize(("name", "size"), [("all", 2), ("nade", 4), ("samples", 2)])
def test_the_number_of_processes_changes_no_bit(peers, config_of, tmp_path, name, size):
    """Noise, dropout, truncation, ragged ends, transposition, figures on valid and all else."""
    config = replace(config_of(name), epochs=1)
    for some in (1, size):
        assert peers.train(some, config, tmp_path / str(some)) == ["done"] * some
    assert left(tmp_path / "1") == left(tmp_path / str(size))


def test_others_go_on_with_a_stopped_run(peers, config_of, tmp_path):
    """All stop at the same update, wherever the signal comes, and any number of them resume."""
    config = replace(config_of("nade"), epochs=1)
    assert peers.train(1, config, tmp_path / "whole") == ["done"]
    for resumed_by, stop_at in ((1, 1), (4, 3)):
        folder = tmp_path / f"{stop_at}-{resumed_by}"
        assert peers.train(2, config, folder, stop_at=stop_at, stopped_by=1) == ["stopped"] * 2
        assert set(peers.train(resumed_by, config, folder, resume=True)) == {"done"}
        assert left(folder) == left(tmp_path / "whole"), stop_at


def test_a_stop_while_valid_is_scored_stops_all(peers, config_of, tmp_path):
    """Valid is a single batch here: three of four processes score nothing."""
    config, folder = replace(config_of("nade"), truncate=0), tmp_path / "run"
    assert peers.train(1, config, tmp_path / "whole") == ["done"]
    assert peers.train(4, config, folder, stop_at=4) == ["stopped"] * 4  # after three updates
    assert peers.train(2, config, folder, resume=True) == ["done"] * 2
    assert left(folder) == left(tmp_path / "whole")


def test_the_number_of_threads_changes_no_bit(peers, config_of, tmp_path):
    """torchrun sets it to one; even orthogonal matrices at the start depended on it."""
    config = replace(config_of("nade"), hidden=64, epochs=1)
    assert peers.train(2, config, tmp_path / "two") == ["done"] * 2
    assert peers.train(1, config, tmp_path / "one", threads=2) == ["done"]
    assert left(tmp_path / "one") == left(tmp_path / "two")


def test_parts_add_up_to_the_batch(make_config, train, tmp_path):
    """Guards against a mean of means, and against parts that are rescaled each by itself."""
    figures = []
    for parts in (1, 4):
        options = {"batch_size": 5, "parts": parts, "end": True, "clip": 1e-3}
        run = train(make_config(**options), tmp_path / str(parts))
        figures.append([line["train_nats_per_frame"] for line in run.state.progress.metrics])
    assert figures[0] == pytest.approx(figures[1], rel=1e-5)
    assert figures[0] != figures[1]  # else nothing was cut


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.sampled_from([1, 2, 4, 8]))
def test_pieces_are_dealt_out_evenly(lengths, parts):
    """Joined pieces need parts whose sizes follow from the batch's."""
    dealt = batches.split_batch(np.array(lengths), parts)
    assert sorted(np.concatenate(dealt).tolist()) == list(range(len(lengths)))
    sizes = [len(part) for part in dealt]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == [len(p) for p in batches.split_batch(np.array(lengths[::-1]), parts)]
    totals = [np.array(lengths)[part].sum() for part in dealt]
    assert max(totals) - min(totals) <= max(lengths)


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_sums_do_not_depend_on_who_adds(levels, shared, seed):
    """Some processes add up what they have, and then their sums, as one would add all."""
    generator = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-6, 6, (2**levels, 1), generator=generator)
    terms = list(torch.randn(2**levels, 5, generator=generator) * scale)
    size = 2 ** min(levels, shared)
    each = len(terms) // size
    sums = [tree_sum(terms[k * each : (k + 1) * each]) for k in range(size)]
    assert torch.equal(tree_sum(sums), tree_sum(terms))
    assert torch.allclose(
        tree_sum(terms), torch.stack(terms).double().sum(0).float(), rtol=1e-3, atol=1e-1
    )


def test_parts_are_a_power_of_two_and_no_more_than_pieces(make_config):
    refused(lambda: make_config(parts=3), "--parts must be a power of two, not 3")
    refused(lambda: make_config(parts=8), "8 parts ", " need a --batch-size of 8 or more, not 4")


@pytest.fixture
def agents(monkeypatch):
    """A store as torchrun's agents have it."""
    store = rendezvous()
    for name, value in (
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", str(store.port)),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
    ):
        monkeypatch.setenv(name, value)
    return store


@pytest.mark.usefixtures("agents")
def test_torchruns_store_tells_a_restart():
    """Guards against a run that is refused, as it exists, where torchrun counts no restart."""
    assert [started_before() for _ in range(3)] == [False, True, True]


@pytest.mark.usefixtures("agents")
def test_after_a_restart_processes_do_not_meet_the_dead():
    """Guards against addresses that the processes before have left in torchrun's store."""
    with ThreadPoolExecutor(3) as team:

        def met():
            # The first comes last: until then the others find only what the dead have left.
            others = [team.submit(torchrun_rendezvous, rank, 3) for rank in (1, 2)]
            return torchrun_rendezvous(0, 3), *(other.result() for other in others)

        before, after = met(), met()
    before[0].set("address", "of the dead")
    assert before[2].get("address") == b"of the dead"
    assert not any(store.check(["address"]) for store in after)
    after[1].set("address", "new")
    assert all(store.get("address") == b"new" for store in after)


def test_processors_that_round_differently_are_named():
    """Guards against processes that drift apart in silence."""
    model, told = torch.nn.Linear(2, 2), []

    def all_of(values):
        told.append(values)
        return [values, ["another", "host-b"]]

    def check(all_of=all_of):
        check_equal_weights(SimpleNamespace(size=2, all=all_of), model)

    refused(check, "process 1 on host-b has other weights than process")
    with torch.no_grad():
        model.bias[1] += 1e-7
    refused(check)
    assert told[0][0] != told[1][0]
    check(lambda values: [values, values])
