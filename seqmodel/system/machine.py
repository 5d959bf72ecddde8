"""What this process may use of the machine, also in a container, and how it reuses its memory."""

import math
import os
import platform
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path

from seqmodel.system import native

ROOT = Path("/")
MMAP_BYTES = 1 << 25
"""Bytes; the highest threshold GNU's allocator accepts for serving a block from the heap."""
TRIM_BYTES = 16 * MMAP_BYTES
"""Bytes free at the end of the heap, beyond which it is returned to the system."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as numbered in <malloc.h>


def cores(root: Path = ROOT) -> int:
    """The number of processors that this process may use, by affinity and control group quotas."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux
    allowed = [len(affinity(0)) if affinity else os.cpu_count() or 1]
    for group in _groups("cpu", root):
        version_1 = _words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")
        for words in (_words(group / "cpu.max"), version_1):
            if len(words) == 2 and words[0].isdigit():  # not "max" or -1
                allowed.append(math.ceil(int(words[0]) / int(words[1])))
    return max(1, min(allowed))


def available_memory(root: Path = ROOT) -> int:
    """Bytes available: what the machine has left, within the limits of control groups."""
    import psutil

    available = [psutil.virtual_memory().available]
    for group in _groups("memory", root):
        statistics = _fields(group / "memory.stat")
        for limit, usage, cached in (
            ("memory.max", "memory.current", "inactive_file"),  # version 2
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            most, used = _words(group / limit), _words(group / usage)
            if used and most and most[0].isdigit():
                available.append(int(most[0]) - int(used[0]) + statistics.get(cached, 0))
    return max(0, min(available))


def peak_memory() -> int:
    """The peak memory of this process, in bytes."""
    try:
        resource = import_module("resource")
    except ImportError:  # Windows
        import psutil

        now = psutil.Process().memory_info()
        return int(getattr(now, "peak_wset", now.rss))
    unit = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit


def processor() -> str:
    """The processor's name."""
    for line in _text(ROOT / "proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """The control groups of this process, the innermost first: version 2's, and a controller's.

    In a container the path may be the outer one, of which only the last part is visible.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():  # on Linux
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / controllers
        group = top / path.lstrip("/")
        yield from (g for g in (group, *group.parents) if g.is_relative_to(top))


def _text(path: Path) -> str:
    """The text of a small file; empty if there is no such file."""
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""


def _words(path: Path) -> list[str]:
    return _text(path).split()


def _fields(path: Path) -> dict[str, int]:
    """Name -> number, from the lines of a file; empty if there is no such file."""
    words = _words(path)
    return {name: int(value) for name, value in pairwise(words) if value.isdigit()}


def keep_freed_memory() -> None:
    """Keep freed memory in the process; does nothing under allocators other than GNU's.

    Fresh pages are zeroed one by one, which at 50 MB per step takes a fifth of a training step.
    GNU's allocator returns blocks above a threshold that rises only as the program frees larger
    ones, so that a small model's first steps take a third longer.
    """
    if address := native.address_of("mallopt"):
        mallopt = native.function(address, [native.INT32, native.INT32], native.INT32)
        mallopt(_MMAP_THRESHOLD, MMAP_BYTES)
        mallopt(_TRIM_THRESHOLD, TRIM_BYTES)
