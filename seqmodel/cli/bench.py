"""`seqmodel bench`: the speed of units, training and sampling on this machine."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from seqmodel.bench.cases import PARTS, SIZES, check_part, find_size
from seqmodel.cli.bench_lines import shown
from seqmodel.cli.common import Device, Json, Quiet, plural, print_json
from seqmodel.cli.completion import one_of
from seqmodel.units import UNITS, unit_spec

SIZE_NAMES = ", ".join(size.name for size in SIZES)
STAGES = {
    "forward_backward": "forward, backward",
    "weight_noise": "noise",
    "optimizer": "optimizer",
    "batching": "batching",
    "rest": "rest",
}

Row = dict[str, Any]


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="UNIT",
            help="Units to measure.  [default: all; on music the paper's three]",
            autocompletion=one_of(UNITS),
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A size for the part units, repeatable: {SIZE_NAMES}.  [default: all]",
            autocompletion=one_of([size.name for size in SIZES]),
        ),
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(
            help=f"What to measure, repeatable: {', '.join(PARTS)}.  [default: all]",
            autocompletion=one_of(PARTS),
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.0, max=3600.0, help="Time per case; at least five rounds.")
    ] = 1.0,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure speed on this machine, compared with torch.nn.

    Contenders take turns in one run, so that whatever slows the machine down slows all of them.
    Still, ratios hold only on a quiet machine: on a busy one threads wait for each other, most of
    all in torch's own layers. Figures are medians over the rounds, followed by +- half the
    interquartile range. Rows are reported on stderr as they are measured; tables follow at the end.
    A GPU is used for --part units only.
    """
    units = [unit_spec(name).name for name in dict.fromkeys(names or ())]
    sizes = [find_size(name) for name in dict.fromkeys(size)] if size else SIZES
    parts = [check_part(name) for name in part] if part else PARTS

    from seqmodel.bench.report import report

    with shown(quiet=quiet) as (progress, measured):
        result = report(
            parts,
            units,
            sizes,
            device=device,
            seconds=seconds,
            progress=progress,
            measured=measured,
        )
    if as_json:
        print_json(result)
        return
    sections = [_machine(result["machine"])]
    if "units" in result:
        sections += _units(result["units"])
    for name, section in (
        ("piano_rolls", _piano_rolls),
        ("training", _training),
        ("sampling", _sampling),
        ("tied", _tied),
    ):
        if name in result:
            sections.append(section(result[name]))
    if result["skipped"]:
        sections.append([f"skipped {part}: {why}" for part, why in result["skipped"].items()])
    typer.echo("\n\n".join("\n".join(lines) for lines in sections))


def _machine(about: Row) -> list[str]:
    cores, threads = plural(about["cores"], "core"), plural(about["threads"], "thread")
    lines = [
        f"{about['processor']} ({about['architecture']}), {cores}, {threads}; "
        f"Python {about['python']}, torch {about['torch']}"
    ]
    if "gpu" in about:
        lines.append(f"GPU: {about['gpu']}")
    for device, peak in about["sgemm"].items():
        lines.append(
            f"sgemm of 1024 on {device}, best of each case: {peak['gflops']:.0f} GFLOP/s "
            f"+- {peak['spread_percent']:.0f} %"
        )
    if "sgemm_after_kernel" in about:
        after = about["sgemm_after_kernel"]
        lines.append(
            f"sgemm of 512, ms: {_ms(after['alone'])}, right after a training step of the lstm "
            f"{_ms(after['after_kernel'])} ({_times(after['ratio'])})"
        )
    return lines


def _units(rows: Sequence[Row]) -> list[list[str]]:
    legend = [
        "units, ms: forward, without autograd; step, forward and backward with all gradients",
        "  torch.nn, spec, 1 thread: their time as a multiple of ours",
        "  sgemm: our GFLOP/s relative to those of torch's matrix product, above",
    ]
    head = ["H", "forward", "torch.nn", "step", "torch.nn", "spec", "1 thread", "GFLOP/s", "sgemm"]
    cells = [
        [
            row["unit"] if row["device"] == "cpu" else f"{row['unit']} ({row['device']})",
            str(row["hidden"]),
            _digits(row["timings"]["forward_ours"]["ms"]),
            _times(row["forward_over_torch_nn"]),
            _ms(row["timings"]["ours"]),
            _times(row["over_torch_nn"]),
            _times(row["over_specification"]),
            _times(row["scaling"]),
            f"{row['gflops']:.0f}",
            f"{row['of_sgemm_percent']:.0f} %",
        ]
        for row in rows
    ]
    header, *lines = _columns([["unit", *head], *cells])
    tables: dict[str, list[str]] = {}
    for row, line in zip(rows, lines, strict=True):
        title = f"{row['size']}: I {row['inputs']}, B {row['batch']}, T {row['frames']}"
        tables.setdefault(title, [title, header]).append(line)
    return [legend, *tables.values()]


