"""The page of a comparison: the table, the curves, the searches, and a sample of each winner."""

from collections.abc import Sequence
from pathlib import Path

from seqmodel.experiment import table
from seqmodel.experiment.plan import Plan
from seqmodel.experiment.results import Attempt, Comparison, Outcome
from seqmodel.report.drawing import draw
from seqmodel.report.origin import came_from
from seqmodel.report.page import (
    Cloud,
    Column,
    Curve,
    Curves,
    Detail,
    Dot,
    Page,
    Part,
    Point,
    Row,
    Samples,
    Scatter,
    Section,
    Table,
)
from seqmodel.report.subjects import subject_of
from seqmodel.runs.folder import BEST, load_run

SEED = 1
"""Of the samples."""


def comparison_page(
    name: str,
    plan: Plan,
    comparisons: Sequence[Comparison],
    folder: Path,
    notes: Sequence[str],
    command: str,
) -> Page:
    """The page of the experiment called `name`, whose runs are in `folder`.

    Runs that were trained on another host have no sample here.
    """
    lead = [line for comparison in comparisons for line in _lead(comparison)]
    sections = [_section(comparison, folder) for comparison in comparisons]
    settings = Detail("Plan", table.as_json([], plan.to_json()).strip())
    return Page(
        title=f"{name}: {' and '.join(c.dataset for c in comparisons)}",
        lead=(*lead, *notes),
        sections=(*sections, came_from(command, [settings])),
    )


def _lead(comparison: Comparison) -> list[str]:
    ranked = comparison.ranked()
    if not ranked:
        return [f"Nothing learned {comparison.dataset}."]
    best = ranked[0]
    nats = float(comparison.figures(best, comparison.judged).mean())
    return [
        f"{best.cell.variant.name} predicts {comparison.judged} of {comparison.dataset} best, with "
        f"{nats:.3f} nats per frame."
    ]


def _section(comparison: Comparison, folder: Path) -> Section:
    parts: list[Part] = [_figures(comparison), _curves(comparison)]
    if any(trial.found.get("learning_rate") for o in comparison.outcomes for trial in o.trials):
        parts.append(_searches(comparison))
    parts += _samples(comparison, folder)
    parts.append(_runs(comparison))
    verdicts = (*table.verdicts(comparison), *table.baseline_lines(comparison))
    return Section(comparison.dataset, tuple(parts), tuple(f"{line}." for line in verdicts))


def _figures(comparison: Comparison) -> Table:
    """A row for each variant; the columns are the rows of `table`."""
    lines = table.rows(comparison)
    columns = (Column("", is_text=True), *(Column(label) for label, _ in lines))
    best = comparison.ranked()[:1]
    judged = 1 + [label for label, _ in lines].index(comparison.judged)
    rows = [
        Row(
            (outcome.cell.variant.name, *(cells[k] for _, cells in lines)),
            frozenset([judged] if outcome in best else []),
            series=outcome.cell.variant.name,
        )
        for k, outcome in enumerate(comparison.outcomes)
    ]
    return Table(columns, tuple(rows), "Nats per frame")


def _curves(comparison: Comparison) -> Curves:
    return Curves(
        tuple(
            Curve(f"{name}, seed {k + 1}" if len(outcome.seeds) > 1 else name, points, best, name)
            for outcome in comparison.outcomes
            for k, attempt in enumerate(outcome.seeds)
            for name in [outcome.cell.variant.name]
            for points, best in [_points(attempt)]
            if points
        )
    )


def _points(attempt: Attempt) -> tuple[tuple[Point, ...], int | None]:
    points, seconds = [], 0.0
    for line in attempt.metrics:
        seconds += line["seconds"]
        nats = line["train_nats_per_frame"], line["valid_nats_per_frame"]
        points.append(Point(line["updates"], seconds, *nats))
    best = attempt.best
    return tuple(points), None if best is None else int(best["epoch"])


def _searches(comparison: Comparison) -> Scatter:
    return Scatter(
        tuple(
            Cloud(
                outcome.cell.variant.name,
                tuple(
                    Dot(
                        trial.found["learning_rate"],
                        trial.best["valid_nats_per_frame"],
                        f"trial {trial.index}, {trial.ended}",
                    )
                    for trial in outcome.trials
                    if trial.best is not None
                ),
            )
            for outcome in comparison.outcomes
        )
    )


def _samples(comparison: Comparison, folder: Path) -> list[Part]:
    subjects = [
        subject_of(load_run(run), outcome.cell.variant.name)
        for outcome in comparison.outcomes
        if (run := _winner(outcome, folder)) is not None
    ]
    drawn = draw(subjects, number=1, seed=SEED, progress=lambda done, total: None)
    samples = tuple(sample for subject in drawn.values() for sample in subject)
    return [Samples(samples, notes=(f"Of each winner, with seed {SEED}.",))] if samples else []


def _winner(outcome: Outcome, folder: Path) -> Path | None:
    """The run of the winning trial, if it was trained here."""
    if outcome.winner is None:
        return None
    run = folder / "runs" / outcome.cell.name / f"trial-{outcome.winner}"
    return run if (run / BEST).is_file() else None


def _runs(comparison: Comparison) -> Table:
    """Every run, with its rate, its figure, its time, and how it ended."""
    names = ("run", "settings", "best valid", "epochs", "seconds", "ended")
    rows = [
        Row(
            (
                f"{outcome.cell.variant.name}, {kind} {attempt.index + first}",
                ", ".join(f"{key} {value:.3g}" for key, value in attempt.found.items()),
                "" if attempt.best is None else f"{attempt.best['valid_nats_per_frame']:.4f}",
                f"{len(attempt.metrics)}",
                f"{attempt.seconds:.0f}",
                attempt.ended or "not ended",
            ),
            series=outcome.cell.variant.name,
        )
        for outcome in comparison.outcomes
        for kind, attempts, first in (("trial", outcome.trials, 0), ("seed", outcome.seeds, 1))
        for attempt in attempts
    ]
    columns = tuple(Column(name, is_text=name in ("run", "settings", "ended")) for name in names)
    return Table(columns, tuple(rows), "All runs", collapsed=True)
