"""Sampled music: the length of a piece, what it continues or fills, how it is written."""

import io
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import UsageError
from seqmodel.media.definitions import FrameDefinition
from seqmodel.media.input import naming, with_comment
from seqmodel.media.music.contents import tonic_of, up_or_down
from seqmodel.media.music.corpus import load_midi, load_roll, metre_of
from seqmodel.media.music.frames import (
    PianoRollFrames,
    after_silence,
    chord_lengths,
    drums_in,
    fold,
    given_notes,
    has_onsets,
    hold,
    is_kit,
    marks_in,
    notes_of,
    outer_notes,
    sounding,
    states,
    struck,
    transposed,
    with_onsets,
)
from seqmodel.media.music.grid import (
    DEFAULT_BPM,
    HIGHEST_PITCH,
    KIT_KEYS,
    LOWEST_PITCH,
    MAX_FRAMES,
    NOTES,
    PARTICLES,
    SAMPLE_LENGTH,
    SOUND_FORMATS,
    SWEEPS,
    note_name,
    pitch_of,
    semitones_above_c,
)
from seqmodel.media.music.inspection import piano_roll_picture, piano_roll_png
from seqmodel.media.music.kit import ABOVE
from seqmodel.media.music.metre import (
    COMMON_TIME,
    Metre,
    bar_lines,
    metre_from_json,
    parse_metre,
    shifted,
    signatures,
)
from seqmodel.media.music.midi import Score
from seqmodel.media.music.original import Original
from seqmodel.media.music.parts import are_tuned
from seqmodel.media.music.placing import PlacedNotes, in_frames, missing_kinds
from seqmodel.media.music.writing import check_sound, frame_times, midi_bytes, write_music
from seqmodel.media.samples import (
    Filling,
    Picture,
    Progress,
    SampleRequest,
    Sampling,
    Written,
    no_progress,
)
from seqmodel.media.words import plural

MANY_FRAMES = 100_000
"""In a primer; the bundled run reads some 4,000 a second."""


