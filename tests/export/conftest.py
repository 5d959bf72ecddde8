"""Runs with random weights, and a browser to open their pages in."""

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from chrome import Chrome

from seqmodel.config import resolve
from seqmodel.export.page.render import export_page
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.model.build import build_model, with_sizes
from seqmodel.runs.folder import Run

MakeRun = Callable[..., Run]


@pytest.fixture(scope="session")
def make_run() -> MakeRun:
    """A function that makes a run of music whose every weight matters, from `train`'s options.

    Pieces of those that end last some twenty frames.
    """

    def make(
        folder: Path,
        *,
        onsets: bool = False,
        kit: bool = False,
        grid: Grid | None = None,
        **options,
    ) -> Run:
        frame = PianoRollFrames(grid or Grid.of_beats(4), drums=kit, onsets=onsets, kit=kit)
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
def write_page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Run], Path]:
    """A function that writes the page of a run to a file of its own."""

    def write(run: Run) -> Path:
        page = tmp_path_factory.mktemp("page") / "page.html"
        page.write_bytes(export_page(run))
        return page

    return write


class Player(Chrome):
    """A browser for pages that play, which begin once their model is ready."""

    def open(self, page: Path, **options: Any) -> None:
        super().open(page, **options)
        self.wait("typeof page === 'object' || document.querySelector('#status').value")

    def saved(self, folder: Path) -> io.BytesIO:
        """Click the button, and read the file that the browser downloads to a new folder."""
        folder.mkdir()
        self.download_to(folder)
        self.click("#save")
        for _ in range(100):
            if files := [*folder.glob("*.mid"), *folder.glob("*.wav")]:
                return io.BytesIO(files[0].read_bytes())
            time.sleep(0.05)
        raise AssertionError("nothing was downloaded")

    def measure_loudness(self) -> None:
        """Keep the loudest sample in `loudest`, by an analyser behind everything."""
        self.run(
            """(window.loudest = 0, window.analyser = new AnalyserNode(page.sound.context),
            page.sound.output.connect(analyser), window.samples = new Float32Array(2048),
            setInterval(() => { analyser.getFloatTimeDomainData(samples);
              window.loudest = Math.max(loudest, ...samples.map(Math.abs)); }, 10))"""
        )


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    browser = Player(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def silent_console(chrome: Chrome) -> Iterator[None]:
    """Fails if the test leaves an error or a warning in the console."""
    yield
    assert chrome.messages() == []
