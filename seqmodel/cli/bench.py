"""`seqmodel bench`: the speed of units, whole models and sampling on this machine."""

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from seqmodel.cli.common import message, plural, print_json
from seqmodel.cli.completion import one_of
from seqmodel.cli.options import Device, Json, Quiet
from seqmodel.errors import UsageError
from seqmodel.unit_setting import read_unit
from seqmodel.units import UNITS, unit_spec

Row = dict[str, Any]
Case = Callable[[], Row]

PARTS = ("units", "models", "sampling", "sound", "processes")


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="UNIT",
            help="Units to measure.  [default: all; in models the paper's three, in sound gru]",
            autocompletion=one_of(UNITS),
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
        float, typer.Option(min=0.0, max=3600.0, help="Time per row; at least five rounds.")
    ] = 1.0,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure speed on this machine, beside torch.nn.

    Units: a forward pass without autograd; a step, forward and backward with all gradients. Models:
    a training step on piano-rolls. Sound: one of the sample-wise model, the share of its features,
    and sampling as a multiple of real time. Processes: an update that several share, and what of it
    is exchange. All other steps take turns with torch.nn, so that whatever slows the machine down
    slows both. Still, ratios hold only on a quiet machine: on a busy one threads wait for each
    other, most of all in torch's own layers. Figures are medians over the rounds, followed by +-
    half the interquartile range. Rows are printed as they are measured, on
    stderr with --json. --device is where units run; all else is measured on the CPU.
    """
    units = [read_unit(name) for name in dict.fromkeys(names or ())]
    for unit in units:
        unit_spec(unit)
    for name in part or ():
        if name not in PARTS:
            raise UsageError(f"there is no part {name!r}; choose one of {', '.join(PARTS)}")

    from seqmodel.report.origin import machine
    from seqmodel.units.backends import check_device

    check_device(device)
    about = machine()

    def say(*lines: str) -> None:
        for line in lines:
            if as_json:
                message(line, quiet=quiet)
            else:
                typer.echo(line)

    cores, threads = plural(about["cores"], "core"), plural(about["threads"], "thread")
    say(
        f"{about['processor']} ({about['architecture']}), {cores}, {threads}; "
        f"Python {about['python']}, torch {about['torch']}"
    )
    if "gpu" in about:
        say(f"GPU: {about['gpu']}")
    found: dict[str, Any] = {"machine": about}
    for name in (name for name in PARTS if name in (part or PARTS)):
        rows, title = found.setdefault(name, []), ""
        for case in _cases(name, units, device, seconds):
            row = case()
            rows.append(row)
            former, (title, head, line) = title, LINES[name](row)
            if title != former:
                say("", title, head)
            say(line)
    if as_json:
        print_json(found)


def _cases(part: str, units: list[str], device: str, seconds: float) -> Iterator[Case]:
    from seqmodel.bench import models, processes, sound
    from seqmodel.bench import units as layers

    if part == "units":
        return layers.cases(units, device, seconds)
    if part == "processes":
        return processes.cases(seconds)
    if part == "sound":
        return sound.cases(units, seconds)
    measure = models.measure_step if part == "models" else models.measure_sampling
    return models.cases(measure, units, seconds)


def _unit(row: Row) -> tuple[str, str, str]:
    """The table's title, its head and the row's line; so do the two functions below."""
    title = f"units, {row['size']}: I {row['inputs']}, B {row['batch']}, T {row['frames']}"
    head = f"  {'unit':22}{'H':>5}{'forward ms':>16}  torch.nn{'step ms':>16}  torch.nn"
    name = row["unit"] if row["device"] == "cpu" else f"{row['unit']} ({row['device']})"
    timings = [
        f"{_ms(timing['ours'])}{_times(timing['over_torch_nn']):>10}"
        for timing in (row["forward"], row["step"])
    ]
    return title, head, f"  {name:22}{row['hidden']:5}{''.join(timings)}"


def _model(row: Row) -> tuple[str, str, str]:
    title = f"a training step, {row['model']}: B {row['batch']}, T {row['frames']}"
    ours, theirs, ratio = _ms(row["ours"]), _ms(row["torch_nn"]), _times(row["over_torch_nn"])
    head = f"  {'unit':15}{'H':>10}{'step ms':>16}{'torch.nn ms':>16}{'ratio':>9}"
    return title, head, f"  {_sizes(row)}{ours}{theirs}{ratio:>9}"


def _sampling(row: Row) -> tuple[str, str, str]:
    ours, theirs = (row["frames_per_second"][name] for name in ("ours", "torch_nn"))
    ratio = _times(row["over_torch_nn"])
    head = f"  {'unit':15}{'H':>10}{'frames/s':>16}{'torch.nn':>16}{'ratio':>9}"
    line = f"  {_sizes(row)}{ours:16,.0f}{theirs:16,.0f}{ratio:>9}"
    return f"sampling one piece, {row['model']}", head, line


def _sound(row: Row) -> tuple[str, str, str]:
    title = f"sound, {row['model']}: B {row['batch']}, {row['samples']} samples"
    ours, theirs, ratio = _ms(row["ours"]), _ms(row["torch_nn"]), _times(row["over_torch_nn"])
    head = f"  {'unit':15}{'H':>5}{'Hz':>7}{'step ms':>16}{'torch.nn ms':>16}{'ratio':>9}"
    line = f"  {row['unit']:15}{row['hidden']:5}{row['rate']:7}{ours}{theirs}{ratio:>9}"
    share, speed = f"{row['features_percent']:.0f} %", _times(row["real_time"])
    return title, f"{head}{'features':>10}{'real time':>11}", f"{line}{share:>10}{speed:>11}"


def _processes(row: Row) -> tuple[str, str, str]:
    title = f"an update on several processes, in {row['parts']} parts: T {row['frames']}"
    head = f"  {'unit':15}{'weights':>11}{'B':>4}"
    line = f"  {row['unit']:15}{row['weights']:11,}{row['batch']:4}"
    for told in row["processes"]:
        head += f"{told['processes']:5}: ms"
        line += f"{told['update_ms']:9.1f}"
        if told["processes"] > 1:
            head += f"{'exchange':>10}{'ratio':>7}"
            line += f"{told['exchange_ms']:10.1f}{_times(told['over_one']):>7}"
    return title, head, line


LINES: dict[str, Callable[[Row], tuple[str, str, str]]] = {
    "units": _unit,
    "models": _model,
    "sampling": _sampling,
    "sound": _sound,
    "processes": _processes,
}


def _sizes(row: Row) -> str:
    along_pitch = row["note_hidden"]
    hidden = f"{row['hidden']}, {along_pitch}" if along_pitch else str(row["hidden"])
    return f"{row['unit']:15}{hidden:>10}"


def _ms(timing: Row) -> str:
    ms, spread = timing["ms"], timing["spread_percent"]
    digits = f"{ms:.{2 if ms < 100 else 1 if ms < 1000 else 0}f}"
    return f"{digits:>8} +- {spread:2.0f} %"


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.1f}x"
