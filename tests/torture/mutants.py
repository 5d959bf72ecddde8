"""Inputs changed at random, over every reader: read or refused, in little time and memory.

Coverage is the guide: what reached lines that no input reached before is changed further. Inputs
are read in forks with an alarm and a bound on memory; a fork that dies names the input it died of.
"""

import json
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import scipy.io
import soundfile
from corpora import here, roll, training, write_datasets
from forks import fork

import seqmodel
from seqmodel.config import read_config_file
from seqmodel.data.dataset import open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.media.registry import medium_of_file
from seqmodel.report.inspection import inspect_dataset
from seqmodel.runs.folder import load_run, read_metrics

SECONDS, MEGABYTES = 10, 1000
"""What an input may take; those here are of a few thousand bytes."""
FINDINGS = Path(tempfile.gettempdir()) / "torture-findings"
"""Where inputs are kept that broke something."""
BATCH = 50
LIMIT = 1 << 30
READERS = str(Path(seqmodel.__file__).parent)


@dataclass
class Found:
    """What was tried, and the worst of it."""

    tried: int = 0
    kept: int = 0
    seconds: float = 0.0
    slowest: str = ""
    megabytes: float = 0.0
    complaints: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reader:
    """A kind of file, what it begins with, and who reads it from where."""

    name: str
    path: Path
    read: Callable[[], object]


