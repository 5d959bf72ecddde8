"""`seqmodel compare`: its options, the sequence of its steps, and what it shows under way."""

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import typer

from seqmodel.cli.common import blaming, message, paper_remark, print_json, show
from seqmodel.cli.options import Json, Quiet, about, check_given, one_of, several_of
from seqmodel.cli.progress import LONG_SILENCE, display
from seqmodel.config import (
    PRESETS,
    SEARCHES,
    TRIALS,
    USUAL,
    Config,
    parse_setting,
    read_config_file,
    resolve,
    search_of,
)
from seqmodel.errors import SeqmodelError, UsageError, advising
from seqmodel.experiment.folder import RESUME_HINT, Counts, Event, load_answer, seconds_left, weight
from seqmodel.media.words import hms, listed, plural, some
from seqmodel.runs.files import RUNS
from seqmodel.units import UNITS, module_name, unit_spec

if TYPE_CHECKING:
    from seqmodel.experiment.plan import Plan, Range, Source

RESULTS = Path("results")
usual, of_settings, of_search, of_verdicts, of_run = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in (USUAL, "Settings of all runs", "Search", "Verdicts", "Run")
)
EXAMPLES = """\
seqmodel compare music --units gru,lstm --params 20000 --out results/units
seqmodel compare music --units gru --vary dropout=0,0.2,0.4"""


