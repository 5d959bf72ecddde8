"""The processors and the memory that a process may use, with control groups of both versions."""

import os
from types import SimpleNamespace

import psutil
import pytest

from seqmodel.system.machine import available_memory, cores, peak_memory


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A machine of 16 processors and 8 GiB."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)
    left = SimpleNamespace(available=8 << 30)
    monkeypatch.setattr("psutil.virtual_memory", lambda: left)
    return tmp_path


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_without_limits_the_machine_decides(root):
    assert (cores(root), available_memory(root)) == (16, 8 << 30)


def test_version_2_limits_of_any_outer_group_hold(root):
    """Guards against 16 processes of 1.2 GB each in a container of two cores and 2 GB."""
    write(root, {"proc/self/cgroup": "0::/outer/inner\n"})
    outer = "sys/fs/cgroup/outer"
    write(root, {f"{outer}/cpu.max": "250000 100000\n", f"{outer}/inner/cpu.max": "max 100000\n"})
    write(root, {f"{outer}/inner/memory.max": "max\n", f"{outer}/inner/memory.current": "5\n"})
    write(root, {f"{outer}/memory.max": "2000\n", f"{outer}/memory.current": "1500\n"})
    write(root, {f"{outer}/memory.stat": "anon 1\ninactive_file 300\n"})
    assert (cores(root), available_memory(root)) == (3, 2000 - 1500 + 300)


def test_version_1_limits_hold_where_the_outer_path_is_not_seen(root):
    """In a container the group is mounted at the top, whatever its path outside."""
    write(root, {"proc/self/cgroup": "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/\n"})
    cpu, memory = "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/memory"
    write(root, {f"{cpu}/cpu.cfs_quota_us": "200000\n", f"{cpu}/cpu.cfs_period_us": "100000\n"})
    write(root, {f"{memory}/memory.limit_in_bytes": "9000\n"})
    write(root, {f"{memory}/memory.usage_in_bytes": "4000\n"})
    write(root, {f"{memory}/memory.stat": "inactive_file 9\ntotal_inactive_file 70\n"})
    assert (cores(root), available_memory(root)) == (2, 5070)
    write(root, {f"{cpu}/cpu.cfs_quota_us": "-1\n"})
    assert cores(root) == 16


def test_the_peak_is_in_bytes():
    """Linux counts in KiB, macOS in bytes."""
    now = psutil.Process().memory_info().rss
    assert 0.9 * now < peak_memory() < psutil.virtual_memory().total
