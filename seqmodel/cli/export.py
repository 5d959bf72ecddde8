"""`seqmodel export`: a run as one file to share."""

from pathlib import Path
from typing import Annotated

import typer

from seqmodel.cli.common import message
from seqmodel.cli.options import Force, Quiet, check_target
from seqmodel.errors import UsageError


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run: its folder or zip.")],
    out: Annotated[Path, typer.Argument(metavar="FILE", help="What to write.")],
    *,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Write a trained run to one file to share. Its suffix decides the format.

    .html is a page that draws new music or sound in the browser, without end, as it plays; .onnx is
    a graph for other programs; .zip is the run itself, which --run takes in place of a folder.
    """
    from seqmodel.export import EXPORTS
    from seqmodel.files import write_file
    from seqmodel.runs.folder import load_run

    chosen = EXPORTS.get(out.suffix.lower())
    if chosen is None:
        raise UsageError(f"the suffix of {out} must be one of {', '.join(EXPORTS)}")
    check_target(out, force=force)
    written = chosen.load()(load_run(run))
    write_file(out, written)
    message(f"{out}: {chosen.title} of {run}, {len(written) / 1000:,.0f} kB", quiet=quiet)
