"""Random mutations of inputs, for every reader: read or refused, in little time and memory.

Guided by coverage: an input that reaches lines that none reached before is mutated further. Where a
checksum would reject every mutation, the content is mutated and the checksum recomputed, as a
stranger can. Inputs are read in forks with an alarm and a memory limit; if a fork dies, the input
that killed it is known.
"""

import hashlib
import json
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import safetensors.torch
import scipy.io
import soundfile
import torch
from corpora import here, training, write_datasets
from forks import fork

import seqmodel
from seqmodel.config import read_config_file
from seqmodel.data.dataset import open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.export.bundle import bundle
from seqmodel.media.registry import medium_of_file
from seqmodel.report.inspection import inspect_dataset
from seqmodel.runs.checkpoint import _checksum, load_checkpoint  # which a stranger can compute too
from seqmodel.runs.content import FORMAT, KEY, VERSION
from seqmodel.runs.folder import load_run, read_metrics

SECONDS, BYTES = 10, 1 << 30
"""Limits of time and memory for one input; those here have a few thousand bytes."""
FINDINGS = Path(tempfile.gettempdir()) / "torture-findings"
"""Where inputs that broke something are kept."""
BATCH = 50
HEADER = 100
"""Bytes."""
READERS = str(Path(seqmodel.__file__).parent)


@dataclass
class Found:
    """How many inputs were tried, the worst cases, and what broke."""

    tried: int = 0
    kept: int = 0
    seconds: float = 0.0
    slowest: str = ""
    complaints: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reader:
    """A kind of input, how it is written, and how it is read."""

    name: str
    original: bytes
    """What is mutated."""
    write: Callable[[bytes], object]
    read: Callable[[], object]

    @classmethod
    def of_file(cls, name, path, read):
        """For the bytes of a file."""
        return cls(name, path.read_bytes(), path.write_bytes, read)


