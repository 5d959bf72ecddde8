"""The files of an experiment's results."""

from collections.abc import Sequence
from pathlib import Path

from seqmodel.experiment import table
from seqmodel.experiment.page import comparison_page
from seqmodel.experiment.plan import Plan
from seqmodel.experiment.results import results
from seqmodel.experiment.studies import Studies
from seqmodel.files import write_file
from seqmodel.plots.curves import plot_curves
from seqmodel.report.page.render import render


def write_results(studies: Studies, folder: Path, command: str) -> tuple[str, list[str]]:
    """Write tables, the list of runs, learning curves and a page to the experiment's folder.

    table.md, .tex, .csv and .json are the same whenever and wherever they are made from the same
    runs, except that .json has the datasets' paths; runs.txt, curves-*.png and report.html hold
    times too, and the page the `command`. Returns the results as they are printed, and the names of
    the files.
    """
    comparisons = results(studies)
    notes = _notes(studies.plan)
    files = {
        "table.md": table.markdown(comparisons, notes),
        "table.tex": table.latex(comparisons),
        "table.csv": table.as_csv(comparisons),
        "table.json": table.as_json(comparisons, studies.plan.to_json()),
        "runs.txt": table.times(comparisons),
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
