"""`seqmodel train`: from a dataset and a unit to a run folder."""

from functools import partial
from pathlib import Path
from typing import Any

import typer

from seqmodel.cli import ranks
from seqmodel.cli.common import message
from seqmodel.cli.help import one_of
from seqmodel.cli.options import Device, Force, Json, Quiet, with_settings
from seqmodel.config import RUN, TRAINING, UNITS, USUAL, to_yaml
from seqmodel.errors import UsageError
from seqmodel.unit_setting import read_unit

EXAMPLES = """\
seqmodel train music --unit gru --epochs 20 --run runs/mine
seqmodel train --resume --run runs/mine"""

usual_option = partial(typer.Option, rich_help_panel=USUAL)
run_option = partial(typer.Option, rich_help_panel=RUN)


@with_settings
def train(
    data: Path | None = typer.Argument(
        None, metavar="DATA", help="A prepared dataset.  [default: the bundled sample]"
    ),
    run: Path | None = usual_option(
        None, metavar="FOLDER", help="The run folder.  [default: a new one in runs/]"
    ),
    *,
    resume: bool = usual_option(
        False, "--resume", help="Continue a stopped run: --run, or the newest (on DATA if given)."
    ),
    trials: int | None = typer.Option(
        None,
        min=1,
        help="Runs in --lr search, with rates on both sides of the best so far; with the paper "
        "preset, which always searches, from exp(U(-12, -6)).  [default: 7; paper: 10]",
        rich_help_panel=TRAINING,
    ),
    config: Path | None = run_option(
        None, metavar="FILE", help="Read settings from a YAML file; options override them."
    ),
    print_config: bool = run_option(
        False, "--print-config", help="Print all settings as YAML and stop."
    ),
    init_from: Path | None = run_option(
        None, metavar="RUN", help="Start from the weights of another run, a folder or zip."
    ),
    processes: int | None = run_option(
        None,
        metavar="N",
        min=1,
        help="Processes on this machine that share each update; any number that divides --parts "
        "(which defaults to N) gives the same bits.",
    ),
    track: list[str] | None = run_option(
        None,
        metavar="NAME",
        help="Report each epoch to a tracker: tensorboard, or one that a package provides; "
        "repeatable. Repeat it on --resume.",
        autocompletion=one_of(["tensorboard"]),
    ),
    device: Device = "auto",
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Train a unit and keep the epoch with the best score on valid.

    Stop a run with Ctrl-C and continue it with --resume, bit for bit. The frame-wise model and the
    paper preset have other defaults: see --print-config.
    """
    if ranks.process_rank().rank:
        ranks.follow(data)
        return
    if data is not None and not resume:
        from seqmodel.data.dataset import open_dataset

        open_dataset(data)  # its errors come before torch is loaded
    from seqmodel.cli.job import Job, of_new_run, of_stopped_run  # loads torch
    from seqmodel.runs.folder import LAST, newest_resumable_run
    from seqmodel.training.trackers import find_trackers

    size, trackers = ranks.processes_of(processes), find_trackers(track or [])
    given = {name: value for name, value in settings.items() if value is not None}
    given |= {name: read_unit(given[name]) for name in UNITS if name in given}
    if data is not None:
        given["data"] = str(data)
    if run is not None and ranks.was_restarted() and (run / LAST).is_file():
        resume, init_from, config, force = True, None, None, False
    if resume:
        if init_from is not None or config is not None or force:
            raise UsageError("--resume excludes --init-from, --config and --force: leave them out")
        folder = run or newest_resumable_run(data=data)
        if not (run or print_config):
            message(f"resuming {folder}, the newest run")
        resolved = of_stopped_run(folder, given, trials)
    else:
        if size > 1:
            given.setdefault("parts", size)
        resolved = of_new_run(given, config, trials)
    ranks.check_processes(resolved, size)
    if print_config:
        typer.echo(to_yaml(resolved), nl=False)
        return
    job = Job(resolved, device, size, trackers, as_json)
    if resume:
        job.resume(folder)
    else:
        job.start(run, init_from, force=force)
