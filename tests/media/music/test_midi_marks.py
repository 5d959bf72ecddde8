"""What notes are marked with, part, velocity and distance from the grid, from files and back."""

import io
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import mido
import noise
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from midi_tracks import note, notes, save, tempo
from onsets import as_frames, marked, random_states

from seqmodel.data.batches import load
from seqmodel.data.bundled import FRAMES
from seqmodel.data.dataset import open_dataset
from seqmodel.errors import UsageError
from seqmodel.media.marks import Levels
from seqmodel.media.music.corpus import load_midi
from seqmodel.media.music.frames import PianoRollFrames, marks_in, notes_of, struck
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.medium import MUSIC
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.original import Original
from seqmodel.media.music.parts import INSTRUMENTS, Part, named_parts, part_of, parts_of
from seqmodel.media.music.placing import place
from seqmodel.media.music.published import Roll
from seqmodel.media.music.sampling import MusicSampling
from seqmodel.media.music.writing import RATE, midi_bytes, render, velocities
from seqmodel.media.samples import SampleRequest

STEP = 120
"""Ticks of a frame."""


def write(path, some):
    """A file of notes (begin, end, pitch, velocity), in frames of a quarter of 480 ticks."""
    return save(path, [notes(some, step=STEP)])


def prepared(folder, pieces, **options):
    """A dataset of files, each of which goes to train."""
    for name, some in pieces.items():
        write(folder / "train" / f"{name}.mid", some)
    settings = MUSIC.settings({"velocity": True} | options)
    noise.prepared(folder, folder / "data", settings)
    return open_dataset(folder / "data")