class MusicSampling(Sampling):
    """`Sampling` of piano-rolls, each written once it is complete."""

    def __init__(self, frame: FrameDefinition, request: SampleRequest) -> None:
        assert isinstance(frame, PianoRollFrames)
        self._frame, self._request = frame, request
        options = request.options
        if frame.kit:
            for name in ("key", "transpose", "below", "above"):
                if options.get(name):
                    raise UsageError(f"--{name} is for pitched notes, but the run draws drums")
        self._tonic, self._flat = _tonic(options), bool(options.get("flat"))
        filled = None
        if fill := options.get("fill"):
            filled = FilledPiece(fill, frame, options, keep=request.kind == "mid")
        for name in (*SELECTIONS, "particles", "sweeps"):
            if filled is None and options.get(name) is not None and options[name] is not False:
                raise UsageError(f"--{name} needs --fill FILE")
        self._filled = filled
        self.remarks: list[str] = []
        self._prime = self._read_prime()
        self._file = filled or self._prime
        written = filled or (self._prime if request.include_prime else None)
        self._transposed = written.transposed if written else 0
        self._original = self._open_original()
        tempo = self._file.tempo if self._file else frame.tempo or DEFAULT_BPM
        self._tempo = float(options.get("tempo") or tempo)
        self.primer, primer_times = self._read_primer()
        self.playback_options = {"tempo": self._tempo}
        seconds_per_frame = frame.grid.seconds_per_frame(self._tempo)
        default = request.longest_piece or SAMPLE_LENGTH
        what = f"the {MAX_FRAMES:,} frames a piece can have"
        self.length = request.frames_to_draw(default, MAX_FRAMES, 1 / seconds_per_frame, what)
        self._included = len(self.primer) if request.include_prime else 0
        self._times = primer_times[: self._included + 1]
        for of_file in (filled, self._original):
            self.remarks += [] if of_file is None else of_file.remarks
        if filled is not None:
            particles, sweeps = options.get("particles") or PARTICLES, options.get("sweeps")
            if sweeps is None:
                # Drafts are good without sweeps if every frame to the last has something given.
                needed = filled.free.all(axis=1).any() or not filled.free[-1].any()
                sweeps = SWEEPS if needed else 0
            self.filling = Filling(filled.frames, filled.free, particles, sweeps)
            self.length = len(filled.frames)
            if filled.score is not None and np.ptp(filled.score.tempo) and not options.get("tempo"):
                self._times = frame_times(self.length, frame.grid, self._tempo, filled.score)
        # From the primer's first frame on, as `Piece.facts` has them.
        file, metre = self._file, options.get("metre")
        known = len(filled.frames) if filled else max(1, len(self.primer))
        changes = signatures(file.metre if file else _metre(frame, metre, []), known)
        as_facts = [list(each) for each in changes]
        self.metres = frame.metres({"metre": as_facts})
        written_metre = shifted(as_facts, len(self.primer) - self._included)
        self._metre = metre_from_json(written_metre) if frame.grid.steps_per_beat else ()
        if request.kind in SOUND_FORMATS:
            check_sound(request.kind, float(self._times_of(self._included + self.length)[-1]))

    def write(
        self,
        file: BinaryIO,
        chunks: Iterable[NDArray[np.uint8]],
        progress: Progress = no_progress,
    ) -> Written:
        included = end = self._included
        # Allocated once, and backed by memory only as it fills: never twice the music.
        frames = np.empty((included + self.length, self._frame.marked_size), np.uint8)
        frames[:included] = self.primer[:included]
        for chunk in chunks:
            frames[end : end + len(chunk)] = chunk
            end += len(chunk)
            progress(end - included, self.length)
        if self._frame.onsets and not included:
            frames[:1] = after_silence(frames[:1])
        frames = frames[:end]
        for numbers in marks_in(frames).values():
            numbers[included:] = hold(numbers, frames)[included:]
        hint = self._hint(frames[included:])
        size = plural(len(frames), "frame")
        if included:
            size += f" ({len(frames) - included:,} drawn)"
        if self._original is not None:
            file.write(self._in_original(self._original, frames))
            return Written(size, hint)
        frames, given = self._in_written_key(frames)
        if self._request.kind in SOUND_FORMATS:
            seconds = write_music(
                self._request.kind, file, frames, self._times_of(len(frames)), self._frame.grid,
                metre=self._metre, flat=self._flat, given=given,
                drums=drums_in(frames, self._frame.parts), drum_table=self._frame.drum_table,
            )  # fmt: skip
            size += f", {seconds:,.1f} s"
        else:
            file.write(self._encode(frames, given))
        return Written(size, hint)

    def _times_of(self, frames: int) -> NDArray[np.float64]:
        """(T + 1,), when the frames of a written piece begin: what is drawn keeps the tempo."""
        drawn = frame_times(frames - (len(self._times) - 1), self._frame.grid, self._tempo)
        return np.append(self._times, self._times[-1] + drawn[1:])

    def _hint(self, drawn: NDArray[np.uint8]) -> str:
        if not drawn.any():
            return "silent: try --temperature 1 or another --seed, or train for longer"
        known, allowed = self._frame.longest_chord, self._frame.longest_hold
        if known is None or allowed is None or self._filled is not None:
            return ""
        longest = int(chord_lengths(drawn).max())
        if longest <= allowed:
            return ""
        held = f"a chord lasts {longest:,} frames, those in training {known:,} at most"
        if self._request.temperature != 1:
            return f"{held}: try --temperature 1 or another --seed"
        return f"{held}: try another --seed, or train longer or with a higher --input-noise"

    def picture(self, frames: NDArray[np.uint8]) -> Picture:
        frames, given = self._in_written_key(frames)
        times = self._times if len(self._times) > len(frames) else None
        return piano_roll_picture(frames, self._frame, tempo=self._tempo, given=given, times=times)

    def _in_written_key(
        self, frames: NDArray[np.uint8]
    ) -> tuple[NDArray[np.uint8], NDArray[np.bool_] | None]:
        """The frames in their key, and (T, 88) which notes were given, if any."""
        given = ~self._free(len(frames)) if self._filled or self._included else None
        if self._filled is not None:
            frames = with_file_onsets(frames, self._filled.played, self._filled.free)
        semitones, drums = self._semitones(frames), drums_in(frames, self._frame.parts)
        if semitones:
            frames = transposed(frames, semitones, drums)
            given = None if given is None else np.where(drums, given, transposed(given, semitones))
        return frames, given

    def _free(self, length: int) -> NDArray[np.bool_]:
        """(T, 88), the drawn notes of a piece that was filled or includes the primer."""
        if self._filled is not None:
            return self._filled.free
        rows = np.arange(length) >= self._included
        return np.broadcast_to(rows[:, None], (length, len(self._frame.rows)))

    def _semitones(self, frames: NDArray[np.uint8]) -> int:
        """By how many semitones the run's frames are transposed in the written file."""
        if self._tonic is not None:
            notes = notes_of(frames)
            notes = notes[~given_notes(notes, drums_in(frames, self._frame.parts))]
            tonic = tonic_of(notes[:, 2], notes[:, 1] - notes[:, 0])
            return up_or_down(self._tonic - tonic) if len(notes) else 0
        return (self._request.options.get("transpose") or 0) - self._transposed

    def _open_original(self) -> Original | None:
        """The MIDI file, if any, that is filled or continued and written with the drawn notes."""
        request, options = self._request, self._request.options
        path = options.get("fill") or (request.prime if request.include_prime else None)
        into = options.get("into")
        if request.kind != "mid" or path is None or path.suffix.lower() == ".npy":
            if into is None:
                return None
            raise UsageError(
                "--into needs a MIDI file to write into: --fill FILE or --prime FILE "
                "--include-prime, and a .mid to write"
            )
        if options.get("tempo"):
            raise UsageError(
                f"--tempo would change {path}, which keeps its own tempos: leave it out"
            )
        with naming(path, for_run=True):
            return Original(path, self._frame, transposed=self._transposed, into=into)

    def _in_original(self, original: Original, frames: NDArray[np.uint8]) -> bytes:
        cut, free = None, self._free(len(frames))
        if self._filled is not None:
            frames = with_file_onsets(frames, self._filled.played, self._filled.free)
        else:
            file = original.frames[: len(frames)]
            assert self._prime is not None
            cut = None if self._included == len(self._prime.frames) else self._included
            file = np.pad(file, ((0, len(frames) - len(file)), (0, 0)))
            frames = with_file_onsets(frames, file, free)
        return original.with_drawn(
            frames, free, cut=cut, semitones=self._semitones(frames) + self._transposed,
            metre=self._metre, flat=self._flat,
        )  # fmt: skip

    def _read_prime(self) -> "ReadFile | None":
        request, frame, path = self._request, self._frame, self._request.prime
        if path is None:
            return None
        read = ReadFile("prime", path, frame, request.options)
        if frame.onsets and not read.states_onsets:
            self.remarks.append(
                f"{path} does not state which notes are struck again: repeated notes count as held"
            )
        unknown = frame.marked_size - read.frames.shape[1]  # of marks
        read.frames = np.pad(read.frames, ((0, 0), (0, unknown)))
        if read.transposed:
            written = f", and is written in {read.key}" if request.include_prime else ""
            self.remarks.append(
                f"{path} was transposed by {read.transposed:+d} semitones, its tonic to C as in "
                f"training{written}"
            )
        return read

    def _read_primer(self) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """What is used of the file that is continued, and when its frames begin.

        What is drawn goes on at the tempo of its end, unless one is given.
        """
        request, grid, prime = self._request, self._frame.grid, self._prime
        if prime is None:
            return np.empty((0, self._frame.marked_size), np.uint8), np.zeros(1)
        score = None if request.options.get("tempo") else prime.score
        times = frame_times(len(prime.frames), grid, self._tempo, score)
        used = min(request.prime_frames or len(prime.frames), len(prime.frames))
        if request.prime_seconds is not None:
            used = max(1, int(abs(times - request.prime_seconds).argmin()))
        if score is not None and not score.smpte:
            self._tempo = score.tempo_before(times[used])
        if used > MANY_FRAMES:
            self.remarks.append(f"{prime.path}: reading its {used:,} frames may take minutes")
        return prime.frames[:used], times[: used + 1]

    def _encode(self, frames: NDArray[np.uint8], given: NDArray[np.bool_] | None) -> bytes:
        grid, onsets = self._frame.grid, self._frame.onsets
        if self._request.kind == "mid":
            return midi_bytes(
                frames, grid, tempo_bpm=self._tempo, metre=self._metre, flat=self._flat,
                given=given, parts=self._frame.parts, drum_table=self._frame.drum_table,
            )  # fmt: skip
        if self._request.kind == "png":
            return piano_roll_png(
                frames, title=self._request.title, unit=f"frame ({grid})", given=given,
                drums=bool(self._frame.drum_table),
            )  # fmt: skip
        frames = frames if onsets else sounding(frames)
        buffer = io.BytesIO()
        np.save(buffer, states(frames) if onsets else frames, allow_pickle=False)
        return with_comment(buffer.getvalue(), json.dumps(grid.to_json()))


