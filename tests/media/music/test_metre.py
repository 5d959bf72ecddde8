"""Time signatures: read, kept with the piece, inferred, told to a model, written again."""

import io
from fractions import Fraction

import mido
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metres import METRES, place_of
from midi_files import midi_file, note
from midi_tracks import notes, save, tempo

from seqmodel.media.music.contents import Contents
from seqmodel.media.music.corpus import MusicCorpus, metre_of, stated_metre
from seqmodel.media.music.corpus import settings as settings_of
from seqmodel.media.music.frames import PianoRollFrames, struck
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.metre import (
    MAX_SIGNATURES,
    Metres,
    Signature,
    bar_lines,
    file_signatures,
    infer_metre,
    metre_from_json,
    metre_line,
    parse_metre,
    shifted,
    signatures,
)
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.placing import place
from seqmodel.media.music.writing import midi_bytes, velocities

SIXTEENTHS = Grid.of_beats(4)


def signature(delta, beats, power):
    """A time signature, as a file holds it."""
    return bytes([delta]) + bytes([0xFF, 0x58, 4, beats, power, 24, 8])


def quarters(path, *changes, count=12, tempos=((0, 500_000),), length=480):
    """Quarter notes from 0 on, and signatures (tick, beats, of), 480 ticks a quarter."""
    head = [tempo(*each) for each in tempos]
    for tick, beats, of in changes:
        head.append((tick, mido.MetaMessage("time_signature", numerator=beats, denominator=of)))
    some = [(k, k + 1, 60 + k % 5) for k in range(count)]
    return save(path, [head, notes(some, step=length)])


def test_impossible_signatures_are_dropped_in_files_and_refused_as_options():
    """0/4, 5/1 of five whole notes, 255/32, 4/128: nothing that music has."""
    for odd in ((0, 2), (5, 0), (255, 5), (4, 7), (33, 4), (1, 200)):
        score = read_score(midi_file(signature(0, 6, 3) + signature(0, *odd) + note(0, 480)))
        assert score.meters == ((0, 6, 8),)
        assert score.remarks == ("impossible time signature ignored",)
        assert len(score.pitch) == 1
    for text in ("0/4", "5/0", "255/32", "6/7", "6", "6/8/4", "/4", "-3/4", "²/4"):
        with pytest.raises(ValueError, match=r"^a time signature such as 3/4 or 6/8"):
            parse_metre(text)


def test_a_piece_keeps_its_signatures_and_tempo(tmp_path):
    """One within a bar, two at one frame, one repeated, one after the end; the median tempo."""
    changes = [(0, 6, 8), (1440, 6, 8), (1680, 5, 4), (4400, 2, 4), (4330, 3, 4), (9000, 3, 8)]
    quarters(tmp_path / "a.mid", *changes, tempos=[(0, 400_000), (9000, 1_000_000)])
    corpus = MusicCorpus(settings_of({}))
    (work,) = corpus.works(tmp_path / "a.mid")
    assert work.facts["metre"] == [[0, 6, 8], [14, 5, 4], [36, 3, 4], [37, 2, 4]]
    assert work.facts["tempo"] == 150
    assert corpus.frame.metre is None  # nothing is in train yet
    rows = np.zeros((40, 11), np.uint8)
    rows[3:8, 2] = 1
    work.on_train_rows(rows)
    assert corpus.frame.longest_chord == 5
    assert (corpus.frame.metre, corpus.frame.tempo) == ((5, 4), 150)
    assert PianoRollFrames.from_json(corpus.frame.to_json()) == corpus.frame
    corpus = MusicCorpus(settings_of({}))
    (work,) = corpus.works(tmp_path / "a.mid")
    work.on_train_rows(rows[:20])  # 14 frames of 6/8, and of 5/4 the first 6
    assert corpus.frame.metre == (6, 8)
    bpm = [(0, 120), (480, 60), (960, 200), (1440, 90)]  # half of the time faster, half slower
    quarters(tmp_path / "a.mid", tempos=[(tick, round(6e7 / each)) for tick, each in bpm])
    assert read_score((tmp_path / "a.mid").read_bytes()).median_tempo == pytest.approx(90, rel=1e-5)


def test_of_many_changes_the_first_are_kept(tmp_path):
    changes = [(480 * k, 2 + k % 2, 4) for k in range(MAX_SIGNATURES + 9)]
    quarters(tmp_path / "a.mid", *changes, count=100)
    (work,) = MusicCorpus(settings_of({})).works(tmp_path / "a.mid")
    assert len(work.facts["metre"]) == MAX_SIGNATURES
    assert list(work.repairs) == [f"{len(changes)} time signatures, of which the first 64 are kept"]


