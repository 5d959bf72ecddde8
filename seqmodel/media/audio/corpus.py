"""Audio files to pieces of a dataset, in bounded memory."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import SeqmodelError, SourceError, UsageError
from seqmodel.media.audio.frames import PAUSE_LEVEL, AudioFrames, AudioSettings, Windows
from seqmodel.media.audio.reader import Recording
from seqmodel.media.definitions import Work
from seqmodel.media.sound import FULL_SCALE, to_levels
from seqmodel.media.words import plural

MAX_MEMORY_BYTES = 2**22
"""Bytes of a recording held in memory until its split is known; longer ones wait on disk."""

PAUSE_UNIT_SECONDS, MIN_PAUSE_UNITS, LONG_QUANTILE = 0.01, 5, 0.99
"""The unit that pauses are counted in, rounded up; the shortest that count, in units; the share of
them that are not longer than `longest_pause`."""

COPY_SAMPLES = 2**16
"""Samples copied at a time from there to the shard."""


class Converted(NamedTuple):
    """What is known of a recording besides its rows: as in `Work`, and if nothing was rounded."""

    frames: int
    content_hash: str
    frames_hash: str
    repairs: list[str]
    exact: bool


class AudioCorpus:
    """Recordings as mono samples of 16 bits, or 8-bit mu-law, at one rate.

    SeqmodelError if no rate is requested and the sources differ in theirs, UsageError if a clip is
    shorter than a frame.
    """

    def __init__(self, settings: AudioSettings, paths: Sequence[Path], folder: Path) -> None:
        rate, size = settings.rate or _common_rate(paths), settings.frame_size
        dtype: Literal["mu-law", "int16"] = "mu-law" if settings.levels == "mu-law" else "int16"
        self._layout = AudioFrames(rate, size, settings.context, dtype)
        self._folder = folder
        self._clip_seconds = settings.clip_seconds
        self._clip: int | None = None  # in frames
        if settings.clip_seconds is not None:
            self._clip = int(settings.clip_seconds * rate) // size
            if self._clip == 0:
                raise UsageError(
                    f"--clip-seconds {settings.clip_seconds:g} is shorter than a frame of {size} "
                    f"samples at {rate:,} Hz"
                )
        # Over the 16-bit levels in train, as Python integers: exact, however many there are.
        self._count = self._sum = self._squares = 0
        self._pauses = _Pauses(max(1, round(PAUSE_UNIT_SECONDS * rate)))
        self._rounded_files = self._cut_recordings = 0

    @property
    def frame(self) -> AudioFrames:
        """The frame definition, standardised by the samples in train so far."""
        n = self._count or 1
        deviation = math.sqrt(n * self._squares - self._sum**2) / (n * FULL_SCALE)
        frame = replace(
            self._layout,
            mean=self._sum / (n * FULL_SCALE),
            deviation=deviation or 1.0,  # to be divided by
        )
        return replace(frame, longest_pause=self._pauses.longest(frame.pause_level))

    @property
    def facts(self) -> Mapping[str, Any]:
        """How recordings were cut, and how many had finer samples than 16 bits, or were mixed."""
        return {
            "clip_seconds": self._clip_seconds,
            "recordings_cut": self._cut_recordings,
            "rounded_to_16_bits": self._rounded_files,
        }

    def read(self, path: Path) -> tuple[Converted, bytes] | None:
        """See `Corpus`; None for a recording too long to be held in memory."""
        rows = BytesIO()
        with Recording(path) as recording:
            if path.stat().st_size > MAX_MEMORY_BYTES:
                return None
            converted = self._convert(recording, rows, MAX_MEMORY_BYTES)
        return (converted, rows.getvalue()) if converted else None

    def _convert(self, recording: Recording, rows: Any, most: float = math.inf) -> Converted | None:
        """Write a recording as stored rows; None once there are more than `most` bytes."""
        layout, size = self._layout, self._layout.frame_size
        framing, prepared = Windows(size, size), hashlib.sha256()
        frames, clipped, exact, silent = 0, 0, True, True
        for block in recording.mono(layout.rate):
            samples = framing.of(block)
            frames += len(samples)
            clipped += int((np.abs(samples) > 1).sum())
            encoded = layout.encode(samples)
            silent = silent and not to_levels(samples).any()
            exact = exact and np.array_equal(layout.decode(encoded.ravel()), samples)
            prepared.update(encoded.tobytes())
            rows.write(encoded.tobytes())
            if rows.tell() > most:
                return None
        if not frames:
            raise SourceError(
                f"is shorter than a frame of {size} samples at {layout.rate:,} Hz"
                + "".join(f"; {remark}" for remark in recording.remarks)
            )
        repairs = list(recording.remarks)
        if clipped:
            repairs.append(f"clipped {plural(clipped, 'sample')} beyond full scale")
        if silent:
            repairs.append("is silent")
        return Converted(frames, recording.content_hash, prepared.hexdigest(), repairs, exact)

    def works(self, path: Path, read: tuple[Converted, bytes] | None = None) -> Iterator[Work]:
        """The recording of a file; its samples wait in the folder until all have been hashed."""
        layout, size = self._layout, self._layout.frame_size
        with SpooledTemporaryFile(MAX_MEMORY_BYTES, dir=str(self._folder)) as spool:
            if read is None:
                with Recording(path) as recording:
                    converted = self._convert(recording, spool)
                assert converted is not None
            else:
                converted = read[0]
                spool.write(read[1])
            frames = converted.frames
            self._rounded_files += layout.dtype == "int16" and not converted.exact
            clip = self._clip or frames
            lengths = [min(clip, frames - start) for start in range(0, frames, clip)]
            cut = len(lengths) > 1
            self._cut_recordings += cut
            source = path.as_posix()
            names = [f"{source}#piece/{k}" if cut else source for k in range(len(lengths))]

            self._pauses.begin_recording()

            def read_rows(begin: int, end: int) -> Iterator[NDArray[Any]]:
                block = -(-COPY_SAMPLES // size)
                row_bytes = layout.row_dtype.itemsize * size
                spool.seek(begin * row_bytes)
                for start in range(begin, end, block):
                    data = spool.read(min(block, end - start) * row_bytes)
                    yield np.frombuffer(data, layout.row_dtype)

            yield Work(
                source=source,
                content_hash=converted.content_hash,
                frames_hash=converted.frames_hash,
                split=None,
                pieces=list(zip(names, lengths, strict=True)),
                rows=read_rows,
                repairs=converted.repairs,
                on_train_rows=self._count_in_train,
            )

    def _count_in_train(self, rows: NDArray[Any]) -> None:
        levels = to_levels(self._layout.decode(rows)).astype(np.int64)
        self._count += levels.size
        self._sum += int(levels.sum())
        self._squares += int((levels**2).sum())
        self._pauses.count(np.abs(levels.ravel()))


class _Pauses:
    """How long recordings pause before and between sounds, for each level that may be quiet."""

    def __init__(self, unit: int) -> None:
        """They are counted in units of so many samples."""
        powers = int(PAUSE_LEVEL * FULL_SCALE).bit_length()
        self._unit, self._lengths = unit, {1 << k: Counter[int]() for k in range(powers)}

    def begin_recording(self) -> None:
        self._seen, self._begun = 0, {level: np.array([0]) for level in self._lengths}

    def count(self, levels: NDArray[np.int64]) -> None:
        """Count those that end in the next absolute levels (n,) of the recording."""
        for level, lengths in self._lengths.items():
            begun = self._begun[level]  # not over so far, if any is
            quiet = np.append(len(begun) > 0, levels <= level)
            changes = np.append(begun, self._seen + np.flatnonzero(quiet[1:] != quiet[:-1]))
            pauses = np.diff(changes)[::2]
            units = -(-pauses // self._unit)
            lengths.update(units[units >= MIN_PAUSE_UNITS].tolist())
            self._begun[level] = changes[2 * len(pauses) :]
        self._seen += len(levels)

    def longest(self, level: int) -> int | None:
        """See `FrameDefinition.longest_pause`, where sounds exceed this level."""
        lengths = sorted(self._lengths.get(level, {}).items())
        counts = np.cumsum([count for _, count in lengths])
        if not lengths:
            return None
        return lengths[np.searchsorted(counts, LONG_QUANTILE * counts[-1])][0] * self._unit


def _common_rate(paths: Sequence[Path]) -> int:
    """The rate that all headers state; a file that cannot be opened is reported when it is read."""
    rates: dict[int, Path] = {}
    for path in paths:
        try:
            with Recording(path) as recording:
                rates.setdefault(recording.rate, path)
        except SourceError:
            continue
    if len(rates) > 1:
        (rate, first), (other, elsewhere) = list(rates.items())[:2]
        raise SeqmodelError(
            f"{first} has {rate:,} samples per second and {elsewhere} has {other:,}: choose one "
            "rate with --rate"
        )
    # If no file can be opened, any rate at which a clip holds a frame will do.
    return next(iter(rates), 192_000)