def mutate_all(folder: Path, seed: int, count: int) -> Found:
    """Try `count` inputs, as many of each kind."""
    found = Found()
    readers = _readers(folder)
    for reader in readers:
        _Fuzz(reader, folder, random.Random(f"{seed} {reader.name}"), found).run(
            -(-count // len(readers))
        )
    return found


def _readers(folder: Path) -> list[Reader]:
    write_datasets(folder)
    here(*training(folder, "tanh, noise", folder / "run"))
    files = folder / "files"
    files.mkdir()
    random_ = np.random.default_rng(2)
    rolls = [roll(random_, n) for n in (6, 8)]
    splits = {"train": rolls, "valid": rolls[:1], "test": rolls[:1]}
    pitches = {
        k: [[tuple(np.flatnonzero(f) + 21) for f in r] for r in v] for k, v in splits.items()
    }
    (files / "a.pickle").write_bytes(pickle.dumps(pitches, 2))
    as_cells = {}
    for split, pieces in splits.items():
        cells = np.empty((1, len(pieces)), dtype=object)
        for k, piece in enumerate(pieces):
            cells[0, k] = piece
        as_cells[f"{split}data"] = cells
    scipy.io.savemat(files / "a.mat", as_cells, do_compression=True)
    as_objects = {k: np.array([*v, None], dtype=object)[:-1] for k, v in splits.items()}
    np.savez_compressed(files / "a.npz", **as_objects)
    np.save(files / "a.npy", rolls[0])
    shutil.copy(folder / "mid/train/0.mid", files / "a.mid")
    samples = random_.normal(0, 0.1, 400).clip(-1, 1)
    for kind in ("wav", "flac", "ogg", "mp3", "aiff", "au"):
        soundfile.write(files / f"a.{kind}", samples, 8000)
    readers = [Reader(file.name, file, _reading(file)) for file in sorted(files.iterdir())]
    for data in ("music", "audio"):
        copy = folder / f"{data} copy"
        shutil.copytree(folder / data, copy)
        for name in sorted(path.name for path in copy.iterdir()):
            readers.append(
                Reader(f"{data}/{name}", copy / name, lambda copy=copy: _whole_dataset(copy))
            )
    run = folder / "run"
    readers += [
        Reader("best.safetensors", run / "best.safetensors", lambda: load_run(run)),
        Reader("metrics.jsonl", run / "metrics.jsonl", lambda: read_metrics(run)),
        Reader("config.yaml", run / "config.yaml", lambda: read_config_file(run / "config.yaml")),
    ]
    return readers


def _whole_dataset(path: Path) -> None:
    open_dataset(path)
    inspect_dataset(path, None)


def _reading(path: Path) -> Callable[[], object]:
    """Reads a media file as prepare and inspect do."""

    def read() -> None:
        medium = medium_of_file(path)
        settings, _ = medium.settings({}, [path])
        for work in settings.corpus([path], path.parent).works(path):
            for _, blocks in work.pieces:
                for _ in blocks:
                    pass

    return read


class _Fuzz:
    """The inputs of one reader."""

    def __init__(self, reader: Reader, folder: Path, draw: random.Random, found: Found) -> None:
        self.reader, self.folder, self.draw, self.found = reader, folder, draw, found
        self.original, self.told = reader.path.read_bytes(), folder / "told"
        self.corpus = [self.original]
        self.seen: set[tuple[str, int]] = set()
        self.said: set[str] = set()

    def run(self, count: int) -> None:
        self._read_all([self.original])
        for _ in range(0, count, BATCH):
            batch = [self._mutant() for _ in range(min(BATCH, count))]
            self._read_all(batch)
        self.reader.path.write_bytes(self.original)

    def _mutant(self) -> bytes:
        draw, data = self.draw, bytearray(self.draw.choice(self.corpus))
        for _ in range(draw.choice([1, 1, 2, 5])):
            at = draw.randrange(len(data) + 1)
            size = draw.choice([1, 1, 2, 4, 8, 30])
            kind = draw.randrange(7)
            if kind == 0:
                data[at : at + size] = draw.randbytes(size)
            elif kind == 1:
                data[at : at + size] = draw.choice([b"\0", b"\xff", b"\x7f", b"\x80"]) * size
            elif kind == 2:
                del data[at : at + size]
            elif kind == 3:
                data[at:at] = draw.randbytes(size)
            elif kind == 4:
                data[at:at] = data[at : at + size] * draw.randrange(1, 20)
            elif kind == 5:
                del data[at:]
            elif at < len(data):
                data[at] ^= 1 << draw.randrange(8)
        return bytes(data)

    def _read_all(self, batch: list[bytes]) -> None:
        """Read a batch in a fork; where that dies, go on behind what it died of."""
        while batch:
            self.told.write_text("")
            outcome = fork(
                partial(self._in_fork, batch),
                self.folder,
                memory=2 * LIMIT,
                patience=2 * SECONDS + 60,
            )
            lines = [json.loads(line) for line in self.told.read_text().splitlines()]
            for data, line in zip(batch, lines, strict=False):
                self._judge(data, line)
            if len(lines) < len(batch):
                why = f"the process died with {outcome.status}: {outcome.err[-200:]}"
                self._complain(batch[len(lines)], why)
            batch = batch[len(lines) + 1 :]

    def _in_fork(self, batch: list[bytes]) -> int:
        signal.signal(signal.SIGALRM, _late)
        with self.told.open("a", buffering=1) as file:
            for data in batch:
                self.reader.path.write_bytes(data)
                Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
                before, began = _peak(), time.process_time()
                error = self._error()
                seconds, peak = time.process_time() - began, _peak()
                lines = set[tuple[str, int]]()
                sys.settrace(_tracer(lines))  # in a reading of its own, since it takes its time
                try:
                    self._error()
                finally:
                    sys.settrace(None)
                line = {
                    "error": error,
                    "seconds": seconds,
                    "megabytes": (peak - before) / 1024,
                    "new": sorted(lines - self.seen),
                }
                file.write(json.dumps(line) + "\n")
        return 0

    def _error(self) -> str:
        """Read what is there; what is wrong with how that went, if anything."""
        signal.alarm(6 * SECONDS)
        try:
            self.reader.read()
        except SeqmodelError as refusal:
            text = str(refusal)
            return "" if text and "\n" not in text else f"not one line: {text!r}"
        except BaseException:
            return traceback.format_exc(limit=-2)
        finally:
            signal.alarm(0)
        return ""

    def _judge(self, data: bytes, line: dict[str, Any]) -> None:
        found = self.found
        found.tried += 1
        new = {(name, number) for name, number in line["new"]} - self.seen
        if new:
            self.seen |= new
            self.corpus.append(data)
            found.kept += 1
        if line["seconds"] > found.seconds:
            found.seconds, found.slowest = line["seconds"], self.reader.name
        found.megabytes = max(found.megabytes, line["megabytes"])
        if line["error"]:
            self._complain(data, line["error"])
        elif line["seconds"] > SECONDS or line["megabytes"] > MEGABYTES:
            self._complain(data, f"{line['seconds']:.0f} s, {line['megabytes']:.0f} MB")

    def _complain(self, data: bytes, why: str) -> None:
        last = why.strip().splitlines()[-1]
        if last[:40] in self.said:  # one input of a kind is enough
            return
        self.said.add(last[:40])
        kept = FINDINGS / f"{len(self.said)}-{self.reader.path.name}"
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(data)
        self.found.complaints.append(
            f"{self.reader.name}: {' | '.join(why.split(chr(10)))} ({kept})"
        )


class Late(BaseException):
    """An input took too long. No OSError, as TimeoutError is: nobody should catch it."""


def _late(number: int, frame: FrameType | None) -> None:
    raise Late


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    return 0


def _tracer(lines: set[tuple[str, int]]) -> Callable[..., Any]:
    """Takes down the lines of seqmodel that are reached."""

    def in_function(frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return in_function

    def called(frame: FrameType, event: str, argument: object) -> Any:
        return in_function if frame.f_code.co_filename.startswith(READERS) else None

    return called
