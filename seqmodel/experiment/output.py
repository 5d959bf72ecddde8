"""The files of an experiment's results: tables, and a page with curves and samples.

A table has a block for each dataset, a column for each variant and, like Table 2 of Chung et al.
2014, a row for each split: the mean of the seeds' nats per frame and their standard deviation.
Training times, which differ each time, are in the text, the curves and the page; of the tables,
only the datasets' paths in the JSON's plan depend on the machine.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import optuna

from seqmodel.errors import SeqmodelError
from seqmodel.experiment.plan import Plan
from seqmodel.experiment.results import FEWEST, Comparison, Difference, Outcome, jointly, results
from seqmodel.experiment.studies import Studies
from seqmodel.files import write_file
from seqmodel.media.definitions import SPLITS
from seqmodel.media.words import (
    aligned,
    csv_text,
    duration_text,
    epochs_text,
    listed,
    plural,
    spaced,
)
from seqmodel.plots import plot_curves
from seqmodel.report.origin import provenance, short_path
from seqmodel.report.page import parts
from seqmodel.report.page.parts import render
from seqmodel.report.run_page import beside_trivial, draw, real_piece, trivial_rows
from seqmodel.report.subjects import Subject, subject_of
from seqmodel.runs.files import epochs_of
from seqmodel.runs.folder import BEST, load_run

SEED = 1
"""Seed of the samples."""
MAX_NAMED = 4
"""With more variants than this, the title gives their number, not their names."""
LATEX = str.maketrans({"±": r"$\pm$"} | {character: f"\\{character}" for character in "&%$#_{}"})
BOLD = "Bold: the best on {}, and those not told apart from it or that may yet catch up."


def write_results(studies: Studies, folder: Path, command: str) -> tuple[str, list[str]]:
    """Write tables, learning curves and a page to the experiment's folder.

    The same runs always produce the same files, except for the datasets' paths in table.json and
    the page. Returns the printed results and the names of the files.
    """
    comparisons = results(studies)
    plan = studies.plan
    seeds = f"mean ± standard deviation of {plan.seeds} seeds" if plan.seeds > 1 else "one seed"
    notes = [f"Nats per frame, {seeds} each{'' if plan.space else ', without a search'}."]
    if plan.against is not None and plan.seeds > 1:
        notes.append(f"In the row above {plan.against}, ± is half an interval of at least 95 %.")
    if plan.search == "tpe":
        notes.append(
            "The search depends on the order in which runs end: with several processes, a rerun "
            "may choose differently."
        )
    files = {
        "table.md": as_markdown(comparisons, notes),
        "table.tex": as_latex(comparisons),
        "table.csv": as_csv(comparisons),
        "differences.csv": differences_csv(comparisons),
        "table.json": as_json(comparisons, plan.to_json()),
    }
    for name, content in files.items():
        write_file(folder / name, content.encode(errors="backslashreplace"))
    for comparison in comparisons:  # the winners, as in Figures 2 and 3 of Chung et al. 2014
        winners = [o for o in comparison.outcomes if o.seeds and o.seeds[0].metrics]
        if curves := {winner.name: winner.seeds[0].metrics for winner in winners}:
            plot_curves(folder / f"curves-{comparison.dataset}.png", comparison.dataset, curves)
    page = comparison_page(plan, comparisons, folder, notes, command)
    write_file(folder / "report.html", render(page).encode())
    return as_text(comparisons, notes), [*files, "report.html"]


def comparison_page(
    plan: Plan,
    comparisons: Sequence[Comparison],
    folder: Path,
    notes: Sequence[str],
    command: str,
) -> parts.Page:
    """The page of an experiment, with samples of the runs that are in `folder`."""
    names = [variant.name for variant in plan.variants]
    what = listed(names) if len(names) <= MAX_NAMED else f"{len(names)} variants"
    sources = [replace(source, path=short_path(source.path)) for source in plan.sources]
    plan_json = as_json([], replace(plan, sources=sources).to_json()).strip()
    origin = provenance(
        command,
        [("Plan", plan_json)],
        threads="one thread for each run",
        versions={"Optuna": optuna.__version__},
    )
    return parts.Page(
        title=f"{what} on {listed([c.dataset for c in comparisons])}",
        lead=(*map(_lead, comparisons), *joint_verdicts(comparisons), *notes),
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
    return text + beside_trivial(nats, comparison.baselines.get(comparison.judged, {}), ".3f")


def _section(comparison: Comparison, folder: Path) -> parts.Section:
    section_parts: list[parts.Part] = [_figures(comparison), _curves(comparison)]
    if any("learning_rate" in trial.params for o in comparison.outcomes for trial in o.trials):
        section_parts.append(_searches(comparison))
    section_parts += [*_samples(comparison, folder), _runs(comparison)]
    told = verdicts(comparison.compared, comparison.judged)
    remarks = tuple(f"{line}." for line in (*told, *caveats(comparison)))
    return parts.Section(comparison.dataset, tuple(section_parts), remarks)


def _figures(comparison: Comparison) -> parts.Table:
    """A row for each variant and each trivial model; the columns are those of `table_rows`."""
    lines = [*table_rows(comparison), time_row(comparison)]
    labels, *columns = zip(*lines, strict=True)
    judged, rows = 1 + labels.index(comparison.judged), []
    for outcome, cells in zip(comparison.outcomes, columns, strict=True):
        bold = frozenset([judged] if comparison.leads(outcome) else [])
        rows.append(parts.Row((outcome.name, *cells), bold, series=outcome.name))
    rows += trivial_rows(comparison.baselines, labels, ".3f")
    notes = [BOLD.format(comparison.judged)] if comparison.conclusive else []
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
                trial.params["learning_rate"],
                trial.valid,
                f"trial {k}, {trial.ended}",
            )
            for outcome in comparison.outcomes
            for k, trial in enumerate(outcome.trials)
            if trial.valid is not None
        )
    )


def _samples(comparison: Comparison, folder: Path) -> list[parts.Part]:
    subjects, notes = list[Subject](), [f"Of each winner, with seed {SEED}."]
    for outcome in comparison.outcomes:
        run = folder / "runs" / outcome.cell.name / f"trial-{outcome.winner}"
        try:
            if (run / BEST).is_file():
                subjects.append(subject_of(load_run(run), outcome.name))
        except SeqmodelError:  # its figures are in the journal
            notes.append(f"Without {outcome.name}, whose checkpoint cannot be read.")
    drawn = draw(subjects, number=1, seed=SEED, progress=lambda done, total: None)
    samples = tuple(sample for subject in drawn.values() for sample in subject)
    if not samples:
        return []
    winner = subjects[0].run
    with suppress(SeqmodelError):  # the dataset may be gone by now
        samples += tuple(real_piece(winner, winner.dataset()))
    return [parts.Samples(samples, notes=tuple(notes))]


def _runs(comparison: Comparison) -> parts.Table:
    """Every run, with the settings found, its curve, figure, epochs and time, and how it ended."""
    columns = dict.fromkeys(key for o in comparison.outcomes for t in o.trials for key in t.params)
    figures = ("best valid", "epochs", "seconds")
    names = ("run", *map(spaced, columns), "valid over epochs", *figures, "ended")
    rows = [
        parts.Row(
            (
                f"{outcome.name}, {kind} {k}",
                *(f"{attempt.params[key]:.3g}" if key in attempt.params else "" for key in columns),
                tuple(line["valid_nats_per_frame"] for line in attempt.metrics),
                "" if attempt.valid is None else f"{attempt.valid:.4f}",
                epochs_text(epochs_of(attempt.metrics)),
                f"{attempt.seconds:.0f}",
                attempt.ended or "unfinished",
            ),
            series=outcome.name,
        )
        for outcome in comparison.outcomes
        for kind, first, attempts in (("trial", 0, outcome.trials), ("seed", 1, outcome.seeds))
        for k, attempt in enumerate(attempts, first)
    ]
    text = ("valid over epochs", "ended")
    return parts.Table(names, tuple(rows), "All runs", collapsed=True, text=text)


# ---- tables --------------------------------------------------------------------------------------


def table_rows(comparison: Comparison) -> list[list[str]]:
    """The rows of one dataset: a label, then a cell for each variant."""
    outcomes = comparison.outcomes
    searched = {name for outcome in outcomes for trial in outcome.trials for name in trial.params}
    setting_names = ["learning_rate", *sorted(searched - {"learning_rate", "hidden"})]

    def row(label: str, cell: Callable[[Outcome], str]) -> list[str]:
        return [label, *map(cell, outcomes)]

    figures = []
    for split in (split for split in SPLITS if split in comparison.lengths):
        figures.append(row(split, partial(_figure, comparison, split)))
        if split == comparison.judged and (against := comparison.plan.against) is not None:
            figures.append(row(f"above {against}", partial(_from_reference, comparison)))
    return [
        *figures,
        row("hidden", _sizes),
        row("parameters", lambda o: f"{o.parameters.units:,}" if o.parameters else ""),
        row("with the output", lambda o: f"{o.parameters.with_output:,}" if o.parameters else ""),
        *[row(spaced(name), partial(_setting, name)) for name in setting_names],
        row("epochs", _epochs),
    ]


def time_row(comparison: Comparison) -> list[str]:
    """The mean training time of each winner's seeds; not in `table_rows`, because it varies."""
    seconds = [[a.seconds for a in outcome.seeds if a.metrics] for outcome in comparison.outcomes]
    return ["training time", *(duration_text(fmean(each)) if each else "" for each in seconds)]