@pytest.mark.parametrize(
    ("stated", "read"),
    [
        ([(0, 1, 4)], []),
        ([(0, 4, 4), (0, 1, 4)], [(0, (4, 4))]),
        ([(0, 1, 4), (480, 3, 4), (1920, 1, 8), (2160, 3, 4)],
         [(0, (1, 4)), (4, (3, 4)), (16, (1, 8)), (18, (3, 4))]),
    ],
)  # fmt: skip
def test_one_beat_is_a_bar_only_as_an_upbeat(tmp_path, stated, read):
    """Some programs write 1/4 throughout, or beside the metre: where beats are, not bars."""
    score = read_score(quarters(tmp_path / "a.mid", *stated).read_bytes())
    assert stated_metre(score, SIXTEENTHS) == read


def test_only_signatures_that_count_are_named(tmp_path):
    """A jig whose first track says 4/4 looked like one that changes its metre."""
    for first in ((0, 4, 4), (0, 1, 4)):
        jig = read_score(quarters(tmp_path / "a.mid", first, (0, 6, 8)).read_bytes())
        contents = Contents(PianoRollFrames(SIXTEENTHS))
        contents.add(jig)
        assert contents.to_json()["meters"] == {"6/8": 1}


def test_signatures_of_a_file_are_told_in_their_order(tmp_path):
    """Guards `inspect`, which once sorted them as it does those of many files."""
    contents = Contents(PianoRollFrames(SIXTEENTHS))
    path = quarters(tmp_path / "a.mid", (0, 4, 4), (1920, 3, 4))
    contents.add(read_score(path.read_bytes()))
    assert [*contents.to_json()["meters"]] == ["4/4", "3/4"]


def test_an_excerpt_goes_on_within_its_bar():
    metre = [[0, 3, 4], [24, 6, 8], [60, 4, 4]]
    assert shifted(metre, 30) == [[-6, 6, 8], [30, 4, 4]]
    assert shifted(metre, 24) == [[0, 6, 8], [36, 4, 4]]
    assert shifted(metre, 0) == metre


def test_damaged_facts_and_statistics_are_refused():
    for wrong in (
        *(None, [], [[0, 4]], [[0, 4, 4.0]], [[0, True, 4]], [[0, 5, 0]], [[1, 4, 4]]),
        *([[-(10**30), 4, 4]], [[0, 4, 4]] * 2),
    ):
        with pytest.raises(ValueError, match="metre"):
            metre_from_json(wrong)
    for name, wrong in (("metre", "6/7"), ("metre", 6), ("tempo", 0), ("tempo", "fast")):
        values = {**PianoRollFrames(SIXTEENTHS).to_json(), name: wrong}
        with pytest.raises(ValueError, match=rf"^frame\.{name} must be "):
            PianoRollFrames.from_json(values)


# ---- inferred


def pattern(metre, bars):
    """Onsets of a bar in sixteenths: a bass on one, chords on the other beats, some melody."""
    beats, of = metre
    beat = 6 if of == 8 else 4
    bar = 16 * beats // of
    onsets = np.zeros(bar * bars)
    onsets[::bar] += 3
    onsets[::beat] += 2
    random = np.random.default_rng(3)
    onsets += random.random(len(onsets)) < 0.1
    return onsets


@pytest.mark.parametrize("metre", [(4, 4), (3, 4), (6, 8)])
def test_clear_metres_are_inferred(metre):
    assert infer_metre(pattern(metre, 24), SIXTEENTHS) == metre
    assert infer_metre(pattern(metre, 3), SIXTEENTHS) is None  # too short to tell
    assert infer_metre(pattern(metre, 24), Grid.of_seconds("0.1")) is None


def test_nothing_is_inferred_of_notes_off_the_grid(tmp_path):
    """Guards against bars of a grid that a file ignores: five notes of 1.2 beats are two of 3/4."""
    score = read_score(quarters(tmp_path / "off.mid", count=60, length=576).read_bytes())
    frames = place(score, PianoRollFrames(SIXTEENTHS)).frames(onsets=True)
    assert infer_metre(struck(frames).sum(axis=1), SIXTEENTHS) == (3, 4)
    assert metre_of(score, frames, SIXTEENTHS) == []


def test_the_metre_of_a_song_that_lags_behind_its_beats_is_inferred(tmp_path):
    onsets = enumerate(pattern((3, 4), 24).astype(int).tolist())
    late = [(120 * t + 50, 120 * t + 100, 60 + k) for t, many in onsets for k in range(many)]
    score = read_score(save(tmp_path / "late.mid", [notes(late)]).read_bytes())
    frames = place(score, PianoRollFrames(SIXTEENTHS)).frames(onsets=True)
    assert metre_of(score, frames, SIXTEENTHS) == [(0, (3, 4))]