def random_notes(random, count):
    some = []
    for pitch in random.choice(np.arange(21, 109), 12, replace=False).tolist():
        begins = np.unique(random.integers(0, 60, count // 12)).tolist()
        for begin, after in zip(begins, [*begins[1:], 64], strict=True):
            end = int(random.integers(begin + 1, after + 1))
            some.append((begin, end, pitch, int(random.integers(1, 128))))
    return some


def test_every_frame_of_a_note_has_the_velocity_that_the_file_states(tmp_path):
    # Guards against velocities that slip by a note, a row or a frame, or are lost in batches.
    random = np.random.default_rng(1)
    pieces = {name: random_notes(random, 200) for name in ("a", "b")}
    dataset = prepared(tmp_path, pieces)
    train = dataset["train"]
    batch = load(train, np.arange(2), begin=3, window=40)
    assert "velocity" in batch.marks
    for k, source in enumerate(train.sources):
        expected = np.zeros((64, 88), int)
        for begin, end, pitch, velocity in pieces[Path(source).stem]:
            expected[begin:end, pitch - 21] = velocity
        found = train.frame.marks_of(train.read_rows(k))["velocity"]
        assert (found == expected[: len(found)]).all()
        window = expected[3:43]
        assert (batch.marks["velocity"][:, k] == window[: len(batch.marks["velocity"])]).all()
    plain = prepared(tmp_path / "plain", pieces, velocity=False)["train"]
    assert all((ours == theirs).all() for ours, theirs in zip(train, plain, strict=True))
    assert not plain.frame.marks


def test_transposed_pieces_take_velocities_with_them_of_which_the_loudest_counts(tmp_path):
    # Where notes meet, on one key at one time, or moved onto one: not the last, or a mixture.
    struck_twice = [(0, 4, 60, 99), (0, 4, 60, 36), (0, 4, 62, 36), (0, 4, 62, 99)]
    dataset = prepared(tmp_path, {"a": [*struck_twice, (1, 3, 96, 33), (1, 3, 108, 64)]})
    batch = load(dataset["train"], np.arange(1), np.array([5]))
    assert batch.frames.sum(axis=(0, 1))[60 - 21 + 5] == 4
    assert (batch.marks["velocity"][0, 0, [60 - 21 + 5, 62 - 21 + 5]] == 99).all()
    assert batch.marks["velocity"][1, 0, 96 - 21 + 5] == 64  # 113 is off the keyboard


def test_a_velocity_that_is_not_known_follows_the_rules():
    # Guards against notes of velocity 0, which are none: a held one whose strike was left out.
    frames, loud = np.zeros((8, 176), np.uint8), np.zeros((8, 88))
    frames[:, [40, 47]] = 1
    frames[0, 88 + 47], loud[:, 47] = 1, 3
    some, grid = notes_of(frames), Grid.of_beats(4)
    by_rule = velocities(some, frames, grid)
    assert velocities(some, marked(frames, velocity=loud), grid).tolist() == [by_rule[0], 3]


def test_what_holds_a_primers_note_on_is_as_loud_as_that(tmp_path):
    # Guards against a velocity by rule where a drawn frame goes on with a note of the file.
    write(tmp_path / "prime.mid", [(0, 4, 60, 33), (2, 4, 64, 99)])
    definition = replace(FRAMES, onsets=True, marks={"velocity": Levels()})
    request = SampleRequest(
        "mid", length=4, options={}, title="t", prime=tmp_path / "prime.mid", include_prime=True
    )
    drawn = marked(np.zeros((4, 176)))
    drawn[:2, 60 - 21] = 1
    file = io.BytesIO()
    MusicSampling(definition, request).write(file, [drawn], lambda done, total: None)
    _, added = mido.MidiFile(file=io.BytesIO(file.getvalue())).tracks
    assert [(m.note, m.velocity) for m in added if m.type == "note_on"] == [(60, 33)]


def test_an_excerpt_strikes_held_notes_as_they_were_struck(tmp_path):
    dataset = prepared(tmp_path, {"a": [(0, 8, 60, 33), (4, 8, 64, 99)]})
    frame, rows = dataset.frame, dataset["train"].read_rows(0)
    cut = frame.cut(rows[6:])
    assert frame.decode(cut)[0, 88 + 60 - 21] == 1
    assert frame.marks_of(cut)["velocity"][0, 60 - 21] == 33


def test_levels_are_even_shares_of_train():
    # An independent count: np.quantile of the numbers themselves, of which a tenth are 127.
    random = np.random.default_rng(2)
    numbers = np.clip(random.normal(90, 30, 20_000).round(), 1, 127).astype(int)
    levels = Levels.of(np.bincount(numbers, minlength=128))
    share = np.quantile(numbers, np.arange(1, 16) / 16, method="inverted_cdf")
    assert levels.edges == tuple(share[share < 127].astype(int))
    level = np.searchsorted(levels.edges, numbers)
    assert [round(numbers[level == k].mean(), 2) for k in range(len(levels))] == list(levels.means)


@pytest.mark.parametrize("values", [[], [80], [5, 5, 9], [*range(1, 17)]])
def test_few_distinct_numbers_have_a_level_each(values):
    levels = Levels.of(np.bincount(np.array(values, int), minlength=128))
    distinct = sorted(set(values)) or [80]
    assert list(levels.means) == distinct
    assert levels.edges == tuple(distinct[:-1] if values else ())


@pytest.mark.parametrize(
    "damage",
    [{"edges": [3, 2]}, {"edges": [1.5]}, {"edges": 3}, {"means": [80]}, {"means": ["a", 3]}],
)
def test_damaged_levels_are_named(damage):
    values = {"edges": [40, 60], "means": [30.0, 50.0, 90.0]} | damage
    frame = PianoRollFrames.from_json
    grid = {"notes": 88, "grid": {"steps_per_beat": 4}, "restrike": "close", "drums": False}
    with pytest.raises(ValueError, match=r"velocity\.(edges|means) must be"):
        frame(grid | {"transpose_to_c": False, "onsets": True, "velocity": values})


TIMED = replace(FRAMES, onsets=True, marks={"timing": Levels()})


@pytest.mark.parametrize(
    ("grid", "microseconds"), [(Grid.of_beats(4), 500_000), (Grid.of_seconds(0.125), 500_000),
                        (Grid.of_seconds(0.05), 200_000)],
)  # fmt: skip
def test_notes_keep_how_far_they_are_from_the_grid(tmp_path, grid, microseconds):
    # Guards signs, and steps of beats taken for steps of time: 120 ticks are a frame in all three.
    some = [(0, 110, 60), (130, 240, 61), (230, 300, 62), (480, 600, 60), (539, 720, 70)]
    save(tmp_path / "a.mid", [[tempo(0, microseconds), *notes(some)]])
    found = marks_in(load_midi(tmp_path / "a.mid", replace(TIMED, grid=grid)).frames)["timing"]
    for frame, pitch, off in ((0, 60, 0), (1, 61, 10), (2, 62, -10), (4, 60, 0), (4, 70, 59)):
        assert found[frame, pitch - 21] == round(64 + 126 * off / 120)
    assert found[5, 70 - 21] == found[4, 70 - 21]  # held on


def test_timing_is_counted_from_the_lag_of_all_notes(tmp_path):
    """Or a song that was recorded and then matched to beats spends nats on its lag at each note."""
    begins = [120 * k + 50 + 12 * (k % 4 == 2) for k in range(1, 21)]
    save(tmp_path / "a.mid", [notes((begin, begin + 60, 60) for begin in begins)])
    found = marks_in(load_midi(tmp_path / "a.mid", TIMED).frames)["timing"][1:21, 60 - 21]
    later = found[1::4].astype(int) - found[0]
    assert (np.abs(later - 126 * 12 / 120) <= 1).all()
    assert abs(int(found[0]) - 64) <= 126 * 4 / 120  # the lag is the mean


GRIDS = st.sampled_from([Grid.of_beats(4), Grid.of_beats(7), Grid.of_beats(480),
                         Grid.of_seconds(0.02), Grid.of_seconds(0.0333)])  # fmt: skip


@settings(derandomize=True, max_examples=30)
@given(GRIDS, st.integers(0, 99), st.floats(20, 300))
def test_moved_notes_stay_in_their_frames(grid, seed, bpm):
    """Guards against onsets that fall into another frame, or notes that swallow the next."""
    states = np.zeros((30, 88), np.uint8)
    states[:, 40:46] = random_states(seed, 30, 6, density=0.7)
    frames = as_frames(states)
    timing = np.random.default_rng(seed).integers(1, 128, (30, 88))
    data = midi_bytes(marked(frames, timing=timing), grid, tempo_bpm=bpm)
    placed = place(read_score(data), PianoRollFrames(grid))
    again = placed.frames(onsets=True)
    assert np.array_equal(again, np.pad(frames, ((0, len(again) - len(frames)), (0, 0))))
    (track,) = mido.MidiFile(file=io.BytesIO(data)).tracks
    for pitch in range(61, 67):
        kinds = [m.type for m in track if m.type.startswith("note_") and m.note == pitch]
        assert kinds == ["note_on", "note_off"] * (len(kinds) // 2)


def test_samples_are_as_late_as_their_timing(tmp_path):
    # Guards the way back: what is read again is what was drawn, but for where a piece begins.
    frames = as_frames(np.where(np.random.default_rng(3).random((20, 88)) < 0.1, 1, 0))
    begins = struck(frames)
    timing = np.random.default_rng(4).integers(3, 126, begins.shape) * begins
    timing[0] = np.maximum(timing[0], 64) * begins[0]
    (tmp_path / "a.mid").write_bytes(midi_bytes(marked(frames, timing=timing), Grid.of_beats(4)))
    found = marks_in(load_midi(tmp_path / "a.mid", TIMED).frames)["timing"]
    assert np.abs(found[:20].astype(int) - timing)[begins].max() <= 1  # of 120 ticks


def test_sound_is_as_late():
    one, times = np.array([[1, 3, 69]]), np.arange(5) * 0.1
    plain, late = (
        np.concatenate([*render(one, times, np.ones(1), late=shift)])
        for shift in (np.zeros(1), np.full(1, 0.25))
    )
    moved = round(0.025 * RATE)
    assert (plain[: round(0.1 * RATE)] == 0).all()
    assert np.array_equal(late[moved : moved + 6000], plain[:6000])


def test_files_that_are_filled_get_notes_off_the_grid(tmp_path):
    """Guards --into and --fill against drawn notes that are straightened."""
    save(tmp_path / "a.mid", [notes([(0, 480, 60), (480, 960, 62)])])
    original = Original(tmp_path / "a.mid", TIMED, transposed=0)
    frames, free = original.frames.copy(), np.zeros((8, 88), bool)
    free[2:4], timing = True, np.zeros((8, 88))
    frames[2:4, 70], frames[[2, 3], 88 + 70] = 1, 1
    timing[2, 70], timing[3, 70] = 64 + 63, 64 - 32
    data = original.with_drawn(marked(frames, timing=timing), free)
    *_, drawn = mido.MidiFile(file=io.BytesIO(data)).tracks
    ons = [(at, m.type) for at, m in zip(np.cumsum([m.time for m in drawn]), drawn, strict=True)]
    assert [at for at, kind in ons if kind == "note_on"] == [240 + 58, 360 - 30]
    assert [at for at, kind in ons if kind == "note_off"] == [330, 480]


def write_tracks(path, tracks):
    """A file with these names, programs and notes, each track on a channel."""
    return save(path, [
        [
            *([(0, mido.MetaMessage("track_name", name=name))] if name else []),
            (0, mido.Message("program_change", channel=channel, program=program)),
            *notes(some, step=STEP, channel=channel),
        ]
        for channel, (name, program, some) in enumerate(tracks)
    ])  # fmt: skip


def prepared_parts(folder, **options):
    out = folder / "data"
    manifest = noise.prepared(folder / "in", out, MUSIC.settings(options), force=True)
    return open_dataset(out), manifest


MELODY = ("Lead Voice", 0, [(0, 4, 72), (4, 8, 74), (10, 12, 60)])
CHORDS = ("", 48, [(0, 8, 60), (0, 8, 64), (8, 12, 60)])
BASS = ("bass", 33, [(0, 12, 36)])


@pytest.mark.parametrize(
    ("name", "program", "part"),
    [
        ("Bass", 0, "bass"),  # its name before its instrument
        ("BASSOON", 70, "other"),  # no word of it
        ("Basses", 0, "other"),
        ("2 FLUTES", 0, "flute"),
        ("Strings1", 0, "strings"),
        ("Track 4", 34, "bass"),
        ("Track 4", 73, "flute"),
        ("Track 4", 49, "strings"),
        ("strings", 32, "strings"),
        ("flute and strings", 0, "strings"),
        ("", 0, "other"),
    ],
)
def test_tracks_go_to_the_part_that_names_them(name, program, part):
    names = named_parts("bass, strings,flute")
    found = part_of({"name": name, "programs": [program + 1]}, names)
    assert names[found - 1] == part


def test_programs_are_those_of_general_midi():
    # Guards against a name left out or doubled, which would shift all that follow.
    known = {0: "grand piano", 24: "nylon", 40: "violin", 56: "trumpet", 73: "flute", 105: "banjo"}
    assert len(set(INSTRUMENTS)) == 128
    assert all(name in INSTRUMENTS[program] for program, name in known.items())
    assert INSTRUMENTS[127] == "gunshot"


@pytest.mark.parametrize("text", ["", "melody,", "bass,Bass", ",".join(map(str, range(13)))])
def test_names_that_are_no_parts_are_refused(text):
    with pytest.raises(UsageError, match="--parts"):
        named_parts(text)


def test_every_note_knows_its_part(tmp_path):
    """Guards against notes of another track, row or frame, and parts that swallow others."""
    write_tracks(tmp_path / "in" / "train" / "a.mid", [MELODY, CHORDS, BASS])
    dataset, manifest = prepared_parts(tmp_path, parts="voice,bass")
    frame = dataset.frame
    assert [part.name for part in frame.parts] == ["voice", "bass", "other"]
    assert [part.program for part in frame.parts] == [0, 33, 48]
    expected = np.zeros((12, 88), int)
    # C4 is struck by another at 0 and 8, and by the voice at 10: one note ends there.
    for number, (_, _, some) in enumerate((MELODY, BASS, CHORDS), 1):
        for begin, end, pitch in some:
            expected[begin:end, pitch - 21] = number
    expected[10:, 60 - 21] = 1
    train = dataset["train"]
    assert (frame.marks_of(train.read_rows(0))["part"] == expected).all()
    assert manifest["parts"] == {"voice": 3, "bass": 1, "other": 3}
    assert manifest["notes"]["shared"] == 1
    assert frame == PianoRollFrames.from_json(frame.to_json())
    assert "3 parts" in str(frame)
    alone = replace(frame, marks={"part": Levels.of_names(("other",))}, programs=(0,))
    assert "with 1 part, 4 steps" in str(alone)
    frames = train[0]
    plain, _ = prepared_parts(tmp_path)
    assert (plain["train"][0] == frames).all()


def test_one_strike_of_two_parts_is_of_the_first(tmp_path):
    write_tracks(
        tmp_path / "in" / "a.mid", [("piano", 0, [(0, 9, 60)]), ("flute", 73, [(0, 4, 60)])]
    )
    for names in ("flute,piano", "piano,flute"):
        dataset, manifest = prepared_parts(tmp_path, parts=names)
        assert dataset.frame.parts[0].name == names.split(",", maxsplit=1)[0]
        assert set(dataset.frame.marks_of(dataset["train"].read_rows(0))["part"][:, 39]) == {1}
        assert manifest["notes"]["shared"] == 1


def test_the_commonest_tracks_are_parts(tmp_path):
    """Guards the choice by pieces, names in any case, and tracks that all have one name."""
    flute = ("Flute", 73, [(0, 4, 84)])
    for k in range(10):
        write_tracks(tmp_path / "in" / f"{k}.mid", [("BASS", 33, BASS[2]), flute])
    odd = [(f"odd {k}", 0, [(0, 12, 40 + k), (6, 9, 60 + k)]) for k in range(7)]
    write_tracks(
        tmp_path / "in" / "same.mid", [("MIDI", 48, CHORDS[2]), ("MIDI", 33, [(0, 2, 30)])]
    )
    write_tracks(tmp_path / "in" / "odd.mid", odd)
    dataset, _ = prepared_parts(tmp_path, tracks=True)
    names = [part.name for part in dataset.frame.parts]
    assert names[0] == "Flute"  # the highest
    assert names[-2:] == ["BASS", "other"]
    assert set(names[1:-2]) == {"ensemble", *(f"odd {k}" for k in range(5))}


def test_equal_counts_do_not_follow_the_names_of_files(tmp_path):
    """Guards the parts, program and metre of a dataset, which once were of the first file."""
    found = []
    for first, second in ("ab", "ba"):
        for file, name, program, beats in ((first, "Bass", 33, 3), (second, "bass", 32, 4)):
            head = [
                mido.MetaMessage("track_name", name=name),
                mido.MetaMessage("time_signature", numerator=beats),
                mido.Message("program_change", program=program),
            ]
            some = notes([(0, 5760, 40 + beats)])
            other = [(0, mido.MetaMessage("track_name", name=f"{beats}")), *notes([(0, 9, 60)])]
            save(tmp_path / f"in/train/{file}.mid", [[*((0, each) for each in head), *some], other])
        dataset, manifest = prepared_parts(tmp_path, tracks=True)
        found.append(str((dataset.frame, manifest["metre"], manifest["contents"])))
    assert found[0] == found[1]


def test_voices_are_parts_as_tracks_are(tmp_path):
    """Guards a strike where a voice holds on, or none where one comes to what another holds."""
    voices = np.random.default_rng(1).choice([-1, 60, 61, 62, 72], (40, 3), p=[0.2, *[0.2] * 4])
    voices = np.repeat(voices, 2, axis=0)
    voices[-1] = voices[0] = 60, 61, 72
    pieces = np.empty(1, object)
    pieces[0] = voices
    tracks = []
    for k, line in enumerate(voices.T):
        cuts = [0, *(np.flatnonzero(np.diff(line)) + 1).tolist(), len(line)]
        some = [(a, b, int(line[a])) for a, b in pairwise(cuts) if line[a] > 0]
        tracks.append((f"voice {k}", 0, some))
    for names in "voice 0,voice 1,voice 2", "voice 0":
        write_tracks(tmp_path / "in" / "train" / "a.mid", tracks)
        expected, manifest = prepared_parts(tmp_path, parts=names)
        rows = expected["train"].read_rows(0)
        (tmp_path / "in" / "train" / "a.mid").unlink()
        np.savez(tmp_path / "in" / "a.npz", train=pieces)
        dataset, of_voices = prepared_parts(tmp_path, parts=names)
        assert (dataset["train"].read_rows(0) == rows).all()
        assert of_voices["parts"] == manifest["parts"]
        assert dataset.frame.parts == expected.frame.parts
        (tmp_path / "in" / "a.npz").unlink()


def test_files_that_a_run_reads_keep_its_parts(tmp_path):
    """Guards against parts counted anew, and notes of no part that pass for the last one."""
    write_tracks(tmp_path / "a.mid", [CHORDS, MELODY])
    part = Levels.of_names(["bass", "voice"])
    frame = replace(FRAMES, onsets=True, marks={"part": part}, programs=(33, 0))
    found = marks_in(load_midi(tmp_path / "a.mid", frame).frames)["part"]
    assert found[0, 72 - 21] == 2
    assert found[0, 64 - 21] == 0
    assert found.max() == 2


def test_voices_beyond_the_named_ones_are_others():
    """Guards a fifth voice that passes for the bass, or is no longer struck."""
    roll = Roll.of_voices(np.array([[72, 67, 64, 60, 48]], np.int8))
    for names, of_fifth in ((("s", "a", "t", "b"), 0), (("s", "a", "t", "b", "other"), 5)):
        frames = roll.with_parts(names)
        part = marks_in(frames)["part"][0]
        assert [part[pitch - 21] for pitch in roll.pitches[0]] == [1, 2, 3, 4, of_fifth]
        assert frames[0, 88:176].sum() == 5


def test_samples_have_a_track_for_each_part(tmp_path):
    # Guards names, programs and channels; and frames that read back otherwise.
    write_tracks(tmp_path / "a.mid", [MELODY, CHORDS, BASS])
    part = Levels.of_names(["voice", "bass", "other"])
    frame = replace(FRAMES, onsets=True, marks={"part": part}, programs=(0, 33, 48))
    frames = load_midi(tmp_path / "a.mid", frame).frames
    data = midi_bytes(frames, Grid.of_beats(4), parts=frame.parts)
    (tmp_path / "b.mid").write_bytes(data)
    assert (load_midi(tmp_path / "b.mid", frame).frames == frames).all()
    _, *tracks = mido.MidiFile(file=io.BytesIO(data)).tracks
    assert [track.name for track in tracks] == ["voice", "bass", "other"]
    programs = [each for track in tracks for each in track if each.type == "program_change"]
    assert [each.program for each in programs] == [0, 33, 48]
    assert len({each.channel for each in programs}) == 3
    struck = [[m.note for m in track if m.type == "note_on"] for track in tracks]
    assert [sorted(pitches) for pitches in struck] == [[60, 72, 74], [36], [60, 60, 64]]


def test_given_notes_and_ten_parts_have_channels_but_not_that_of_drums():
    frames = np.zeros((4, 176), np.uint8)
    frames[:, 30:42], frames[0, 88 + 30 : 88 + 42] = 1, 1
    part = np.zeros((4, 88))
    part[:, 31:42] = np.arange(1, 12)
    given = np.zeros((4, 88), bool)
    given[:, 30] = True
    parts = [Part(f"p{k}", k) for k in range(11)]
    data = midi_bytes(marked(frames, part=part), Grid.of_beats(4), parts=parts, given=given)
    _, *tracks = mido.MidiFile(file=io.BytesIO(data)).tracks
    assert [track.name for track in tracks] == ["given", *(f"drawn p{k}" for k in range(11))]
    channels = [m.channel for track in tracks for m in track if m.type == "note_on"]
    assert channels == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12]


def test_parts_of_one_track_go_by_their_instruments(tmp_path):
    """Guards against a title, as in files of format 0, that takes all channels to one part."""
    track = [(0, mido.MetaMessage("track_name", name="My bass song"))]
    for channel, program in enumerate((56, 0, 33)):
        track.append((0, mido.Message("program_change", channel=channel, program=program)))
        track += note(960 * channel, 960 * channel + 960, 60 + channel, channel)
    save(tmp_path / "in" / "train" / "a.mid", [track], kind=0)
    _, manifest = prepared_parts(tmp_path, tracks=True)
    assert manifest["parts"] == {"bass": 1, "piano": 1, "brass": 1}
    _, manifest = prepared_parts(tmp_path, parts="banjo,bass,flute")
    remarks = MUSIC.prepare_remarks(manifest)
    assert (
        remarks[0]
        == "no note in train belongs to banjo, flute: no track does, or other parts have the same "
        "keys; `seqmodel inspect FILE` lists a file's parts"
    )
    mistaken = {**manifest, "parts": {"mellody": 0, "bass": 1}}
    assert MUSIC.prepare_remarks(mistaken)[0].endswith(" a file's parts; did you mean melody?")
    without_train = {**manifest, "parts": dict.fromkeys(manifest["parts"], 0)}
    assert MUSIC.prepare_remarks(without_train) == remarks[1:]
    _, manifest = prepared_parts(tmp_path, parts="bass,trumpet,piano")
    assert manifest["parts"] == {"bass": 1, "trumpet": 1, "piano": 1}


def test_a_part_has_the_program_that_its_notes_are_played_with(tmp_path):
    """Guards against a default at the start of a track, which no note of it is played with."""
    track = [(0, mido.Message("program_change", program=0))]
    for program, begin, end in ((48, 1, 4), (40, 5, 7)):
        track.append((480 * begin, mido.Message("program_change", program=program)))
        track += notes(((k, k + 1, 60) for k in range(begin, end)), step=480)
    save(tmp_path / "a.mid", [track])
    (part,) = parts_of(read_score((tmp_path / "a.mid").read_bytes()))
    assert part["programs"] == [49, 41]
