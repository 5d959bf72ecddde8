"""Music as sound files: what `sample out.wav` and `inspect --listen` write."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import UsageError
from seqmodel.files import new_file
from seqmodel.media.input import named, read_whole
from seqmodel.media.music import defaults
from seqmodel.media.music.corpus import load_roll
from seqmodel.media.music.dynamics import LOUDEST, velocities
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import Score, read_score
from seqmodel.media.music.notes import given_notes, notes_of
from seqmodel.media.music.pianoroll import given_part, piano_roll
from seqmodel.media.music.synthesizer import RATE, render, sample_count
from seqmodel.media.sound import MAX_SAMPLES, check_encoder, write_sound
from seqmodel.media.words import clock


def check_sound(kind: str, seconds: float) -> None:
    """UsageError if a piece whose frames last `seconds` cannot be written as `kind`."""
    check_encoder(kind)
    if sample_count(seconds) > MAX_SAMPLES:
        raise UsageError(
            f"the music lasts {clock(seconds)}, and the longest WAV {clock(MAX_SAMPLES / RATE)}: "
            "shorten it or raise --tempo"
        )


def write_music(
    kind: str, file: BinaryIO, frames: NDArray[np.uint8], times: NDArray[np.float64], grid: Grid,
    *, meter: tuple[int, int] | None = None, flat: bool = False,
    given: NDArray[np.bool_] | None = None,
) -> float:  # fmt: skip
    """Write frames (T, 88), or (T, 176) with onsets, as sound; returns its length in seconds.

    `times` (T + 1,) holds when each frame begins, and the last one ends, in seconds; notes are as
    loud as `dynamics` says, or all alike if `flat`, and hollow where they were `given` (T, 88), not
    drawn by a model.
    """
    samples = sample_count(float(times[-1]))
    notes = notes_of(frames)
    loudness = velocities(notes, frames, grid, meter=meter, flat=flat) / LOUDEST
    hollow = None if given is None else given_notes(notes, given)
    sound = render(notes, times, loudness, hollow)
    write_sound(kind, file, sound, RATE, samples)
    return samples / RATE


def frame_times(
    frames: int, grid: Grid, tempo: float, score: Score | None = None
) -> NDArray[np.float64]:
    """(T + 1,) `times` of T frames, at `tempo` or, if their beats are a score's, at its tempos."""
    if score is None or grid.steps_per_beat is None:
        return np.arange(frames + 1, dtype=np.float64) * grid.seconds_per_frame(tempo)
    ticks = np.arange(frames + 1) * (score.ticks_per_unit / grid.steps_per_beat)
    return score.seconds_at(ticks)


def listen(path: Path, options: Mapping[str, Any], target: Path) -> None:
    """`Medium.listen`: write a MIDI file or a roll (.npy) as sound.

    A MIDI file is rendered on the grid given, as a model sees it, with drums or without, at its own
    tempos unless one is given. A roll states no tempo, and its grid only if it was sampled.
    """
    kind = target.suffix.lower().lstrip(".")
    with named(path):
        frames, times, grid, given = _read(path, options)
    check_sound(kind, float(times[-1]))
    with new_file(target) as file:
        write_music(kind, file, frames, times, grid, given=given)


def _read(
    path: Path, options: Mapping[str, Any]
) -> tuple[NDArray[np.uint8], NDArray[np.float64], Grid, NDArray[np.bool_] | None]:
    """The frames, with onsets where the file states them, their times, grid and given part."""
    given, tempo = Grid.of_options(options), options.get("tempo")
    default = Grid.of_beats(defaults.STEPS_PER_BEAT)
    if path.suffix.lower() == ".npy":
        frames, stated = load_roll(path)
        grid = given or stated or default
        return frames, frame_times(len(frames), grid, tempo or defaults.TEMPO), grid, None
    grid, score = given or default, read_score(read_whole(path))
    frames = piano_roll(score, grid, drums=options.get("drums") == "keep", onsets=True)
    own = score if tempo is None else None
    times = frame_times(len(frames), grid, tempo or defaults.TEMPO, own)
    return frames, times, grid, given_part(score, grid)
