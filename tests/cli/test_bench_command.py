"""`seqmodel bench`: its tables and its JSON."""

import json

import pytest

from seqmodel.bench import measure

TINY = measure.Size("paper", 3, 5, 2, 4)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Small sizes, and few runs of each."""
    monkeypatch.setattr(measure, "MIN_SECONDS", 1e-6)
    monkeypatch.setattr(measure, "MIN_ROUNDS", 2)
    monkeypatch.setattr(measure, "SIZES", (TINY, measure.Size("row", 2, 3, 1, 2)))
    monkeypatch.setattr(measure, "TIED", {"hidden": 4, "note_hidden": 3})
    monkeypatch.setattr(measure, "BATCH", {"frame-wise": (6, 2), "tied": (3, 2)})
    monkeypatch.setattr(measure, "TORCH_FRAMES", {"frame-wise": 3, "tied": 1})
    monkeypatch.setattr(measure, "CHUNKS", 1)
    monkeypatch.setattr(measure, "RATES", (8000,))


def test_bench_prints_a_table_for_each_part(call):
    """Guards against missing rows, and columns that run together."""
    shown = call("bench", "lstm", "--seconds", "0.001")
    assert (shown.status, shown.err) == (0, "")
    machine, *tables = shown.out.rstrip("\n").split("\n\n")
    assert "; Python " in machine
    assert [table.splitlines()[0] for table in tables] == [
        "units, paper: I 3, B 2, T 4",
        "units, row: I 2, B 1, T 2",
        "a training step, frame-wise: B 2, T 6",
        "a training step, tied: B 2, T 3",
        "sampling one piece, frame-wise",
        "sampling one piece, tied",
        "sound, sample-wise: B 16, 200 samples",
    ]
    for table in tables:
        _, head, *rows = table.splitlines()
        assert [line.split()[0] for line in (head, *rows)] == ["unit", "lstm"]


def test_bench_json_holds_the_rows(call):
    """Guards against options without effect, measuring a case twice, and rows only in a table."""
    parts = ("--part", "models", "--part", "units", "--seconds", "0.001", "--device", "cpu")
    shown = call("bench", "gru", "mgu", "gru", "--json", *parts)
    values = json.loads(shown.out)
    assert list(values) == ["machine", "units", "models"]
    assert [(row["size"], row["unit"]) for row in values["units"]] == [
        (size, unit) for size in ("paper", "row") for unit in ("gru", "mgu")
    ]
    assert [(row["model"], row["unit"]) for row in values["models"]] == [
        (model, unit) for model in ("frame-wise", "tied") for unit in ("gru", "mgu")
    ]
    assert len(shown.err.splitlines()) == 1 + 4 * 3 + 4 + 4
    assert call("bench", "gru", "--part", "units", "--json", "--seconds", "0.001", "-q").err == ""
