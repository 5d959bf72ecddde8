"""Recordings of noise, no two alike, and helpers that check what becomes of them."""

import hashlib

import numpy as np
import soundfile

from seqmodel.data.dataset import Split, open_dataset
from seqmodel.data.prepare import prepare
from seqmodel.data.sources import find_sources
from seqmodel.media.audio.frames import AudioSettings
from seqmodel.media.definitions import Piece

RATE = 8000


def record(path, samples=1000, *, seed=0, rate=RATE, channels=1, subtype="PCM_16", container=None):
    """Write noise that depends on `seed`; return its samples (N, channels) as soundfile does."""
    random = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = random.uniform(-0.9, 0.9, (samples, channels)) + 0.05
    soundfile.write(path, noise, rate, subtype=subtype, format=container)
    return soundfile.read(path, dtype="float32", always_2d=True)[0]


def write_recordings(folder, pieces, rate=RATE, **settings):
    """{split: [samples]} as a prepared dataset."""
    for split, sounds in pieces.items():
        (folder / "in" / split).mkdir(parents=True)
        for k, samples in enumerate(sounds):
            path = folder / "in" / split / f"{k}.wav"
            soundfile.write(path, samples, rate, subtype="PCM_16")
    prepared(folder / "in", folder / "data", AudioSettings(**settings))
    return open_dataset(folder / "data")


def prepared(sources, out, settings, **options):
    """`prepare` of a file or folder, or of several, by their names."""
    names = map(str, sources if isinstance(sources, list) else [sources])
    return prepare(find_sources(names), out, settings, **options)


def files(out):
    """The bytes of each file of a dataset."""
    return {path.name: path.read_bytes() for path in out.iterdir()}


def pieces(out):
    """Source -> (split, samples in [-1, 1) as one array), for every piece of a dataset."""
    found = open_dataset(out)
    return {
        source: (name, frames.ravel())
        for name in found.splits
        for source, frames in zip(found[name].sources, found[name], strict=True)
    }


def places(out):
    """File -> split, of every piece of a dataset."""
    found = open_dataset(out)
    return {source.split("#")[0]: name for name in found.splits for source in found[name].sources}


def split_by_hash(content):
    """The rule: the first 32 bits of the SHA-256 of a source's content, 80:10:10.

    The content of a recording are its samples as 32-bit floats, of a roll its packed frames.
    """
    share = int(hashlib.sha256(content).hexdigest()[:8], 16) / 2**32
    return "train" if share < 0.8 else "valid" if share < 0.9 else "test"


def make_corpus(folder):
    """Forty 16-bit mono recordings of different lengths, without split folders."""
    for k in range(40):
        record(folder / f"{k:02}.wav", 300 + 7 * k, seed=100 + k)
    return folder


def in_memory(frame, *pieces):
    """A split in memory of pieces given as stored rows."""
    lines = [Piece(f"{k}.wav", "", len(rows) // frame.frame_size) for k, rows in enumerate(pieces)]
    return Split.of("some", frame, lines, np.concatenate(pieces))
