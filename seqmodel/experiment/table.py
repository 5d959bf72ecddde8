"""The results as tables: plain text, Markdown, LaTeX, CSV and JSON.

A table has a block for each dataset, a column for each variant and, like Table 2 of Chung et al.
2014, a row for each split: the mean of the seeds' nats per frame and their standard deviation.
Training times, which differ each time, are in `text` only; of the rest, only the datasets' paths in
the JSON's plan depend on where it was made.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from seqmodel.experiment.results import FEWEST, Comparison, Difference, Outcome, jointly
from seqmodel.media.definitions import SPLITS
from seqmodel.media.words import listed, plural, spaced, spent
from seqmodel.runs.files import epochs_of

BOLD = "Bold: the best on {}, and those that are not told apart from it or may yet catch up."


def rows(comparison: Comparison) -> list[list[str]]:
    """The rows of one dataset: a label, then a cell for each variant."""
    outcomes = comparison.outcomes
    searched = {name for outcome in outcomes for trial in outcome.trials for name in trial.found}
    shown = ["learning_rate", *sorted(searched - {"learning_rate", "hidden"})]

    def row(label: str, cell: Callable[[Outcome], str]) -> list[str]:
        return [label, *map(cell, outcomes)]

    figures = []
    for split in (split for split in SPLITS if split in comparison.lengths):
        figures.append(row(split, partial(_figure, comparison, split)))
        if split == comparison.judged and comparison.against is not None:
            figures.append(row(f"above {comparison.against}", partial(_from_reference, comparison)))
    return [
        *figures,
        row("hidden", _sizes),
        row("parameters", lambda o: f"{o.parameters.units:,}" if o.parameters else ""),
        row("with the output", lambda o: f"{o.parameters.with_output:,}" if o.parameters else ""),
        *[row(spaced(name), partial(_setting, name)) for name in shown],
        row("epochs", _epochs),
    ]


def time_row(comparison: Comparison) -> list[str]:
    """How long the seeds of each winner trained, on average; not in `rows`, as it varies."""
    seconds = [[a.seconds for a in outcome.seeds if a.metrics] for outcome in comparison.outcomes]
    return ["training time", *(spent(fmean(each)) if each else "" for each in seconds)]


def verdicts(comparison: Comparison) -> list[str]:
    """Which differences are real, one line for each pair that is compared."""
    return _verdicts(comparison.compared)


def joint_verdicts(comparisons: Sequence[Comparison]) -> list[str]:
    """The same of the mean over datasets where one split decides, for pairs named beforehand."""
    named = [each for each in comparisons if each.against is not None or each.all_pairs]
    if len(named) < 2 or len({each.judged for each in named}) > 1:
        return []
    gaps: list[dict[tuple[str, str], Difference]] = []
    for comparison in named:
        both = comparison.compared.items()
        gaps.append(dict(both) | {(k, i): gap.reversed() for (i, k), gap in both})
    pairs = [pair for pair in named[0].compared if all(pair in each for each in gaps)]
    joint = {pair: jointly([each[pair] for each in gaps]) for pair in pairs}
    return [f"over {len(named)} datasets: {line}" for line in _verdicts(joint)]


def _verdicts(compared: Mapping[tuple[str, str], Difference]) -> list[str]:
    lines = []
    for (first, second), found in compared.items():
        behind = found.mean >= 0
        name, its = (first, second) if behind else (second, first)
        gap = found if behind else found.reversed()
        interval = "{:.3f} nats ({:.3f} to {:.3f})".format(gap.mean, *gap.interval)
        if gap.real:
            lines.append(f"{name} is better than {its} by {interval}")
        elif gap.verdict == "withheld":
            lines.append(f"{name} is ahead of {its} by {interval}, no verdict: {gap.doubt}")
        elif gap.conclusive:
            lines.append(f"{name} and {its} cannot be told apart: {interval}")
        else:
            few = "one seed" if gap.seeds < 2 else plural(gap.pieces, "piece")
            ahead = f"{name} is {gap.mean:.3f} nats ahead of {its}"
            needed = "" if gap.seeds < 2 else f" (at least {FEWEST} are needed)"
            lines.append(f"{ahead}, which {few} cannot tell from chance{needed}")
    return lines


def caveats(comparison: Comparison) -> list[str]:
    """Reasons to doubt a verdict: who is no better than a trivial model, or not trained enough."""
    lines = []
    if worse := _names(comparison.no_better_than_trivial()):
        start = f"{listed(worse)} {'is' if len(worse) == 1 else 'are'} no better than"
        lines.append(f"{start} a trivial model on {comparison.judged}")
    if improving := _names(comparison.improving()):
        lines.append(f"{listed(improving)} still improved in the last epoch: more epochs may help")
    for name in comparison.space:
        if at_end := _names(comparison.at_end(name)):
            start = f"the best {spaced(name)} of {listed(at_end)} is at an end of the range"
            lines.append(f"{start} searched: beyond it may be better")
    return lines


def _remarks(comparison: Comparison) -> list[str]:
    """The verdicts, the best trivial model of each split, and the caveats."""
    lines = verdicts(comparison)
    if comparison.judged == "valid":
        lines.append("valid decides, on which epochs and settings were chosen: there is no test")
    for split in SPLITS:
        trivial = comparison.trivial(split)
        if trivial is not None:
            lines.append(f"best trivial model on {split}: {trivial[1]:.3f} ({spaced(trivial[0])})")
    return lines + caveats(comparison)


def text(comparisons: Sequence[Comparison], notes: Sequence[str]) -> str:
    """For a terminal."""
    blocks = []
    for comparison in comparisons:
        grid = [*_grid(comparison), time_row(comparison)]
        first, *widths = (max(map(len, column)) for column in zip(*grid, strict=True))
        table = [
            f"{label:{first}}"
            + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
            for label, *cells in grid
        ]
        blocks.append("\n".join([*map(str.rstrip, table), *_remarks(comparison)]))
    last = [*joint_verdicts(comparisons), *notes]
    return "\n\n".join([*blocks, *(["\n".join(last)] if last else [])])


def markdown(comparisons: Sequence[Comparison], notes: Sequence[str]) -> str:
    """For a README."""
    blocks = []
    for comparison in comparisons:
        head, *lines = map(_piped, _grid(comparison, "**{}**"))
        rule = _piped(["---", *["---:"] * len(comparison.outcomes)])
        remarks = [f"- {line}" for line in _remarks(comparison)]
        blocks.append("\n".join([head, rule, *lines, "", *remarks]))
    return "\n\n".join([*blocks, *joint_verdicts(comparisons), *notes]) + "\n"


def latex(comparisons: Sequence[Comparison]) -> str:
    """A table for each dataset, whose caption explains its figures."""
    blocks = []
    for comparison in comparisons:
        grid = _grid(comparison, r"\textbf{{{}}}", _escaped)
        head, *body = (" & ".join(line) + r" \\" for line in grid)
        columns = "l" + "r" * len(comparison.outcomes)
        lines = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", head, r"\hline", *body]
        caption = rf"\caption{{{_escaped(_caption(comparison))}}}"
        ends = [r"\hline", r"\end{tabular}", caption, r"\end{table}"]
        blocks.append("\n".join([r"\begin{table}", r"\centering", *lines, *ends]))
    return "\n\n".join(blocks) + "\n"


def _caption(comparison: Comparison) -> str:
    """What the figures of a table are."""
    seeds = max((len(outcome.scored) for outcome in comparison.outcomes), default=0)
    varying = " ± the standard deviation over seeds" if seeds > 1 else ", one seed"
    caption = f"Nats per frame on {comparison.dataset}: mean{varying}."
    if comparison.against is not None:
        caption += f" The row above {comparison.against}: how many more than {comparison.against}"
        conclusive = any(gap.conclusive for gap in comparison.compared.values())
        interval = " ± half an interval of at least 95 % that allows for all pairs, seeds, pieces"
        caption += f"{interval if conclusive else ''}, on {comparison.judged}."
    if comparison.conclusive:
        caption += f" {BOLD.format(comparison.judged)}"
    gaps = [*comparison.compared.values(), *comparison.behind.values()]
    doubts = [gap.doubt for gap in gaps if gap.verdict == "withheld"]
    return caption + "".join(f" No verdict: {doubt}." for doubt in dict.fromkeys(doubts))


def differences_csv(comparisons: Sequence[Comparison]) -> str:
    """A line for each pair compared: how many more nats per frame the variant takes."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = ["nats_per_frame", "low", "high", "verdict", "doubt"]
    writer.writerow(["dataset", "split", "variant", "against", *names])
    for comparison in comparisons:
        for (against, name), gap in comparison.compared.items():
            ends = gap.interval if gap.conclusive else ("", "")
            judged = comparison.dataset, comparison.judged
            verdict = gap.verdict, gap.doubt
            writer.writerow([*judged, name, against, repr(gap.mean), *ends, *verdict])
    return file.getvalue()


