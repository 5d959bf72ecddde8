"""The whole report: the parts asked for, one after the other, as plain values."""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seqmodel.bench.cases import PARTS, SIZES, Size
from seqmodel.bench.clock import spread_percent
from seqmodel.bench.machine import facts, measure_sgemm
from seqmodel.bench.piano_rolls import measure_piano_rolls
from seqmodel.bench.sampling import measure_sampling
from seqmodel.bench.training import measure_training
from seqmodel.bench.units import measure_unit
from seqmodel.media.music.medium import MUSIC
from seqmodel.units import UNITS

Case = Callable[[float], dict[str, Any]]
"""Something to measure for so many seconds."""

# What the parts on music measure where no unit is named.
TRAINED = tuple(MUSIC.paper_hidden)
SAMPLED = ("lstm",)


def report(
    parts: Sequence[str] = PARTS,
    units: Sequence[str] = (),
    sizes: Sequence[Size] = SIZES,
    *,
    seconds: float,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Measure the parts, each case for so many seconds or a few rounds: {part: what came out}.

    Without `units` each part takes its own. What the machine is stands in every report.
    `progress` hears how many cases of how many are done.
    """
    with TemporaryDirectory(prefix="seqmodel-bench-") as folder:
        cases: dict[str, list[Case]] = {
            "machine": [measure_sgemm],
            "units": [
                partial(measure_unit, unit, size) for size in sizes for unit in units or UNITS
            ],
            "piano-rolls": [partial(measure_piano_rolls, unit) for unit in units or TRAINED],
            "training": [
                partial(measure_training, unit, Path(folder)) for unit in units or TRAINED
            ],
            "sampling": [partial(measure_sampling, unit) for unit in units or SAMPLED],
        }
        wanted = [(part, case) for part in PARTS if part in parts for case in cases[part]]
        found: dict[str, list[dict[str, Any]]] = {part: [] for part, _ in wanted}
        for done, (part, case) in enumerate(wanted):
            progress(done, len(wanted))
            found[part].append(case(seconds))
    peaks = [row["sgemm_gflops"] for part in ("machine", "units") for row in found.get(part, [])]
    about = facts()
    if peaks:
        peak = statistics.median(peaks)
        about |= {"sgemm_gflops": peak, "sgemm_spread_percent": spread_percent(peaks)}
        for row in found.get("units", []):
            row["of_sgemm_percent"] = 100 * row["gflops"] / peak
    for after in found.pop("machine", []):
        about["sgemm_after_kernel"] = after
    return {"machine": about, **{part.replace("-", "_"): rows for part, rows in found.items()}}
