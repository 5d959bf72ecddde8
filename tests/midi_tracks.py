"""MIDI files as mido writes them, of messages at ticks."""

from itertools import accumulate

import mido


def midi(tracks, *, division=480, kind=1):
    """A file of tracks of (tick, message); those of a tick stay in order."""
    file = mido.MidiFile(type=kind, ticks_per_beat=division)
    for events in tracks:
        track, now = mido.MidiTrack(), 0
        for tick, message in sorted(events, key=lambda event: event[0]):
            track.append(message.copy(time=tick - now))
            now = tick
        file.tracks.append(track)
    return file


def save(path, tracks, **how):
    path.parent.mkdir(parents=True, exist_ok=True)
    midi(tracks, **how).save(path)
    return path


def note(on, off, pitch, channel=0, velocity=64):
    return [
        (on, mido.Message("note_on", note=pitch, channel=channel, velocity=velocity)),
        (off, mido.Message("note_off", note=pitch, channel=channel, velocity=velocity // 2)),
    ]


def notes(some, *, step=1, channel=0):
    """Of (begin, end, pitch) in steps, and perhaps a velocity."""
    return [
        event
        for begin, end, pitch, *loud in some
        for event in note(step * begin, step * end, pitch, channel, *loud)
    ]


def at_ticks(track):
    """(Tick, message) of a track's events."""
    ticks = accumulate(message.time for message in track)
    return zip(ticks, track, strict=True)


def timed(track):
    """(Tick, message without its delta) of a track's events. To copy a message takes mido long."""
    return [(tick, message.copy(time=0)) for tick, message in at_ticks(track)]


def sounding(track):
    """(First tick, last tick, pitch, velocity) of a track's notes, all of which end."""
    begun, found = {}, []
    for now, message in at_ticks(track):
        if message.type == "note_on" and message.velocity:
            begun[message.note] = now, message.velocity
        elif message.type in ("note_on", "note_off"):
            first, velocity = begun.pop(message.note)
            found.append((first, now, message.note, velocity))
    assert not begun
    return sorted(found)


def tempo(tick, microseconds):
    return tick, mido.MetaMessage("set_tempo", tempo=microseconds)
