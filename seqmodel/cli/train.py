"""`seqmodel train`: from a dataset and a unit to a run folder.

Settings are checked as far as that is possible before torch is loaded, which takes seconds.
"""

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seqmodel.cli import ranks
from seqmodel.cli.common import blaming, message
from seqmodel.cli.options import Device, Force, Json, Quiet, about, one_of, with_settings
from seqmodel.config import (
    RESUMABLE,
    RUN,
    SEARCHES,
    TRAINING,
    TRIALS,
    UNITS,
    USUAL,
    Config,
    read_config_file,
    resolve,
    search_of,
    to_yaml,
)
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.files import locked
from seqmodel.outputs.registry import OUTPUTS, config_for, output_name
from seqmodel.runs import files as runs
from seqmodel.unit_setting import read_unit
from seqmodel.units import module_name, unit_spec

if TYPE_CHECKING:
    from seqmodel.media.definitions import FrameDefinition

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
        False, "--resume", help="Continue RUN or --run FOLDER, or the newest (on DATA if given)."
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
        "repeatable. With --resume, give it again.",
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
    if resume and run is None and data is not None and (data / runs.CONFIG).is_file():
        data, run = None, data
    if ranks.process_rank().rank:
        ranks.follow(data)
        return
    from seqmodel.training.trackers import find_trackers

    size, trackers = ranks.processes_of(processes), find_trackers(track or [])
    settings["data"] = data and str(data)
    given = {name: value for name, value in settings.items() if value is not None}
    given |= {name: read_unit(given[name]) for name in UNITS if name in given}
    if run is not None and ranks.was_restarted() and (run / runs.LAST).is_file():
        resume, init_from, config, force = True, None, None, False
    if resume:
        if init_from is not None or config is not None or force:
            raise UsageError("--resume excludes --init-from, --config and --force: leave them out")
        folder = run or runs.newest_resumable_run(data=data)
        if not (run or print_config):
            message(f"resuming {folder}, the newest run")
        resolved = _of_stopped_run(folder, given, trials)
        ranks.check_processes(resolved, size)
    else:
        file = read_config_file(config) if config else {}
        if size > 1 and "parts" not in file:
            given.setdefault("parts", size)
        blamed = partial(blaming, Path(config or ""), file)
        settled = partial(_settled, given, trials)
        chosen, _ = blamed(settled)
        ranks.check_processes(chosen, size)  # of the option, not the file
        if not print_config:
            _check_folders(run, init_from, chosen.data, force=force)
        resolved = blamed(lambda file: _sized(*settled(file), {**file, **given}))
    if print_config:
        typer.echo(to_yaml(resolved), nl=False)
        return
    from seqmodel.cli.job import Job

    job = Job(resolved, device, size, trackers, as_json)
    if resume:
        job.resume(folder)
    else:
        job.start(run, init_from, force=force)


def _check_folders(
    run: Path | None, init_from: Path | None, data: str | None, *, force: bool
) -> None:
    """SeqmodelError if a new run cannot be in `run`, or `init_from` cannot read any `data`."""
    from seqmodel.data.dataset import open_dataset
    from seqmodel.runs.content import unfinished
    from seqmodel.runs.folder import RUN_FOLDER, stored_run  # loads NumPy

    if run is not None:
        with locked(run):
            if not force and (left := unfinished(run)):
                raise SeqmodelError(f"{left}; --force replaces it")
            RUN_FOLDER.check_target(run, force=force)
    stored = None if init_from is None else stored_run(init_from)
    if stored is not None and data is not None:
        with about(f"--init-from {init_from}"):
            stored.check_reads(open_dataset(data))