def joint_verdicts(comparisons: Sequence[Comparison]) -> list[str]:
    """The same for the mean over datasets if the same split decides, for pairs named in advance."""
    planned = [each for each in comparisons if each.plan.against is not None or each.plan.all_pairs]
    if len(planned) < 2 or len({each.judged for each in planned}) > 1:
        return []
    gaps: list[dict[tuple[str, str], Difference]] = []
    for comparison in planned:
        both = comparison.compared.items()
        gaps.append(dict(both) | {(k, i): gap.reversed() for (i, k), gap in both})
    pairs = [pair for pair in planned[0].compared if all(pair in each for each in gaps)]
    joint = {pair: jointly([each[pair] for each in gaps]) for pair in pairs}
    lines = verdicts(joint, planned[0].judged)
    return [f"over {len(planned)} datasets: {line}" for line in lines]


def verdicts(compared: Mapping[tuple[str, str], Difference], split: str) -> list[str]:
    """Which differences on the deciding split are real, one line for each compared pair."""
    lines = []
    for (first, second), difference in compared.items():
        behind = difference.mean >= 0
        name, other = (first, f"{second} on {split}") if behind else (second, f"{first} on {split}")
        gap = difference if behind else difference.reversed()
        interval = "{:.3f} nats ({:.3f} to {:.3f})".format(gap.mean, *gap.interval)
        if gap.real:
            lines.append(f"{name} is better than {other} by {interval}")
        elif gap.verdict == "withheld":
            lines.append(f"{name} is ahead of {other} by {interval}, no verdict: {gap.doubt}")
        elif gap.conclusive:
            lines.append(f"{name} and {other} cannot be told apart: {interval}")
        else:
            few = "one seed" if gap.seeds < 2 else plural(gap.pieces, "piece")
            ahead = f"{name} is {gap.mean:.3f} nats ahead of {other}"
            needed = "" if gap.seeds < 2 else f" (at least {FEWEST} are needed)"
            lines.append(f"{ahead}, which {few} cannot tell from chance{needed}")
    return lines


