"""`seqmodel compare`: its options and the sequence of its steps."""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqmodel.cli.common import Json, Quiet, blaming, message, print_json, show
from seqmodel.cli.completion import one_of, several_of
from seqmodel.config import (
    PRESETS,
    SEARCHES,
    TRIALS,
    USUAL,
    Config,
    field_types,
    parse_setting,
    read_config_file,
    search_of,
)
from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.units import UNITS

if TYPE_CHECKING:
    from seqmodel.experiment.plan import Plan, Source

RESULTS = Path("results")
SETTINGS, SEARCH, RUN = "Settings of all runs", "Search", "Run"
EXAMPLES = """\
seqmodel compare music --units gru,lstm --params 20000 --out results/units
seqmodel compare music --units gru --vary dropout=0,0.2,0.4"""


def compare(
    data: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DATA", help="Prepared datasets; the bundled sample if none."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The folder of the experiment.  [default: in results/, by the data and --quick]",
            rich_help_panel=USUAL,
        ),
    ] = None,
    units: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="See `seqmodel units`.  [default: tanh,gru,lstm]",
            rich_help_panel=USUAL,
            autocompletion=several_of(UNITS),
        ),
    ] = "",
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,...",
            help="Compare another setting too, or instead; repeatable. Keys are those of `seqmodel "
            "train --print-config`.",
            rich_help_panel=USUAL,
        ),
    ] = None,
    params: Annotated[
        int | None,
        typer.Option(
            help="Solve every unit's size for this many parameters, without outputs.",
            rich_help_panel=USUAL,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"What all runs start from: {' or '.join(PRESETS)}.",
            rich_help_panel=SETTINGS,
            autocompletion=one_of(PRESETS),
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Settings of all runs, from a YAML file.", rich_help_panel=SETTINGS
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of all runs; repeatable.",
            rich_help_panel=USUAL,
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            help="paper: learning rates exp(U(-12, -6)), the same for all. tpe: Optuna's sampler "
            "over the rate and what --tune names; after a first look only the best third go on. "
            "none: the settings unchanged.  [default: paper with the paper preset, else tpe]",
            rich_help_panel=SEARCH,
            autocompletion=one_of((*SEARCHES, "none")),
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Runs of each search.", rich_help_panel=SEARCH)
    ] = TRIALS,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=LOW..HIGH",
            help="tpe: search this too; repeatable.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1, help="Runs of each search's winner, the first included.", rich_help_panel=USUAL
        ),
    ] = 3,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="A first answer: no search, one seed, few epochs.",
            rich_help_panel=USUAL,
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes, of one thread each.  [default: one per core]",
            rich_help_panel=USUAL,
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A database shared by several hosts, such as postgresql://...  "
            "[default: a file in --out]",
            rich_help_panel=RUN,
        ),
    ] = None,
    status: Annotated[
        bool,
        typer.Option(
            "--status",
            help="Print how far the experiment is, and stop.",
            rich_help_panel=RUN,
        ),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find out which unit, or which value of a setting, is better.

    For each dataset and unit: a search on valid, then the winner trained over the seeds and scored
    on every split. Repeat the command to resume, or start it several times, also on other hosts
    with --storage, to share the work; more units or data extend the experiment. Tables and curves
    are written to --out.
    """
    if status:
        if not (out or data):
            raise UsageError("--status needs the datasets or --out FOLDER")
        from seqmodel.experiment.plan import sources_of

        folder = out or _default_folder(sources_of(data or []), quick=quick)
        _print_status(folder, storage, as_json=as_json)
        return

    from seqmodel.data.bundled import sample_dataset
    from seqmodel.runs.folder import RUNS

    paths = data or [sample_dataset(RUNS)]
    given: dict[str, Any] = {"preset": preset} if preset else {}
    given |= dict(_setting(text) for text in setting or [])
    given |= {"params": params} if params else {}

    def plan_with(file: Mapping[str, Any]) -> "Plan":
        return _plan(
            paths, units, vary or [], file, given, search, trials, tune or [], seeds, quick=quick
        )

    plan = blaming(Path(config or ""), read_config_file(config) if config else {}, plan_with)
    folder = out or _default_folder(plan.sources, quick=quick)
    _run(plan, folder, storage, jobs or os.cpu_count() or 1, as_json=as_json, quiet=quiet)


def _default_folder(sources: Iterable["Source"], *, quick: bool) -> Path:
    """In results/; a quick answer has its own, so that the whole experiment may follow."""
    names = [source.name for source in sources]
    return RESULTS / "-".join([*names, "quick"] if quick else names)


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set takes KEY=VALUE, not {text!r}")
    return key, parse_setting(key, value, "--set")


def _plan(
    paths: list[Path],
    units: str,
    vary: list[str],
    file: Mapping[str, Any],
    options: Mapping[str, Any],
    search: str | None,
    trials: int,
    tune: list[str],
    seeds: int,
    *,
    quick: bool,
) -> "Plan":
    from seqmodel.experiment.plan import Plan, sources_of, variants_of
    from seqmodel.training.space import default_space, tuned
    from seqmodel.training.trials import finals

    settings = {**file, **options}
    of_preset = search_of(settings.get("preset", Config.preset))
    names = units.split(",") if units else [] if vary else ["tanh", "gru", "lstm"]
    variants = variants_of(names, vary)
    varied, tunes = variants[0].settings, dict(tuned(text, field_types) for text in tune)
    for given, option in ((options, "set for all"), (tunes, "tuned")):
        for name in varied:
            if name in given:
                raise UsageError(f"{name} is varied and {option}: leave one out")
    # What is varied is not searched; without anything else to search there is no search.
    unsearched = "learning_rate" in varied and not tune
    chosen = search or ("none" if quick or unsearched else of_preset)
    if chosen not in (*SEARCHES, "none"):
        raise UsageError(f"--search must be paper, tpe or none, not {chosen!r}")
    if tune and chosen != "tpe":
        raise UsageError("--tune goes with --search tpe")
    if unsearched and chosen != "none":
        raise UsageError(f"--search {chosen} searches learning_rate, which is varied: name none")
    space = default_space(chosen, paper=of_preset == "paper") | tunes
    space = {name: bounds for name, bounds in space.items() if name not in varied}
    plan = Plan(
        sources=sources_of(paths),
        variants=variants,
        settings=settings,
        search=chosen,
        trials=trials if space else 1,
        finals=finals(chosen, trials),
        seeds=1 if quick else seeds,
        space=space,
        quick=quick,
    )
    plan.check()
    return plan


def _run(
    plan: "Plan", folder: Path, storage: str | None, jobs: int, *, as_json: bool, quiet: bool
) -> None:
    from seqmodel.cli.compare.live import shown
    from seqmodel.data.dataset import MANIFEST
    from seqmodel.experiment.jobs import work
    from seqmodel.experiment.output import write_results
    from seqmodel.experiment.storage import open_storage, without_password
    from seqmodel.experiment.studies import Studies
    from seqmodel.files import check_writable
    from seqmodel.locks import held
    from seqmodel.runs.folder import CONFIG
    from seqmodel.training.stopping import stop_on_signals

    for name, what in ((MANIFEST, "dataset"), (CONFIG, "run")):
        if (folder / name).is_file():
            raise UsageError(f"--out {folder} is a {what}: name a folder of its own")
    check_writable(folder / "table.md")
    meeting = open_storage(folder, storage)
    with held(folder / "locks" / "begin", wait=True):
        studies = Studies.begin(meeting, folder.name, plan)
    counts = {cell.name: studies.counts(cell) for cell in plan.cells()}
    jobs = min(jobs, sum(cell.total - cell.done for cell in counts.values()))
    with stop_on_signals() as stop, shown(counts, jobs, quiet=quiet) as take:
        if not studies.complete():
            work(folder, folder.name, plan, storage, jobs, tell=take, stop=stop)
    command = shlex.join(["seqmodel", *sys.argv[1:]])
    if storage is not None:
        command = command.replace(storage, without_password(storage))
    printed = write_results(studies, folder, command)
    show(*(printed.json if as_json else printed.text).removesuffix("\n").split("\n"))
    message(f"written to {folder}", quiet=quiet)


def _print_status(out: Path, storage: str | None, *, as_json: bool) -> None:
    from seqmodel.cli.compare.status import status_lines, status_values
    from seqmodel.experiment.status import status_of
    from seqmodel.experiment.storage import JOURNAL, open_storage
    from seqmodel.experiment.studies import Studies

    if storage is None and not (out / JOURNAL).is_file():
        raise SeqmodelError(f"{out} holds no experiment")
    studies = Studies.begun(open_storage(out, storage), out.name)
    if studies is None:
        raise SeqmodelError(f"{out.name} has not begun")
    status = status_of(studies, out)
    if as_json:
        print_json(status_values(status))
    else:
        show(*status_lines(status))
