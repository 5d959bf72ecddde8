"""`seqmodel bench`: the speed of units, whole models and sampling on this machine."""

from collections.abc import Iterable
from typing import Any

import typer

from seqmodel.cli.common import Verbosity, print_json
from seqmodel.cli.options import Device, Json, Quiet, one_of
from seqmodel.errors import UsageError
from seqmodel.media.words import plural
from seqmodel.unit_setting import read_unit
from seqmodel.units import UNITS, unit_spec

Row = dict[str, Any]
Table = tuple[str, list[tuple[str, int, str]]]
"""A table's title, and the head, width and the row's cell of each column."""


def _line(cells: Iterable[tuple[str, int]]) -> str:
    """The cells, right-aligned in their widths, the first left-aligned."""
    (first, width), *others = cells
    return f"  {first:{width}}" + "".join(f"{cell:>{width}}" for cell, width in others)


def _unit(row: Row) -> Table:
    name = row["unit"] if row["device"] == "cpu" else f"{row['unit']} ({row['device']})"
    columns = [("unit", 22, name), ("H", 5, str(row["hidden"]))]
    for kind in ("forward", "step"):
        columns.append((f"{kind} ms", 16, _ms(row[kind]["ours"])))
        for rival, label in (("torch_nn", "torch.nn"), ("jax", "JAX")):
            if f"over_{rival}" in row[kind]:
                columns.append((label, 10, _times(row[kind][f"over_{rival}"])))
    return f"units, {row['size']}: I {row['inputs']}, B {row['batch']}, T {row['frames']}", columns


def _model(row: Row) -> Table:
    title = f"a training step, {row['model']}: B {row['batch']}, T {row['frames']}"
    return title, [*_sizes(row), *_steps(row)]


def _sampling(row: Row) -> Table:
    ours, theirs = (f"{row['frames_per_second'][name]:,.0f}" for name in ("ours", "torch_nn"))
    speeds = [("frames/s", 16, ours), ("torch.nn", 16, theirs)]
    ratio = ("ratio", 9, _times(row["over_torch_nn"]))
    return f"sampling one piece, {row['model']}", [*_sizes(row), *speeds, ratio]


def _sound(row: Row) -> Table:
    return f"sound, {row['model']}: B {row['batch']}, {row['samples']} samples", [
        ("unit", 15, row["unit"]),
        ("H", 5, str(row["hidden"])),
        ("Hz", 7, str(row["rate"])),
        *_steps(row),
        ("features", 10, f"{row['features_percent']:.0f} %"),
        ("real time", 11, _times(row["real_time"])),
    ]


def _sizes(row: Row) -> list[tuple[str, int, str]]:
    along_pitch = row["note_hidden"]
    hidden = f"{row['hidden']}, {along_pitch}" if along_pitch else str(row["hidden"])
    return [("unit", 15, row["unit"]), ("H", 10, hidden)]


def _steps(row: Row) -> list[tuple[str, int, str]]:
    timings = [("step ms", 16, _ms(row["ours"])), ("torch.nn ms", 16, _ms(row["torch_nn"]))]
    return [*timings, ("ratio", 9, _times(row["over_torch_nn"]))]


def _ms(timing: Row) -> str:
    ms, spread = timing["ms"], timing["spread_percent"]
    digits = f"{ms:.{2 if ms < 100 else 1 if ms < 1000 else 0}f}"
    return f"{digits:>8} +- {spread:2.0f} %"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.1f}x"


PARTS = {"units": _unit, "models": _model, "sampling": _sampling, "sound": _sound}
"""What can be measured -> how a row of it is shown."""


def bench(
    names: list[str] | None = typer.Argument(
        None,
        metavar="UNIT",
        help="Units to measure.  [default: all; models: the paper's three; sound: gru]",
        autocompletion=one_of(UNITS),
    ),
    part: list[str] | None = typer.Option(
        None,
        help=f"What to measure: {', '.join(PARTS)}; repeatable.  [default: all]",
        autocompletion=one_of(PARTS),
    ),
    seconds: float = typer.Option(
        1.0, min=0.001, max=3600.0, help="Time per row; at least five rounds."
    ),
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure speed on this machine, against torch.nn.

    units: a forward pass without autograd; a step, forward and backward with all gradients.
    models: a training step on piano-rolls. sampling: drawing one piece. sound: a training step of
    the sample-wise model, the share its features take, and sampling speed as a multiple of real
    time.

    Steps alternate with those of torch.nn, and of JAX if it is installed, so that whatever slows
    the machine down slows all. Even so, ratios hold only on a quiet machine: on a busy one threads
    wait for each other, most of all in torch's own layers. Figures are medians over the rounds,
    +- half the interquartile range. Rows are printed as they are measured, on stderr with --json.
    --device applies to units; everything else is measured on the CPU.
    """
    units = [read_unit(name) for name in dict.fromkeys(names or ())]
    for unit in units:
        unit_spec(unit)
    for name in part or ():
        if name not in PARTS:
            raise UsageError(f"there is no part {name!r}; choose one of {', '.join(PARTS)}")

    from seqmodel.bench.measure import rows_of
    from seqmodel.report.origin import machine_facts

    def say(line: str) -> None:
        if not (as_json and Verbosity.quiet):
            typer.echo(line, err=as_json)

    machine = machine_facts()
    cores, threads = plural(machine["cores"], "core"), plural(machine["threads"], "thread")
    say(
        f"{machine['processor']} ({machine['architecture']}), {cores}, {threads}; "
        f"Python {machine['python']}, torch {machine['torch']}"
    )
    if "gpu" in machine:
        say(f"GPU: {machine['gpu']}")
    results: dict[str, Any] = {"machine": machine}
    for name in [name for name in PARTS if name in (part or PARTS)]:
        title = ""
        for row in rows_of(name, units, device, seconds):
            results.setdefault(name, []).append(row)
            former, (title, columns) = title, PARTS[name](row)
            if title != former:
                for line in ("", title, _line((head, width) for head, width, _ in columns)):
                    say(line)
            say(_line((cell, width) for _, width, cell in columns))
    if as_json:
        print_json(results)
