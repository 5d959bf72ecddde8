"""Writing music: piano-rolls to MIDI files, which read back as the same frames, and to sound.

The loudness of notes follows rules, unless frames have velocities: nobody plays every note alike.

By these rules a note's MIDI velocity is 68 plus
- its metre: 14 on the first beat of a bar, 9 in the middle of one of four beats, 6 on the other
  beats, and 2 halfway between two, or on the thirds of dotted ones, as in 6/8; nothing if frames
  are of real time;
- its voice: 10 if nothing sounds above it where it begins, else 4 if nothing sounds below it;
  hits of a drum kit have none;
- its place in the phrase, of four bars: 8 sin(pi p) where p goes from 0 to 1, an arch.

Friberg, Bresin and Sundberg (2006) describe such rules of performance. A note drawn into a file has
the median velocity of the five nearest of the file's notes that it is like (`original`), if there
are any; two beats, or two seconds of real time, are as far as a semitone. If a level of velocity
was drawn for it, that is the median of the 25 nearest of this level or, if there are none, of all,
moved into the level.

An additive synthesizer renders them. The tone of a pitch of frequency f in equal temperament, t
seconds after it was struck, is

    s(t) = sum over k = 1..8 of  a_k exp(-k t / tau) sin(2 pi k f t),

with a_k proportional to k^-1.5 and summing to 1; partials above half the sampling rate are left
out. tau is 1.3 s at middle C and halves every 18 semitones upwards. A hollow tone, such as a
clarinet's, has only the odd partials. A note fades in over 5 ms and, from its end, out over
100 ms, both along half a cosine. `kit` describes the sound of drums; they sound until they decay.

A passage sounds the same whatever else the piece holds: every note is at most a fifth of full
scale; a sum x within +-0.8, which four notes never exceed, is unchanged; beyond 0.8 it is
soft-clipped to 0.8 + 0.2 d / (1 + d), d = (|x| - 0.8) / 0.2, which is smooth and below 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import UsageError
from seqmodel.files import new_file
from seqmodel.media.input import naming
from seqmodel.media.marks import MAX_NUMBER, Levels
from seqmodel.media.music import events as smf
from seqmodel.media.music.corpus import load_roll, load_to_show, stated_metre
from seqmodel.media.music.frames import (
    ON_TIME,
    TIMING_PER_FRAME,
    drums_in,
    given_notes,
    is_kit,
    marks_in,
    notes_of,
    outer_notes,
    rows_of,
    sounding,
)
from seqmodel.media.music.grid import (
    DEFAULT_BPM,
    DRAWN,
    DRUM_CHANNEL,
    END_OF_PIECE,
    GIVEN,
    KIT,
    LOWEST_PITCH,
    MAX_DIVISION,
    MAX_TICK,
    STEPS_PER_BEAT,
    Grid,
)
from seqmodel.media.music.kit import ROWS, drum_sound
from seqmodel.media.music.metre import Metre, Signature, Units, file_signatures, signatures
from seqmodel.media.music.midi import Score
from seqmodel.media.music.parts import DRUMS, OTHER, PROGRAMS, Part
from seqmodel.media.sound import MAX_SAMPLES, check_encoder, write_sound
from seqmodel.media.words import hms

# ---- dynamics ------------------------------------------------------------------------------------

BASE_VELOCITY = 68
DOWNBEAT, MIDDLE, BEAT, HALFWAY = 14, 9, 6, 2
MELODY, BASS = 10, 4
ARCH = 8
LOUDEST = BASE_VELOCITY + DOWNBEAT + MELODY + ARCH
"""No note is louder by the rules; louder ones are clipped to this."""
FLAT_VELOCITY = 80
"""The velocity of all notes if they are played alike."""

NEAREST, NEAREST_OF_LEVEL, BEATS_LIKE_A_SEMITONE = 5, 25, 2
"""A drawn note has the median velocity of so many neighbours, or of more if its level is known; so
many beats are as far as a semitone."""
SEARCHED = 128
"""How many notes before and after a drawn one are searched for its neighbours."""

PHRASE_BARS = 4
PHRASE_SECONDS = 8.0
"""The length of a phrase in real time."""


def velocities(
    notes: NDArray[np.int64],
    frames: NDArray[np.uint8],
    grid: Grid,
    *,
    metre: Sequence[Signature] = (),
    flat: bool = False,
    like: Sequence[NDArray[np.int64]] = (),
    levels: Levels | None = None,
    apart: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """The MIDI velocity (N,) of each of some `notes_of(frames)`.

    It is the median of the nearest of the notes that it is `like`, if there are any: for each,
    their first frames, in order, rows and velocities (3, M); of a kit, those of its sound, if there
    are any. A velocity in the frames that is the mean of one of the `levels` only limits it to that
    level; any other is kept. Without such notes it is that in the frames or, if they have none,
    follows the bars of `metre`, or of 4/4. Notes `apart` (T, 88) are no voices.
    """
    if flat:
        return np.full(len(notes), FLAT_VELOCITY)
    begin, key = notes[:, 0], notes[:, 2] - rows_of(frames)[0]
    voices = sounding(frames) * (not is_kit(frames) if apart is None else ~apart)
    bottom, top = outer_notes(voices)
    voice = np.where(key == top[begin], MELODY, np.where(key == bottom[begin], BASS, 0))
    voice *= voices[begin, key] > 0
    if grid.steps_per_beat is None:
        accent = np.zeros_like(begin)
        phrase = begin * grid.seconds_per_frame(1.0) / PHRASE_SECONDS
    else:
        accent, phrase = _accents(begin, metre or signatures([], len(frames)), grid)
    arch = np.rint(ARCH * np.sin(np.pi * (phrase % 1)))
    velocity: NDArray[np.int64] = BASE_VELOCITY + accent + voice + arch.astype(np.int64)
    semitones_per_frame = grid.seconds_per_frame(60.0) / BEATS_LIKE_A_SEMITONE
    marks = marks_in(frames)
    known = marks["velocity"][begin, key] if "velocity" in marks else np.zeros_like(begin)
    velocity = np.where(known > 0, known, velocity)
    low, high = np.where(known > 0, known, [[0], [MAX_NUMBER]])
    if levels is not None:
        edges = np.array([0, *levels.edges, MAX_NUMBER])
        level = np.searchsorted(edges, known) - 1
        of_level = np.isin(known, levels.numbers()[1:])
        low, high = np.where(of_level, (edges[level] + 1, edges[level + 1]), (low, high))
    chosen = dict[tuple[int, ...], NDArray[np.int64]]()  # once, since a song may be long
    k, least, most = (1, key, key) if is_kit(frames) else (2, low, high)
    for n, cells in enumerate(like):
        if (which := (id(cells), least[n], most[n])) not in chosen:
            own = (least[n] <= cells[k]) & (cells[k] <= most[n])
            chosen[which] = cells[:, own] if own.any() else cells
        frame, row, loud = chosen[which]
        at = int(np.searchsorted(frame, begin[n]))
        some = slice(max(0, at - SEARCHED), at + SEARCHED)
        away = semitones_per_frame * abs(frame[some] - begin[n]) + abs(row[some] - key[n])
        if len(away):
            count = NEAREST_OF_LEVEL if known[n] else NEAREST
            median = np.median(loud[some][np.argsort(away, kind="stable")[:count]])
            velocity[n] = np.clip(median, low[n], high[n])
    return velocity


def _accents(
    begin: NDArray[np.int64], metre: Sequence[Signature], grid: Grid
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """What the metre adds to notes beginning at these frames (N,), and their place in phrases."""
    table = np.array([[each.frame, *Units.of(each.metre, grid)] for each in metre])
    row = np.searchsorted(table[:, 0], begin, side="right") - 1
    first, frame, beat, bar, parts = table[row].T
    elapsed = (begin - first) * frame
    in_bar, in_beat = elapsed % bar, elapsed % bar % beat
    middle = (bar == 4 * beat) & (2 * in_bar == bar)
    levels = [in_bar == 0, middle, in_beat == 0, parts * in_beat % beat == 0]
    accents = np.select(levels, [DOWNBEAT, MIDDLE, BEAT, HALFWAY], 0)
    return accents, elapsed / (PHRASE_BARS * bar)


# ---- timing --------------------------------------------------------------------------------------


def lateness(
    notes: NDArray[np.int64], frames: NDArray[np.uint8], usual: float = 0.0
) -> NDArray[np.float64]:
    """By how many frames each of `notes_of(frames)` begins late (N,); below 0: early.

    Without timing that is the `usual`.
    """
    if "timing" not in (marks := marks_in(frames)):
        return np.full(len(notes), usual)
    known = marks["timing"][notes[:, 0], notes[:, 2] - rows_of(frames)[0]]
    return np.where(known > 0, frames_late(known), usual)


def frames_late(timing: NDArray[Any]) -> NDArray[np.float64]:
    """By how many frames notes of these numbers begin late; below 0: early."""
    return (timing - float(ON_TIME)) / TIMING_PER_FRAME


def onset_ticks(
    notes: NDArray[np.int64], frames: NDArray[np.uint8], ticks: NDArray[np.int64],
    steps: NDArray[np.int64], late: float = 0.0,
) -> dict[tuple[int, int], int]:  # fmt: skip
    """(First frame, pitch) of each of `notes_of(frames)` -> the tick where it begins.

    It stays in its frame, which begins at one of `ticks` and lasts for one of `steps`. Notes
    without timing are `late` by that many frames.
    """
    begin = notes[:, 0]
    onsets = ticks[begin] + delays(lateness(notes, frames, late), steps[begin])
    places = map(tuple, notes[:, ::2].tolist())
    return dict(zip(places, np.maximum(onsets, 0).tolist(), strict=True))


def delays(late: float | NDArray[np.float64], steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ticks of a delay in frames, each of `steps` ticks; what is delayed stays in its frame."""
    limit = np.maximum(0, (steps - 3) // 2)  # frames begin at the nearest tick
    return np.clip(np.rint(late * steps), -limit, limit).astype(np.int64)


# ---- midi writer ---------------------------------------------------------------------------------

FINE_DIVISION = 480
"""Ticks per beat by default, as in most sequencers."""

SMOOTH_TICKS = 16
"""Ticks in a step of real time above which rounding to ticks is inaudible."""

PIANO = 0
CLICK, THIRTY_SECONDS = 24, 8
"""Also stated in a time signature: MIDI clocks in a click, 32nd notes in a quarter note."""


def midi_bytes(
    frames: NDArray[np.uint8],
    grid: Grid,
    *,
    tempo_bpm: float = DEFAULT_BPM,
    metre: Sequence[Signature] = (),
    flat: bool = False,
    given: NDArray[np.bool_] | None = None,
    parts: Sequence[Part] = (),
    drum_table: Sequence[int] = (),
) -> bytes:
    """A MIDI file of frames (T, 88) or (T, 176), or of a kit's (T, 47), at least one frame.

    Notes have the loudness of `velocities` and the timing of `lateness`. Hits of a kit last for
    their frame, on channel 10, where parts that are drums are too. Reading the bytes on the same
    grid restores the frames exactly: frame t begins at the nearest tick, and a marker states the
    end of a piece that ends in silence.

    Args:
        tempo_bpm: at least 3.6, the format's slowest; frames in seconds keep their length.
        metre: if empty, none is written, and accents are those of 4/4.
        flat: whether all notes are equally loud.
        given: (T, 88), what was not drawn by a model: notes that begin in it have their own track
            and, except drums, channel.
        parts: those in the frames; each has its own track and channel, and a program.
        drum_table: that of the frames, for parts that are drums.

    UsageError if a step is shorter than the shortest tick, or the piece is too long.
    """
    tempo = round(60e6 / tempo_bpm)
    division, numerator, denominator = _ticks_per_step(grid, tempo)
    if len(frames) * numerator // denominator > MAX_TICK:
        raise UsageError("the piece is too long for a MIDI file at this tempo; lower --tempo")

    # The nearest, in integers: no drift.
    ticks = [(2 * t * numerator + denominator) // (2 * denominator) for t in range(len(frames) + 1)]
    tracks = list[list[smf.TimedEvent]]()
    head = [(0, smf.FIRST, smf.meta(smf.SET_TEMPO, tempo.to_bytes(3)))]
    for frame, beats, of in file_signatures(metre, grid):
        if frame < len(frames):
            stated = bytes([beats, of.bit_length() - 1, CLICK, THIRTY_SECONDS])
            head.append((ticks[frame], smf.FIRST, smf.meta(smf.TIME_SIGNATURE, stated)))
    notes = notes_of(frames)
    apart = drums_in(frames, parts) if drum_table else None
    velocity_of = velocities(notes, frames, grid, metre=metre, flat=flat, apart=apart)
    hits = np.zeros(len(notes), bool) if apart is None else given_notes(notes, apart)
    keys = midi_keys(notes, hits, drum_table)
    onsets = onset_ticks(notes, frames, np.array(ticks), np.diff(ticks))
    for number, (part, in_track) in enumerate(split_tracks(notes, frames, given, parts)):
        channel, events = number + (number >= DRUM_CHANNEL), list[smf.TimedEvent]()
        if is_kit(frames) or part.program == DRUMS:
            channel = DRUM_CHANNEL
        for n in np.flatnonzero(in_track).tolist():
            begin, end, key = notes[n].tolist()
            off, velocity = min(ticks[end], onsets.get((end, key), MAX_TICK)), int(velocity_of[n])
            on, sent = onsets[begin, key], int(keys[n])
            to = DRUM_CHANNEL if hits[n] else channel
            events.append((on, smf.STRIKES, bytes([smf.NOTE_ON | to, sent, velocity])))
            events.append((off, smf.OFFS, bytes([smf.NOTE_OFF | to, sent, velocity])))
        events.sort()
        name = (0, smf.FIRST, smf.meta(smf.TRACK_NAME, part.name.encode()))
        program = (0, smf.FIRST, bytes([smf.PROGRAM | channel, part.program % PROGRAMS]))
        before, after = ([name], []) if part.name else (head[:1], head[1:])
        tracks.append([*before, program, *after, *events])
    tracks = [head, *tracks] if given is not None or parts else tracks
    if not frames[-1].any():
        tracks[0].append((ticks[-1], smf.STRIKES, smf.meta(smf.MARKER, END_OF_PIECE)))
    return smf.midi_file(int(len(tracks) > 1), division, [*map(smf.track_chunk, tracks)])


def midi_keys(
    notes: NDArray[np.int64], hits: NDArray[np.bool_], drum_table: Sequence[int]
) -> NDArray[np.int64]:
    """The MIDI key (N,) of each of `notes_of` frames with this table, some of which are `hits`."""
    keys = notes[:, 2].copy()
    if drum_table:
        keys[hits] = np.array(drum_table)[keys[hits] - LOWEST_PITCH]
    return keys


def split_tracks(
    notes: NDArray[np.int64], frames: NDArray[np.uint8], given: NDArray[np.bool_] | None,
    parts: Sequence[Part],
) -> list[tuple[Part, NDArray[np.bool_]]]:  # fmt: skip
    """The tracks of `notes_of` frames, with their notes (N,): one for what is given, if anything,
    and for the others one or, if there are `parts`, one for each, but none for an empty `other`.
    """
    drawn, name, tracks = np.ones(len(notes), bool), "", list[tuple[Part, NDArray[np.bool_]]]()
    if given is not None:
        drawn, name = ~given_notes(notes, given), DRAWN
        tracks.append((Part(GIVEN, PIANO), ~drawn))
    named = part_tracks(parts, name)
    if not parts:
        return [*tracks, (named[0], drawn)]
    own = marks_in(frames)["part"][notes[:, 0], notes[:, 2] - rows_of(frames)[0]]
    own = np.where(own > 0, own, len(parts))
    tracks += [(part, drawn & (own == k)) for k, part in enumerate(named, 1)]
    is_empty = parts[-1].name == OTHER and not tracks[-1][1].any()
    return tracks[:-1] if is_empty else tracks


def part_tracks(parts: Sequence[Part], name: str) -> list[Part]:
    """The tracks of parts, or of notes without parts, their names prefixed with `name`."""
    named = [part._replace(name=f"{name} {part.name}".strip()) for part in parts]
    return named or [Part(name, PIANO)]


def _ticks_per_step(grid: Grid, tempo: int) -> tuple[int, int, int]:
    if grid.steps_per_beat is not None:
        ticks = max(1, FINE_DIVISION // grid.steps_per_beat)
        return ticks * grid.steps_per_beat, ticks, 1
    beat = 1000 * tempo
    division = FINE_DIVISION
    while division * grid.step_nanoseconds < SMOOTH_TICKS * beat and division < MAX_DIVISION:
        division = min(2 * division, MAX_DIVISION)
    numerator = division * grid.step_nanoseconds
    # A step of at least one tick is rounded by less than half a step.
    if numerator < beat:
        raise UsageError(f"{grid} is finer than a MIDI tick at this tempo; raise --tempo")
    return division, numerator, beat


# ---- synthesizer ---------------------------------------------------------------------------------

RATE = 44_100
"""Samples per second."""

CONCERT_PITCH, CONCERT_FREQUENCY = 69, 440.0
MIDDLE_C = 60

PARTIALS = 8
ROLL_OFF = 1.5
DECAY_SECONDS = 1.3
"""The time constant of middle C's fundamental."""
DECAY_HALVING = 18.0
"""Semitones over which the time constant halves."""

ATTACK = round(0.005 * RATE)
RELEASE_SAMPLES = round(0.1 * RATE)
FADE_IN = 0.5 - 0.5 * np.cos(np.pi * np.arange(ATTACK) / ATTACK)
FADE_OUT = 0.5 + 0.5 * np.cos(np.pi * np.arange(RELEASE_SAMPLES) / RELEASE_SAMPLES)

LOUDEST_NOTE = 0.2
KNEE = 0.8
HALF_LEVEL = 2**-16
"""Half a 16-bit level."""

BLOCK = 2**16
"""Samples rendered at a time, 1.5 s."""
STRIDE = 256
"""The stride of `_tone`, near the square root of a note's length."""


def sample_count(seconds: float) -> int:
    """Samples in a piece whose frames last `seconds`; its last notes end 100 ms later."""
    return round(seconds * RATE) + RELEASE_SAMPLES


def render(
    notes: NDArray[np.int64], times: NDArray[np.float64], loudness: NDArray[np.float64],
    hollow: NDArray[np.bool_] | None = None, *, late: NDArray[np.float64] | float = 0.0,
    drums: NDArray[np.bool_] | None = None,
) -> Iterator[NDArray[np.float32]]:  # fmt: skip
    """Mono sound at `RATE` in blocks (n,), in (-1, 1), `sample_count(times[-1])` samples in all.

    Args:
        notes: (N, 3), as of `notes_of`.
        times: (T + 1,), when each frame begins, and the last one ends, in seconds.
        loudness: (N,), at most 1.
        hollow: (N,), which have a hollow tone.
        late: (N,), by how many frames each begins late.
        drums: (N,), which are hits of drums; all on keys for which a kit has a sound.
    """
    borders = np.rint(times * RATE).astype(np.int64)
    samples = sample_count(float(times[-1]))
    begin = np.rint(borders[notes[:, 0]] + late * np.diff(borders)[notes[:, 0]]).astype(np.int64)
    begin, end, pitch = begin.clip(min=0), borders[notes[:, 1]], notes[:, 2]
    # The number of samples after which a note, however long it is held, rounds to zero.
    audible = np.log(LOUDEST_NOTE / HALF_LEVEL) * _decay_seconds(pitch)
    audible = np.ceil(RATE * audible).astype(int)
    if drums is not None:
        end = np.where(drums, borders[-1], end)
        pitch = np.where(drums, KIT[0] + ROWS[pitch], pitch)
        audible[drums] = [len(drum_sound(key, RATE)) for key in pitch[drums].tolist()]
    last = np.minimum(end + RELEASE_SAMPLES, begin + audible)
    for start in range(0, samples, BLOCK):
        block = np.zeros(min(BLOCK, samples - start))
        stop = start + len(block)
        for note in np.flatnonzero((begin < stop) & (last > start)):
            first = int(begin[note])
            # Relative to its beginning: its part in the block, and its end.
            low, high = max(start, first) - first, min(stop, int(last[note])) - first
            held, key = int(end[note]) - first, int(pitch[note])
            if drums is not None and drums[note]:
                sound = LOUDEST_NOTE * drum_sound(key, RATE)[low:high]
            else:
                sound = _tone(key, hollow is not None and bool(hollow[note]), low, high)
            if high > held:
                fading = max(0, held - low)
                sound[fading:] *= FADE_OUT[low + fading - held : high - held]
            block[low + first - start : high + first - start] += loudness[note] * sound
        yield _soft_clip(block).astype(np.float32)


def _tone(pitch: int, hollow: bool, low: int, high: int) -> NDArray[np.float64]:
    """Samples `low` to `high` of a pitch struck at sample 0.

    A partial is the imaginary part of z^n, and z^(low + i STRIDE + j) is z^(low + i STRIDE) z^j, so
    a table over i and one over j suffice, and summing the partials is a matrix product.
    """
    exponents, near = _tables(pitch, hollow)
    rows = low + STRIDE * np.arange(-(-(high - low) // STRIDE))
    far = np.exp(np.outer(rows, exponents))
    sound: NDArray[np.float64] = (np.hstack([far.real, far.imag]) @ near).reshape(-1)[: high - low]
    fade = FADE_IN[low:high]
    sound[: len(fade)] *= fade
    return sound


@lru_cache(maxsize=256)  # every MIDI pitch, with either tone
def _tables(pitch: int, hollow: bool) -> tuple[NDArray[np.complex128], NDArray[np.float64]]:
    """(K,) log z of each partial; (2K, STRIDE) factors of `_tone`'s parts, loudness included."""
    k = np.arange(1.0, PARTIALS + 1, 2 if hollow else 1)
    loudness = LOUDEST_NOTE * k**-ROLL_OFF / (k**-ROLL_OFF).sum()
    frequency = CONCERT_FREQUENCY * 2 ** ((pitch - CONCERT_PITCH) / 12)
    below_nyquist = k * frequency < RATE / 2
    fundamental = complex(-1 / _decay_seconds(pitch), 2 * np.pi * frequency) / RATE
    exponents = np.complex128(fundamental) * k[below_nyquist]
    near = loudness[below_nyquist, None] * np.exp(np.outer(exponents, np.arange(STRIDE)))
    return exponents, np.vstack([near.imag, near.real])


def _decay_seconds(pitch: int | NDArray[np.int64]) -> float | NDArray[np.float64]:
    return DECAY_SECONDS * 2 ** ((MIDDLE_C - pitch) / DECAY_HALVING)


def _soft_clip(sound: NDArray[np.float64]) -> NDArray[np.float64]:
    excess = np.maximum(np.abs(sound) - KNEE, 0) / (1 - KNEE)
    return np.clip(sound, -KNEE, KNEE) + np.copysign((1 - KNEE) * excess / (1 + excess), sound)


# ---- listening -----------------------------------------------------------------------------------


def check_sound(kind: str, seconds: float) -> None:
    """UsageError if a piece of `seconds` cannot be written as `kind`."""
    check_encoder(kind)
    if sample_count(seconds) > MAX_SAMPLES:
        raise UsageError(
            f"the music lasts {hms(seconds)}, and the longest WAV {hms(MAX_SAMPLES / RATE)}: "
            "shorten it or raise --tempo"
        )


def write_music(
    kind: str, file: BinaryIO, frames: NDArray[np.uint8], times: NDArray[np.float64], grid: Grid,
    *, metre: Sequence[Signature] = (), flat: bool = False,
    given: NDArray[np.bool_] | None = None, drums: NDArray[np.bool_] | None = None,
    drum_table: Sequence[int] = (),
) -> float:  # fmt: skip
    """Write frames (T, 88), (T, 176) or (T, 47) as sound; returns its length in seconds.

    `times` are as for `render`. Loudness is as in `velocities`. `given` notes (T, 88), except
    `drums` (T, 88), have a hollow tone; drums on keys for which a kit has no sound are left out.
    `drum_table` is that of the frames.
    """
    samples = sample_count(float(times[-1]))
    notes = notes_of(frames)
    hits = given_notes(notes, drums_in(frames) if drums is None else drums)
    keys = midi_keys(notes, hits, drum_table)
    heard = ~hits | (ROWS[keys] >= 0)
    notes, hits, keys = notes[heard], hits[heard], keys[heard]
    apart = drums if drum_table else None
    velocity_of = velocities(notes, frames, grid, metre=metre, flat=flat, apart=apart)
    loudness = velocity_of.clip(max=LOUDEST) / LOUDEST
    hollow = None if given is None else given_notes(notes, given)
    late = lateness(notes, frames)
    heard_as = np.column_stack([notes[:, :2], keys])
    sound = render(heard_as, times, loudness, hollow, late=late, drums=hits)
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
    """`Medium.listen`: MIDI on the given grid, as a model sees it, at its own tempos unless one is
    given. A roll (.npy) states no tempo, and its grid only if it was sampled.
    """
    kind, tempo = target.suffix.lower().lstrip("."), options.get("tempo")
    score = given = drums = None
    stated = list[tuple[int, Metre]]()
    with naming(path):
        if path.suffix.lower() == ".npy":
            frames, stated_grid = load_roll(path)
            grid = Grid.of_options(options) or stated_grid or Grid.of_beats(STEPS_PER_BEAT)
        else:
            frames, _, _, placed, _ = load_to_show(path, options)
            score, grid, given = placed.score, placed.frame.grid, placed.given_mask()
            drums = placed.where(score.of_drums)
            stated = stated_metre(score, grid)
    times = frame_times(len(frames), grid, tempo or DEFAULT_BPM, None if tempo else score)
    check_sound(kind, float(times[-1]))
    metre = signatures(stated, len(frames))
    with new_file(target) as file:
        write_music(kind, file, frames, times, grid, metre=metre, given=given, drums=drums)
