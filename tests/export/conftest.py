"""Runs with random weights, and a browser to open their pages in."""

from types import MappingProxyType

import pytest
import torch
from playing import Player

from seqmodel.config import resolve
from seqmodel.export.page.render import export_page
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.model.build import build_model, with_sizes
from seqmodel.runs.folder import Run


@pytest.fixture(scope="session")
def make_run():
    """A function that makes a run of music whose every weight matters, from `train`'s options.

    Pieces of those that end last some twenty frames.
    """

    def make(
        folder, *, onsets=False, kit=False, grid=None, known_labels=MappingProxyType({}),
        marks=MappingProxyType({}), programs=(), drum_keys=MappingProxyType({}), drum_table=(),
        **options,
    ):  # fmt: skip
        of_frame = {"drums": kit, "onsets": onsets, "kit": kit, "known_labels": known_labels}
        of_frame |= {"marks": marks, "programs": programs, "drum_keys": drum_keys}
        of_frame |= {"drum_table": drum_table}
        frame = PianoRollFrames(grid or Grid.of_beats(4), **of_frame)
        settings = {"data": str(folder / "data"), "hidden": 9, "nade_hidden": 7, **options}
        config = with_sizes(resolve(settings), frame)
        model, draw = build_model(config, frame), torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                scale = weight.shape[-1] ** -0.5 if weight.dim() == 2 else 0.5
                weight.copy_(1.5 * scale * torch.randn(weight.shape, generator=draw))
                if name == "output.linear.bias":
                    weight.sub_(1.5)
                    if config.end and config.model == "frame-wise":
                        weight[-1].sub_(2.5)
                if name == "output.ending.bias":
                    weight.sub_(3.5)
            if config.clock:
                model.encoder.clock.lengths[:5] = torch.tensor([12, 20, 31, 33, 60])
        return Run(config, frame, 3, 64, folder=folder, model=model.eval())

    return make


@pytest.fixture(scope="session")
def write_page(tmp_path_factory):
    """A function that writes the page of a run to a file of its own."""

    def write(run):
        page = tmp_path_factory.mktemp("page") / "page.html"
        page.write_bytes(export_page(run, seed=1))
        return page

    return write


@pytest.fixture(scope="session")
def piano(tmp_path_factory, make_run):
    """A run whose pieces end, with onsets."""
    options = {"model": "tied", "unit": "gru", "onsets": True, "end": True}
    return make_run(tmp_path_factory.mktemp("run") / "a run", **options)


@pytest.fixture(scope="session")
def page(piano, write_page):
    """The page of `piano`."""
    return write_page(piano)


@pytest.fixture(scope="module")
def chrome(chrome):
    return Player(chrome)
