"""Notes to frames, struck and held, or hits of a kit: the grid, the rule, the published rolls."""

import io
import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import floor

import mido
import numpy as np
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st
from midi_files import grids, midi_file, note, piano_roll, quantity, tempo, written
from midi_tracks import at_ticks, notes, save
from onsets import HELD, STRUCK, as_frames, random_states

from seqmodel.errors import SourceError, UsageError
from seqmodel.media.music.contents import semitones_to_c
from seqmodel.media.music.corpus import MusicCorpus, load_roll
from seqmodel.media.music.evaluation import MusicComparison
from seqmodel.media.music.frames import (
    PianoRollFrames,
    from_states,
    is_valid,
    notes_of,
    states,
    transposed,
)
from seqmodel.media.music.grid import MAX_FRAMES, Grid
from seqmodel.media.music.kit import SOUNDS, drum_sound
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.placing import Tally, place
from seqmodel.media.music.writing import render, velocities
from seqmodel.media.registry import definition_from_json

IMPOSSIBLE = ("0", "-1", "nan", "inf", "1e99999", "60.1", "1e-10", "0.1s", "")


@pytest.mark.parametrize(
    ("make", "option"),
    [
        *((lambda text=text: Grid.of_seconds(text), "--step-seconds") for text in IMPOSSIBLE),
        *((lambda steps=steps: Grid.of_beats(steps), "--steps-per-beat") for steps in (0, 32768)),
        (Grid, "either --steps-per-beat or --step-seconds"),
        (lambda: Grid(steps_per_beat=4, step_nanoseconds=10**8), "either"),
    ],
)
def test_impossible_grids_name_the_option(make, option):
    """Guards against a traceback, a division by zero, hours of work on a huge exponent."""
    with pytest.raises(UsageError, match=option):
        make()


@pytest.mark.parametrize(
    ("grid", "text"),
    [
        (Grid.of_beats(4), "4 steps per beat"),
        (Grid.of_beats(1), "1 step per beat"),
        (Grid.of_seconds("0.600"), "0.6 s per step"),
        (Grid.of_seconds(0.6), "0.6 s per step"),  # six tenths, not the float
        (Grid.of_seconds("0.123456789"), "0.123456789 s per step"),
        (Grid.of_seconds(60), "60 s per step"),  # not 6E+1
    ],
)
def test_a_grid_is_written_down(grid, text):
    assert (str(grid), Grid.from_json(grid.to_json())) == (text, grid)


def roll_of(*tracks, grid=None, drums=False, transpose=0, short_notes=True, **header):
    score = read_score(midi_file(*tracks, **header))
    how = {"drums": drums, "transpose": transpose, "short_notes": short_notes}
    return piano_roll(score, grid or Grid.of_beats(1), **how)


def test_files_give_their_published_rolls_and_keys(shared_data, music, listing):
    """Guards the rule as a whole, every bit of a third of the files, and --transpose-to-c."""
    paths = (shared_data / "music/rolls").glob("*.mat")
    mats = {path.stem.lower(): scipy.io.loadmat(path) for path in paths}
    different, agreed = [], {name: [] for name in mats}
    for name, entry in [*listing.items()][::3]:
        collection, split, _ = name.split("/")
        jsb = collection == "jsb_chorales"
        grid = Grid.of_seconds("0.6") if jsb else Grid.of_beats(2)
        score = read_score(music[name], restrike="discard")
        how = {"drums": True, "transpose": entry["transpose"], "short_notes": False}
        roll = piano_roll(score, grid, **how)
        published = mats[collection][f"{split}data"][0][entry["index"]]
        if not np.array_equal(roll if jsb else roll[1:], published):
            different.append(name)
        agreed[collection].append(semitones_to_c(score) == entry["transpose"])
    assert (different, len(listing)) == ([], 1930)
    del agreed["jsb_chorales"]  # in the keys that they are in
    count = sum(map(len, agreed.values()))
    assert count > 500
    assert sum(map(sum, agreed.values())) >= 0.95 * count
    assert all(sum(found) > 0.92 * len(found) for found in agreed.values())


