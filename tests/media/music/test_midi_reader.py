"""The reader of MIDI files: case by case on bytes, on broken files, and beside mido and symusic."""

import io
import random
import struct
from collections import Counter, defaultdict
from functools import partial
from itertools import zip_longest
from operator import add
from random import Random

import mido
import numpy as np
import pytest
from allocation import peak_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from midi_files import (
    END,
    chunk,
    events,
    header,
    midi_file,
    note,
    notes_of,
    piano_roll,
    quantity,
    sounds_by_mido,
    states_by_mido,
    tempo,
)
from onsets import as_frames

from seqmodel.errors import SourceError
from seqmodel.media.music import events as smf
from seqmodel.media.music.contents import semitones_to_c
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import MAX_TICK, Grid
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.placing import place

STRIKE, RELEASE = b"\x00\x90\x3c\x40", b"\x0a\x80\x3c\x40"


def test_the_pause_is_as_long_in_real_time():
    """16 beats are 8 s at 120 beats per minute: guards SMPTE time, where a unit is three frames."""
    for seconds, last in ((8, 38), (8.01, 29)):  # 25 frames a second, 40 ticks each
        late = int(seconds * 1000)
        ticks = [0, 10, -20, 20 + late, -late - 29, -late - 38]
        score = read_score(midi_file(events(*ticks), division=(256 - 25) << 8 | 40))
        assert score.off_tick.max() == late + last


TRACK = chunk(b"MTrk", note(0, 5) + END)
TITLE = b"LIST\x11\0\0\0INFOINAM\5\0\0\0MThd\0\0"
IN_RIFF = b"data\0\0\0\0" + header() + TRACK
OTHERS_WRITE = {
    "notes that differ by track or channel": (
        midi_file(
            STRIKE + b"\x00\x91\x3c\x40" + b"\x05\x81\x3c\x40" + b"\x05\x80\x3c\x40",
            b"\x03\x80\x3c\x40" + note(0, 7),
        ),
        [(0, 5, 60, 1, 0), (0, 10, 60, 0, 0), (3, 10, 60, 0, 1)],
    ),
    "data above 127, in 75 MuseData files": (
        midi_file(b"\x00\x90\x3c\xc8" + b"\x0a\x80\x3c\xff" + note(0, 5, pitch=64)),
        [(0, 10, 60, 0, 0), (10, 15, 64, 0, 0)],
    ),
    "a pitch above 127": (
        midi_file(b"\x00\x9f\xc8\x40" + b"\x0a\x8f\xc8\x40"),
        [(0, 10, 127, 15, 0)],
    ),
    **{
        name: (midi_file(STRIKE + body), [(0, 10, 60, 0, 0)])
        for name, body in {
            "a release by velocity 0, and a hanging note": b"\x0a\x90\x3c\x00" + STRIKE,
            "a delta padded with zeros": b"\x80\x80\x80\x80\x80\x0a\x80\x3c\x40",
            "running status after a meta event": b"\x00\xff\x01\x02hi\x0a\x3c\x00",
            "running status after sysex": b"\x00\xf0\x03abc\x0a\x3c\x00",
            "running status after a song position": b"\x00\xf2\x01\x02\x0a\x3c\x00",
            "running status after a time code": b"\x00\xf1\x01\x0a\x3c\x00",
            "running status after a clock": b"\x00\xf8\x0a\x3c\x00",
        }.items()
    },
    **{
        name: (data, [(0, 5, 60, 0, 0)])
        for name, data in {
            "an SMPTE offset out of range, in 374 MuseData files, and short meta events": midi_file(
                b"\x00\xff\x54\x05\xff\xff\xff\xff\xff"
                + b"\x00\xff\x51\x01\x7f\x00\xff\x59\x01\x7f"
                + note(0, 5)
            ),
            "a long header": chunk(b"MThd", struct.pack(">HHH", 1, 1, 480) + b"more") + TRACK,
            "a foreign chunk": header() + chunk(b"XFIH", b"\x00\x90\x3c") + TRACK,
            "an endless chunk": header() + chunk(b"JUNK", b"", 2**32 - 1) + TRACK,
            "RIFF": b"RIFF\0\0\0\0RMID" + IN_RIFF,
            "RIFF with MThd in its title": b"RIFF\0\0\0\0RMID" + TITLE + IN_RIFF,
            "RIFF whose chunks lead nowhere": b"RIFF\0\0\0\0RMIDDISP\xff\0\0\0short" + IN_RIFF,
            "RIFF with junk": b"RIFF\0\0\0\0RMIDodd" + IN_RIFF,
            "remains of a longer file, in five of MuseData": header() + TRACK + b"\x3b\0" + TRACK,
        }.items()
    },
}


@pytest.mark.parametrize(("data", "notes"), OTHERS_WRITE.values(), ids=OTHERS_WRITE.keys())
def test_what_other_programs_write(data, notes):
    """Guards notes that a stricter reader would lose or make up."""
    score = read_score(data)
    assert notes_of(score) == notes
    assert score.tempo.tolist() == [500_000]


