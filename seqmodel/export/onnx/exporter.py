"""The exporter to ONNX, whose package is an extra."""

from seqmodel.errors import SeqmodelError
from seqmodel.runs.folder import Run


def exported(run: Run) -> bytes:
    """The file; see `registry.Exporter`."""
    try:
        from seqmodel.export.onnx.model import model_of
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        advice = "the package onnx is missing: pip install 'seqmodel[onnx]'"
        raise SeqmodelError(advice) from error
    written: bytes = model_of(run).SerializeToString()
    return written
