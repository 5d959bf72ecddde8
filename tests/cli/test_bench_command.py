"""`seqmodel bench`: its tables and its JSON."""

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from calling import Call

from seqmodel.bench import clock, machine, tied, training
from seqmodel.bench import report as report_module
from seqmodel.bench.cases import SIZES, Size
from seqmodel.bench.tied import Sizes
from seqmodel.units import UNITS

PARTS = {"machine", "units", "piano_rolls", "training", "sampling", "tied"}
KEYS = PARTS | {"skipped"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


TIED = (Sizes(4, 3, 1), Sizes(3, 2, 2))


@pytest.fixture(scope="module")
def result(data: Path) -> dict[str, Any]:
    """A complete report with tiny sizes, product and dataset; short timings are not repeated."""
    sizes = [Size(size.name, 2, 3, 2, 2) for size in SIZES[:2]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tied, "TRAINED", TIED[:1])
        patch.setattr(report_module, "TIED_SIZES", TIED)
        patch.setattr(machine, "PEAK_SIZE", 64)
        patch.setattr(clock, "SHORTEST", 1e-6)
        patch.setattr(training, "sample_dataset", lambda folder: data)
        return report_module.report(sizes=sizes, seconds=0.0)


def test_bench_prints_tables(call: Call, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    """Guards against missing rows, columns that run together, and lines too long to read.

    The figures are as wide as they get.
    """
    for row in result["units"]:
        for timing in row["timings"].values():
            timing |= {"ms": 12345.678, "spread_percent": 99.4}
        row |= {"hidden": 512, "gflops": 1234.5, "of_sgemm_percent": 100.0}
        row |= {"over_specification": 999.94, "over_torch_nn": 99.94, "scaling": 9.994}
    monkeypatch.setattr(report_module, "report", lambda *args, **kwargs: result)
    shown = call("bench")
    assert (shown.status, shown.err) == (0, "")
    assert max(map(len, shown.out.splitlines())) <= 100
    machine, legend, *tables = shown.out.rstrip("\n").split("\n\n")
    assert machine.splitlines()[0].startswith(result["machine"]["processor"])
    assert [line.partition(":")[0] for line in machine.splitlines()[1:]] == [
        "sgemm of 1024 on cpu, best of each case",
        "sgemm of 512, ms",
    ]
    assert legend.startswith("units, ms: ")
    titles = [table.partition(":")[0] for table in tables]
    assert titles == ["paper", "music-100", "piano-rolls", "training", "sampling", "tied"]
    for table, names in zip(
        tables,
        [*[list(UNITS)] * 2, *[["lstm", "gru", "tanh"]] * 2, ["lstm"], ["gru"] * 2],
        strict=True,
    ):
        _, head, *rows = table.splitlines()
        assert [line.split()[0] for line in (head, *rows)] == ["unit", *names]
        assert len({len(line) for line in (head, *rows)}) == 1


def test_bench_json_is_the_report(
    call: Call, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """Guards against figures that appear only in the table."""
    monkeypatch.setattr(report_module, "report", lambda *args, **kwargs: result)
    values = json.loads(call("bench", "--json").out)
    assert values == result
    assert set(values) == KEYS


def test_only_what_is_named_is_measured(call: Call, monkeypatch: pytest.MonkeyPatch):
    """Guards against options that have no effect, and against measuring a case twice."""
    asked: list[Any] = []

    def report(
        parts: Any, units: Any, sizes: Any, *, device: str, seconds: float, **heard: Any
    ) -> Any:
        asked.append((list(parts), units, [size.name for size in sizes], device, seconds))
        return {"machine": {}}

    monkeypatch.setattr(report_module, "report", report)
    call("bench", "gru", "mgu", "gru", "--size", "h512", "--size", "paper", "--json")
    call(
        "bench",
        "--part",
        "units",
        "--part",
        "machine",
        "--seconds",
        "0.5",
        "--device",
        "cpu",
        "--json",
    )
    names = [size.name for size in SIZES]
    parts = ["machine", "units", "piano-rolls", "training", "sampling", "tied"]
    assert asked == [
        (parts, ["gru", "mgu"], ["h512", "paper"], "auto", 1.0),
        (["units", "machine"], [], names, "cpu", 0.5),
    ]


def test_a_short_bench_is_short(call: Call, monkeypatch: pytest.MonkeyPatch):
    """Guards against exceeding the budget: in processor time, since the tests share the cores.

    Everything runs at full size but the tied models, a few rounds of which outlast the rest.
    """
    monkeypatch.setattr(tied, "TRAINED", TIED[:1])
    monkeypatch.setattr(report_module, "TIED_SIZES", TIED)
    began = time.process_time()
    shown = call("bench", "lstm", "--size", "paper", "--seconds", "0.2", "--json")
    assert time.process_time() - began < 40
    assert shown.status == 0
    lines = [line.split(":")[0] for line in shown.err.splitlines()]
    parts = ["machine", "units", "piano-rolls", "training", "sampling", "tied", "tied"]
    assert lines == [f"{k + 1}/7  {part}" for k, part in enumerate(parts)]
    values = json.loads(shown.out)
    assert set(values) == KEYS
    assert [(row["hidden"], "step" in row) for row in values["tied"]] == [(4, True), (3, False)]
    for part in PARTS - {"machine", "tied"}:
        assert [(row["unit"], row["hidden"]) for row in values[part]] == [("lstm", 36)]


def test_each_row_is_shown_as_it_is_measured(
    call: Call, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """Guards against minutes of silence, and against anything drawn while a case is timed."""
    rows = [("machine", {"sgemm_gflops": 123.4})]
    rows += [(part, row) for part in KEYS - {"machine", "skipped"} for row in result[part]]
    told: list[str] = []
    stream = Terminal()

    def report(*args: Any, progress: Any, measured: Any, **kwargs: Any) -> Any:
        for k, (part, row) in enumerate(rows):
            progress(k, len(rows))
            told.append(stream.getvalue())
            time.sleep(0.3 if k == 0 else 0.0)  # a bar would move
            assert stream.getvalue() == told[-1]
            measured(part.replace("_", "-"), row)
        return result

    monkeypatch.setattr(report_module, "report", report)
    for stream in (Terminal(), io.StringIO()):
        del told[:]
        call("bench", "--json", stderr=stream)
        assert [text.count("\n") for text in told] == list(range(len(rows)))
        assert stream.getvalue().count("\n") == len(rows)
        assert ("\x1b[K" in stream.getvalue()) == stream.isatty()
    first, *_ = stream.getvalue().splitlines()
    assert first == f" 1/{len(rows)}  machine: sgemm of 1024, 123 GFLOP/s at best"
    assert call("bench", "--json", "-q").err == ""


def test_the_gpu_and_skipped_parts_are_reported(
    call: Call, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """Guards against rows that do not name their device, and against parts skipped silently."""
    row = dict(result["units"][0], device="cuda", over_specification=None, scaling=None)
    peaks = {"cuda": {"gflops": 40000.0, "spread_percent": 1.0}}
    about = dict(result["machine"], gpu="a GPU", sgemm=peaks)
    about.pop("sgemm_after_kernel", None)
    told = {"machine": about, "units": [row], "skipped": {"training": "measured on the CPU only"}}
    monkeypatch.setattr(report_module, "report", lambda *args, **kwargs: told)
    lines = call("bench", "--device", "cuda").out.splitlines()
    assert lines[1:3] == [
        "GPU: a GPU",
        "sgemm of 1024 on cuda, best of each case: 40000 GFLOP/s +- 1 %",
    ]
    assert any(line.split()[:2] == ["tanh", "(cuda)"] for line in lines)
    assert lines[-1] == "skipped training: measured on the CPU only"


def test_a_missing_gpu_is_a_one_line_error(call: Call, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    shown = call("bench", "--device", "cuda")
    assert (shown.status, shown.out) == (2, "")
    assert "--device cuda: this torch" in shown.err
    assert len(shown.err.splitlines()) == 1