def _tonic(options: Mapping[str, Any]) -> int | None:
    key = options.get("key")
    if key is None:
        return None
    if options.get("transpose"):
        raise UsageError("--key and --transpose exclude each other")
    try:
        return semitones_above_c(key) % 12
    except ValueError:
        raise UsageError(f"--key must be a note such as C, F# or Eb, not {key!r}") from None


# ---- files ---------------------------------------------------------------------------------------


class ReadFile:
    """A file as read by the run, to be continued or filled; SeqmodelError if it cannot be.

    Attributes:
        states_onsets: whether it tells a note struck again from one that is held.
        played: (T, 176), with onsets also if the run has none, and more with marks.
        frames: the same, without onsets if the run has none.
        placed, score: of a MIDI file, else None.
        transposed: semitones by which it was transposed to move its tonic to C.
        key: that in which it is written, in words.
        tempo: beats per minute: its first, or else the usual one.
        metre: (frame, metre) of each time signature: the one asked for, or its own.
    """

    def __init__(
        self, option: str, path: Path, frame: PianoRollFrames, options: Mapping[str, Any]
    ) -> None:
        self.path, self.transposed = path, 0
        asked = options.get("key") or options.get("transpose")
        self.key = "the key asked for" if asked else "its own key"
        self.tempo = frame.tempo or DEFAULT_BPM
        self.score: Score | None = None
        self.placed: PlacedNotes | None = None
        with naming(f"--{option} {path}", for_run=True):
            if path.suffix.lower() == ".npy":
                found, _ = load_roll(path, frame)
            else:
                played = replace(frame, onsets=not frame.kit)
                found, _, self.transposed, self.placed, _ = load_midi(path, played)
                self.score = self.placed.score
        self.states_onsets = has_onsets(found)
        self.played = found if self.states_onsets else with_onsets(found)
        if self.placed is None and frame.drum_table:
            self.played = _with_drum_marks(self.played, frame)
        self.frames = self.played if frame.onsets else sounding(self.played)
        if self.score and not self.score.smpte:
            self.tempo = 60e6 / int(self.score.tempo[0])
        stated = metre_of(self.score, self.frames, frame.grid)
        self.metre = _metre(frame, options.get("metre"), stated)