def as_csv(comparisons: Sequence[Comparison]) -> str:
    """A line for each dataset, variant, split and seed."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["dataset", "variant", "split", "seed", "nats_per_frame"])
    for comparison in comparisons:
        for outcome in comparison.outcomes:
            for split in comparison.lengths:
                figures = comparison.figures(outcome, split)
                for k, nats in zip(outcome.scored, figures, strict=True):
                    seed = outcome.config.seed + k if outcome.config else k
                    figure = repr(float(nats))
                    writer.writerow([comparison.dataset, outcome.name, split, seed, figure])
    return file.getvalue()


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
                "found": dict(outcome.found),
                "nats_per_frame": {
                    split: comparison.figures(outcome, split).tolist()
                    for split in comparison.lengths
                },
                "above_the_best": None if gap is None else _gap_values(gap),
                "still_improving": outcome in comparison.improving(),
                "at_end_of_range": [n for n in comparison.space if outcome in comparison.at_end(n)],
                "trials": [
                    {"found": dict(run.found), "valid_nats_per_frame": run.valid}
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
    few = {"seeds": gap.seeds, "pieces": gap.pieces}
    judged = {"verdict": gap.verdict, "doubt": gap.doubt}
    return {"mean": gap.mean, "low": low, "high": high, **few, **judged}


def _names(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.name for outcome in outcomes]


def _grid(
    comparison: Comparison, mark: str = "{}", escape: Callable[[str], str] = str
) -> list[list[str]]:
    """Head and rows, marking the figures that are best or not told apart from the best."""
    grid = [[escape(cell) for cell in line] for line in rows(comparison)]
    judged = next(line for line in grid if line[0] == comparison.judged)
    for k, outcome in enumerate(comparison.outcomes, 1):
        if comparison.leads(outcome):
            judged[k] = mark.format(judged[k])
    return [[escape(text) for text in (comparison.dataset, *_names(comparison.outcomes))], *grid]


def _figure(comparison: Comparison, split: str, outcome: Outcome) -> str:
    figures = comparison.figures(outcome, split)
    if not len(figures):
        return ""
    if len(figures) == 1:
        return f"{figures[0]:.3f}"
    return f"{figures.mean():.3f} ± {np.std(figures, ddof=1):.3f}"


def _from_reference(comparison: Comparison, outcome: Outcome) -> str:
    """How many more nats per frame than the reference, with the margin if there is one."""
    gap = comparison.compared.get((str(comparison.against), outcome.name))
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


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _escaped(cell: str) -> str:
    for character in "&%$#_{}":
        cell = cell.replace(character, "\\" + character)
    return cell.replace("±", r"$\pm$")
