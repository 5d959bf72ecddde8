"""The files of an experiment's results: tables, and a page with curves and samples besides."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import optuna

from seqmodel.data.dataset import open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.experiment import table
from seqmodel.experiment.plan import Plan
from seqmodel.experiment.results import Comparison, results
from seqmodel.experiment.studies import Studies
from seqmodel.files import write_file
from seqmodel.media.words import listed, spaced
from seqmodel.plots import plot_curves
from seqmodel.report.origin import brief, came_from
from seqmodel.report.page import parts
from seqmodel.report.page.parts import render
from seqmodel.report.run_page import draw, real_piece
from seqmodel.report.subjects import subject_of
from seqmodel.runs.files import epochs_of
from seqmodel.runs.folder import BEST, load_run

SEED = 1
"""Seed of the samples."""
NAMED = 4
"""With more variants than this, the title gives their number, not their names."""


def write_results(studies: Studies, folder: Path, command: str) -> tuple[str, list[str]]:
    """Write tables, learning curves and a page to the experiment's folder.

    The same runs always make the same files, but for the datasets' paths in table.json and for the
    page. Returns the results as they are printed, and the names of the files.
    """
    comparisons = results(studies)
    notes = _notes(studies.plan)
    files = {
        "table.md": table.markdown(comparisons, notes),
        "table.tex": table.latex(comparisons),
        "table.csv": table.as_csv(comparisons),
        "differences.csv": table.differences_csv(comparisons),
        "table.json": table.as_json(comparisons, studies.plan.to_json()),
    }
    for name, content in files.items():
        write_file(folder / name, content.encode(errors="backslashreplace"))
    for comparison in comparisons:  # the winners, as in Figures 2 and 3 of Chung et al. 2014
        winners = [o for o in comparison.outcomes if o.seeds and o.seeds[0].metrics]
        if curves := {winner.name: winner.seeds[0].metrics for winner in winners}:
            plot_curves(folder / f"curves-{comparison.dataset}.png", comparison.dataset, curves)
    page = comparison_page(studies.plan, comparisons, folder, notes, command)
    write_file(folder / "report.html", render(page).encode())
    return table.text(comparisons, notes), [*files, "report.html"]


def _notes(plan: Plan) -> Sequence[str]:
    seeds = f"{plan.seeds} seeds" if plan.seeds > 1 else "one seed"
    notes = [f"Nats per frame; {seeds} each{'' if plan.space else ', without a search'}."]
    if plan.search == "tpe":
        notes.append(
            "The search depends on the order in which runs end: with several processes, a rerun "
            "may choose differently."
        )
    return notes


def comparison_page(
    plan: Plan,
    comparisons: Sequence[Comparison],
    folder: Path,
    notes: Sequence[str],
    command: str,
) -> parts.Page:
    """The page of an experiment, with samples of the runs that are in `folder`."""
    names = [variant.name for variant in plan.variants]
    what = listed(names) if len(names) <= NAMED else f"{len(names)} variants"
    sources = [replace(source, path=brief(source.path)) for source in plan.sources]
    settled = table.as_json([], replace(plan, sources=sources).to_json()).strip()
    origin = came_from(
        command,
        [("Plan", settled)],
        threads="one thread for each run",
        versions={"Optuna": optuna.__version__},
    )
    return parts.Page(
        title=f"{what} on {listed([c.dataset for c in comparisons])}",
        lead=(*map(_lead, comparisons), *table.joint_verdicts(comparisons), *notes),
        sections=(*(_section(comparison, folder) for comparison in comparisons), origin),
    )


def _lead(comparison: Comparison) -> str:
    """Which variant predicts best, and whether it is better than a trivial model."""
    ranked, where = comparison.ranked(), f"{comparison.judged} of {comparison.dataset}"
    if not ranked:
        return f"No variant has a result on {comparison.dataset}."
    best = ranked[0]
    nats = comparison.mean(best)
    others = [other.name for other in ranked[1:] if comparison.leads(other)]
    tied = f", though {listed(others)} may be as good" if others else ""
    claim = f"predicts {where} best{tied}"
    if comparison.behind and not comparison.conclusive:
        claim = f"leads on {where}, on too few seeds or pieces for a verdict"
    text = f"{best.name} {claim}, with {nats:.3f} nats per frame"
    trivial = comparison.trivial(comparison.judged)
    if trivial is None:
        return f"{text}."
    verdict = "scores" if nats < trivial[1] else "is better, at"
    return f"{text}; the best trivial model ({spaced(trivial[0])}) {verdict} {trivial[1]:.3f}."


def _section(comparison: Comparison, folder: Path) -> parts.Section:
    shown: list[parts.Part] = [_figures(comparison), _curves(comparison)]
    if any("learning_rate" in trial.found for o in comparison.outcomes for trial in o.trials):
        shown.append(_searches(comparison))
    shown += [*_samples(comparison, folder), _runs(comparison)]
    verdicts = [*table.verdicts(comparison), *table.caveats(comparison)]
    return parts.Section(comparison.dataset, tuple(shown), tuple(f"{line}." for line in verdicts))


def _figures(comparison: Comparison) -> parts.Table:
    """A row for each variant and each trivial model; the columns are the rows of `table`."""
    lines = [*table.rows(comparison), table.time_row(comparison)]
    labels, *columns = zip(*lines, strict=True)
    judged, rows = 1 + labels.index(comparison.judged), []
    for outcome, cells in zip(comparison.outcomes, columns, strict=True):
        bold = frozenset([judged] if comparison.leads(outcome) else [])
        rows.append(parts.Row((outcome.name, *cells), bold, series=outcome.name))
    for name in dict.fromkeys(name for found in comparison.baselines.values() for name in found):
        figures = [comparison.baselines.get(label, {}).get(name) for label in labels]
        trivial = ["" if nats is None else f"{nats:.3f}" for nats in figures]
        rows.append(parts.Row((f"{spaced(name)} (trivial)", *trivial), muted=True))
    notes = [table.BOLD.format(comparison.judged)] if comparison.conclusive else []
    return parts.Table(("model", *labels), tuple(rows), "Nats per frame", tuple(notes))


def _curves(comparison: Comparison) -> parts.Curves:
    return parts.Curves(
        tuple(
            parts.Curve(
                f"{outcome.name}, seed {k + 1}" if len(outcome.seeds) > 1 else outcome.name,
                attempt.metrics,
                attempt.best["epoch"],
                outcome.name,
            )
            for outcome in comparison.outcomes
            for k, attempt in enumerate(outcome.seeds)
            if attempt.best is not None
        ),
        train=False,
    )


def _searches(comparison: Comparison) -> parts.Scatter:
    return parts.Scatter(
        tuple(
            parts.Dot(
                outcome.name,
                trial.found["learning_rate"],
                trial.valid,
                f"trial {trial.index}, {trial.ended}",
            )
            for outcome in comparison.outcomes
            for trial in outcome.trials
            if trial.valid is not None
        )
    )


def _samples(comparison: Comparison, folder: Path) -> list[parts.Part]:
    winners = [
        (o, folder / "runs" / o.cell.name / f"trial-{o.winner}") for o in comparison.outcomes
    ]
    subjects = [subject_of(load_run(run), o.name) for o, run in winners if (run / BEST).is_file()]
    drawn = draw(subjects, number=1, seed=SEED, progress=lambda done, total: None)
    samples = tuple(sample for subject in drawn.values() for sample in subject)
    if samples:
        winner = subjects[0].run
        with suppress(SeqmodelError):  # the dataset may be gone since
            samples += tuple(real_piece(winner, open_dataset(str(winner.config.data))))
    return (
        [parts.Samples(samples, notes=(f"Of each winner, with seed {SEED}.",))] if samples else []
    )


def _runs(comparison: Comparison) -> parts.Table:
    """Every run, with the settings found, its curve, figure, epochs and time, and how it ended."""
    found = dict.fromkeys(key for o in comparison.outcomes for t in o.trials for key in t.found)
    figures = ("best valid", "epochs", "seconds")
    names = ("run", *map(spaced, found), "valid over epochs", *figures, "ended")
    rows = [
        parts.Row(
            (
                f"{outcome.name}, {kind} {attempt.index + (kind == 'seed')}",
                *(f"{attempt.found[key]:.3g}" if key in attempt.found else "" for key in found),
                tuple(line["valid_nats_per_frame"] for line in attempt.metrics),
                "" if attempt.valid is None else f"{attempt.valid:.4f}",
                f"{epochs_of(attempt.metrics)}",
                f"{attempt.seconds:.0f}",
                attempt.ended or "unfinished",
            ),
            series=outcome.name,
        )
        for outcome in comparison.outcomes
        for kind, attempts in (("trial", outcome.trials), ("seed", outcome.seeds))
        for attempt in attempts
    ]
    text = ("valid over epochs", "ended")
    return parts.Table(names, tuple(rows), "All runs", collapsed=True, text=text)