def _with_drum_marks(frames: NDArray[np.uint8], frame: PianoRollFrames) -> NDArray[np.uint8]:
    """Frames (T, 176) of a .npy, which has no parts, with marks that say what are drums.

    That is what lies above a band's pitches, on rows that drums have in train.
    """
    marked = np.pad(frames, ((0, 0), (0, frame.marked_size - frames.shape[1])))
    keys = [key for key in frame.drum_keys if key > HIGHEST_PITCH - ABOVE]
    for row in (key - LOWEST_PITCH for key in keys):
        marks_in(marked)["part"][:, row] = frames[:, row] * (frame.drum_parts[0] + 1)
    return marked


# ---- filling -------------------------------------------------------------------------------------

SELECTIONS = ("bars", "frames", "time", "notes", "below", "above")
"""The options that select the part to redraw, which is the intersection of those given."""
FORMS = {
    "bars": "a bar or FROM:TO",
    "frames": "FROM:TO",
    "time": "FROM:TO in seconds",
    "notes": "a note or LOW:HIGH, such as C2:B3",
}
"""What their values must be."""


def _metre(
    frame: PianoRollFrames, asked: str | None, stated: list[tuple[int, Metre]]
) -> list[tuple[int, Metre]]:
    """(Frame, time signature): the one asked for, or a file's own, or the usual one."""
    if asked is None:
        return stated or [(0, frame.metre or COMMON_TIME)]
    if frame.grid.steps_per_beat is None:
        raise UsageError(f"--metre needs a run on a grid of beats, not {frame.grid}")
    try:
        return [(0, parse_metre(asked))]
    except ValueError as error:
        raise UsageError(f"--metre must be {error}") from None


