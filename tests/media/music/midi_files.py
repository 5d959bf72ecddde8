"""MIDI bytes assembled by hand, and a simple reference from mido's messages to a piano-roll."""

import io
import struct
from bisect import bisect, bisect_left
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

import mido
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from midi_tracks import at_ticks

from seqmodel.errors import UsageError
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.placing import place
from seqmodel.media.music.writing import midi_bytes


def grids(least=10**6, most=6 * 10**10):
    """Grids of beats, and of so many nanoseconds."""
    return st.one_of(
        st.builds(Grid.of_beats, st.integers(1, 96)),
        st.builds(lambda n: Grid(step_nanoseconds=n), st.integers(least, most)),
    )


FAR = 1 << 40
"""A time is a tick times this, and the place in order among all events."""

END = b"\x00\xff\x2f\x00"


def quantity(number):
    """A number as a variable-length quantity."""
    digits = [number & 127]
    while number := number >> 7:
        digits.append(number & 127 | 128)
    return bytes(reversed(digits))


def chunk(name, body, size=None):
    return name + struct.pack(">I", len(body) if size is None else size) + body


def header(tracks=1, division=480, file_format=1):
    return chunk(b"MThd", struct.pack(">HHH", file_format, tracks, division))


def midi_file(*tracks, division=480, file_format=1):
    """A file of tracks given as the bytes of their events, without the end of track."""
    body = b"".join(chunk(b"MTrk", events + END) for events in tracks)
    return header(len(tracks), division, file_format) + body


def note(on_delta, off_delta, pitch=60, channel=0):
    """A note that begins `on_delta` ticks after the previous event and lasts `off_delta` ticks."""
    on = quantity(on_delta) + bytes([0x90 | channel, pitch, 64])
    return on + quantity(off_delta) + bytes([0x80 | channel, pitch, 64])


def events(*ticks, pitch=60):
    """The events of a key: a strike at each of the ticks, an off where it is negative."""
    body, now = b"", 0
    for tick in ticks:
        body += quantity(abs(tick) - now) + bytes([0x90 if tick >= 0 else 0x80, pitch, 64])
        now = abs(tick)
    return body


def tempo(delta, microseconds):
    return quantity(delta) + b"\xff\x51\x03" + microseconds.to_bytes(3)


def closed(events, pause):
    """(Strike, end) of the notes of one key, from its (tick, whether it is a strike) in order.

    Offs are matched with strikes as brackets are, afresh where the key is struck after a pause. The
    key sounds from each matched strike to its off; a note ends with that, or at the next strike.
    """
    waiting, change = [], [0] * len(events)
    for k, (tick, strike) in enumerate(events):
        if strike:
            waiting = [] if k and tick - events[k - 1][0] > pause else waiting
            waiting.append(k)
        elif waiting:
            change[waiting.pop()], change[k] = 1, -1
    notes, struck, sounding = [], None, 0
    for (tick, strike), more in zip(events, change, strict=True):
        sounding += more
        if struck is not None and (strike or not sounding):
            notes.append((struck, tick))
            struck = None
        struck = tick if strike else struck
    return notes


