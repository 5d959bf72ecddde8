"""The formats a run can be exported to, by the suffix of the file."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import NamedTuple

from seqmodel.errors import SeqmodelError

Exporter = Callable[..., bytes]
"""Turns a `Run` into the whole file; one-line SeqmodelError for a run it cannot represent. A page's
also takes options."""


class Export(NamedTuple):
    """A format: its name, and the `module:function` of its `Exporter`, imported when used."""

    title: str
    exporter: str
    extra: str | None = None
    """The package that it needs, which is also the extra of seqmodel that installs it."""

    def load(self) -> Exporter:
        """Import the function; SeqmodelError if its extra is not installed."""
        try:
            exporter: Exporter = resolve_name(self.exporter)
        except ModuleNotFoundError as error:
            if error.name != self.extra:
                raise
            advice = f"the package {self.extra} is missing: pip install 'seqmodel[{self.extra}]'"
            raise SeqmodelError(advice) from error
        return exporter


EXPORTS: dict[str, Export] = {
    ".html": Export("page", "seqmodel.export.page.render:export_page"),
    ".onnx": Export("ONNX graph", "seqmodel.export.onnx.model:export_graph", "onnx"),
    ".zip": Export("zip", "seqmodel.export.bundle:bundle"),
}