def with_file_onsets(
    frames: NDArray[np.uint8], file: NDArray[np.uint8], free: NDArray[np.bool_]
) -> NDArray[np.uint8]:
    """Drawn frames as (T, 176), in which a file's own notes begin and end as in the file.

    A note that is drawn on after the file's ends is struck again. `free` (T, 88) is what was
    drawn. Marks and hits of a kit are unchanged.
    """
    if is_kit(frames):
        return frames
    roll, given = sounding(frames) > 0, ~free
    onsets = struck(frames) | (struck(file) & given & roll)
    held = (sounding(file) > 0) & ~struck(file)
    ends = np.pad((roll & given)[:-1], ((1, 0), (0, 0))) & ~held
    parts = roll, onsets | (roll & ends), frames[:, 2 * NOTES :]
    return np.concatenate(parts, axis=1).astype(np.uint8)


class FilledPiece(ReadFile):
    """A file as read by the run, and the part of it to redraw.

    Attributes:
        free: (T, 88), the notes to be drawn.
        remarks: what is lost of the file, one line each.
    """

    def __init__(
        self, path: Path, frame: PianoRollFrames, options: Mapping[str, Any], *, keep: bool = False
    ) -> None:
        """`options` are those of `sample`; UsageError if they leave nothing to draw.

        With `keep`, a MIDI file is itself written with the drawn notes, see `original`.
        """
        super().__init__("fill", path, frame, options)
        if not any(options.get(part) for part in SELECTIONS):
            flags = ", ".join(f"--{part}" for part in SELECTIONS)
            raise UsageError(f"--fill {path}: choose what to draw with {flags}")
        self._frame = frame
        self.remarks = [] if self.score is None else self._remarks(self.score, keep=keep)
        self.free = self._free_mask(options)
        if not self.free.any():
            raise UsageError(f"--fill {path}: there is nothing to draw in that part")

    def _remarks(self, score: Score, *, keep: bool) -> list[str]:
        frame = self._frame
        pitches = score.pitch.astype(int) + self.transposed
        off_keys = fold(pitches) != pitches
        placed, steps = in_frames(score, frame), frame.grid.steps_per_beat or 0
        off_grid = score.on_tick[placed] * steps % score.ticks_per_unit
        remarks = {
            f"is read with repairs: {', '.join(score.remarks)}": score.remarks,
            f"was transposed by {self.transposed:+d} semitones, its tonic to C as in training, and "
            f"is written in {self.key}": self.transposed,
        }
        lost = {
            "has notes off the keyboard, moved there by octaves": not frame.kit and off_keys.any(),
            f"has notes off the run's grid ({frame.grid}), moved onto it": off_grid.any()
            and "timing" not in frame.marks,
            **{f"has {kind}, which are dropped": True for kind in missing_kinds(score, frame)},
        }
        shown = remarks if keep else remarks | lost
        return [f"{self.path} {what}" for what, found in shown.items() if found]

    def _free_mask(self, options: Mapping[str, Any]) -> NDArray[np.bool_]:
        rows, drums = self._frame.rows, self._drums()
        free = np.ones((len(self.frames), len(rows)), bool)
        borders_of = {"bars": self._bars, "frames": self._frames, "time": self._seconds}
        for stretch, borders in borders_of.items():
            if options.get(stretch):
                begin, end = borders(options[stretch])
                free[:begin] = free[end:] = False
        if options.get("notes"):
            pitches = np.array(rows) - self.transposed
            low, high = _span("notes", options["notes"], pitch_of, (pitches[0], pitches[-1]))
            within = (low <= pitches) & (pitches <= high)
            if not within.any():
                keys = f"{note_name(LOWEST_PITCH)} to {note_name(HIGHEST_PITCH)}"
                keys = KIT_KEYS if self._frame.kit else keys
                raise UsageError(f"--notes {options['notes']} contains none of the keys, {keys}")
            free &= within
        if options.get("below") or options.get("above"):
            roll: NDArray[Any] = sounding(self.frames)
            tuned = roll * ~drums
            if self.placed is not None:
                tuned = self.placed.where(are_tuned(self.placed.score))
            roll = tuned if tuned.any() else roll
            bottom, top = _outer_lines(roll)
            if options.get("below"):
                free &= np.arange(NOTES) < top[:, None]
            if options.get("above"):
                free &= np.arange(NOTES) > bottom[:, None]
        if not self._frame.kit and any(map(options.get, ("notes", "below", "above"))):
            own = self._frame.drum_keys if self._frame.drum_table else ()
            free &= ~drums  # which have no pitch
            free[:, [key - LOWEST_PITCH for key in own]] = False
        return free

    def _drums(self) -> NDArray[np.bool_]:
        """Where in the roll (T, 88) are drums, as far as that is known."""
        if self.placed is not None:
            return self.placed.where(self.placed.score.of_drums)
        return drums_in(self.played, self._frame.parts if self._frame.drum_table else ())

    def _bars(self, text: str) -> tuple[int, int]:
        grid = self._frame.grid
        if grid.steps_per_beat is None:
            raise UsageError(f"--bars needs a run on a grid of beats, not {grid}: use --time")
        T = len(self.frames)
        lines = bar_lines(signatures(self.metre, T), grid, T)
        begin, end = self._stretch("bars", text, int, (1, len(lines)))
        if not 1 <= begin <= len(lines):
            raise UsageError(f"--bars {text} must begin in {self.path}'s bars, 1 to {len(lines):,}")
        return lines[begin - 1], lines[end] if end < len(lines) else T

    def _frames(self, text: str) -> tuple[int, int]:
        T = len(self.frames)
        begin, end = self._stretch("frames", text, int, (0, T))
        if not begin < min(end, T):
            raise UsageError(f"--frames {text} has none of {self.path}'s frames, 0 to {T - 1:,}")
        return begin, end

    def _seconds(self, text: str) -> tuple[int, int]:
        times = frame_times(len(self.frames), self._frame.grid, self.tempo, self.score)
        last = float(times[-1])
        span = self._stretch("time", text, float, (0.0, last))
        first, after = np.searchsorted(times[:-1], span).tolist()
        if not first < after:
            raise UsageError(
                f"--time {text} contains no frame of {self.path}, which lasts {last:.1f} s"
            )
        return first, after

    def _stretch(
        self, option: str, text: str, read: Callable[[str], Any], whole: tuple[Any, Any]
    ) -> tuple[Any, Any]:
        """`_span` of time; a remark tells if it lasts beyond the file's `whole`."""
        begin, end = _span(option, text, read, whole)
        if end > math.ceil(whole[1]):  # a file of 3.9 s is often called 4 s long
            where = f"{round(whole[1], 1)}, where {self.path} ends"
            self.remarks.append(f"--{option} {text} is cut at {where}")
        return begin, end


