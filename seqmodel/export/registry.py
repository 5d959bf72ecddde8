"""What a run can be exported as, by the suffix of the file."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import NamedTuple

from seqmodel.runs.folder import Run

Exporter = Callable[[Run], bytes]
"""The whole file for a run; SeqmodelError, in one line, for a run that it cannot hold."""


class Export(NamedTuple):
    """A format: what it is called, and `module:function` of its `Exporter`, imported when used."""

    title: str
    exporter: str

    def load(self) -> Exporter:
        """Import the function."""
        exporter: Exporter = resolve_name(self.exporter)
        return exporter


EXPORTS: dict[str, Export] = {
    ".html": Export("page", "seqmodel.export.page.render:export_page"),
    ".onnx": Export("ONNX graph", "seqmodel.export.onnx.exporter:exported"),
    ".zip": Export("zip", "seqmodel.export.bundle:bundle"),
}