# ---- places


signature_lists = st.lists(st.tuples(st.integers(1, 90), st.sampled_from(METRES)), max_size=5)
grids = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]).map(Grid.of_beats)


def test_a_bar_that_ends_between_frames_has_no_signature_of_its_own():
    """The next would begin half a frame too early, and all bars after it."""
    begun = Signature(-1, 5, 8)  # of two and a half frames, one of them gone
    assert [*file_signatures([begun], Grid.of_beats(1))] == [Signature(0, 5, 8)]


@settings(derandomize=True, max_examples=60)
@given(changes=signature_lists, first=st.sampled_from(METRES), grid=grids, cut=st.integers(0, 99))
def test_what_is_written_reads_back(changes, first, grid, cut):
    """By mido and by our reader: accents are the same bar for bar, after a pickup too."""
    found = signatures(sorted([(0, first), *changes]), 100)
    starts, steps = {each.frame for each in found}, grid.steps_per_beat
    exact = {t for t in range(100) if t in starts or place_of(t, found, steps)[:2] == (0, 0)}
    assert exact <= {*bar_lines(found, grid, 100)}
    heard = metre_from_json(shifted([list(each) for each in found], cut))
    frames = np.ones((100 - cut, 88), np.uint8)
    data = midi_bytes(frames, grid, metre=heard)
    messages = mido.MidiFile(file=io.BytesIO(data)).tracks[0]
    stated = [(m.numerator, m.denominator) for m in messages if m.type == "time_signature"]
    assert stated == [each.metre for each in file_signatures(heard, grid) if each.frame < 100 - cut]
    again = signatures(stated_metre(read_score(data), grid), 100 - cut)
    if heard[0].frame == 0:
        assert again == heard
    rest = [line for line in bar_lines(heard, grid, 100 - cut) if line]
    bar = Fraction(4 * heard[0].beats * (grid.steps_per_beat or 4), heard[0].of)
    if bar.denominator == 1:  # the bar that had begun ends where a frame begins
        assert rest == [line for line in bar_lines(again, grid, 100 - cut) if line]


def test_a_piece_may_end_within_the_bar_that_it_begins_in():
    """Guards against a signature behind the end of a short piece."""
    frames = np.zeros((3, 88), np.uint8)
    frames[0, 40] = 1
    data = midi_bytes(frames, SIXTEENTHS, metre=[Signature(-10, 4, 4)])
    assert read_score(data).meters == ((0, 3, 8),)


def test_accents_follow_changes():
    """Three beats of 3/4, then 6/8 from frame 12 on: downbeats, beats, and eighths."""
    roll = np.zeros((24, 88), np.uint8)
    roll[:, 30] = 1
    frames = np.concatenate([roll, roll], axis=1)  # struck in every frame
    some = np.array([[t, t + 1, 51] for t in range(24)])
    loud = velocities(some, frames, SIXTEENTHS, metre=[Signature(0, 3, 4), Signature(12, 6, 8)])
    phrase = np.array([*np.arange(12) / 48, *np.arange(12) / 48])
    accents = loud - 68 - 10 - np.rint(8 * np.sin(np.pi * phrase))
    expected = [14, 0, 2, 0, 6, 0, 2, 0, 6, 0, 2, 0, 14, 0, 2, 0, 2, 0, 6, 0, 2, 0, 2, 0]
    assert accents.tolist() == expected


def test_prepare_says_where_metres_are_from(tmp_path):
    """Also of a waltz that is said to be in 4/4, if there are others such."""
    quarters(tmp_path / "stated.mid", (0, 6, 8), (1440, 5, 4))
    quarters(tmp_path / "assumed.mid")
    corpus, rolls = MusicCorpus(settings_of({})), Metres()
    for name in ("stated", "assumed"):
        next(corpus.works(tmp_path / f"{name}.mid"))
    line = "metre: 5/4 and 6/8 stated by 1 piece, 4/4 assumed for 1 piece"
    assert metre_line(corpus.facts["metre"]) == line
    waltz = pattern((3, 4), 24)
    for source, stated in (("a", []), ("b.mid", [(0, (4, 4))])):
        one = Metres()
        one.of(stated, waltz, SIXTEENTHS), rolls.update(one, source)
    assert metre_line(rolls.to_json()) == (
        "metre: 4/4 stated by 1 piece, 1 of which sounds otherwise, such as b.mid (4/4, heard "
        "3/4), 3/4 inferred from the onsets of 1 piece"
    )