def _of_stopped_run(folder: Path, given: dict[str, Any], trials: int | None) -> Config:
    """The settings of the run to resume, updated; UsageError if a fixed one is changed."""
    if folder.is_file():
        raise SeqmodelError(
            f"{folder} is a file, which holds no training state: start from its weights with "
            f"--init-from {folder}"
        )
    if not (folder / runs.CONFIG).is_file():
        with locked(folder):  # refuses if another process is about to begin the run
            raise SeqmodelError(
                f"{folder} is not a run folder (no {runs.CONFIG}): there is nothing to resume"
            )
    stored = {**Config.neutral(), **read_config_file(folder / runs.CONFIG)}
    given = _with_rates(given, stored, trials)
    changed = [name for name in given if given[name] != stored.get(name)]
    free = set(RESUMABLE) - ({"epochs"} if stored.get("minutes") else set())
    if fixed := sorted(set(changed) - free):
        search = "learning_rate" if trials is None else "trials"
        name = search if fixed[0] in SEARCHES.values() else fixed[0]
        option = "--" + name.replace("_", "-")
        raise UsageError(
            f"{option} cannot change on --resume; start a new run with --config "
            f"{folder / runs.CONFIG} and {option}, and --init-from {folder} if its weights fit"
        )
    if "data" in given:
        given["data"] = str(Path(given["data"]).resolve())  # as stored

    from seqmodel.data.dataset import open_dataset
    from seqmodel.model.build import meta_model

    def continued(stored: Mapping[str, Any]) -> Config:
        settings = resolve(given, stored)
        meta_model(settings, open_dataset(str(settings.data)).frame)  # UsageError as above
        return settings

    settings = blaming(folder / runs.CONFIG, stored, continued)
    ended = runs.epochs_of(runs.read_metrics(folder))
    if 0 < settings.epochs < ended:
        raise UsageError(f"--epochs {settings.epochs} is less than the {ended} done in {folder}")
    if not (folder / runs.LAST).is_file() and not settings.trials:
        raise SeqmodelError(
            f"{folder} has no checkpoint to resume from ({runs.LAST}); "
            f"train it again with --run {folder} --force"
        )
    return settings


def _with_rates(
    given: dict[str, Any], file: Mapping[str, Any], trials: int | None
) -> dict[str, Any]:
    """The options with `learning_rate` as a number, or replaced by the setting of a search."""
    others = dict(given)
    rate = others.pop("learning_rate", None)
    if rate is not None and rate != "search":
        if trials is not None:
            raise UsageError(f"--trials needs --lr search, not --lr {rate}")
        try:
            return {**others, "learning_rate": float(rate)}
        except ValueError:
            raise UsageError(f"--learning-rate must be a number or search, not {rate!r}") from None
    if rate is None and trials is None:
        return others
    search = search_of({**file, **given}.get("preset", Config.preset))
    return {**others, SEARCHES[search]: trials or TRIALS[search]}


def _settled(
    given: dict[str, Any], trials: int | None, file: Mapping[str, Any]
) -> tuple[Config, "FrameDefinition"]:
    """The settings for the medium of their data, whose frames come second, without torch."""
    from seqmodel.data.bundled import FRAMES_WITH_ONSETS  # loads NumPy
    from seqmodel.data.dataset import MANIFEST, open_dataset

    given = _with_rates(given, file, trials)
    data = {**file, **given}.get("data")
    if data and (Path(data) / runs.CONFIG).is_file() and not (Path(data) / MANIFEST).is_file():
        raise UsageError(f"{data} is a run: {runs.resume_command(data)} continues it")
    frame = open_dataset(data).frame if data else FRAMES_WITH_ONSETS
    settings = config_for(frame, given, file)
    _refuse_sizes_of_other_outputs(given, output_name(settings, frame))
    if module_name(settings.unit) is None:
        unit_spec(settings.unit)
    return settings, frame


def _sized(settings: Config, frame: "FrameDefinition", given: Collection[str]) -> Config:
    """The settings with all sizes, and enough epochs; UsageError if there is no such model.

    The default of epochs suits the bundled sample.
    """
    from seqmodel.data.dataset import open_dataset
    from seqmodel.model.build import meta_model, with_sizes
    from seqmodel.training.schedule import with_enough_epochs

    settings = with_sizes(settings, frame)
    meta_model(settings, frame)
    if settings.data is None:
        return settings
    return with_enough_epochs(settings, open_dataset(settings.data), given)


def _refuse_sizes_of_other_outputs(given: Mapping[str, Any], chosen: str) -> None:
    """UsageError for a size option that the chosen output does not use."""
    sizes = {name: entry.size for name, entry in OUTPUTS.items() if entry.size is not None}
    for setting in sizes.values():
        names = [name for name, size in sizes.items() if size == setting]
        if setting in given and chosen not in names:
            option = "--" + setting.replace("_", "-")
            raise UsageError(f"{option} is for --output {' or '.join(names)}, not for {chosen}")