def compare(
    context: typer.Context,
    data: list[Path] | None = typer.Argument(
        None, metavar="DATA", help="Prepared datasets.  [default: the bundled sample]"
    ),
    out: Path | None = usual(
        None,
        "--out",
        "-o",
        metavar="FOLDER",
        help="The experiment's folder.  [default: in results/, named after the data and --quick]",
    ),
    units: str = usual(
        "",
        metavar="A,B,...",
        help="Names from `seqmodel units`, NAME.unit or module:Class.  [default: tanh,gru,lstm]",
        autocompletion=several_of(UNITS),
    ),
    vary: list[str] | None = usual(
        None,
        metavar="KEY=A,B,...",
        help="Compare values of another setting, besides or instead of units; repeatable. "
        "Keys are those of `seqmodel train --print-config`.",
    ),
    params: int | None = usual(
        None, help="Choose every unit's size for this many parameters, not counting outputs."
    ),
    preset: str | None = of_settings(
        None,
        help=f"The preset of all runs: {' or '.join(PRESETS)}.",
        autocompletion=one_of(PRESETS),
    ),
    config: Path | None = of_settings(
        None, metavar="FILE", help="Settings for all runs, from a YAML file."
    ),
    setting: list[str] | None = usual(
        None, "--set", metavar="KEY=VALUE", help="A setting for all runs; repeatable."
    ),
    search: str | None = of_search(
        None,
        help="bracket: learning rates on both sides of the best so far, ever closer, or further "
        "out while it is the lowest or highest. paper: rates from exp(U(-12, -6)), the same for "
        "all. tpe: Optuna's sampler over the rate and whatever --tune names. none: the settings as "
        "given.  [default: bracket; with --tune: tpe; with the paper preset: paper]",
        autocompletion=one_of((*SEARCHES, "none")),
    ),
    trials: int | None = of_search(
        None, min=1, help="Runs in each search.  [default: 7; paper and tpe: 10]"
    ),
    tune: list[str] | None = of_search(
        None, metavar="KEY=LOW..HIGH", help="Search this setting too; repeatable."
    ),
    seeds: int | None = usual(
        None,
        min=1,
        help="Runs of each search's winner, including the first.  [default: 3; with --quick: 1]",
    ),
    against: str | None = of_verdicts(
        None, metavar="A", help="Test each against this one.  [default: against the best]"
    ),
    all_pairs: bool = of_verdicts(False, "--all-pairs", help="Test every pair."),
    quick: bool = usual(False, "--quick", help="A first answer: no search, one seed, few epochs."),
    jobs: int | None = usual(
        None,
        min=1,
        help="Processes, with one thread each.  [default: one per core, as far as memory allows]",
    ),
    storage: str | None = of_run(
        None,
        metavar="URL",
        envvar="SEQMODEL_STORAGE",
        help="A database shared by several hosts, whose --out has the same name, such as "
        "postgresql://me@host/name; the password can be in PGPASSWORD or ~/.pgpass.  "
        "[default: a file in --out]",
    ),
    artifacts: Path | None = of_run(
        None,
        metavar="FOLDER",
        help="With --storage: a folder shared by all hosts, where each stores the checkpoints of "
        "its winners, so that every host's page has all samples.",
    ),
    status: bool = of_run(False, "--status", help="Print the progress of the experiment and stop."),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find out which unit, or which value of a setting, is better.

    For each dataset and unit, search on valid, then train the winner with several seeds and score
    it on every split. Repeat the command to resume. Start it several times to share the work, with
    --storage on other hosts too. More units, data, trials or seeds extend the experiment. Tables
    and curves are written to --out.
    """
    from seqmodel.data.bundled import sample_dataset
    from seqmodel.experiment.plan import Plan, setting_of, sources_of, variants_of

    if status:
        if not (out or data):
            raise UsageError("--status needs the datasets or --out FOLDER")
        folder = out or _default_folder(sources_of(data or []), quick=quick)
        _print_status(folder, storage, as_json=as_json)
        return
    check_given(context, [("--against", "--all-pairs")], [("--artifacts", "--storage URL")])
    given = dict[str, Any]()
    if preset is not None:
        given["preset"] = resolve({"preset": preset}).preset  # refuses an unknown one
    for pair in setting or []:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, not {pair!r}")
        given[key] = setting_of(key, value, "--set")
    if params is not None:
        given["params"] = parse_setting("params", f"{params}", "--params")

    def begin(file: Mapping[str, Any]) -> "tuple[Plan, Path, str | None]":
        names = units.split(",") if units else [] if vary else ["tanh", "gru", "lstm"]
        for name in names:  # before torch is loaded
            if module_name(name) is None:
                unit_spec(name)
        variants = variants_of(names, vary or [])
        chosen, space = _search(search, file, given, variants[0].settings, tune or [], quick=quick)
        if trials is not None and not space:
            raise UsageError("--trials needs a search, and there is none: leave it out, or --quick")
        plan = Plan(
            sources=sources_of(data or [sample_dataset(RUNS)]),
            variants=variants,
            settings={**file, **given},
            search=chosen,
            trials=(trials or TRIALS[chosen]) if space else 1,
            seeds=seeds or (1 if quick else 3),
            space=space,
            quick=quick,
            against=against,
            all_pairs=all_pairs,
        )
        folder = out or _default_folder(plan.sources, quick=quick)
        text, _ = (load_answer(folder, plan) if storage is None else None) or (None, None)
        if text is None:
            plan.check()
        return plan, folder, text

    file_settings = read_config_file(config) if config else {}
    plan, folder, text = blaming(Path(config or ""), file_settings, begin)
    if text is None:
        with advising(RESUME_HINT):
            text = _run(plan, folder, storage, artifacts, jobs)
    if as_json:
        text = (folder / "table.json").read_text("utf-8").removesuffix("\n")
    show(*text.split("\n"))
    message(f"written to {folder}")


def _default_folder(sources: Iterable["Source"], *, quick: bool) -> Path:
    """In results/; separate for --quick, so that the full experiment can follow."""
    names = [source.name for source in sources]
    return RESULTS / "-".join([*names, "quick"] if quick else names)


def _search(
    search: str | None,
    file: Mapping[str, Any],
    options: Mapping[str, Any],
    varied: Mapping[str, Any],
    tune: list[str],
    *,
    quick: bool,
) -> "tuple[str, dict[str, Range]]":
    """The search to run, and its space: the settings it tries, with their ranges."""
    from seqmodel.experiment.plan import default_space, parse_range

    preset_search = search_of({**file, **options}.get("preset", Config.preset))
    tune_ranges = dict(parse_range(text) for text in tune)
    for settings, option in ((options, "set for all"), (tune_ranges, "tuned")):
        for name in varied:
            if name in settings:
                raise UsageError(f"{name} is varied and {option}: leave one out")
    # What is varied is not searched; if nothing else is to be searched, there is no search.
    unsearched = "learning_rate" in varied and not tune
    chosen = search or ("none" if quick or unsearched else "tpe" if tune else preset_search)
    if chosen not in (*SEARCHES, "none"):
        raise UsageError(f"--search must be one of {', '.join(SEARCHES)}, none, not {chosen!r}")
    if tune and chosen != "tpe":
        raise UsageError("--tune needs --search tpe")
    if unsearched and chosen != "none":
        raise UsageError(
            f"--search {chosen} tries rates, but learning_rate is varied: use --search none"
        )
    space = default_space(chosen, paper=preset_search == "paper") | tune_ranges
    return chosen, {name: bounds for name, bounds in space.items() if name not in varied}


def _run(
    plan: "Plan", folder: Path, storage: str | None, artifacts: Path | None, jobs: int | None
) -> str:
    """Run the rest of an experiment and write its results; returns the text to print."""
    from seqmodel.experiment.folder import ANSWER, BEGIN, check_folder, store_answer
    from seqmodel.experiment.jobs import Pool, Task, collect
    from seqmodel.experiment.output import write_results
    from seqmodel.experiment.studies import Studies, name_in, open_storage, status_of
    from seqmodel.files import check_writable, held_lock
    from seqmodel.training.stopping import stop_on_signals

    command = _command(storage)
    check_folder(folder)
    if artifacts is not None:
        check_writable(artifacts / "checkpoint")
    opened_storage = open_storage(folder, storage, message)
    with held_lock(folder / BEGIN, wait=True):
        name = name_in(opened_storage, folder, storage)
        with about(f"{folder}"):  # which may have been renamed since
            studies = Studies.begin(opened_storage, name, plan)
        if (studies.plan.trials, studies.plan.seeds) != (plan.trials, plan.seeds):
            sizes = plural(studies.plan.trials, "trial"), plural(studies.plan.seeds, "seed")
            message(f"{folder} keeps its {listed(sizes)}")
        plan = studies.plan
        counts = {cell.name: studies.counts(cell) for cell in plan.cells()}
        limit = sum(cell.processes for cell in counts.values())
        if limit:
            (folder / ANSWER).unlink(missing_ok=True)  # it will be replaced
    if limit:
        total = sum(cell.total for cell in counts.values())
        to_do = total - sum(cell.done for cell in counts.values())
        each = f"{plural(plan.trials, 'trial')} and {plural(plan.seeds, 'seed')} of the best"
        cells = "each of " * (len(counts) > 1) + some(counts, 6)
        sooner = "; --quick gives a first answer sooner" * (to_do == total and not plan.quick)
        runs = plural(total, "run")
        left = f"{to_do} of {runs} to do" if to_do else f"{runs} trained, the best to be scored"
        message(f"{folder}: {left}, {each} for {cells}{sooner}")
        for source in plan.sources:
            message(paper_remark(plan.settings.get("preset"), source.dataset()))
        with stop_on_signals() as stop, experiment_progress(counts) as (take, say):
            task = Task(folder, plan, storage, artifacts)
            Pool(task, jobs, limit, report=take, say=say, stop=stop).run()
    if artifacts is not None:
        collect(studies, folder, artifacts)
    with display("writing tables and a page"):
        text, files = write_results(studies, folder, command)
    with held_lock(folder / BEGIN, wait=True):
        current = Studies.load(opened_storage, name)
        if current is not None and plan.differs(current.plan) is None:  # nobody has extended it
            store_answer(folder, plan, text, status_of(studies, folder), files)
    return text


def _command(storage: str | None) -> str:
    """The command as typed, without a database's password."""
    words = ["seqmodel", *sys.argv[1:]]
    if storage is not None:
        from seqmodel.experiment.database import without_password

        censored = without_password(storage)
        words = [word.replace(storage, censored) for word in words]
    return shlex.join(words)


def _print_status(out: Path, storage: str | None, *, as_json: bool) -> None:
    from seqmodel.experiment.folder import holds_journal

    stored = load_answer(out) if storage is None else None
    if stored is not None:
        status = stored[1]
    elif storage is None and not holds_journal(out):
        raise SeqmodelError(f"{out} holds no experiment")
    else:
        from seqmodel.experiment.database import is_new
        from seqmodel.experiment.studies import Studies, name_in, open_storage, status_of

        studies = None
        if storage is None or not is_new(storage):
            opened_storage = open_storage(out, storage)
            studies = Studies.load(opened_storage, name_in(opened_storage, out, storage))
        if studies is None:
            raise SeqmodelError(f"experiment {out.resolve().name} has not begun")
        status = status_of(studies, out)
    if as_json:
        print_json(status)
    else:
        show(*status_lines(status))


@contextmanager
def experiment_progress(
    counts: Mapping[str, Counts],
) -> Iterator[tuple[Callable[[Event], None], Callable[[str], None]]]:
    """Yield functions that take an event and print a line; `counts` are of each cell at first."""
    cells, running = dict(counts), dict[str, Event]()
    ended = sum(cell.done for cell in cells.values())
    start_time, gained = monotonic(), 0.0  # of ended runs, in units of a whole run
    with display("all runs", silence=LONG_SILENCE) as lines:

        def take(event: Event) -> None:
            nonlocal ended, gained
            running[event.run], size = event, weight(event.run)
            if event.ended is not None:
                del running[event.run]
                gained += size * event.gained
                cells[event.cell] = event.counts or cells[event.cell]
                # Others may have ended whose events are still to come, or runs of other commands.
                counted = sum(cell.done for cell in cells.values())
                ended = max(ended + size, counted - sum(map(weight, running)))
            total = sum(cell.total for cell in cells.values())
            trained = [latest for latest in running.values() if weight(latest.run)]
            begun = sum(latest.done for latest in trained)
            so_far = gained + sum(latest.gained for latest in trained)
            left = total - sum(cell.done for cell in cells.values()) - begun
            seconds = seconds_left(max(left, 0.0), so_far, monotonic() - start_time, 1)
            time_left = [] if ended == total or seconds is None else [f"{hms(seconds)} left"]
            figure = [] if event.valid is None else [f"{event.valid:.4f}"]
            news = [] if event.ended else [f"{event.epoch}/{event.epochs}", *figure]
            lines.show_part(event.run, *news, share=event.done)
            done = min(ended + begun, total)
            lines.show("all runs", f"{ended}/{total}", *time_left, done=done, total=total)
            if event.ended is not None and size:
                line = f"{ended}/{total}", event.run, *(figure or ["no figure"]), event.ended
                lines.say("  ".join([*line, *time_left]))

        yield take, lines.say


def status_lines(status: Mapping[str, Any]) -> list[str]:
    """The output of --status: a line per cell and per run in progress, and a total."""
    lines = []
    for cell in status["cells"]:
        valid = cell["best_valid_nats_per_frame"]
        best = "" if valid is None else f"  best valid {valid:.4f}"
        parts = [f"{cell[f'{kind}_done']} of {cell[kind]} {kind}" for kind in ("trials", "seeds")]
        lines.append(f"{cell['cell']}: {', '.join(parts)}{best}")
    lines += map(_line, status["running"])
    totals = [f"{status['done']}/{status['runs']} runs done"]
    if all(cell["seeds_done"] == cell["seeds"] for cell in status["cells"]):
        return [*lines, *totals]
    left = status["seconds_left"]
    totals += [f"about {hms(left)} left"] if left is not None else []
    totals += [] if status["running"] else ["none in progress: run the same command to resume"]
    return [*lines, ", ".join(totals)]


def _line(running: Mapping[str, Any]) -> str:
    epoch, share, figure, host = (
        running[name] for name in ("epoch", "share_done", "best_valid_nats_per_frame", "host")
    )
    parts = [f"running: {running['run']}"]
    parts += (
        [f"epoch {epoch} done"]
        if share is None
        else [f"{share:.0%}", f"{epoch}/{running['epochs']}"]
    )
    parts += [] if figure is None else [f"{figure:.4f}"]
    return "  ".join(parts if host is None else [*parts, f"on {host}"])
