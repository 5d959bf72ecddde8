"""The whole report: the requested parts, one after the other, as plain values."""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seqmodel.bench.cases import PARTS, SIZES, Size
from seqmodel.bench.clock import spread_percent
from seqmodel.bench.machine import measure_sgemm
from seqmodel.bench.piano_rolls import measure_piano_rolls
from seqmodel.bench.sampling import measure_sampling
from seqmodel.bench.tied import SIZES as TIED_SIZES
from seqmodel.bench.tied import measure_tied
from seqmodel.bench.training import measure_training
from seqmodel.bench.units import measure_unit
from seqmodel.media.music.medium import MUSIC
from seqmodel.report.origin import machine
from seqmodel.units import UNITS
from seqmodel.units.backends import AUTO, check_device

Case = Callable[[float], dict[str, Any]]
"""One measurement, given its budget in seconds."""

# What the parts on music measure by default.
TRAINED = tuple(MUSIC.paper_hidden)
SAMPLED = ("lstm",)
TIED = ("gru",)
# The parts that run on any device; the others measure the CPU, even where a GPU might be faster.
ON_ANY_DEVICE = ("units",)


def report(
    parts: Sequence[str] = PARTS,
    units: Sequence[str] = (),
    sizes: Sequence[Size] = SIZES,
    *,
    device: str = AUTO,
    seconds: float,
    progress: Callable[[int, int], None] = lambda done, total: None,
    measured: Callable[[str, dict[str, Any]], None] = lambda part, row: None,
) -> dict[str, Any]:
    """Measure the parts, each case for `seconds` or a few rounds: {part: its rows}.

    Without `units` each part uses its own default. Every report describes the machine. Parts that
    cannot run on the `device` are listed with the reason under "skipped". Before each case
    `progress` is called with the number of cases done and the total; after it, `measured` is called
    with its part and row.

    Raises:
        UsageError: if the device is unknown or unavailable.
    """
    check_device(device)
    skipped = {
        part: "measured on the CPU only"
        for part in parts
        if device == "cuda" and part not in ON_ANY_DEVICE
    }
    with TemporaryDirectory(prefix="seqmodel-bench-") as folder:
        cases: dict[str, list[Case]] = {
            "machine": [measure_sgemm],
            "units": [
                partial(measure_unit, unit, size, device)
                for size in sizes
                for unit in units or UNITS
            ],
            "piano-rolls": [partial(measure_piano_rolls, unit) for unit in units or TRAINED],
            "training": [
                partial(measure_training, unit, Path(folder)) for unit in units or TRAINED
            ],
            "sampling": [partial(measure_sampling, unit) for unit in units or SAMPLED],
            "tied": [
                partial(measure_tied, unit, sizes) for sizes in TIED_SIZES for unit in units or TIED
            ],
        }
        wanted = [
            (part, case)
            for part in PARTS
            if part in parts and part not in skipped
            for case in cases[part]
        ]
        found: dict[str, list[dict[str, Any]]] = {part: [] for part, _ in wanted}
        for done, (part, case) in enumerate(wanted):
            progress(done, len(wanted))
            row = case(seconds)
            found[part].append(row)
            measured(part, row)
    about = machine() | {"sgemm": _peaks(found)}
    for row in (*found.get("units", []), *found.get("tied", [])):
        if "gflops" not in row:
            continue
        row["of_sgemm_percent"] = 100 * row["gflops"] / about["sgemm"][row["device"]]["gflops"]
    for after in found.pop("machine", []):
        about["sgemm_after_kernel"] = after
    rows = {part.replace("-", "_"): rows for part, rows in found.items()}
    return {"machine": about, **rows, "skipped": skipped}


def _peaks(found: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Device -> the median over all cases of their fastest matrix product, and its spread."""
    peaks: dict[str, list[float]] = {}
    for part in ("machine", "units", "tied"):
        for row in (row for row in found.get(part, []) if "sgemm_gflops" in row):
            peaks.setdefault(row["device"], []).append(row["sgemm_gflops"])
    return {
        device: {"gflops": statistics.median(values), "spread_percent": spread_percent(values)}
        for device, values in peaks.items()
    }
