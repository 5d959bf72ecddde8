"""Drums kept as a part of their own: learned, written to channel 10, heard, replaced."""

import io
from dataclasses import replace

import mido
import noise
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kept_files import BEATS, DRUMS, read, song_at, stretch
from kept_files import notes_of as notes_in
from midi_tracks import note, notes, save
from onsets import marked

from seqmodel.data.dataset import open_dataset
from seqmodel.media.marks import Levels
from seqmodel.media.music.corpus import MusicCorpus, load_midi, load_to_show
from seqmodel.media.music.evaluation import Statistics
from seqmodel.media.music.frames import PianoRollFrames, drums_in, marks_in, sounding, struck
from seqmodel.media.music.frames import notes_of as notes_at
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.kit import PART_KEYS
from seqmodel.media.music.medium import MUSIC
from seqmodel.media.music.midi import read_score
from seqmodel.media.music.original import Original
from seqmodel.media.music.parts import DRUMS as DRUM_PART
from seqmodel.media.music.placing import place
from seqmodel.media.music.sampling import FilledPiece, MusicSampling
from seqmodel.media.music.writing import listen, midi_bytes, write_music
from seqmodel.media.samples import SampleRequest

PART = {"part": Levels.of_names(("Kit", "Lead", "other"))}
BAND = replace(BEATS, drums=True, marks=PART, programs=(DRUM_PART, 73, 0))
OWN_ROWS = replace(BAND, drum_table=PART_KEYS)
HITS = [(0, 1, 36), (2, 3, 42), (4, 5, 38), (5, 6, 90)]


def frames_of(hits, length=8, frame=BAND):
    """Frames in which the first part has these hits (begin, end, key)."""
    frames, part = np.zeros((length, 176), np.uint8), np.zeros((length, 88))
    for begin, end, key in hits:
        row = [*(frame.drum_table or range(21, 109))].index(key)
        frames[begin:end, row] = frames[begin, 88 + row] = part[begin:end, row] = 1
    return marked(frames, part=part)


def sample(kind, frames, frame=BAND, **options):
    request = SampleRequest(kind, length=len(frames), options=options, title="t")
    MusicSampling(frame, request).write(file := io.BytesIO(), [frames])
    return file.getvalue()


@pytest.mark.parametrize(
    ("options", "drums", "pitched"),
    [
        ({"parts": "tune"}, ["drums"], ["tune"]),
        ({"parts": "tune,steel drums,toms"}, ["toms", "drums"], ["tune", "steel drums"]),
        ({"parts": "kit,tune"}, ["kit", "drums"], ["tune"]),
        ({"tracks": True}, ["toms", "drums"], ["tune"]),
    ],
)
def test_a_part_is_of_drums_or_of_pitches(tmp_path, options, drums, pitched):
    """Guards hits that are read as notes of a pitch, far up, and notes that are read as hits: of
    steel drums, and of tracks called like drums, in another file."""
    hits = notes(((k, k + 1, 36) for k in range(9)), step=120, channel=DRUMS)
    steel = [(0, mido.Message("program_change", program=114))]
    steel += notes(((k, k + 1, 60) for k in range(9)), step=120)
    tracks = [("a", "tune", hits), ("a", "toms", hits), ("b", "tune", steel), ("b", "kit", steel)]
    for file in "ab":
        named = [
            [(0, mido.MetaMessage("track_name", name=name)), *some]
            for of, name, some in tracks
            if of == file
        ]
        save(tmp_path / "in" / "train" / f"{file}.mid", named)
    noise.prepared(tmp_path / "in", tmp_path / "data", MUSIC.settings(options | {"drums": "keep"}))
    dataset = open_dataset(tmp_path / "data")
    frame = dataset.frame
    assert PianoRollFrames.from_json(frame.to_json()) == frame
    with pytest.raises(ValueError, match="from 0 to 128"):
        PianoRollFrames.from_json({**frame.to_json(), "programs": [DRUM_PART + 1]})
    assert [part.name for part in frame.parts if part.program == DRUM_PART] == drums
    left = [part.name for part in frame.parts if part.program != DRUM_PART]
    assert [name for name in left if name not in ("kit", "other")] == pitched
    kick = PART_KEYS.index(36)
    for k in range(2):
        frames = frame.decode_marked(dataset["train"].read_rows(k))
        sounds = sounding(frames) > 0
        assert set(np.flatnonzero(sounds.any(0)).tolist()) <= {kick, 60 - 21}
        assert (drums_in(frames, frame.parts) == sounds * (np.arange(88) == kick)).all()