def caveats(comparison: Comparison) -> list[str]:
    """Reasons to doubt a verdict: variants no better than a trivial model, or undertrained."""
    lines = []
    if worse := comparison.no_better_than_trivial():
        start = f"{listed(worse)} {'is' if len(worse) == 1 else 'are'} no better than"
        lines.append(f"{start} a trivial model on {comparison.judged}")
    if improving := [o.name for o in comparison.outcomes if o.improving]:
        lines.append(
            f"{listed(improving)} still improved in the last epoch: try a larger --set epochs=N"
        )
    for name in comparison.plan.space:
        if at_end := [o.name for o in comparison.outcomes if comparison.at_end(o, name)]:
            start = f"the best {spaced(name)} of {listed(at_end)} is at an end of the range"
            lines.append(f"{start} searched: values beyond it may be better")
    return lines


def _remarks(comparison: Comparison) -> list[str]:
    """The verdicts, the best trivial model of each split, and the caveats."""
    lines = verdicts(comparison.compared, comparison.judged)
    if comparison.judged == "valid":
        lines.append("there is no test: valid decides, which also chose epochs and settings")
    for split in SPLITS:
        if (trivial := comparison.trivial(split)) is not None:
            lines.append(f"best trivial model on {split}: {trivial[1]:.3f} ({spaced(trivial[0])})")
    return lines + caveats(comparison)