@pytest.mark.parametrize("size", [0, 3, 8, 9, 200, 2**32 - 1])
def test_a_track_with_a_wrong_length(size):
    """Guards complete notes in files whose writer never set the length, or that are truncated."""
    first = chunk(b"MTrk", note(0, 5) + note(5, 5) + END, size)
    data = header(2) + first + chunk(b"MTrk", note(1, 1) + END)
    score = read_score(data)
    assert notes_of(score) == [(0, 5, 60, 0, 0), (1, 2, 60, 0, 1), (10, 15, 60, 0, 0)]
    assert score.remarks


JUNK = st.one_of(st.integers(1, 12).map(bytes), st.binary(min_size=1, max_size=40))


@settings(derandomize=True, max_examples=100)
@given(
    junk=st.tuples(JUNK, JUNK, JUNK).filter(lambda junk: b"MTrk" not in b"".join(junk)),
    size=st.one_of(st.none(), st.integers(0, 4_000), st.integers(0, 2**32 - 1)),
)
@example(junk=(b"", bytes(6), b""), size=None)
@example(junk=(b"", bytes(7), b""), size=None)
def test_junk_between_tracks_loses_none(junk, size):
    """Guards against a length read from what is no chunk, which leads into a track or beyond it."""
    bodies = [note(k, 5) * 300 for k in range(3)]
    tracks = [chunk(b"MTrk", bodies[0] + END, size)]
    tracks += [chunk(b"MTrk", body + END) for body in bodies[1:]]
    clean = read_score(midi_file(*bodies))
    score = read_score(header(3) + b"".join(map(add, junk, tracks)))
    assert notes_of(score) == notes_of(clean)
    assert score.remarks


def test_a_truncated_file_keeps_its_complete_notes():
    """Guards against losing a file for its missing bytes, not reporting them, or reading on."""
    whole = midi_file(note(0, 5) + tempo(5, 1000) + note(0, 5))
    for kept in range(22, 44):
        score = read_score(whole[:kept])
        assert notes_of(score) == [(0, 5, 60, 0, 0)][: kept >= 30]
        assert score.tempo.tolist() == ([500_000, 1000] if kept >= 37 else [500_000])
        assert any("truncated" in remark or "end" in remark for remark in score.remarks)
    assert notes_of(read_score(whole[:-1])) == notes_of(read_score(whole))


def test_the_tempo_map_merges_the_tracks():
    """Guards tempo changes in any track, two at one tick (the last counts), and one of zero."""
    data = midi_file(
        tempo(0, 400_000) + tempo(10, 0) + tempo(10, 300_000), tempo(5, 1) + tempo(0, 250_000)
    )
    score = read_score(data)
    assert score.tempo_tick.tolist() == [0, 5, 20]
    assert score.tempo.tolist() == [400_000, 250_000, 300_000]
    assert score.remarks == ("tempo of 0 ignored",)


def test_patterns_of_format_2_follow_one_another():
    """Guards against independent patterns sounding at once, at one another's tempo, or off the beat
    since the one before ends with its last note."""
    data = midi_file(tempo(0, 1000) + note(0, 20), note(5, 20), file_format=2, division=8)
    score = read_score(data)
    assert notes_of(score) == [(0, 20, 60, 0, 0), (29, 49, 60, 0, 1)]
    assert (score.tempo_tick.tolist(), score.tempo.tolist()) == ([0, 24], [1000, 500_000])
    assert score.events.last_tick == 49


@pytest.mark.parametrize(
    ("rate", "tempo_of_three_frames"), [(24, 125_000), (25, 120_000), (29, 100_100), (30, 100_000)]
)
def test_smpte_divisions_are_real_time(rate, tempo_of_three_frames):
    """Guards 29.97 frames a second as exactly 30000/1001; tempo events mean nothing here."""
    data = midi_file(tempo(0, 1) + note(0, 5), division=(256 - rate) << 8 | 40)
    score = read_score(data)
    assert score.smpte
    assert (score.ticks_per_unit, score.tempo.tolist()) == (120, [tempo_of_three_frames])