def _piano_rolls(rows: Sequence[Row]) -> list[str]:
    first = rows[0]
    title = (
        f"piano-rolls: a step of the whole model, {first['notes_on']} of {first['notes']} notes, "
        f"B {first['batch']}, T {first['frames']}"
    )
    cells = [
        [
            row["unit"],
            str(row["hidden"]),
            _ms(row["timings"]["ours"]),
            _ms(row["timings"]["torch_nn"]),
            _times(row["over_torch_nn"]),
        ]
        for row in rows
    ]
    return [title, *_columns([["unit", "H", "step ms", "torch.nn ms", "ratio"], *cells])]


def _training(rows: Sequence[Row]) -> list[str]:
    title = f"training: the sample, frame-wise defaults, B {rows[0]['batch']}; shares of the time"
    cells = [
        [
            row["unit"],
            str(row["hidden"]),
            f"{row['frames_per_second']:,.0f} +- {row['spread_percent']:2.0f} %",
            *(f"{100 * row['shares'][stage]:.0f} %" for stage in STAGES),
        ]
        for row in rows
    ]
    return [title, *_columns([["unit", "H", "frames/s", *STAGES.values()], *cells])]


def _sampling(rows: Sequence[Row]) -> list[str]:
    frames = rows[0]["frames"]
    title = f"sampling: one piece of {frames} frames, compared with a loop over torch.nn's cell"
    cells = [
        [
            row["unit"],
            str(row["hidden"]),
            *(
                f"{row['frames_per_second'][name]:,.0f} "
                f"+- {row['timings'][name]['spread_percent']:2.0f} %"
                for name in ("ours", "torch_nn")
            ),
            _times(row["over_torch_nn"]),
        ]
        for row in rows
    ]
    head = ["unit", "H", "frames/s", "torch.nn frames/s", "ratio"]
    return [title, *_columns([head, *cells])]


def _tied(rows: Sequence[Row]) -> list[str]:
    first = rows[0]
    title = (
        f"tied: a step of the tied model, B {first['batch']}, T {first['frames']}, GFLOP/s of its "
        "units alone; sampling"
    )
    head = ["time", "pitch", "layers", "step ms", "torch.nn", "GFLOP/s", "sgemm"]
    cells = [
        [
            row["unit"],
            str(row["hidden"]),
            str(row["note_hidden"]),
            str(row["layers"]),
            *_tied_step(row),
            f"{row['frames_per_second']['ours']:,.0f}",
            f"{row['frames_per_second']['torch_nn']:,.0f}",
        ]
        for row in rows
    ]
    return [title, *_columns([["unit", *head, "frames/s", "torch.nn's"], *cells])]


def _tied_step(row: Row) -> list[str]:
    if "step" not in row:
        return [""] * 4
    speed = [f"{row['gflops']:.0f}", f"{row['of_sgemm_percent']:.0f} %"]
    return [_ms(row["step"]["ours"]), _times(row["over_torch_nn"]), *speed]


def _ms(timing: Row) -> str:
    return f"{_digits(timing['ms'])} +- {timing['spread_percent']:2.0f} %"


def _times(ratio: float | None) -> str:
    """A ratio; empty if it was not measured."""
    if ratio is None:
        return ""
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.1f}x"


def _digits(ms: float) -> str:
    """Milliseconds in at most five characters, up to a minute and a half."""
    return f"{ms:.{2 if ms < 100 else 1 if ms < 1000 else 0}f}"


def _columns(lines: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines: the first column flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        f"  {line[0]:{widths[0]}}"
        + "".join(f"  {cell:>{w}}" for cell, w in zip(line[1:], widths[1:], strict=True))
        for line in lines
    ]
