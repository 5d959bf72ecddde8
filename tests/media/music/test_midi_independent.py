"""The reader compared with independent ones: mido with fractions, and symusic."""

import io
from collections import Counter, defaultdict
from itertools import zip_longest
from random import Random

import mido
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from midi_files import grids, sounds_by_mido, states_by_mido
from onsets import as_frames

from seqmodel.errors import SourceError
from seqmodel.media.music.frames import PianoRollFrames
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


channel_messages = st.builds(
    mido.Message,
    st.sampled_from(["note_on", "note_off"]),
    channel=st.sampled_from([0, 1, 9]),
    note=st.sampled_from([0, 20, 21, 60, 61, 108, 109, 127]),
    velocity=st.sampled_from([0, 1, 127]),
    time=st.integers(0, 300),
)
short, meta, texts = st.integers(0, 300), mido.MetaMessage, st.text("abc", max_size=200)
kinds = st.sampled_from(["program_change", "pitchwheel", "control_change", "aftertouch"])
data = st.lists(st.integers(0, 127), max_size=5)
other_messages = st.one_of(
    st.builds(meta, st.just("set_tempo"), tempo=st.integers(1, 2**24 - 1), time=short),
    st.builds(meta, st.just("text"), text=texts, time=st.integers(0, 20000)),
    st.builds(mido.Message, st.just("sysex"), data=data, time=short),
    st.builds(mido.Message, kinds, time=short),
)
tracks = st.lists(
    st.lists(st.one_of(channel_messages, channel_messages, other_messages), max_size=30),
    min_size=1,
    max_size=4,
)


def file_of(tracks, division):
    file = mido.MidiFile(type=1, ticks_per_beat=division)
    file.tracks = [mido.MidiTrack(messages) for messages in tracks]
    stream = io.BytesIO()
    file.save(file=stream)
    return stream.getvalue()


@settings(derandomize=True, max_examples=60)
@given(
    tracks=tracks,
    division=st.integers(1, 32767),
    grid=grids(5 * 10**7, 10**10),
    restrike=st.sampled_from(RULES),
    drums=st.booleans(),
    transpose=st.integers(-5, 6),
    short_notes=st.booleans(),
)
def test_rolls_match_exact_fractions(tracks, division, grid, restrike, **how):
    """Guards notes, tempo maps, rounding and counts on files that no collection has."""
    data = file_of(tracks, division)
    expected, notes, filling = states_by_mido(data, grid, restrike=restrike, **how)
    score = read_score(data, restrike=restrike)
    transpose = how.pop("transpose")
    frame = PianoRollFrames(grid, **how)
    assert score.remarks == ()
    if len(expected) == 0:
        with pytest.raises(SourceError):
            place(score, frame, transpose=transpose)
        return
    placed = place(score, frame, transpose=transpose)
    roll, frames = placed.frames(onsets=False), placed.frames(onsets=True)
    assert roll.shape == expected.shape
    assert np.array_equal(roll, expected > 0)
    assert np.array_equal(frames, as_frames(expected))
    dropped = len(notes) - len(filling)
    before = np.pad(expected[:-1], ((1, 0), (0, 0)))
    after_silence = ((expected > 0) & (before == 0)).sum()
    assert placed.tally(frames)[:3] == (len(notes), dropped, len(filling) - (expected == 1).sum())
    assert placed.tally(roll)[:3] == (len(notes), dropped, len(filling) - after_silence)


@pytest.mark.parametrize("restrike", RULES)
def test_pedals_hold_notes_as_message_by_message(restrike):
    """Guards channels over tracks, order within a tick, strikes, drums, pedals left down."""
    draw, held = Random(1), 0

    def message():
        where = {"channel": draw.choice([0, 0, 1, 9]), "time": draw.choice([0, 0, 1, 5, 90])}
        if draw.random() < 0.2:
            value = draw.choice([0, 63, 64, 127])
            return mido.Message("control_change", control=64, value=value, **where)
        kind = draw.choice(["note_on", "note_off"])
        return mido.Message(kind, note=draw.choice([60, 61]), **where)

    for _ in range(60):
        tracks = [[message() for _ in range(draw.randrange(80))] for _ in range(3)]
        data = file_of(tracks, draw.choice([1, 10, 480]))
        score = read_score(data, restrike=restrike)
        columns = (score.on_tick, score.off_tick, score.silent_tick, score.pitch, score.channel)
        found = zip(*(column.tolist() for column in (*columns, score.track)), strict=True)
        expected = sounds_by_mido(data, restrike)
        assert sorted(found) == expected
        held += sum(off < silent for _, off, silent, *_ in expected)
    assert held > 100, held