TOO_FAR = b"\x88\x80\x80\x80\x00"  # 2^31
MANY_FAR = b"".join(quantity(2**28 - 1) + b"\xf8" for _ in range(1100))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is not a MIDI file"),
        (b"Dear reader, this is no music.\n" * 9, "is not a MIDI file"),
        (b"RIFF\x00\x00\x00\x00RMIDdata", "is not a MIDI file"),
        (b"RIFF\x00\x00\x00\x00WAVEMThd", "is not a MIDI file"),
        (header()[:13], "cut short"),
        (chunk(b"MThd", b"\x00\x01\x00\x01") + bytes(20), "cut short"),
        (header(), "has no track"),
        (header() + b"MTrk\x00\x00", "has no track"),
        (midi_file(note(0, 5), division=0), "division of 0"),
        (midi_file(note(0, 5), division=0x8000), "time code"),
        (midi_file(note(0, 5), division=0xE800), "time code"),
        (midi_file(STRIKE + TOO_FAR + b"\x80\x3c\x40"), "too late"),
        (midi_file(STRIKE + MANY_FAR + RELEASE), "too late"),
    ],
)
def test_unreadable_data_is_refused_in_one_line(data, reason):
    """Guards against tracebacks, and against notes made up from data that is not music."""
    with pytest.raises(SourceError, match=reason) as caught:
        read_score(data)
    assert "\n" not in str(caught.value)


def test_the_largest_tick_is_read():
    """Guards the other side of the limit: ticks just below it must still be read."""
    steps = MAX_TICK // (2**28 - 1)
    far = (quantity(2**28 - 1) + b"\xf8") * steps
    score = read_score(midi_file(STRIKE + far + b"\x00\x80\x3c\x40"))
    assert score.off_tick.tolist() == [steps * (2**28 - 1)]


def attempt(data, **options):
    """The roll, or None if the file is refused with a one-line reason."""
    try:
        score = read_score(data, **options)
        assert (score.off_tick >= score.on_tick).all()
        assert -5 <= semitones_to_c(score) <= 6
        return piano_roll(score, Grid.of_beats(4), drums=True)
    except SourceError as error:
        reason = str(error)
    assert reason
    assert "\n" not in reason
    return None


def test_awkward_files(awkward):
    """Guards against a traceback for any file from other projects' collections of odd files."""
    refused = {path.name for path in awkward if attempt(path.read_bytes()) is None}
    assert len(awkward) == 68
    assert refused == {
        "empty.mid",
        "zero-ticks-per-beat.mid",
        "test-control-7d-omni-mode-on.mid",
        "test-control-7f-poly-mode-on.mid",
        "test-silence-end-of-track.mid",
        "test-silence-text-metaevent.mid",
        "test-sysex-7e-09-01-gm1-enable.mid",
        "test-sysex-7e-09-03-gm2-enable.mid",
    }


def test_mutilated_files(awkward, music):
    """Guards every length and index in the reader: 200 files with changed, cut or added bytes."""
    rng = random.Random(7)
    whole = [path.read_bytes() for path in awkward] + list(music.values())[::100]
    whole = [data for data in whole if 0 < len(data) < 30_000]
    outcomes = []
    for _ in range(200):
        data = bytearray(rng.choice(whole))
        for _ in range(rng.choice([1, 3, 20])):
            at = rng.randrange(len(data) + 1)
            kind = rng.choice(["change", "change", "cut", "put", "end"] if data else ["put"])
            if kind == "change":
                data[at : at + 1] = rng.randbytes(1)
            elif kind == "cut":
                del data[at : at + rng.randrange(20)]
            elif kind == "put":
                data[at:at] = rng.randbytes(rng.randrange(8))
            elif rng.random() < 0.2:
                del data[at:]
        outcomes.append(attempt(bytes(data), restrike=rng.choice(["close", "discard"])) is None)
    assert 0.1 < np.mean(outcomes) < 0.9, "the test should see both rolls and reasons"


def test_sizes_that_are_looked_up_are_those_read_by_hand():
    """Of bytes that begin, end and continue events; up to 9 from the end lie behind the track."""
    rng, common = Random(3), bytes.fromhex("00 01 04 2f 40 51 7f 80 81 90 b0 c1 d2 e0 f0 ff")
    files = [bytes(rng.choices(common, k=60)) for _ in range(2000)]

    def found(data, sizes):
        try:
            return smf.find_events(data, sizes, 0, 60 - data[-1] % 10)
        except SourceError as error:
            return str(error)

    for data in files:
        assert found(data, smf.common_sizes(data)) == found(data, [bytes(61)] * 3)


def test_claims_allocate_nothing():
    """Guards against a short file whose lengths or ticks ask for gigabytes."""
    body, claims = note(0, 5), (2**16, 2**31 - 1, 2**32 - 1)
    files = [
        *(header() + chunk(b"MTrk", body, claim) for claim in claims),
        *(header() + chunk(b"JUNK", body, claim) + chunk(b"MTrk", body) for claim in claims),
        header(tracks=65535) + chunk(b"MTrk", body),
        midi_file(b"\x00\xf0\x8f\xff\xff\xff" + body),
        midi_file(b"\x00\x90\x3c\x40" + b"\xff\xff\xff\x7f\x80\x3c\x40", division=1),
    ]
    attempt(midi_file(body))
    for data in files:
        assert peak_of(partial(attempt, data)) < 200_000


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
    """Guards channels over tracks, order within a tick, drums, pedals left down, and notes struck
    again at or just before their offs, as notation programs write them."""
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