@pytest.mark.parametrize("scale", [(0, 2, 4, 5, 7, 9, 11, 12), (0, 2, 3, 5, 7, 8, 11, 12)])
def test_scales_go_to_c_by_the_nearer_way_and_what_has_no_key_stays(scale):
    """Guards the sign and the range, -5 to 6, in both modes; pieces without notes, too."""

    def semitones(piece):
        return semitones_to_c(read_score(midi_file(piece)))

    for tonic in range(12):
        piece = b"".join(note(0, 480, pitch=48 + tonic + degree) for degree in (*scale, 7, 0))
        assert semitones(piece) == (-tonic if tonic < 6 else 12 - tonic)
    for piece in (b"", note(0, 9, channel=9), b"".join(note(0, 9, pitch=p) for p in range(48, 60))):
        assert semitones(piece) == 0


@pytest.mark.parametrize(
    ("on", "off", "sounding", "short"),
    [
        (0, 10, [0], [0]),
        (4, 15, [0, 1], [0, 1]),
        (5, 15, [1], [1]),
        (5, 14, [], [1]),
        (0, 4, None, [0]),
        (25, 25, [], [3]),
    ],
)
def test_half_a_step_rounds_up(on, off, sounding, short):
    """Guards floor(t/step + 1/2) against half-to-even, [f(on), f(off)), and short notes."""
    data, grids = note(on, off - on), (Grid.of_beats(1), Grid.of_seconds("0.5"))
    for grid, (short_notes, filled) in product(grids, ((True, short), (False, sounding))):
        how = {"division": 10, "grid": grid, "short_notes": short_notes}
        if filled is None:
            with pytest.raises(SourceError, match="half a step"):
                roll_of(data, **how)
            continue
        assert np.flatnonzero(roll_of(data, **how)[:, 60 - 21]).tolist() == filled


@pytest.mark.parametrize(("late", "worst"), [(48, 72), (-48, -72)])
def test_notes_that_all_lag_or_lead_are_in_the_frames_of_their_beats(tmp_path, late, worst):
    """Songs recorded and then matched to beats do: six in a hundred notes were a frame off.

    Guards their ends, too, a note at tick 0, and against the lag of drums, which frames have not.
    """
    sixteenth = np.arange(41)
    off = sixteenth % 8 == 3
    begin = 120 * sixteenth + np.where(off, worst, late)  # ticks
    begin[0], end = 0, 120 * (sixteenth + 1) + late + 48
    tune = zip(begin.tolist(), end.tolist(), (60 + sixteenth % 2).tolist(), strict=True)
    drums = notes(((tick, tick + 9, 38) for tick in range(0, 4800, 70)), channel=9)
    score = read_score(save(tmp_path / "late.mid", [notes(tune), drums]).read_bytes())
    roll = piano_roll(score, Grid.of_beats(4))[:, 60 - 21 : 62 - 21]
    assert np.array_equal(roll, np.stack([sixteenth % 2 == 0, sixteenth % 2 == 1], axis=1))

    def onsets(grid):
        frames = piano_roll(score, grid, onsets=True)[:, 88:]
        return np.flatnonzero(frames.any(axis=1)).tolist()

    finer = onsets(Grid.of_beats(12))
    assert {*finer} >= {*(3 * sixteenth[~off])[1:].tolist()}
    assert max(finer) == 3 * 40  # not the note at 0, before the first frame by its lag
    moved = sixteenth + np.sign(late) * off
    assert onsets(Grid.of_seconds("0.125")) == np.unique(moved).tolist()  # no beats, so no lag


def test_on_coarser_grids_notes_lag_by_up_to_half_a_step(tmp_path):
    """Guards eighths over half a sixteenth late, which would seem to lead by the rest of it."""
    begins = [240 * k + 70 + k % 3 for k in range(20)]
    score = read_score(
        save(tmp_path / "late.mid", [notes((t, t + 9, 60) for t in begins)]).read_bytes()
    )
    onsets = piano_roll(score, Grid.of_beats(2), onsets=True)[:, 88 + 60 - 21]
    assert np.flatnonzero(onsets).tolist() == [*range(20)]