def as_text(comparisons: Sequence[Comparison], notes: Sequence[str]) -> str:
    """The tables for a terminal."""
    blocks = []
    for comparison in comparisons:
        table = aligned([*_grid(comparison), time_row(comparison)])
        blocks.append("\n".join([*map(str.rstrip, table), *_remarks(comparison)]))
    last = [*joint_verdicts(comparisons), *notes]
    return "\n\n".join([*blocks, *(["\n".join(last)] if last else [])])


def as_markdown(comparisons: Sequence[Comparison], notes: Sequence[str]) -> str:
    """The tables for a README."""
    blocks = []
    for comparison in comparisons:
        head, *lines = map(_markdown_row, _grid(comparison, "**{}**"))
        rule = _markdown_row(["---", *["---:"] * len(comparison.outcomes)])
        remarks = [f"- {line}" for line in _remarks(comparison)]
        blocks.append("\n".join([head, rule, *lines, "", *remarks]))
    return "\n\n".join([*blocks, *joint_verdicts(comparisons), *notes]) + "\n"


def as_latex(comparisons: Sequence[Comparison]) -> str:
    """A table for each dataset, whose caption explains its figures."""
    blocks = []
    for comparison in comparisons:
        grid = _grid(comparison, r"\textbf{{{}}}", _latex_escape)
        head, *body = (" & ".join(line) + r" \\" for line in grid)
        columns = "l" + "r" * len(comparison.outcomes)
        lines = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", head, r"\hline", *body]
        caption = rf"\caption{{{_latex_escape(_caption(comparison))}}}"
        ends = [r"\hline", r"\end{tabular}", caption, r"\end{table}"]
        blocks.append("\n".join([r"\begin{table}", r"\centering", *lines, *ends]))
    return "\n\n".join(blocks) + "\n"


def _caption(comparison: Comparison) -> str:
    seeds = max((len(outcome.scored) for outcome in comparison.outcomes), default=0)
    varying = " ± the standard deviation over seeds" if seeds > 1 else ", one seed"
    caption = f"Nats per frame on {comparison.dataset}: mean{varying}."
    if (against := comparison.plan.against) is not None:
        caption += f" The row above {against}: how many more than {against}"
        conclusive = any(gap.conclusive for gap in comparison.compared.values())
        interval = " ± half an interval of at least 95 % that allows for all pairs, seeds, pieces"
        caption += f"{interval if conclusive else ''}, on {comparison.judged}."
    if comparison.conclusive:
        caption += f" {BOLD.format(comparison.judged)}"
    gaps = [*comparison.compared.values(), *comparison.behind.values()]
    doubts = [gap.doubt for gap in gaps if gap.verdict == "withheld"]
    return caption + "".join(f" No verdict: {doubt}." for doubt in dict.fromkeys(doubts))


def differences_csv(comparisons: Sequence[Comparison]) -> str:
    """A line for each compared pair: how many more nats per frame the variant takes."""
    names = ["nats_per_frame", "low", "high", "verdict", "doubt"]
    rows = [["dataset", "split", "variant", "against", *names]]
    for c in comparisons:
        for (against, name), gap in c.compared.items():
            ends = map(str, gap.interval) if gap.conclusive else ("", "")
            pair = c.dataset, c.judged, name, against
            rows.append([*pair, repr(gap.mean), *ends, gap.verdict, gap.doubt])
    return csv_text(rows)


def as_csv(comparisons: Sequence[Comparison]) -> str:
    """A line for each dataset, variant, split and seed."""
    rows = [["dataset", "variant", "split", "seed", "nats_per_frame"]]
    for c in comparisons:
        for o, split in product(c.outcomes, c.lengths):
            for k, nats in zip(o.scored, c.figures(o, split).tolist(), strict=True):
                seed = o.config.seed + k if o.config else k
                rows.append([c.dataset, o.name, split, str(seed), repr(nats)])
    return csv_text(rows)


