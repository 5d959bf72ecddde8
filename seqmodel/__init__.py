"""Sequence modelling with gated recurrent units, after Chung, Gulcehre, Cho and Bengio (2014).

From Python:

    run = seqmodel.load_run("runs/lstm-1")
    nats = run.nll(frames)                              # frames (T, D) -> (T,) nats
    piece = seqmodel.open_dataset("data")["valid"][0]   # (T, D)
    unit = seqmodel.units.make("lstm", 88, 36)          # torch.nn.Module

Importing the package loads neither torch nor NumPy; both are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqmodel import units
    from seqmodel.data.dataset import open_dataset
    from seqmodel.runs.folder import load_run

__version__ = "0.2.0"
__all__ = ["__version__", "load_run", "open_dataset", "units"]


def __getattr__(name: str) -> Any:
    if name == "load_run":
        return import_module("seqmodel.runs.folder").load_run
    if name == "open_dataset":
        return import_module("seqmodel.data.dataset").open_dataset
    if name == "units":
        return import_module("seqmodel.units")
    raise AttributeError(f"module 'seqmodel' has no attribute {name!r}")