@pytest.mark.parametrize("off", [-2, 0, 2])
def test_notes_about_halfway_between_frames_are_in_the_later_ones(tmp_path, off):
    """Guards a song whose bars moved by a frame once a few notes were drawn into it."""
    tune = [(120 * k + 60 + off, 120 * k + 100, 60) for k in range(20)]
    score = read_score(save(tmp_path / "half.mid", [notes(tune)]).read_bytes())
    roll = piano_roll(score, Grid.of_beats(4))
    assert np.flatnonzero(roll.any(axis=1)).tolist() == [*range(1, 21)]


def test_smpte_time_has_seconds_but_no_beats():
    """Guards 29.97 frames a second over ten minutes: at 30 the note would end in frame 5994."""
    ticks = 17982 * 2  # ten minutes of film at 30000/1001 frames, 2 ticks each, to 0.0006 s
    header = {"division": (256 - 29) << 8 | 2}
    far = note(0, ticks)
    assert len(roll_of(far, grid=Grid.of_seconds("0.1"), **header)) == 6000
    with pytest.raises(SourceError, match="--step-seconds"):
        roll_of(far, **header)


def test_drums_are_dropped_unless_kept():
    """Guards against drums played as a piano; the error says why nothing is left without them."""
    drum = note(0, 480, pitch=38, channel=9)
    assert not roll_of(note(0, 480) + drum)[:, 38 - 21].any()
    assert roll_of(drum, drums=True)[:, 38 - 21].all()
    with pytest.raises(SourceError, match="--drums only"):
        roll_of(drum)
    with pytest.raises(SourceError, match=r"^has no notes$"):
        roll_of(b"")


@pytest.mark.parametrize("grid", [Grid.of_beats(32767), Grid.of_seconds("1e-9")])
def test_a_piece_beyond_the_limit_is_refused_before_it_is_made(grid):
    """Guards memory against a tick of 2^31 (in eight deltas that the format allows)."""
    far = (quantity(2**28 - 1) + b"\xf8") * 8
    data = b"\x00\x90\x3c\x40" + far + b"\x08\x80\x3c\x40"
    says = rf"has \d{{1,3}}(,\d{{3}})+ frames at .*, above the {MAX_FRAMES:,} a piece"
    with pytest.raises(SourceError, match=says):
        roll_of(data, grid=grid)