@pytest.mark.parametrize("band", [BAND, OWN_ROWS])
@pytest.mark.parametrize("semitones", [0, 5])
def test_samples_have_drums_on_channel_10_whatever_their_key(tmp_path, semitones, band):
    """Guards against a piano that plays the drums, and kicks transposed into snares."""
    frames = frames_of(HITS, frame=band)
    frames[3:7, 60 - 21], frames[3, 88 + 60 - 21] = 1, 1
    marks_in(frames)["part"][3:7, 60 - 21] = 2
    (tmp_path / "a.mid").write_bytes(data := sample("mid", frames, band, transpose=semitones))
    _, kit, lead = read(data).tracks
    drawn = sorted((on // 120, off // 120, *rest) for on, off, *rest in notes_in(kit))
    assert drawn == [(*hit, DRUMS) for hit in HITS]
    assert [each[2:] for each in notes_in(lead)] == [(60 + semitones, 1)]
    ends = [[m.text for m in track if m.type == "marker"] for track in read(data).tracks]
    assert ends == [["end of piece"], [], []]  # in no part
    voices = replace(band, marks={"part": Levels.of_names(("Kit", "Lead", "bass"))})
    names = [track.name for track in read(sample("mid", frames, voices)).tracks[1:]]
    assert names == ["Kit", "Lead", "bass"]  # only an empty `other` has no track
    if not semitones:
        assert (load_midi(tmp_path / "a.mid", band).frames[:7] == frames[:7]).all()


@pytest.mark.parametrize("use", ["prime", "fill"])
def test_drums_of_a_sampled_npy_are_drums_again(tmp_path, use):
    """Guards a kit that a piano plays, at the top of its keys, where a .npy is continued."""
    rows = [PART_KEYS.index(key) for _, _, key in HITS[:3]]
    frame = replace(OWN_ROWS, drum_keys=dict.fromkeys([60, *(row + 21 for row in rows)], 9))
    frames = frames_of(HITS[:3], frame=frame)
    frames[:8, 60 - 21], frames[0, 88 + 60 - 21] = 1, 1  # among the pitches, thus no rare drum
    (path := tmp_path / "a.npy").write_bytes(sample("npy", frames, frame))
    request, drawn = SampleRequest("mid", length=4, prime=path, include_prime=True), frames[:4] * 0
    if use == "fill":
        request = SampleRequest("mid", options={"fill": path, "notes": "C2:C3"})
        drawn = FilledPiece(path, frame, request.options).frames
    MusicSampling(frame, request).write(file := io.BytesIO(), [drawn])
    (given_track,) = (track for track in read(file.getvalue()).tracks if track.name == "given")
    expected = [(120 * begin, 120 * end, key, DRUMS) for begin, end, key in HITS[:3]]
    assert sorted(notes_in(given_track)) == sorted([*expected, (0, 960, 60, 0)])


@pytest.mark.parametrize("band", [BAND, OWN_ROWS])
def test_drums_sound_as_a_kit_does(tmp_path, band):
    """In samples, and in a file that is played with its drums; a kit has no sound for key 90."""
    kit = np.zeros((8, 47), np.uint8)
    for begin, _, key in HITS[:3]:
        kit[begin, key - 35] = 1
    times, expected = np.arange(9) / 8, io.BytesIO()
    write_music("wav", expected, kit, times, Grid.of_beats(4), flat=True)
    frames = frames_of(HITS, frame=band)
    assert sample("wav", frames, band, flat=True) == expected.getvalue()
    (tmp_path / "a.mid").write_bytes(sample("mid", frames, band))
    if band is BAND:  # by the rules for loudness drums are voices there
        listen(tmp_path / "a.mid", {"drums": "keep", "tempo": 120}, tmp_path / "a.wav")
        assert (tmp_path / "a.wav").read_bytes() == sample("wav", frames)


@pytest.mark.parametrize("band", [BAND, OWN_ROWS])
@pytest.mark.parametrize(("into", "numbers"), [(None, (5, 6)), ("Lead", (1, 1)), ("1", (0, 0))])
def test_drawn_drums_replace_those_of_the_file(tmp_path, into, numbers, band):
    """Guards against drums drawn over the file's, in a track of pitches, or moved with those."""
    path = song_at(tmp_path / "song.mid")
    original = Original(path, band, transposed=2, into=into)
    assert not [remark for remark in original.remarks if "has drums" in remark]
    free = stretch(64, 16, 32)
    frames = frames_of([(16, 17, 38), (20, 21, 44)], 64, band)
    for part, key in ((2, 60), (3, 64)):
        frames[24:26, [key - 21, 88 + key - 21]] = 1
        marks_in(frames)["part"][24:26, key - 21] = part
    after = read(original.with_drawn(frames, free, semitones=3))
    pitched = [] if into else ["drawn Lead", "drawn other"]
    assert [track.name for track in after.tracks[4:]] == ["drawn Kit", *pitched]
    for number, key in zip(numbers, (61, 65), strict=True):
        *found, channels = zip(*notes_in(after.tracks[number]), strict=True)
        assert (2880, 3000, key) in zip(*found, strict=True)
        assert len({*channels}) == 1
    nothing = read(original.with_drawn(np.zeros_like(frames), free))
    assert [track.name for track in nothing.tracks[4:]] == ([] if into else ["drawn"])
    hits = notes_in(mido.MidiFile(path).tracks[3])
    assert notes_in(after.tracks[3]) == [each for each in hits if not 1920 <= each[0] < 3840]
    drawn = [each[:3] for each in notes_in(after.tracks[4])]
    assert drawn == [(1920, 2040, 38), (2400, 2520, 44)]


@pytest.mark.parametrize(("marks", "kick"), [({}, 34), (PART, 36)])
def test_drums_of_parts_stay_where_pieces_are_read_in_c(tmp_path, marks, kick):
    """Guards kicks that train has on a key for each key that its pieces are in.

    Where they are notes like any other, samples that go back to their key move them back.
    """
    chord = [event for key in (62, 66, 69) for event in note(0, 960, key)]  # D major
    names = [[(0, mido.MetaMessage("track_name", name=name))] for name in ("Kit", "Lead")]
    kit = notes(((k, k + 1, 36) for k in range(8)), step=120, channel=DRUMS)
    save(tmp_path / "d.mid", [names[0] + kit, names[1] + chord])
    frame = replace(BEATS, drums=True, transpose_to_c=True, marks=marks)
    piece = load_midi(tmp_path / "d.mid", frame)
    assert piece.transposed == -2
    assert {each + 21 for each in np.flatnonzero(piece.frames[0, :88])} == {kick, 60, 64, 67}


def test_drums_stay_where_pieces_are_transposed_in_training():
    """Guards the same for random keys, and the part of what meets a drum or is held."""
    frames = frames_of([(0, 1, 36), (4, 5, 36), (2, 6, 50), (2, 6, 52)])
    for begin, end, key in [(0, 8, 60), (3, 6, 34), (3, 5, 48)]:
        frames[begin:end, key - 21] = frames[begin, 88 + key - 21] = 1
        marks_in(frames)["part"][begin:end, key - 21] = 2
    moved = BAND.decode_marked(BAND.vary(BAND.encode(frames), 2))
    notes = [(begin, end, key) for begin, end, key in notes_at(moved).tolist()]
    # Two notes meet the drums on 36 and 50: each strikes, and the later one has what follows.
    drums = [(0, 1, 36), (2, 3, 50), (2, 6, 52), (4, 6, 36)]
    assert notes == sorted([*drums, (0, 8, 62), (3, 4, 36), (3, 6, 50)])
    parts = [int(marks_in(moved)["part"][begin, key - 21]) for begin, _, key in notes]
    assert parts == [1 if note in drums else 2 for note in notes]
    for begin in (3, 8):  # windows, one of them behind the piece
        window = BAND.decode_marked(BAND.vary(BAND.encode(frames)[begin:], 2))
        assert np.array_equal(window, moved[begin:])


def test_train_knows_the_keys_of_its_drums(tmp_path):
    """Guards hits of pieces outside train, or of a run's own files, and notes on a drum's keys."""
    kit, lead = ([(0, mido.MetaMessage("track_name", name=name))] for name in ("Kit", "Lead"))
    pitched = notes(((k, k + 1, 35) for k in range(3)), step=240)
    for split, keys in (("train", [36, 42, 36]), ("valid", [50, 51, 52])):
        hits = ((k + 8, k + 9, key) for k, key in enumerate(keys))
        (tmp_path / split).mkdir()
        save(
            tmp_path / split / "a.mid",
            [kit + notes(hits, step=120, channel=DRUMS), lead + pitched],
        )
    options = {"drums": "keep", "parts": "Kit,Lead"}
    noise.prepared(tmp_path, tmp_path / "out", MUSIC.settings(options))
    frame = open_dataset(tmp_path / "out").frame
    assert frame.drum_keys == {21 + PART_KEYS.index(36): 2, 21 + PART_KEYS.index(42): 1}
    assert PianoRollFrames.from_json(frame.to_json()) == frame
    assert MusicCorpus(frame, [tmp_path / "valid" / "a.mid"]).frame.drum_keys == frame.drum_keys
    before = replace(frame, drum_table=())  # as of an older version
    assert "drum_table" not in before.to_json()
    assert frame.differences(before) == ["drums kept on rows of their own, not drums kept"]
    damaged = [{"36": 0}, {"36": True}, {"20": 1}, {"36.0": 1}, [36]]
    for hits in damaged:
        with pytest.raises(ValueError, match=r"frame\.drum_keys"):
            PianoRollFrames.from_json({**frame.to_json(), "drum_keys": hits})
    with pytest.raises(ValueError, match=r"frame\.drum_keys"):
        PianoRollFrames.from_json({**frame.to_json(), "programs": [0, 0]})
    for table in ([*PART_KEYS[1:]], [*PART_KEYS[1:], 90], [*PART_KEYS[1:], "21"], {}, [True]):
        with pytest.raises(ValueError, match=r"frame\.drum_table"):
            PianoRollFrames.from_json({**frame.to_json(), "drum_table": table})


def test_kick_and_bass_are_struck_on_one_key_and_both_come_back(tmp_path):
    """Guards a bass that kicks cut off, and kicks that are lost where it is struck as well."""
    hits = [(0, 36), (4, 36), (4, 42), (6, 38), (8, 36), (9, 81), (12, 36), (12, 35)]
    tune = [(0, 8, 36), (8, 12, 38), (12, 16, 36), (0, 16, 81), (0, 16, 42)]
    kit = notes(((k, k + 1, key) for k, key in hits), step=120, channel=DRUMS)
    names = [[(0, mido.MetaMessage("track_name", name=name))] for name in ("Kit", "Bass")]
    bass = names[1] + notes(tune, step=120)
    save(tmp_path / "in" / "train" / "a.mid", [bass, names[0] + kit])
    options = {"drums": "keep", "parts": "bass"}
    manifest = noise.prepared(tmp_path / "in", tmp_path / "data", MUSIC.settings(options))
    assert manifest["parts"] == {"bass": len(tune), "drums": len(hits), "other": 0}
    assert manifest["notes"] == {"read": len(tune) + len(hits), "dropped": 0, "merged": 0}
    train = open_dataset(tmp_path / "data")["train"]
    frames = train.frame.decode_marked(train.read_rows(0))
    _, bass, drums = read(sample("mid", frames, train.frame)).tracks
    heard = {track.name: sorted(notes_in(track)) for track in (bass, drums)}
    assert heard["drums"] == sorted((120 * k, 120 * k + 120, key, DRUMS) for k, key in hits)
    assert heard["bass"] == sorted((120 * on, 120 * off, key, 0) for on, off, key in tune)
    moved = train.frame.decode_marked(train.frame.vary(train.read_rows(0), 3))
    *_, drums = read(sample("mid", moved, train.frame)).tracks
    assert sorted(notes_in(drums)) == heard["drums"]
    flute = [(0, mido.MetaMessage("track_name", name="flute")), *notes([(0, 480, 72)])]
    of_none = load_midi(save(tmp_path / "flute.mid", [flute]), train.frame).frames
    assert sounding(of_none).any()
    assert not drums_in(of_none, train.frame.parts).any()


@settings(max_examples=40, deadline=None)
@given(hits=st.sets(st.tuples(st.integers(0, 7), st.integers(21, 108)), min_size=1))
def test_every_drum_has_a_row_from_which_it_comes_back(hits):
    """Guards drums that share a row, and other sounds than were read."""
    frames = frames_of([(at, at + 1, key) for at, key in hits], frame=OWN_ROWS)
    data = midi_bytes(frames, OWN_ROWS.grid, parts=OWN_ROWS.parts, drum_table=PART_KEYS)
    again = place(score := read_score(data), OWN_ROWS)
    assert np.array_equal(again.frames(onsets=True), frames[: again.length, :176])
    assert {*zip((score.on_tick // 120).tolist(), score.pitch.tolist(), strict=True)} == hits
    assert score.of_drums.all()


def test_hits_off_the_keys_of_a_piano_are_left_out_and_told(tmp_path):
    """Guards sounds that were moved by octaves onto others without a word."""
    hits = notes([(0, 120, 12), (0, 120, 36), (120, 240, 110)], channel=DRUMS)
    piece = load_midi(path := save(tmp_path / "a.mid", [hits]), OWN_ROWS)
    (line,) = piece.placed.tally(piece.frames).lines(onsets=True)
    assert "left out 2 hits on keys for which a kit has no sound" in line
    assert np.flatnonzero(sounding(piece.frames)).tolist() == [PART_KEYS.index(36)]
    without = load_midi(save(tmp_path / "b.mid", [hits, note(0, 120, 60)]), BEATS)
    assert not without.placed.tally(without.frames).unknown  # all drums are dropped
    kept = "drums on keys without a sound, which the run does not replace: they stay"
    assert Original(path, OWN_ROWS, transposed=0).remarks == [f"{path} has {kept}"]


@pytest.mark.parametrize(
    ("options", "drums", "parts"),
    [
        ({"parts": "Lead"}, True, ["Lead", "drums", "other"]),
        ({"parts": "Lead,Drum"}, True, ["Lead", "Drum", "other"]),
        ({"parts": "Lead,Kit"}, True, ["Lead", "Kit", "drums", "other"]),
        ({"parts": "Bass"}, True, ["Bass", "drums", "other"]),
        ({"parts": "Lead"}, False, ["Lead"]),
        ({"parts": "Lead", "drums": "drop"}, True, ["Lead"]),
        ({"tracks": True}, True, ["Lead", "Kit", "drums", "other"]),
        ({"parts": "Lead,Drums"}, False, ["Lead", "Drums", "other"]),
    ],
)
def test_drums_that_are_kept_have_a_part(tmp_path, options, drums, parts):
    """Guards drums among the notes of `other`, parts for drums that there are not, and a last part,
    which notes of no part count as, that is drums."""
    kit, lead = ([(0, mido.MetaMessage("track_name", name=name))] for name in ("Kit", "Lead"))
    kit += notes(((k, k + 1, 36) for k in range(8)), step=120, channel=DRUMS)
    lead += notes(((k, k + 1, 60 + k) for k in range(8)), step=120)
    save(tmp_path / "in" / "train" / "a.mid", [kit, lead] if drums else [lead])
    settings = MUSIC.settings({"drums": "keep", **options})
    manifest = noise.prepared(tmp_path / "in", tmp_path / "out", settings)
    assert [*manifest["parts"]] == parts
    assert not [each for each in MUSIC.prepare_remarks(manifest) if "other:" in each]
    assert not [each for each in manifest["not_kept"] if "which notes are drums" in each]


@pytest.mark.parametrize("drums", ["keep", "drop"])
def test_pitched_tracks_called_drums_are_no_part_beside_drums(tmp_path, drums):
    """Guards two parts of one name, which no dataset can have."""
    named = [[(0, mido.MetaMessage("track_name", name=name))] for name in ("Drums", "Beats")]
    named[0] += notes(((k, k + 1, 60) for k in range(8)), step=120)
    named[1] += notes(((k, k + 1, 36) for k in range(8)), step=120, channel=DRUMS)
    save(tmp_path / "in" / "train" / "a.mid", named)
    settings = MUSIC.settings({"drums": drums, "tracks": True})
    manifest = noise.prepared(tmp_path / "in", tmp_path / "out", settings)
    kept = {"Beats": 8, "drums": 0, "other": 8}
    assert manifest["parts"] == (kept if drums == "keep" else {"Drums": 8})


def test_the_top_voice_is_not_a_drum_above_it(tmp_path):
    """Guards accents of melody and bass, which follow from what else sounds."""
    frames = frames_of([(0, 4, 60), (0, 4, 64), (0, 4, 72)])
    marks_in(frames)["part"][:] *= 2
    both = np.maximum(frames, frames_of([(0, 1, 42), (2, 3, 62)], frame=OWN_ROWS))
    alone, of_band = (read(sample("mid", each, OWN_ROWS)) for each in (frames, both))
    loud = [
        {m.note: m.velocity for m in file.tracks[2] if m.type == "note_on"}
        for file in (alone, of_band)
    ]
    assert loud[0] == loud[1]
    assert loud[0][72] > loud[0][60] > loud[0][64]
    # Where a song goes on, from before its first note, there are none to be like.
    song = save(tmp_path / "a.mid", [note(2880, 3000, 60)])
    original = Original(song, OWN_ROWS, transposed=0)
    after = read(original.with_drawn(both, stretch(8, 0, 8), cut=0))
    assert {m.note: m.velocity for m in after.tracks[-1] if m.type == "note_on"} == loud[0]
    tones = []
    for some in (frames, np.maximum(frames, frames_of([(0, 1, 42)], frame=OWN_ROWS))):
        times, grid = 0.125 * np.arange(len(some) + 1), OWN_ROWS.grid
        drums = drums_in(some, OWN_ROWS.parts)
        file = io.BytesIO()
        write_music("wav", file, some, times, grid, drums=drums, drum_table=OWN_ROWS.drum_table)
        tones.append(np.frombuffer(file.getvalue()[44:], "<i2").astype(int))
    ring = slice(len(tones[0]) // 2, None)  # when the hi-hat is silent
    assert np.abs(tones[0][ring]).max() > 100
    assert np.abs(tones[0] - tones[1])[ring].max() <= 2


def test_drawn_drums_are_as_loud_as_drums(tmp_path):
    """Guards hits that follow a pitched track called like their part."""
    soft = [(0, mido.MetaMessage("track_name", name="Kit"))]
    soft += notes(((k, k + 1, 60, 30) for k in range(8)), step=120)
    hits = notes(((k, k + 1, 36, 100) for k in range(8)), step=120, channel=DRUMS)
    original = Original(save(tmp_path / "a.mid", [soft, hits]), OWN_ROWS, transposed=0)
    frames = frames_of([(4, 5, 36)], frame=OWN_ROWS)
    drawn = read(original.with_drawn(frames, stretch(8, 4, 8))).tracks[-1]
    assert [m.velocity for m in drawn if m.type == "note_on" and m.velocity] == [100]


def test_drums_are_given_or_drawn_where_they_stay(tmp_path):
    """Guards pictures and sounds that take drawn drums for a file's if the rest moves."""
    frames = frames_of([(0, 1, 36), (0, 1, 42)])
    frames[0:2, 60 - 21] = frames[0, 88 + 60 - 21] = 1
    marks_in(frames)["part"][0:2, 60 - 21] = 2
    file = frames[:2].copy()
    file[:, [36 - 21, 88 + 36 - 21]] = 0
    (tmp_path / "fill.mid").write_bytes(sample("mid", file))
    options = {"fill": tmp_path / "fill.mid", "notes": "C2", "transpose": 5}
    sampling = MusicSampling(BAND, SampleRequest("png", options=options, title="t"))
    picture = sampling.picture(frames[:2])
    heights = ({low + 0.5 for _, low, *_ in some} for some in (picture.given, picture.boxes))
    assert [*heights] == [{42, 65}, {36}]


def test_pictures_name_the_row_of_the_commonest_drum():
    """Guards hits that look like notes at the top of the keyboard."""
    frames, request = frames_of([(0, 1, 42)], frame=OWN_ROWS), SampleRequest("png", title="t")
    pictures = [MusicSampling(frame, request).picture(frames) for frame in (OWN_ROWS, BAND)]
    assert [picture.ticks[108] for picture in pictures] == ["drums", "C8"]


@pytest.mark.parametrize("chosen", [{"notes": "C2:C3"}, {"below": True}, {"above": True}])
def test_drums_stay_where_notes_are_chosen_by_pitch(tmp_path, chosen):
    """Guards a file's drums, which have none: their keys were redrawn like the notes around."""
    frames = frames_of([(0, 1, 36), (2, 3, 42)])
    for key in (30, 60, 64):  # what is below or above is so from all but drums
        frames[0:8, key - 21] = frames[0, 88 + key - 21] = 1
        marks_in(frames)["part"][0:8, key - 21] = 2
    (tmp_path / "fill.mid").write_bytes(sample("mid", frames))
    free = FilledPiece(tmp_path / "fill.mid", BAND, chosen).free
    assert not free[[0, 2], [36 - 21, 42 - 21]].any()
    assert free[[1, 2], [36 - 21, 41 - 21]].all()
    own = replace(OWN_ROWS, drum_keys={21 + PART_KEYS.index(49): 3})
    (tmp_path / "own.mid").write_bytes(sample("mid", frames_of([(0, 8, 40)]), own))
    if "above" in chosen:
        free = FilledPiece(tmp_path / "own.mid", own, chosen).free
        assert not free[:, PART_KEYS.index(49)].any()
        assert free[:, PART_KEYS.index(42)].all()
    bars = FilledPiece(tmp_path / "fill.mid", BAND, {"bars": "1"}).free
    assert bars[[0, 2], [36 - 21, 42 - 21]].all()


@pytest.mark.parametrize("chosen", [{"notes": "C2:C8"}, {"below": True}, {"above": True}])
def test_drums_of_an_npy_stay_as_those_of_a_file_do(tmp_path, chosen):
    """Guards what is drawn below a hi-hat, as the highest note, and hits that are drawn anew."""
    rows = [PART_KEYS.index(key) for _, _, key in HITS[:3]]
    own = replace(OWN_ROWS, drum_keys={row + 21: 9 for row in rows})
    frames = np.maximum(frames_of(HITS[:3], frame=own), 2 * frames_of([(0, 8, 60)]))
    frames[:, :176] = frames[:, :176] > 0
    for kind in ("mid", "npy"):
        (tmp_path / f"a.{kind}").write_bytes(sample(kind, frames, own))
    of_file, of_npy = (FilledPiece(tmp_path / f"a.{kind}", own, chosen) for kind in ("mid", "npy"))
    assert (of_file.free[0] == of_npy.free).all()
    assert not of_npy.free[:, rows].any()
    (tmp_path / "b.npy").write_bytes(sample("npy", frames))
    assert FilledPiece(tmp_path / "b.npy", BAND, chosen).free.any()  # which are drums is not known


def test_a_long_hit_neither_cuts_nor_moves_those_drawn_after_it(tmp_path):
    """Guards hits of a key that another still seems to hold: a drum is struck, not held."""
    long = note(0, 3840, 36, DRUMS)
    path = save(tmp_path / "long.mid", [[(0, mido.MetaMessage("track_name", name="Kit")), *long]])
    drawn = frames_of([(18, 19, 36), (20, 21, 36)], 32)
    after = read(Original(path, BAND, transposed=0).with_drawn(drawn, stretch(32, 16, 32)))
    assert notes_in(after.tracks[0]) == [(0, 3840, 36, DRUMS)]
    assert notes_in(after.tracks[1]) == [(2160, 2280, 36, DRUMS), (2400, 2520, 36, DRUMS)]


def test_parts_in_a_track_of_several_channels_keep_theirs(tmp_path):
    """Guards a bass that plays on, with the sound of a flute, in a file of one track."""
    frame = replace(
        BEATS, marks={"part": Levels.of_names(("melody", "bass", "other"))}, programs=(73, 33, 0)
    )
    track = [
        (0, mido.Message("program_change", channel=k, program=p)) for k, p in ((0, 73), (1, 33))
    ]
    for channel, pitch in ((0, 72), (1, 36)):
        track += notes(((k, k + 1, pitch) for k in range(8)), step=120, channel=channel)
    original = Original(save(tmp_path / "a.mid", [track]), frame, transposed=0, into="1")
    frames, part = np.zeros((8, 176), np.uint8), np.zeros((8, 88))
    for number, row in ((1, 74 - 21), (2, 38 - 21)):
        frames[4, [row, 88 + row]], part[4, row] = 1, number
    (drawn,) = read(original.with_drawn(marked(frames, part=part), stretch(8, 4, 8))).tracks
    found = {(pitch, channel) for on, _, pitch, channel in notes_in(drawn) if on >= 480}
    assert found == {(74, 0), (38, 1)}


@pytest.mark.parametrize("free", [1, 2])
def test_drums_take_no_free_channel(tmp_path, free):
    """Guards the line on channels to be shared, of a run with two parts that are not drums."""
    melodic = [channel for channel in range(16) if channel != DRUMS][free:]
    path = save(tmp_path / "a.mid", [note(0, 960, 60, channel) for channel in melodic])
    (*told,) = Original(path, BAND, transposed=0).remarks
    assert [f"has {free} free channel for new tracks" in each for each in told] == [True] * (
        2 - free
    )


def test_a_key_is_that_of_the_pitches_and_no_part_is_the_last():
    """Guards a tonic found in drums, and drums that the model leaves to no part."""
    frames = frames_of([(k, k + 1, key) for k in range(8) for key in (42, 46, 37)])
    for key in (60, 64, 67):
        frames[:2, key - 21], frames[0, 88 + key - 21] = 1, 1
        marks_in(frames)["part"][:2, key - 21] = 2
    _, _, lead = read(sample("mid", frames, key="D")).tracks
    assert {each[2] for each in notes_in(lead)} == {62, 66, 69}
    marks_in(frames)["part"][:] = 0
    assert not drums_in(frames, BAND.parts).any()
    assert drums_in(frames, BAND.parts[::-1]).sum() == 8 * 3 + 2 * 3


def test_drums_among_notes_without_a_part_are_told(tmp_path):
    path = song_at(tmp_path / "song.mid")
    for frame in (replace(BEATS, drums=True), replace(BAND, programs=(0, 73, 0))):
        remarks = " ".join(Original(path, frame, transposed=0).remarks)
        assert f"{path} has drums, which stay" in remarks
        assert "more as notes: prepare --tracks keeps them apart" in remarks


def test_a_silent_piece_is_not_shown_as_a_kits(tmp_path):
    """All of its notes, none, are drums."""
    silence = np.zeros((8, 88), np.uint8)
    (tmp_path / "a.mid").write_bytes(midi_bytes(silence, BEATS.grid, tempo_bpm=120))
    assert load_to_show(tmp_path / "a.mid", {}).frames.shape == (8, 176)


@pytest.mark.parametrize(
    ("drums", "pitched", "kit", "lost"),
    [
        ([36], [60], False, ["has drums, which are dropped"]),
        ([], [60], False, []),
        ([36, 20], [], True, ["has drums on keys without a sound, which are dropped"]),
        ([36], [60], True, ["has notes besides drums, which are dropped"]),
    ],
)
def test_what_a_fill_drops_is_told(tmp_path, drums, pitched, kit, lost):
    hits = notes([(0, 120, key) for key in drums], channel=9)
    path = save(tmp_path / "a.mid", [hits, notes([(0, 480, key) for key in pitched])])
    frame = PianoRollFrames(Grid.of_beats(4), kit=kit, drums=kit)
    remarks = [each for each in FilledPiece(path, frame, {"bars": "1"}).remarks if "drop" in each]
    assert remarks == [f"{path} {what}" for what in lost]


def test_drums_have_no_pitches_in_statistics():
    """A cadence, and the same under and over drums, which would be its bass, melody and key; with
    marks where notes begin, as in what is drawn."""
    chords = [*((0, 2, key) for key in (55, 59, 62)), *((2, 8, key) for key in (48, 64, 67))]
    band = replace(BAND, marks={"part": Levels.of_names(("Lead", "Kit"))}, programs=(73, DRUM_PART))
    tune, beaten = frames_of(chords), frames_of([*chords, *HITS, (7, 8, 37)])
    for frames in (tune, beaten):
        marks_in(frames)["part"][:] = struck(frames) * np.where(sounding(tune), 1, 2)
    alone, both = Statistics([tune], frame=band), Statistics([beaten], frame=band)
    for name in ("intervals", "pitch_classes", "melodic_steps"):
        assert alone.counts[name] == both.counts[name], name
    assert alone.on_tonic == both.on_tonic == [True]
    assert alone.figures()["notes_per_frame"] < both.figures()["notes_per_frame"]