def mutate_all(folder, seed, *, short):
    """Try 100,000 inputs, or 100, equally many of each kind."""
    found, readers = Found(), _readers(folder)
    for reader in readers:
        fuzz = _Fuzz(reader, folder, random.Random(f"{seed} {reader.name}"), found)
        fuzz.run(-(-(100 if short else 100_000) // len(readers)))
    worst = f"at most {found.seconds:.2f} s ({found.slowest})"
    said = f"{found.tried:,} inputs read, {found.kept:,} of them on new paths, {worst}"
    return said, found.complaints


def _readers(folder):
    write_datasets(folder)
    here(*training(folder, "tanh, noise", folder / "run"))
    files = folder / "files"
    files.mkdir()
    random_ = np.random.default_rng(2)
    rolls = [(random_.random((n, 88)) < 0.03).astype(np.uint8) for n in (6, 8)]
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
    scipy.io.savemat(files / "plain.mat", as_cells)
    pieces = {f"{split}_{k}": piece for split, v in splits.items() for k, piece in enumerate(v)}
    np.savez_compressed(files / "a.npz", **pieces)
    np.save(files / "a.npy", rolls[0])
    shutil.copy(folder / "mid/train/0.mid", files / "a.mid")
    samples = random_.normal(0, 0.1, 400).clip(-1, 1)
    for kind in ("wav", "flac", "ogg", "mp3", "aiff", "au"):
        soundfile.write(files / f"a.{kind}", samples, 8000)
    readers = [Reader.of_file(file.name, file, _reading(file)) for file in sorted(files.iterdir())]
    for data in ("music", "audio"):
        copy = folder / f"{data} copy"
        shutil.copytree(folder / data, copy)
        for name in sorted(path.name for path in copy.iterdir()):
            readers.append(
                Reader.of_file(f"{data}/{name}", copy / name, partial(_whole_dataset, copy))
            )
    run, zipped = folder / "run", folder / "run.zip"
    zipped.write_bytes(bundle(load_run(run)))
    config = run / "config.yaml"
    return [
        *readers,
        _zipped_again(files / "a.npz"),
        _hashed_again(folder / "struck"),
        *_signed_again(run),
        Reader.of_file("best.safetensors", run / "best.safetensors", lambda: load_run(run)),
        Reader.of_file("run.zip", zipped, lambda: (read_metrics(zipped), load_run(zipped))),
        Reader.of_file("metrics.jsonl", run / "metrics.jsonl", lambda: read_metrics(run)),
        Reader.of_file("config.yaml", config, lambda: read_config_file(config)),
    ]


def _zipped_again(path):
    """An array within a .npz."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    changed = next(iter(members))
    other = path.with_name("again.npz")

    def write(data):
        with zipfile.ZipFile(other, "w") as file:
            for name, content in {**members, changed: data}.items():
                file.writestr(name, content)

    return Reader("npz, zipped again", members[changed], write, _reading(other))


def _hashed_again(data):
    """The rows of a dataset, with the hashes of the mutated rows in its index."""
    rows, index = data / "train.npy", data / "train.jsonl"
    pieces = [json.loads(line) for line in index.read_text().splitlines()]
    header = rows.stat().st_size - 22 * sum(piece["frames"] for piece in pieces)

    def write(content):
        rows.write_bytes(content)
        start, lines = header, []
        for piece in pieces:
            end = start + 22 * piece["frames"]
            digest = hashlib.sha256(content[start:end]).hexdigest()
            lines.append(json.dumps({**piece, "sha256": digest}))
            start = end
        index.write_text("\n".join(lines))

    return Reader("npy, hashed again", rows.read_bytes(), write, partial(_whole_dataset, data))


def _signed_again(run):
    """The content of a checkpoint, and its tensors, each with a valid checksum."""
    tensors, content = load_checkpoint(run / "best.safetensors")
    other = run.with_name("signed")
    other.mkdir()

    def sign(tensors, text):
        metadata = {
            "format": FORMAT,
            "version": VERSION,
            "content": text,
            "sha256": _checksum(tensors, text),
        }
        saved = safetensors.torch.save(tensors, {KEY: json.dumps(metadata)})
        (other / "best.safetensors").write_bytes(saved)

    def write_content(data):
        sign(tensors, data.decode(errors="replace"))

    def write_tensors(data):
        """From lines of a name and a shape; every weight is 0.1, or NaN if the last byte is 255."""
        made = {}
        for line in data.decode(errors="replace").splitlines():
            name, *sizes = line.split()[:4] or [""]
            shape = [int(size) % 100 for size in sizes if size.isdecimal()]
            made[name] = torch.full(shape, float("nan") if data[-1:] == b"\xff" else 0.1)
        sign(made, json.dumps(content))

    shapes = "\n".join(
        " ".join(map(str, (name, *tensor.shape))) for name, tensor in tensors.items()
    )
    text = json.dumps(content).encode()
    return [
        Reader("checkpoint's content, signed again", text, write_content, lambda: load_run(other)),
        Reader("its tensors", shapes.encode(), write_tensors, lambda: load_run(other)),
    ]


def _whole_dataset(path):
    inspect_dataset(path, None)
    dataset = open_dataset(path)
    for name in dataset.splits:
        for _ in dataset[name]:
            pass


def _reading(path):
    """Reads a media file as prepare and inspect do."""

    def read():
        medium = medium_of_file(path)
        settings = medium.settings({})
        for work in medium.corpus(settings, [path], path.parent).works(path):
            for _ in work.rows(0, work.frames):
                pass

    return read


class _Fuzz:
    """The inputs of one reader."""

    def __init__(self, reader, folder, draw, found):
        self.reader, self.folder, self.draw, self.found = reader, folder, draw, found
        self.told = folder / "told"
        self.corpus = [reader.original]
        self.seen: set[tuple[str, int]] = set()
        self.said: set[str] = set()

    def run(self, count):
        self.reader.write(self.reader.original)
        self.reader.read()  # mutants of an input that is refused would reach nothing
        batch = [self.reader.original]
        for _ in range(0, count, BATCH):
            batch += [self._mutant() for _ in range(min(BATCH, count))]
            self._read_all(batch)
            batch = []
        self.reader.write(self.reader.original)

    def _mutant(self):
        draw, data = self.draw, bytearray(self.draw.choice(self.corpus))
        for _ in range(draw.choice([1, 1, 2, 5])):
            # Half of the changes go where headers are.
            at = draw.randrange(draw.choice([len(data), min(len(data), HEADER)]) + 1)
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

    def _read_all(self, batch):
        """Read a batch in a fork; if it dies, continue after the input that killed it."""
        while batch:
            self.told.write_text("")
            outcome = fork(
                partial(self._in_fork, batch),
                self.folder,
                memory=BYTES,
                patience=2 * SECONDS + 60,
            )
            lines = [json.loads(line) for line in self.told.read_text().splitlines()]
            for data, line in zip(batch, lines, strict=False):
                self._judge(data, line)
            if len(lines) < len(batch):
                why = f"the process died with {outcome.status}: {outcome.err[-200:]}"
                self._complain(batch[len(lines)], why)
            batch = batch[len(lines) + 1 :]

    def _in_fork(self, batch):
        signal.signal(signal.SIGALRM, _late)
        with self.told.open("a", buffering=1) as file:
            for data in batch:
                self.reader.write(data)
                began = time.process_time()
                error = self._error()
                seconds = time.process_time() - began
                lines = set[tuple[str, int]]()
                sys.settrace(_tracer(lines))  # in a separate reading, since tracing is slow
                try:
                    self._error()
                finally:
                    sys.settrace(None)
                line = {"error": error, "seconds": seconds, "new": sorted(lines - self.seen)}
                file.write(json.dumps(line) + "\n")
        return 0

    def _error(self):
        """Read the input; return what is wrong with how that went, if anything."""
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

    def _judge(self, data, line):
        found = self.found
        found.tried += 1
        new = {(name, number) for name, number in line["new"]} - self.seen
        if new:
            self.seen |= new
            self.corpus.append(data)
            found.kept += 1
        if line["seconds"] > found.seconds:
            found.seconds, found.slowest = line["seconds"], self.reader.name
        if line["error"]:
            self._complain(data, line["error"])
        elif line["seconds"] > SECONDS:
            self._complain(data, f"{line['seconds']:.0f} s")

    def _complain(self, data, why):
        last = why.strip().splitlines()[-1]
        if last[:40] in self.said:  # one input of a kind is enough
            return
        self.said.add(last[:40])
        kept = FINDINGS / f"{len(self.said)}-{self.reader.name.replace('/', '-')}"
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(data)
        self.found.complaints.append(
            f"{self.reader.name}: {' | '.join(why.split(chr(10)))} ({kept})"
        )


class Late(BaseException):
    """An input took too long. Not an OSError, as TimeoutError is, so that nothing catches it."""


def _late(number, frame):
    raise Late


def _tracer(lines):
    """Records the lines of seqmodel that are reached."""

    def in_function(frame, event, argument):
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return in_function

    def called(frame, event, argument):
        return in_function if frame.f_code.co_filename.startswith(READERS) else None

    return called