def sounds_by_mido(data, restrike="close"):
    """Sorted (on, off, silent, pitch, channel, track), note by note, of a file of format 0 or 1.

    A note whose off comes while the pedal of its channel is down is silent where that goes up, its
    key is struck again or the last of its track is let go, whichever is first; a pedal that is down
    for over 40 beats is none.
    """
    file = mido.MidiFile(file=io.BytesIO(data), clip=True)
    timed = []
    for number, track in enumerate(file.tracks):
        timed += [(now, number, message) for now, message in at_ticks(track)]
    timed.sort(key=lambda event: event[0])
    keys, strikes, pedals = defaultdict(list), defaultdict(list), defaultdict(list)
    for k, (tick, number, message) in enumerate(timed):
        time = tick * FAR + k
        if message.type in ("note_on", "note_off"):
            strike = message.type == "note_on" and message.velocity > 0
            keys[number, message.channel, message.note].append((time, strike))
            strikes[message.channel, message.note] += [time] * strike
        elif message.type == "control_change" and message.control == 64 and message.channel != 9:
            pedals[message.channel].append((time, message.value >= 64))
    pairs = []
    for key, events in keys.items():
        if restrike == "close":
            found = closed(events, (16 * file.ticks_per_beat + 1) * FAR - 1)
        else:
            found = [(on, off) for (on, a), (off, b) in pairwise(events) if a and not b]
        pairs += [(on, off, *key) for on, off in found]
    last = dict[int, int]()
    for _, off, number, *_ in pairs:
        last[number] = max(off, last.get(number, 0))
    notes = []
    for on, off, number, channel, pitch in pairs:
        moves, silent = pedals[channel], off
        after = bisect(moves, (off,))
        if after and moves[after - 1][1]:
            up = next((time for time, down in moves[after:] if not down), last[number])
            pressed = next((k for k in range(after - 1, -1, -1) if not moves[k][1]), -1) + 1
            if up // FAR - moves[pressed][0] // FAR <= 40 * file.ticks_per_beat:
                again = strikes[channel, pitch]
                silent = min([up, *again[bisect_left(again, off) :][:1]])
        notes.append((*(time // FAR for time in (on, off, silent)), pitch, channel, number))
    return sorted(notes)


def notes_of(score):
    """The notes of one of our scores in the same form."""
    columns = score.on_tick, score.off_tick, score.pitch, score.channel, score.track
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def states_by_mido(data, grid, *, restrike, drums, transpose=0, short_notes=True):
    """The states (T, 88) in exact fractions: the rule as documented, note by note.

    0 is off, 1 struck, 2 held; the piano-roll is whatever is not 0. Also the distinct (tick, row)
    of all notes, and of those that fill a frame.
    """
    file = mido.MidiFile(file=io.BytesIO(data))
    changes = []
    for track in file.tracks:
        for now, message in at_ticks(track):
            if message.type == "set_tempo" and message.tempo:
                changes.append((now, message.tempo))
    changes.sort(key=lambda change: change[0])

    def seconds(tick):
        total, last, tempo = Fraction(0), 0, 500_000
        for start, following in changes:
            if start < tick:
                total += Fraction((start - last) * tempo, 10**6 * file.ticks_per_beat)
                last, tempo = start, following
        return total + Fraction((tick - last) * tempo, 10**6 * file.ticks_per_beat)

    def frame(tick):
        if grid.steps_per_beat:
            steps = Fraction(tick * grid.steps_per_beat, file.ticks_per_beat)
        else:
            steps = seconds(tick) / Fraction(grid.step_nanoseconds, 10**9)
        return (steps + Fraction(1, 2)).__floor__()

    def fold(pitch):
        while pitch < 21:
            pitch += 12
        while pitch > 108:
            pitch -= 12
        return pitch - 21

    notes = [
        (on, frame(on), max(frame(off), frame(on) + short_notes), fold(pitch + transpose))
        for on, off, _, pitch, channel, _ in sounds_by_mido(data, restrike)
        if drums or channel != 9
    ]
    states = np.zeros((max((end for _, _, end, _ in notes), default=0), 88), dtype=np.uint8)
    for _, begin, end, row in notes:
        for t in range(begin, end):
            if t == begin:
                states[t, row] = 1
            elif states[t, row] == 0:
                states[t, row] = 2
    filling = {(on, row) for on, begin, end, row in notes if begin < end}
    return states, {(on, row) for on, *_, row in notes}, filling


def piano_roll(score, grid, *, onsets=False, transpose=0, **how):
    """The frames of the notes that `place` puts on the grid."""
    return place(score, PianoRollFrames(grid, **how), transpose=transpose).frames(onsets=onsets)


def written(frames, grid, **how):
    """The file of frames, unless a step is finer than a tick at this tempo."""
    try:
        return midi_bytes(frames, grid, **how)
    except UsageError as error:
        assume("finer than a MIDI tick" not in str(error))
        raise
