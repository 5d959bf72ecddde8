"""Single bits flipped in a dataset, a run and its checkpoints: noticed when they are read."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from corpora import here, training, write_datasets

from seqmodel.config import read_config_file
from seqmodel.data.dataset import open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.report.inspection import inspect_dataset
from seqmodel.runs.checkpoint import load_checkpoint
from seqmodel.runs.folder import read_metrics

PLAIN = (".yaml", ".jsonl", ".json")
"""Text files without a hash: a flip must not cause a traceback, but may go unnoticed."""
SPELLED = ".npy"
"""Its header is text too, and may say the same in another way: '|u1' and '<u1' both mean bytes. A
flip after which all pieces still have the same values is harmless."""


@dataclass
class Flips:
    """How many bytes were flipped, and what became of them."""

    flipped: int = 0
    noticed: int = 0
    harmless: int = 0
    """In headers of shards, see `SPELLED`."""
    hidden: int = 0
    """In text files, see `PLAIN`."""
    complaints: list[str] = field(default_factory=list)


def flip_all(folder: Path, seed: int, each: int | None) -> Flips:
    """Flip one bit of every byte of every file, or of `each` random bytes per file."""
    found, draw = Flips(), random.Random(seed)
    write_datasets(folder)
    run = folder / "run"
    here(*training(folder, "tanh, noise", run))
    readers: dict[Path, Callable[[], object]] = {
        run / "best.safetensors": lambda: load_checkpoint(run / "best.safetensors"),
        run / "last.safetensors": lambda: load_checkpoint(run / "last.safetensors"),
        run / "metrics.jsonl": lambda: read_metrics(run),
        run / "config.yaml": lambda: read_config_file(run / "config.yaml"),
    }
    for data in ("music", "audio"):
        for path in sorted((folder / data).iterdir()):
            readers[path] = lambda data=data: _read_dataset(folder / data)
    for path, read in readers.items():
        _flip(path, read, found, draw, each)
    return found


def _read_dataset(path: Path) -> dict[str, list[object]]:
    """The values of every piece of a dataset, after checking that it is intact."""
    inspect_dataset(path, None)
    dataset = open_dataset(path)
    return {name: [piece.tolist() for piece in dataset[name]] for name in dataset.splits}


def _flip(
    path: Path, read: Callable[[], object], found: Flips, draw: random.Random, each: int | None
) -> None:
    whole, values = path.read_bytes(), read()
    places = range(len(whole))
    missed = []
    for at in places if each is None else draw.sample(places, min(each, len(whole))):
        data = bytearray(whole)
        data[at] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        found.flipped += 1
        try:
            now = read()
            if path.suffix in PLAIN:
                found.hidden += 1
            elif path.suffix == SPELLED and now == values:
                found.harmless += 1
            else:
                missed.append(at)
        except SeqmodelError:
            found.noticed += 1
        except Exception as error:
            found.complaints.append(f"{path.name}, byte {at}: {type(error).__name__}: {error}")
    path.write_bytes(whole)
    if missed:
        found.complaints.append(f"{path.name}: {len(missed)} flips unnoticed, as at {missed[:5]}")
