"""Files of a band as mido writes and reads them, and drawn notes put into them."""

import io
from collections import Counter

import mido
import numpy as np
from midi_files import closed
from midi_tracks import at_ticks, note, notes, save, tempo

from seqmodel.media.music.frames import PianoRollFrames, is_kit
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.original import Original
from seqmodel.media.music.sampling import with_file_onsets

BEATS = PianoRollFrames(Grid.of_beats(4), onsets=True)
KIT = PianoRollFrames(Grid.of_beats(4), drums=True, kit=True)
DRUMS = 9


def is_note(message):
    return message.type in ("note_on", "note_off")


def notes_of(track):
    """(On, off, pitch, channel) of a track's notes, by mido's messages."""
    keys = {}
    for tick, message in at_ticks(track):
        if is_note(message):
            strike = message.type == "note_on" and message.velocity > 0
            keys.setdefault((message.note, message.channel), []).append((tick, strike))
    pause = 1 << 40
    return [(*pair, *key) for key, events in keys.items() for pair in closed(events, pause)]


def read(data):
    return mido.MidiFile(file=io.BytesIO(data))


def song_at(path):
    """Four bars: a conductor, a lead, a bass off the grid, drums, lyrics, all that a file holds."""
    meta, message = mido.MetaMessage, mido.Message
    head = [
        (0, meta("track_name", name="Straßenlied")),
        tempo(0, 400_000),
        (0, meta("time_signature", numerator=4, denominator=4)),
        (0, meta("key_signature", key="F")),
        (960, meta("marker", text="verse")),
        tempo(2000, 600_000),
        (2000, mido.UnknownMetaMessage(0x60, data=(1, 2, 3))),
        tempo(7680, 300_000),
    ]
    lead = [
        (0, meta("track_name", name="Lead")),
        (0, message("sysex", data=(0x7E, 0x7F, 9, 1))),
        (0, message("program_change", program=73)),
        (0, message("control_change", control=7, value=90)),
        *notes((480 * k, 480 * k + 470, 70 + k % 3, 60 + k) for k in range(16)),
        *[(tick, message("pitchwheel", pitch=tick - 3000)) for tick in range(2400, 3400, 55)],
        *[(480 * beat, meta("lyrics", text=f"la{beat}")) for beat in range(16)],
        (2500, message("aftertouch", value=44)),
        (2500, message("polytouch", note=71, value=4)),
    ]
    bass = [
        (0, meta("track_name", name="Bass")),
        (0, message("program_change", channel=1, program=33)),
        # Of the first one lasts into the second bar, the third beyond it; the last is no key.
        *notes([(7, 2411, 38), (2399, 2890, 41), (3333, 5333, 43), (5791, 7680, 38)], channel=1),
        *note(3000, 3100, 5, 1),
    ]
    drums = [
        (0, meta("track_name", name="Kit")),
        *notes(((240 * k, 240 * k + 30, 36 + k % 5) for k in range(32)), channel=DRUMS),
    ]
    return save(path, [head, lead, bass, drums])


def redrawn(path, free, drawn=None, frame=BEATS, *, into=None, transposed=0, length=None, **how):
    """(Frames, file) with the states `drawn` (T, 88), or silence, where it is `free` (T, 88).

    What is given after it may be struck once more.
    """
    original = Original(path, frame, transposed=transposed, into=into)
    file = original.frames[:length]
    file = np.pad(file, ((0, (length or len(file)) - len(file)), (0, 0)))
    if is_kit(file):
        frames = np.where(free, 0 if drawn is None else drawn, file).astype(np.uint8)
        return frames, original.with_drawn(frames, free, **how)
    states = np.zeros(free.shape) if drawn is None else drawn
    roll = np.where(free, states > 0, file[:, :88] > 0)
    begins = roll & ~np.pad(roll[:-1], ((1, 0), (0, 0)))
    may_strike = free | np.pad(free[:-1], ((1, 0), (0, 0)))
    drawn = np.concatenate([roll, begins | (roll & may_strike & (states == 1))], axis=1)
    frames = with_file_onsets(drawn.astype(np.uint8), file, free)
    return frames, original.with_drawn(frames, free, **how)


def sounding_after(path, cut, length, states=None, frame=BEATS, **options):
    """A file cut off at a frame, with `length` frames in all, the later ones as drawn."""
    free = stretch(length, cut, length)
    return read(redrawn(path, free, states, frame, length=length, cut=cut, **options)[1])


def stretch(length, begin, end, low=21, high=108):
    """(T, 88), free from one frame to another and from one pitch to another."""
    free = np.zeros((length, 88), bool)
    free[begin:end, low - 21 : high - 20] = True
    return free


def others(track):
    events = at_ticks(track)
    return [(tick, message.copy(time=0)) for tick, message in events if not is_note(message)]


def check_kept(before, after, free):
    """That every event is there but for those of notes, of pitches that sound in what is `free`."""
    division = before.ticks_per_beat
    assert after.ticks_per_beat == division
    for old, new in zip(before.tracks, after.tracks, strict=False):
        *was, (last, _) = others(old)
        *now, (end, message) = others(new)
        found = notes_of(new)
        assert (was, message.type) == (now, "end_of_track")
        assert end == max([last, *(each[1] for each in found)])
        stays = Counter[tuple[int, int, int, int]]()
        for on, off, pitch, channel in notes_of(old):
            begin, end = ((8 * tick + division) // (2 * division) for tick in (on, off))
            unseen = channel == DRUMS or not 21 <= pitch <= 108
            untouched = unseen or not free[begin : max(end, begin + 1), pitch - 21].any()
            # Of a key that is struck twice at once, one strike may be left.
            stays[on, off, pitch, channel] += untouched and on < off
        assert stays <= Counter(found)
