"""`seqmodel report` and `seqmodel export`: runs as a single file, to view and to share."""

import shlex
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

import typer

from seqmodel.cli.common import message, show
from seqmodel.cli.options import (
    Force,
    Quiet,
    about,
    check_given,
    check_target,
    chosen_run,
    options_of,
    with_media_options,
)
from seqmodel.cli.progress import counter
from seqmodel.errors import UsageError
from seqmodel.files import write_file
from seqmodel.media.labels import combinations
from seqmodel.media.registry import medium_of
from seqmodel.media.words import listed, plural


@with_media_options(attrgetter("page_options"))
def report(
    context: typer.Context,
    runs: list[Path] | None = typer.Argument(
        None, metavar="RUN", help="Runs, folders or zips.  [default: the newest]"
    ),
    out: Path = typer.Option(
        Path("report.html"), "--out", "-o", metavar="FILE.html", help="The page to write."
    ),
    samples: int = typer.Option(
        1, min=0, metavar="N", help="Samples of each run, to look at and play."
    ),
    seed: int = typer.Option(1, min=0, help="The samples' seed."),
    watch: bool = typer.Option(
        False, "--watch", help="Serve a live page of training until Ctrl-C; write nothing."
    ),
    *,
    force: Force = False,
    quiet: Quiet = False,
    **media_options: Any,
) -> None:
    """Write an HTML page about runs: figures, curves, playable samples.

    The page is one file that needs no network: figures on every split next to trivial baselines,
    curves over updates or time, samples drawn with --seed, and where all of it comes from. With
    --fill, each run redraws a part of a file instead, as `sample` does.

    --watch serves the page on this machine and prints its address. It shows what training has
    recorded so far, without samples, and stays up to date while open.
    """
    flags = {flag for param in context.command.params for flag in param.opts if "--" in flag}
    others = sorted(flags - {"--watch", "--quiet"})
    exclusive = [*(("--watch", option) for option in others), ("--fill", "--samples 0")]
    check_given(context, exclusive, special={"--samples 0": not samples})
    if out.suffix.lower() != ".html":
        raise UsageError(f"--out writes HTML only: {out} must end in .html")
    from seqmodel.runs.folder import stored_run

    chosen, remarks = runs or [chosen_run()], dict[str, None]()
    for stored in () if watch else map(stored_run, chosen):  # before torch is loaded
        medium = medium_of(stored.frame)
        trained_on = f"{stored.folder} was trained on {medium.name}"
        options = options_of(medium, media_options, attrgetter("page_options"), trained_on)
        if any(options.values()):
            with about(f"run: {stored.folder}", last=True):
                planned = stored.sampling(medium.page_format, options=options)
            remarks |= dict.fromkeys(planned.remarks)
    if not watch:
        check_target(out, force=force)
    for remark in remarks:
        message(remark)
    from seqmodel.report.page.parts import render
    from seqmodel.report.run_page import draw, run_page
    from seqmodel.report.subjects import load_subjects, score

    command = shlex.join(["seqmodel", *sys.argv[1:]])
    if watch:
        from seqmodel.report.watching import make_server

        with make_server(chosen, command, message) as server:
            address, names = f"http://127.0.0.1:{server.server_port}/", [*map(str, chosen)]
            show(f"{address} follows {listed(names)}; stop it with Ctrl-C")
            server.serve_forever()
        return
    subjects = load_subjects(chosen)
    for subject in subjects:
        message(subject.run.remark)
    with counter("scoring") as progress:
        scored = score(subjects, progress)
    with counter("sampling") as progress:
        drawn = draw(subjects, number=samples, seed=seed, progress=progress, options=media_options)
    page_parts = run_page(scored, drawn, seed=seed, command=command, options=media_options)
    page = render(page_parts).encode()
    write_file(out, page)
    what = str(subjects[0].run.folder) if len(subjects) == 1 else plural(len(subjects), "run")
    message(f"{out}: {what}, {len(page) / 1000:,.0f} kB")


def export(
    run: Path = typer.Argument(..., metavar="RUN", help="The run: a folder or zip."),
    out: Path = typer.Argument(..., metavar="FILE", help="The file to write."),
    seed: int | None = typer.Option(
        None, min=0, help="The page's initial seed.  [default: one that sounds at once]"
    ),
    temperature: float | None = typer.Option(
        None, min=0, max=2, help="The page's initial temperature, in steps of 0.05.  [default: 1]"
    ),
    tempo: int | None = typer.Option(
        None, min=1, metavar="BPM", help="The page's initial tempo.  [default: that of train]"
    ),
    title: str | None = typer.Option(None, metavar="TEXT", help="The page's title."),
    label: list[str] | None = typer.Option(
        None,
        metavar="NAME=VALUE",
        help="The label of what the page draws, for data prepared with --labels; repeatable.",
    ),
    *,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write a trained run to one file to share. Its suffix decides the format.

    .html: a page that draws endless new music or sound in the browser as it plays. .onnx: a graph
    for other programs. .zip: the run itself, which --run accepts in place of a folder.
    """
    from seqmodel.export import EXPORTS

    suffix = out.suffix.lower()
    chosen = EXPORTS.get(suffix)
    if chosen is None:
        raise UsageError(f"{out}, the file to write, must end in one of {', '.join(EXPORTS)}")
    given = {"seed": seed, "temperature": temperature, "tempo": tempo, "title": title}
    options = {name: value for name, value in given.items() if value is not None}
    if (options or label) and suffix != ".html":
        option = next(iter(options), "label")
        raise UsageError(f"--{option} is for pages, which end in .html, not for {out}")
    from seqmodel.runs.folder import load_run, stored_run

    stored = stored_run(run)  # before torch is loaded
    labels, *others = combinations(label or [], stored.known_labels, run)
    if others:
        raise UsageError(f"--label asks for {1 + len(others)} combinations, but a page draws one")
    if tempo is not None and stored.frame.values != "binary":
        raise UsageError(f"--tempo is for music, and {run} was trained on {stored.frame.medium}")
    check_target(out, force=force)
    loaded = load_run(run).conditioned(labels)
    message(loaded.remark)
    try:
        written = chosen.load()(loaded, **options)
    except UsageError as error:
        raise UsageError(f"{out}: {error}") from error
    write_file(out, written)
    message(f"{out}: {chosen.title} of {run}, {len(written) / 1000:,.0f} kB")
