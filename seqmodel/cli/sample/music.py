"""`seqmodel sample` from a run of music."""

import io

import numpy as np
from numpy.typing import NDArray

from seqmodel.cli.common import message, plural
from seqmodel.cli.sample.request import DEFAULT_LENGTH, DEFAULT_TEMPO, Request
from seqmodel.data.prepare import load_midi, load_roll
from seqmodel.data.sources import Source
from seqmodel.errors import SeqmodelError, SourceError, UsageError
from seqmodel.media.definitions import PianoRollFrames
from seqmodel.media.music.grid import LOWEST_PITCH, MAX_FRAMES
from seqmodel.media.music.midi_writer import midi_bytes
from seqmodel.plots.music import piano_roll_png
from seqmodel.runs.folder import Run
from seqmodel.sampling.sampler import Sampler


def sample_music(request: Request, run: Run, frame: PianoRollFrames) -> None:
    """Draw the pieces and write them."""
    tempo = request.tempo or DEFAULT_TEMPO
    length = _length(request, run, frame, tempo)
    primer = _read_primer(request, frame)
    heard = len(primer) if request.include_prime else 0
    sampler = Sampler(run.model, temperature=request.temperature)
    for k, target in enumerate(request.targets):
        piece = sampler.piece(length, seed=request.seed, number=k, prime=primer)
        roll = np.concatenate([primer[:heard], *piece])
        with request.opened(target) as file:
            file.write(_encode(request.kind, roll, run, frame, tempo, heard))
        silent = "" if roll.any() else ", silent: try a higher --temperature"
        request.say(f"{target}: {plural(len(roll), 'frame')} from {run.folder}{silent}")


def _length(request: Request, run: Run, frame: PianoRollFrames, tempo: float) -> int:
    """The frames of a piece, the primer left out."""
    if request.seconds is not None:
        frames = request.seconds / frame.grid.seconds_per_frame(tempo)
        length = max(1, round(min(frames, MAX_FRAMES + 1)))
    elif request.length is not None:
        length = request.length
    else:
        length = run.longest_piece if run.config.end else DEFAULT_LENGTH
    if length > MAX_FRAMES:
        option = "--length" if request.seconds is None else "--seconds"
        raise UsageError(f"{option} asks for more than the {MAX_FRAMES:,} frames a piece may have")
    return length


def _read_primer(request: Request, frame: PianoRollFrames) -> NDArray[np.uint8]:
    """The frames (P, 88) to go on from, none without --prime."""
    path = request.prime
    if path is None:
        return np.empty((0, frame.frame_size), np.uint8)
    try:
        if path.suffix.lower() == ".npy":
            return load_roll(path)
        piece = load_midi(Source(path, None), frame)
    except SourceError as error:
        raise SeqmodelError(f"--prime {path}: {error}") from error
    except OSError as error:
        raise SeqmodelError(f"--prime {path}: {(error.strerror or str(error)).lower()}") from error
    if piece.transposed:
        message(
            f"{path} was moved by {piece.transposed:+d} semitones, its tonic to C as in training",
            quiet=request.quiet,
        )
    return piece.roll


def _encode(
    kind: str, roll: NDArray[np.uint8], run: Run, frame: PianoRollFrames, tempo: float, heard: int
) -> bytes:
    if kind == "mid":
        return midi_bytes(roll, frame.grid, tempo_bpm=tempo)
    if kind == "png":
        title = f"sampled from {run.folder} ({run.config.unit})"
        unit = f"frame ({frame.grid})"
        return piano_roll_png(roll, LOWEST_PITCH, title=title, unit=unit, primer=heard)
    buffer = io.BytesIO()
    np.save(buffer, roll, allow_pickle=False)
    return buffer.getvalue()