def as_json(comparisons: Sequence[Comparison], plan: Mapping[str, Any]) -> str:
    """Everything, the plan included, for programs."""
    values = {"plan": plan, "datasets": [*map(_values, comparisons)]}
    return json.dumps(values, indent=2) + "\n"


def _values(comparison: Comparison) -> dict[str, Any]:
    return {
        "dataset": comparison.dataset,
        "baselines": comparison.baselines,
        "pairs": [
            {"variant": name, "against": against, **_gap_values(gap)}
            for (against, name), gap in comparison.compared.items()
        ],
        "variants": [
            {
                "variant": outcome.name,
                "parameters": outcome.parameters and outcome.parameters.units,
                "parameters_with_output": outcome.parameters and outcome.parameters.with_output,
                "hidden": None if outcome.config is None else outcome.config.hidden,
                "found": dict(outcome.params),
                "nats_per_frame": {
                    split: comparison.figures(outcome, split).tolist()
                    for split in comparison.lengths
                },
                "above_the_best": None if gap is None else _gap_values(gap),
                "still_improving": outcome.improving,
                "at_end_of_range": [
                    name for name in comparison.plan.space if comparison.at_end(outcome, name)
                ],
                "trials": [
                    {"found": dict(run.params), "valid_nats_per_frame": run.valid}
                    | {"epochs": epochs_of(run.metrics), "ended": run.ended}
                    for run in outcome.trials
                ],
            }
            for outcome in comparison.outcomes
            for gap in [comparison.behind.get(outcome.name)]
        ],
    }


def _gap_values(gap: Difference) -> dict[str, Any]:
    low, high = gap.interval if gap.conclusive else (None, None)
    sizes = {"seeds": gap.seeds, "pieces": gap.pieces}
    verdict = {"verdict": gap.verdict, "doubt": gap.doubt}
    return {"mean": gap.mean, "low": low, "high": high, **sizes, **verdict}


def _grid(
    comparison: Comparison, mark: str = "{}", escape: Callable[[str], str] = str
) -> list[list[str]]:
    """Head and rows, marking the figures that are best or not told apart from the best."""
    grid = [[escape(cell) for cell in line] for line in table_rows(comparison)]
    judged_row = next(line for line in grid if line[0] == comparison.judged)
    for k, outcome in enumerate(comparison.outcomes, 1):
        if comparison.leads(outcome):
            judged_row[k] = mark.format(judged_row[k])
    heads = comparison.dataset, *(outcome.name for outcome in comparison.outcomes)
    return [[*map(escape, heads)], *grid]


def _figure(comparison: Comparison, split: str, outcome: Outcome) -> str:
    figures = comparison.figures(outcome, split)
    if not len(figures):
        return ""
    if len(figures) == 1:
        return f"{figures[0]:.3f}"
    return f"{figures.mean():.3f} ± {np.std(figures, ddof=1):.3f}"


def _from_reference(comparison: Comparison, outcome: Outcome) -> str:
    """The difference in nats per frame from the reference, with the margin if there is one."""
    gap = comparison.compared.get((str(comparison.plan.against), outcome.name))
    if gap is None:
        return ""
    return f"{gap.mean:+.3f} ± {gap.margin:.3f}" if gap.conclusive else f"{gap.mean:+.3f}"


def _sizes(outcome: Outcome) -> str:
    config = outcome.config
    if config is None:
        return "diverged" if all(t.ended for t in outcome.trials) and outcome.trials else ""
    layers = "" if config.layers == 1 else f"{config.layers} x "
    note = "" if config.note_hidden is None else f", {config.note_hidden}"
    return f"{layers}{config.hidden}{note}"


def _setting(name: str, outcome: Outcome) -> str:
    value = None if outcome.config is None else getattr(outcome.config, name)
    return "" if value is None else f"{value:.2g}" if isinstance(value, float) else str(value)


def _epochs(outcome: Outcome) -> str:
    counts = [epochs_of(attempt.metrics) for attempt in outcome.seeds if attempt.ended]
    if not counts:
        return ""
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _latex_escape(cell: str) -> str:
    return cell.translate(LATEX)
