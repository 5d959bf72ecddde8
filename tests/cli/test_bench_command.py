"""`seqmodel bench`: its tables and its JSON."""

import json
import time
from typing import Any

import pytest
from calling import Call

from seqmodel.bench import report as report_module
from seqmodel.bench.cases import SIZES, Size
from seqmodel.units import UNITS

PARTS = {"machine", "units", "piano_rolls", "training", "sampling"}


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """A whole report, its units at tiny sizes."""
    sizes = [Size(size.name, 2, 3, 2, 2) for size in SIZES[:2]]
    return report_module.report(sizes=sizes, seconds=0.0)


def test_bench_prints_tables(call: Call, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    """Guards against rows left out, columns that run into each other, and lines too long to read.

    The figures are made as wide as they get.
    """
    for row in result["units"]:
        for timing in row["timings"].values():
            timing |= {"ms": 12345.678, "spread_percent": 99.4}
        row |= {"hidden": 512, "gflops": 1234.5, "of_sgemm_percent": 100.0}
        row |= {"over_reference": 999.94, "over_torch_nn": 99.94, "scaling": 9.994}
    monkeypatch.setattr(report_module, "report", lambda *args, **kwargs: result)
    shown = call("bench")
    assert (shown.status, shown.err) == (0, "")
    assert max(map(len, shown.out.splitlines())) <= 100
    machine, legend, *tables = shown.out.rstrip("\n").split("\n\n")
    assert machine.splitlines()[0].startswith(result["machine"]["processor"])
    assert [line.partition(":")[0] for line in machine.splitlines()[1:]] == [
        "sgemm of 1024, the best of each case",
        "sgemm of 512, ms",
    ]
    assert legend.startswith("units, ms: ")
    titles = [table.partition(":")[0] for table in tables]
    assert titles == ["paper", "music-100", "piano-rolls", "training", "sampling"]
    for table, names in zip(
        tables, [*[list(UNITS)] * 2, *[["lstm", "gru", "tanh"]] * 2, ["lstm"]], strict=True
    ):
        _, head, *rows = table.splitlines()
        assert [line.split()[0] for line in (head, *rows)] == ["unit", *names]
        assert len({len(line) for line in (head, *rows)}) == 1


def test_bench_json_is_the_report(
    call: Call, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """Guards against figures that only the table has."""
    monkeypatch.setattr(report_module, "report", lambda *args, **kwargs: result)
    values = json.loads(call("bench", "--json").out)
    assert values == result
    assert set(values) == PARTS


def test_what_is_named_is_measured(call: Call, monkeypatch: pytest.MonkeyPatch):
    """Guards against options that go nowhere, and against a case measured twice."""
    asked: list[Any] = []

    def report(parts: Any, units: Any, sizes: Any, *, seconds: float, progress: Any) -> Any:
        asked.append((list(parts), units, [size.name for size in sizes], seconds))
        return {"machine": {}}

    monkeypatch.setattr(report_module, "report", report)
    call("bench", "gru", "mgu", "gru", "--size", "h512", "--size", "paper", "--json")
    call("bench", "--part", "units", "--part", "machine", "--seconds", "0.5", "--json")
    names = [size.name for size in SIZES]
    parts = ["machine", "units", "piano-rolls", "training", "sampling"]
    assert asked == [
        (parts, ["gru", "mgu"], ["h512", "paper"], 1.0),
        (["units", "machine"], [], names, 0.5),
    ]


def test_a_short_bench_is_short(call: Call):
    """Guards against a budget that is not kept: in processor time, since tests share the cores."""
    began = time.process_time()
    shown = call("bench", "lstm", "--size", "paper", "--seconds", "0.2", "--json")
    assert time.process_time() - began < 60
    assert (shown.status, shown.err) == (0, "")
    values = json.loads(shown.out)
    assert set(values) == PARTS
    for part in PARTS - {"machine"}:
        assert [(row["unit"], row["hidden"]) for row in values[part]] == [("lstm", 36)]