def _outer_lines(roll: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lowest and the highest note of each frame of a roll (T, 88): (T,) twice.

    In rests, those of the last sounding frame before or, at the beginning, of the first.
    """
    sounds = roll.any(axis=1)
    if not sounds.any():
        raise UsageError("--below and --above need a file with notes")
    last = np.maximum.accumulate(np.where(sounds, np.arange(len(roll)), -1))
    last[last < 0] = np.flatnonzero(sounds)[0]
    return outer_notes(roll[last])


def _span(
    option: str, text: str, read: Callable[[str], Any], whole: tuple[Any, Any]
) -> tuple[Any, Any]:
    """The ends in FROM:TO; a missing one is that of the `whole`. A bar or a note can be alone."""
    alone = option in ("bars", "notes") and ":" not in text
    begin, colon, end = (f"{text}:{text}" if alone else text).partition(":")
    try:
        first, last = read(begin) if begin else whole[0], read(end) if end else whole[1]
        if not colon or not (begin or end) or not (0 <= first < math.inf and 0 <= last < math.inf):
            raise ValueError
    except ValueError:
        raise UsageError(f"--{option} must be {FORMS[option]}, not {text!r}") from None
    if begin and end and last < first:
        raise UsageError(f"--{option} {text} is the wrong way round: swap the two")
    return first, last
