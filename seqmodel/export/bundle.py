"""A run as one zip to share, which every command accepts in place of a run folder.

It holds what is needed to predict and to sample, and a description for people, but not the state of
training. Nothing in it depends on the clock or the machine, so equal runs give equal bytes (with
the same zlib). Of the dataset's path it keeps only the folder's name.
"""

import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import seqmodel
from seqmodel.config import Config, to_yaml
from seqmodel.media.registry import medium_of
from seqmodel.media.words import epochs_text, printable, spaced
from seqmodel.report.subjects import model_in_words
from seqmodel.runs.checkpoint import checkpoint_bytes, model_tensors
from seqmodel.runs.content import load_content, read_content
from seqmodel.runs.files import BEST, CARD, CONFIG, LAST, METRICS, VALID_PIECES, has_file, read_file
from seqmodel.runs.folder import Run
from seqmodel.units import module_name, unit_spec

FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The earliest date that zip can store."""


def bundle(run: Run) -> bytes:
    """The zip; SeqmodelError if the run's metrics or last checkpoint are damaged."""
    config = replace(run.config, data=Path(str(run.config.data)).name)
    shared, last = replace(run, config=config), run.folder / LAST
    if run.data_sha256 is None and has_file(last):
        read_content(load_content(last), last)  # raises: a card leaves out nothing unread
    files = {
        CARD: _card(run, config).encode(),
        CONFIG: to_yaml(config).encode(),
        BEST: checkpoint_bytes(model_tensors(run.model), shared.to_json()),
    }
    if has_file(run.folder / METRICS):
        files[METRICS] = read_file(run.folder / METRICS)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name, FIRST_DAY)
            member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(member, content)
    return buffer.getvalue()


def _card(run: Run, config: Config) -> str:
    """A description of the run in Markdown; names and texts are indented to stay literal."""
    kind = medium_of(run.frame).formats[0]
    model = model_in_words(run)
    units = dict.fromkeys(filter(None, (config.unit, config.note_unit)))
    sections = {
        "Model": [
            model,
            f"{run.model.parameter_counts().with_output:,} parameters, "
            f"epoch {epochs_text(run.epoch)}",
            f"seqmodel {seqmodel.__version__}; {CONFIG} has all settings",
        ],
        "Figures on valid": [*_figures(run)] or ["not recorded"],
        "Data": [
            f"{config.data}: {run.frame}",
            f"longest piece of train  {run.longest_piece:,} frames",
            f"fingerprint             {run.data_sha256 or 'not recorded'}",
        ],
        "Equations": [line for unit in units for line in _equations(unit)],
        "Use": [f"seqmodel sample out.{kind} --run RUN", "seqmodel eval RUN --data DATA"],
    }
    lines = ["# A trained run of seqmodel"]
    for title, body in sections.items():
        lines += ["", f"## {title}", "", *(f"    {printable(line)}" for line in body)]
    lines += ["", "RUN is the zip file that this is from, or the folder that it was unpacked to."]
    return "\n".join(lines) + "\n"


def _equations(unit: str) -> tuple[str, ...]:
    """A unit's name and statements."""
    if module_name(unit) is not None:
        return (f"# {unit}, a torch module, which must be importable",)
    spec = unit_spec(unit)
    return f"# {spec.name}", *spec.statements


def _figures(run: Run) -> Iterator[str]:
    prefix = "valid_"
    for name, figure in run.metrics().items():
        if name.startswith(prefix) and name != VALID_PIECES:
            yield f"{spaced(name.removeprefix(prefix)):22} {figure:9.4f}"
