"""The reader compared with independent ones: mido with fractions, and symusic."""

import io
from collections import Counter, defaultdict
from itertools import zip_longest
from random import Random

import mido
import numpy as np
import pytest
from midi_files import sounds_by_mido, states_by_mido
from onsets import as_frames

from seqmodel.errors import SourceError
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.placing import place

RULES = ("close", "discard")


HANGS = 3, 19
"""In how many files a note hangs, and how many of our notes symusic reads otherwise there: it gives
the note the off of the next one of its key, that one the off of the one after it, and so on."""

UNKNOWN_MESSAGES = {f"test-illegal-message-f{digit}.mid": 8 for digit in "459d"}
"""Files refused by symusic for system messages that our reader steps over; their notes."""


def notes_by_symusic(tracks):
    """(On, off, pitch) of each note; of two that overlap the first ends where the second begins."""
    notes = Counter()
    for track in tracks:
        keys = defaultdict(list)
        for n in track.notes:
            keys[n.pitch].append((n.time, n.time + n.duration))
        for pitch, spans in keys.items():
            spans.sort(key=lambda span: span[0])
            begins = [on for on, _ in spans[1:]]
            for (on, off), following in zip_longest(spans, begins):
                notes[on, off if following is None else min(off, following), pitch] += 1
    return notes


def test_every_note_matches_symusic(shared_data, awkward):
    """Guards the pairing of strikes and offs: an 18th of all files, and the awkward ones."""
    symusic = pytest.importorskip("symusic")
    others, refused, files, notes = {}, {}, 0, 0
    for path in [*sorted((shared_data / "music").rglob("*.mid"))[9::18], *awkward]:
        try:
            score = read_score(data := path.read_bytes())
        except SourceError:
            continue
        columns = score.on_tick, score.off_tick, score.pitch
        ours = Counter(zip(*(column.tolist() for column in columns), strict=True))
        files, notes = files + 1, notes + ours.total()
        try:
            theirs = notes_by_symusic(symusic.Score.from_midi(data).tracks)
        except RuntimeError:
            refused[path.name] = ours.total()
            continue
        if ours != theirs:
            others[path.name] = (ours - theirs).total()
    assert (len(others), sum(others.values())) == HANGS, others
    assert refused == UNKNOWN_MESSAGES
    assert (files, notes) == (186, 153_151)


def drawn_file(draw, keys, *, pedals=0.0):
    """A file of notes on a few keys, tempos, pedals and what is neither, on several channels."""

    def message():
        where = {"channel": draw.choice([0, 0, 1, 9])}
        time, kind = draw.choice([0, 0, 1, 5, 90]), draw.random()
        if kind < pedals:
            value = draw.choice([0, 63, 64, 127])
            return mido.Message("control_change", control=64, value=value, time=time, **where)
        if kind > 0.8:
            others = [mido.Message("aftertouch", **where), mido.Message("sysex", data=(1, 127))]
            others.append(mido.MetaMessage("text", text="la" * draw.randrange(90)))
            others.append(mido.MetaMessage("set_tempo", tempo=draw.randrange(1, 1 << 24)))
            return draw.choice(others).copy(time=time)
        kind, velocity = draw.choice(["note_on", "note_off"]), draw.choice([0, 1, 127])
        return mido.Message(kind, note=draw.choice(keys), velocity=velocity, time=time, **where)

    file = mido.MidiFile(type=1, ticks_per_beat=draw.choice([10, 96, 480, 32767]))
    for _ in range(3):
        file.tracks.append(mido.MidiTrack(message() for _ in range(draw.randrange(80))))
    stream = io.BytesIO()
    file.save(file=stream)
    return stream.getvalue()


def test_rolls_match_exact_fractions():
    """Guards notes, tempo maps, rounding and counts on files that no collection has."""
    draw, seen = Random(2), Counter()
    for _ in range(60):
        data = drawn_file(draw, (0, 9, 21, 60, 61, 109))  # two of which share a row
        steps, nanoseconds = draw.randint(1, 24), draw.randint(5 * 10**7, 10**10)
        grid = draw.choice([Grid.of_beats(steps), Grid(step_nanoseconds=nanoseconds)])
        restrike, transpose = draw.choice(RULES), draw.randint(-5, 6)
        how = {name: draw.random() < 0.5 for name in ("drums", "short_notes")}
        expected, notes, filling = states_by_mido(
            data, grid, restrike=restrike, transpose=transpose, **how
        )
        score, frame = read_score(data, restrike=restrike), PianoRollFrames(grid, **how)
        assert score.remarks == ()
        seen[len(expected) > 0] += 1
        if len(expected) == 0:
            with pytest.raises(SourceError):
                place(score, frame, transpose=transpose)
            continue
        placed = place(score, frame, transpose=transpose)
        roll, frames = placed.frames(onsets=False), placed.frames(onsets=True)
        np.testing.assert_array_equal(roll, expected > 0)
        np.testing.assert_array_equal(frames, as_frames(expected))
        dropped = len(notes) - len(filling)
        struck, before = (expected == 1).sum(), np.pad(expected[:-1], ((1, 0), (0, 0)))
        after_silence = ((expected > 0) & (before == 0)).sum()
        assert placed.tally(frames)[:3] == (len(notes), dropped, len(filling) - struck)
        assert placed.tally(roll)[:3] == (len(notes), dropped, len(filling) - after_silence)
    assert seen[True] > 30, seen


@pytest.mark.parametrize("restrike", RULES)
def test_pedals_hold_notes_as_message_by_message(restrike):
    """Guards channels over tracks, order within a tick, strikes, drums, pedals left down."""
    draw, held = Random(1), 0
    for _ in range(60):
        data = drawn_file(draw, (60, 61), pedals=0.2)
        score = read_score(data, restrike=restrike)
        columns = (score.on_tick, score.off_tick, score.silent_tick, score.pitch, score.channel)
        found = zip(*(column.tolist() for column in (*columns, score.track)), strict=True)
        expected = sounds_by_mido(data, restrike)
        assert sorted(found) == expected
        held += sum(off < silent for _, off, silent, *_ in expected)
    assert held > 100, held
