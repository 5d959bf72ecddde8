"""TensorBoard's event files: the figures of a run, its settings, and samples of its best epochs.

The figures of an epoch, or of a look at valid within one, are appended once it is over; steps
number them. A resumed run gets a new file, with everything in its metrics.jsonl, in place of the
old one: each figure is there once, however often the run was killed.
"""

import io
import os
import re
import struct
import time
import wave
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from seqmodel.config import Config
from seqmodel.files import disk_errors, new_file
from seqmodel.media.registry import medium_of
from seqmodel.media.samples import SampleRequest
from seqmodel.media.words import epochs_text
from seqmodel.runs.folder import EVENTS, Run, load_run
from seqmodel.sampling.sampler import Freeze, Sampler
from seqmodel.training.trackers import Listener

SAMPLE = "sample/"
"""The prefix of samples' tags."""
SECONDS = 10.0
"""The maximum length of a sample: a megabyte of music."""
SEED = 1
"""The default of `seqmodel sample`, which draws the same piece from the best epoch."""

Metrics = Mapping[str, Any]
"""A line of metrics.jsonl."""
Values = list[Any]
"""`Summary.Value`s: what is shown for one epoch."""


def tensorboard(config: Config, folder: Path) -> Listener:
    """The tracker: writes an event file in the run's folder, starting at the first event."""
    path: Path | None = None
    step = 0

    def resumed(lines: Sequence[Metrics]) -> None:
        nonlocal path, step
        path, step = _start_file(config, folder, lines), len(lines)

    def epoch(line: Metrics, is_best: bool) -> None:
        nonlocal path, step
        path, step = path or _start_file(config, folder, []), step + 1
        values = _scalars(line) + (_sample(load_run(folder)) if is_best else [])
        with disk_errors("write", path), path.open("ab") as file:
            _write(file, time.time(), step=step, summary=Summary(value=values))

    return Listener(epoch=epoch, resumed=resumed)


def _start_file(config: Config, folder: Path, lines: Sequence[Metrics]) -> Path:
    """Write a file of these epochs in place of older ones, including their samples.

    A running TensorBoard goes on to the next name; epochs have times as if there were no pause.
    """
    older = sorted(path for path in folder.iterdir() if EVENTS.fullmatch(path.name))
    samples = _samples(older)
    best = min(lines, key=lambda line: line["valid_nats_per_frame"], default=None)
    if best is not None and (step := lines.index(best) + 1) not in samples:
        samples[step] = _sample(load_run(folder))
    last = int(older[-1].suffixes[-2][1:]) if older else 0
    path = folder / f"events.out.tfevents.{last + 1:06}.seqmodel"
    now = time.time() - sum(line["seconds"] for line in lines)
    with new_file(path) as file:
        _write(file, now, file_version="brain.Event:2")
        # A running TensorBoard forgets what it has read.
        _write(file, now, session_log=SessionLog(status=SessionLog.START))
        settings = config.to_json()  # their table cannot show None
        stated = {name: value for name, value in settings.items() if value is not None}
        _write(file, now, summary=hparams_pb(stated))
        for step, line in enumerate(lines, 1):
            now += line["seconds"]
            values = _scalars(line) + samples.get(step, [])
            _write(file, now, step=step, summary=Summary(value=values))
    for one in older:
        if one.stat().st_size:
            os.truncate(one, 0)  # removed the next time: a reader would get stuck
        else:
            one.unlink()
    return path


def _write(file: BinaryIO, moment: float, **content: Any) -> None:
    RecordWriter(file).write(Event(wall_time=moment, **content).SerializeToString())


def _scalars(line: Metrics) -> Values:
    """The epoch's figures; those of a split are grouped under its name."""
    return [
        Summary.Value(tag=re.sub("^(train|valid)_", r"\1/", name), simple_value=value)
        for name, value in line.items()
        if name != "epoch"
    ]


def _samples(paths: Iterable[Path]) -> dict[int, Values]:
    """The samples in event files by step; files that a killed process left unfinished have none."""
    return {
        event.step: found
        for path in paths
        for event in LegacyEventFileLoader(str(path)).Load()
        if (found := [value for value in event.summary.value if value.tag.startswith(SAMPLE)])
    }


def _sample(run: Run) -> Values:
    """A picture and the sound of a piece drawn from the run, if its medium has them.

    Empty if drawing would take minutes, or if an early model's samples are out of bounds.
    """
    medium, sampler = medium_of(run.frame), Sampler(run.model)
    if not {"png", "wav"} <= {*medium.formats} or not sampler.is_compiled:
        return []
    length = run.sampling("wav", SECONDS).length
    frames = np.concatenate([*sampler.piece(length, seed=SEED, freeze=Freeze.of(run))])
    if not np.isfinite(frames).all():
        return []
    files = {}
    for kind in ("png", "wav"):
        files[kind] = io.BytesIO()
        drawn = SampleRequest(kind, length=len(frames), title=f"epoch {epochs_text(run.epoch)}")
        medium.sampling(run.frame, drawn).write(files[kind], [frames])
    return [_image(files["png"].getvalue()), _audio(files["wav"].getvalue())]


def _image(png: bytes) -> Any:
    width, height = struct.unpack(">2I", png[16:24])  # PNG, W3C 2003: the header comes first
    image = Summary.Image(width=width, height=height, colorspace=4, encoded_image_string=png)
    return Summary.Value(tag=f"{SAMPLE}picture", image=image)


def _audio(wav: bytes) -> Any:
    with wave.open(io.BytesIO(wav)) as sound:
        audio = Summary.Audio(
            sample_rate=sound.getframerate(),
            num_channels=sound.getnchannels(),
            length_frames=sound.getnframes(),
            encoded_audio_string=wav,
            content_type="audio/wav",
        )
    return Summary.Value(tag=f"{SAMPLE}sound", audio=audio)