@pytest.mark.parametrize(("late", "frames"), [(-1, MAX_FRAMES - 1), (0, MAX_FRAMES)])
def test_the_longest_piece_is_exact(late, frames):
    """Guards the exact arithmetic at its limit: nothing overflows or rounds in 64 bits."""
    step = Grid(step_nanoseconds=59_999_999_999)
    half_before = (2 * MAX_FRAMES - 1) * step.step_nanoseconds
    milliseconds = -(-half_before // (2 * 10**6)) + late
    far, rest = divmod(milliseconds, 2**28 - 1)
    data = tempo(0, 10**6) + b"\x00\x90\x3c\x40" + (quantity(2**28 - 1) + b"\xf8") * far
    roll = roll_of(data + quantity(rest) + b"\x80\x3c\x40", grid=step, division=1000)
    assert len(roll) == frames
    assert roll[:, 60 - 21].all()


GRID = Grid.of_beats(1)
FRAME = PianoRollFrames(GRID, onsets=True)
random_frames = st.builds(
    lambda seed, length, density: as_frames(random_states(seed, length, 88, density=density)),
    *(st.integers(0, 2**32), st.integers(1, 30), st.sampled_from([0.01, 0.3, 0.9])),
)


@settings(max_examples=50)
@given(random_frames)
def test_frames_are_stored_in_22_bytes_and_read_back(frames):
    rows = FRAME.encode(frames)
    assert rows.shape == (len(frames), *FRAME.row_shape) == (len(frames), 22)
    assert np.array_equal(FRAME.decode(rows), frames)
    assert not FRAME.decode(np.zeros_like(rows)).any()
    assert np.array_equal(from_states(states(frames)), frames)
    assert is_valid(frames)


@settings(max_examples=60)
@given(random_frames, st.sampled_from([*FRAME.variants, -100, -88, -12, 13, 87, 88, 120]))
def test_notes_that_meet_in_transposing_sound_once_and_keep_their_strikes(frames, semitones):
    """Recomputed note by note: two that folding brings together are struck if either is."""
    found = states(frames)
    expected = np.zeros_like(found)
    for t, pitch in np.argwhere(found):
        place = pitch + semitones
        while not 0 <= place < 88:
            place += 12 if place < 0 else -12
        both = found[t, pitch], expected[t, place]
        expected[t, place] = STRUCK if STRUCK in both else HELD
    assert np.array_equal(transposed(frames[:, :88], semitones), expected > 0)
    moved = FRAME.decode(FRAME.vary(FRAME.encode(frames), semitones))
    assert np.array_equal(moved, as_frames(expected))
    assert is_valid(moved)


def test_only_frames_with_onsets_say_so():
    """Guards old manifests, whose bytes and fingerprint must not change."""
    plain = PianoRollFrames(GRID)
    assert "onsets" not in plain.to_json()
    assert "short_notes" not in replace(plain, short_notes=False).to_json()
    assert (plain.fingerprint, plain.row_shape, plain.frame_size) == (b"", (11,), 88)
    for frame in (plain, FRAME, replace(plain, short_notes=False)):
        assert definition_from_json("music", json.loads(json.dumps(frame.to_json()))) == frame
    assert FRAME.fingerprint != plain.fingerprint
    assert FRAME.frame_size == FRAME.context == 176
    assert FRAME.differences(plain) == ["with onsets, not without onsets"]
    assert str(FRAME) == "88 notes struck or held, 1 step per beat"


def test_a_strike_without_a_note_is_none():
    """Outputs that are added may draw one, which was a traceback in `sample`."""
    frames = np.zeros((3, 176), np.uint8)
    frames[:2, 5] = frames[0, 88 + 5] = frames[:, 88 + 6] = 1
    assert notes_of(frames).tolist() == [[0, 2, 26]]


def test_a_npy_of_states_is_read_with_and_without_onsets(tmp_path):
    """Guards its split too: one content with or without onsets, other than the plain roll's."""
    found = random_states(1, 9, 88, density=0.3)
    path = tmp_path / "a.npy"
    np.save(path, found.astype(np.float64))
    assert np.array_equal(load_roll(path)[0], as_frames(found))
    (told,) = MusicCorpus(FRAME).works(path)
    (plain,) = MusicCorpus(PianoRollFrames(GRID)).works(path)
    for work, frames in ((told, as_frames(found)), (plain, found > 0)):
        (rows,) = work.rows(0, work.frames)
        assert np.array_equal(rows, np.packbits(frames, axis=1))
    np.save(tmp_path / "b.npy", found > 0)
    (roll,) = MusicCorpus(PianoRollFrames(GRID)).works(tmp_path / "b.npy")
    assert told.content_hash == plain.content_hash != roll.content_hash
    assert plain.frames_hash == roll.frames_hash


def test_rolls_without_onsets_are_refused(tmp_path):
    """Guards against made-up strikes: in a roll a repeated note and a long one look alike."""
    roll = np.ones((3, 88), np.uint8)
    np.save(tmp_path / "a.npy", roll)
    np.savez(tmp_path / "a.npz", train_0=roll)
    np.savez(tmp_path / "held.npz", train_0=np.where(np.arange(3)[:, None] > 0, 2, roll))
    needed = r"unlike MIDI and \.npy files of 0 \(off\)"
    for name, why in (("a.npy", needed), ("a.npz", needed), ("held.npz", "other than 0 and 1")):
        with pytest.raises(SourceError, match=why):
            list(MusicCorpus(FRAME).works(tmp_path / name))


BEATS = Grid.of_beats(4)
KIT = PianoRollFrames(BEATS, drums=True, kit=True)


def hits(seed, length, density):
    return (np.random.default_rng(seed).random((length, 47)) < density).astype(np.uint8)


frames_of_kits = st.builds(
    hits, st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([0, 0.02, 0.3, 1])
)


def by_mido(data, steps_per_beat):
    """The hits of a file, read without seqmodel: channel 10, rounded half up to the grid."""
    file, found = mido.MidiFile(file=io.BytesIO(data)), set()
    for track in file.tracks:
        for now, message in at_ticks(track):
            if message.type == "note_on" and message.velocity and message.channel == 9:
                steps = Fraction(now * steps_per_beat, file.ticks_per_beat)
                found.add((floor(steps + Fraction(1, 2)), message.note - 35))
    roll = np.zeros((1 + max((t for t, _ in found), default=-1), 47), np.uint8)
    for place_of in found:
        roll[place_of] = 1
    return roll


@settings(derandomize=True, max_examples=40)
@given(frames_of_kits, grids(), st.floats(3.6, 1000), st.booleans())
def test_hits_read_back_as_they_were_written(frames, grid, tempo, flat):
    """Guards against hits that merge where a sound is struck in every frame, and lost ends."""
    data = written(frames, grid, tempo_bpm=tempo, flat=flat)
    placed = place(read_score(data), replace(KIT, grid=grid))
    assert np.array_equal(placed.frames(onsets=False), frames)
    assert placed.tally(frames) == Tally(read=frames.sum())
    messages = [m for track in mido.MidiFile(file=io.BytesIO(data)).tracks for m in track]
    assert {m.channel for m in messages if not m.is_meta} == {9}
    if grid.steps_per_beat:
        heard = by_mido(data, grid.steps_per_beat)
        assert np.array_equal(heard, frames[: len(heard)])
        assert not frames[len(heard) :].any()


def test_hits_have_no_length_and_the_rest_of_the_band_is_left_out():
    """Guards against hits held on, pitched notes as drums, and keys that vanish unsaid."""
    data = midi_file(
        note(0, 960, pitch=60),
        note(0, 960, pitch=36, channel=9)
        + note(120, 0, pitch=42, channel=9)  # no length at all
        + note(240, 60, pitch=82, channel=9)  # a shaker of General MIDI level 2
        + note(240, 60, pitch=99, channel=9)
        + bytes([0, 0x99, 38, 64]),  # never ended
    )
    placed = place(read_score(data, hits=True), KIT)
    frames = placed.frames(onsets=False)
    tally = placed.tally(frames)
    assert frames.shape[1] == 47
    assert np.argwhere(frames)[:, 0].tolist() == [0, 9, 11, 14]
    struck = [SOUNDS[row].name for _, row in np.argwhere(frames)]
    assert struck == ["bass drum", "closed hi-hat", "maracas", "acoustic snare"]
    assert (tally.read, tally.related, tally.unknown) == (4, 1, 1)
    assert tally.lines(onsets=False, kit=True) == [
        "1 hit on keys outside 35 to 81, those of General MIDI, got a related sound",
        "left out 1 hit on keys for which a kit has no sound",
    ]


def test_frames_and_their_definition_are_stored_and_read():
    """Guards against the bit that 47 leave unused in 6 bytes, and definitions of before."""
    for density in (0, 0.3, 1):
        frames = hits(1, 40, density)
        rows = KIT.encode(frames)
        assert rows.shape[1:] == KIT.row_shape
        assert np.array_equal(KIT.decode(rows), frames)
    assert PianoRollFrames.from_json(KIT.to_json()) == KIT
    old = {"notes": 88, "grid": {"steps_per_beat": 4}, "restrike": "close", "drums": True,
           "transpose_to_c": False}  # fmt: skip
    definition = PianoRollFrames.from_json(old)
    assert definition == PianoRollFrames(BEATS, drums=True, short_notes=False)
    assert definition.to_json() == old
    with pytest.raises(ValueError, match="exclude each other"):
        PianoRollFrames.from_json({**KIT.to_json(), "onsets": True})


def test_accents_follow_the_bar_alone():
    """Guards against the highest sound of each frame played as if it were a melody."""
    frames = np.zeros((32, 47), np.uint8)
    frames[::4, [1, 7]] = 1
    notes = notes_of(frames)
    loud = velocities(notes, frames, BEATS).reshape(-1, 2)
    assert (loud[:, 0] == loud[:, 1]).all()
    assert loud[0, 0] - 68 == 14
    assert (notes[:, 1] - notes[:, 0] == 1).all()


def test_each_sound_is_heard_within_its_bounds_and_decays():
    """Guards against overflow, clicks at the end, and sounds that are silent or alike."""
    sounds = {sound.name: drum_sound(key, 44_100) for key, sound in enumerate(SOUNDS, 35)}
    for name, sound in sounds.items():
        assert np.isfinite(sound).all(), name
        assert 0.1 < np.abs(sound).max() <= 1, name
        assert abs(sound[0]) < 1e-6, name
        assert np.abs(sound[-100:]).max() < 2e-4, name
    assert len({sound.tobytes() for sound in sounds.values()}) == 47


def test_a_hit_rings_on_and_the_whole_kit_does_not_clip():
    """Guards against hits cut off with their frame, and against samples beyond full scale."""
    times = np.arange(9) / 8
    alone = np.zeros((8, 47), np.uint8)
    alone[2, 14] = 1  # a crash cymbal
    (sound,) = render(notes_of(alone), times, np.ones(1), drums=np.ones(1, bool))
    begin = 2 * 44_100 // 8
    expected = 0.2 * drum_sound(49, 44_100)[: 44_100 - begin]
    assert np.allclose(sound[begin:44_100], expected, atol=1e-6)
    assert not sound[: begin - 1].any()
    assert len(sound) == 44_100 + 4410
    assert abs(sound[-1]) < 1e-3
    every = np.ones((8, 47), np.uint8)
    notes = notes_of(every)
    (loud,) = render(notes, times, np.ones(len(notes)), drums=np.ones(len(notes), bool))
    assert np.abs(loud).max() < 1


def test_statistics_are_of_hits_alone(tmp_path):
    """Checks the figures of a set by hand: no intervals, no steps, no lengths of notes."""

    class Pieces(list):
        frame = KIT

    train = Pieces([np.zeros((32, 47), np.uint8), np.zeros((16, 47), np.uint8)])
    train[0][::4, 1] = 1
    train[0][2::4, 7] = 1
    drawn = [train[0][:16], np.zeros((16, 47), np.uint8)]
    values = MusicComparison().compare(drawn, None, train)
    assert values["train"]["hits_per_bar"] == pytest.approx(16 * 16 / 48)
    assert values["drawn"]["hits_per_bar"] == pytest.approx(8 * 16 / 32)
    beginnings = MusicComparison().compare(drawn, None, train, 2)["train"]
    assert beginnings["hits_per_bar"] == pytest.approx(1 * 16 / 4)
    assert set(beginnings["distributions"]["sounds"]) == {SOUNDS[1].name}
    assert values["drawn"]["silent_share"] == 0.5
    assert values["drawn"]["distributions"]["sounds"] == {"bass drum": 0.5, "closed hi-hat": 0.5}
    assert values["drawn"]["distances"]["sounds"] == 0
    assert not {"intervals", "melodic_steps", "pitch_classes"} & {*values["drawn"]["distributions"]}
    lines = MusicComparison().lines(values, "valid")
    assert any(line.split() == ["closed", "hi-hat", "0.5000", "0.5000"] for line in lines)
