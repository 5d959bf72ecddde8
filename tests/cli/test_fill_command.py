"""`sample --fill`: music around what is given, and the file it is in, from the command line."""

import re
from pathlib import Path

import mido
import numpy as np
import pytest
from calling import call_ok, call_refused, told
from midi_tracks import midi, note, notes, save, sounding, tempo, timed
from PIL import Image

from seqmodel.runs.folder import load_run, read_metrics

MODEL = ("--model", "tied", "--hidden", 4, "--note-hidden", 3, "--epochs", 1)


@pytest.fixture(scope="module")
def struck_run(shared, music):
    """A run with onsets, transposed to C, that models ends."""
    call_ok("prepare", music, "-o", shared / "c-struck", "--transpose-to-c")
    call_ok("train", shared / "c-struck", *MODEL, "--end", "--run", shared / "c-run", "-q")
    return shared / "c-run"


@pytest.fixture
def song(here):
    """Two bars at 80 bpm: a melody in A that repeats notes, over a held bass."""
    melody = enumerate((69, 69, 71, 73, 73, 76, 74, 73))
    tune = notes([(0, 8, 45, 70), *((k, k + 1, pitch, 70) for k, pitch in melody)], step=96)
    save(here / "song.mid", [[tempo(0, mido.bpm2tempo(80)), *tune]], division=96, kind=0)
    return Path("song.mid")


def notes_of(path):
    """(Begin, end in beats, pitch) of a file's notes, as mido reads it."""
    file = mido.MidiFile(path)
    found = (each for track in file.tracks for each in sounding(track))
    beat = file.ticks_per_beat
    return {(first / beat, last / beat, pitch) for first, last, pitch, _ in found if last > first}


@pytest.mark.parametrize("which", ["run", "struck_run"])
def test_a_melody_is_harmonised_and_stays(call, request, song, which):
    """Note for note, in its key and tempo, also where a run knows nothing of strikes."""
    run = request.getfixturevalue(which)
    fill = ("--fill", song, "--below", "--particles", 20, "--temperature", 9)
    said = call_ok("sample", "out.mid", "--run", run, *fill)
    assert f"out.mid: 32 frames from {run}, 32 of them drawn\n" in said.err
    ours, theirs = notes_of(Path("out.mid")), notes_of(song)
    melody = {note for note in theirs if note[2] > 45}
    assert melody <= ours
    assert len(ours) > len(melody)
    for begin, _, pitch in ours - melody:
        (sung,) = {top for start, end, top in melody if start <= begin < end}
        assert pitch < sung
    tempos = [m.tempo for m in mido.MidiFile("out.mid").tracks[0] if m.type == "set_tempo"]
    assert tempos == [mido.bpm2tempo(80)]
    in_c = "song.mid was transposed by +3 semitones, its tonic to C as in training"
    assert (in_c in said.err) == (which == "struck_run")


def test_a_bar_is_drawn_anew_between_others(call, song, run):
    """The same seed gives the same bytes; pieces of -n and other seeds differ in the bar alone."""
    options = ("--run", run, "--fill", song, "--bars", "2:2", "--particles", 5, "--temperature", 5)
    call_ok("sample", "a.npy", *options, "-n", 2)
    streamed = call("sample", "-", "--format", "npy", *options)
    assert Path("a-1.npy").read_bytes() == streamed.raw
    call_ok("sample", "b.npy", *options, "--seed", 7)
    first, second, other = (np.load(name) > 0 for name in ("a-1.npy", "a-2.npy", "b.npy"))
    for piece in (second, other):
        np.testing.assert_array_equal(piece[:16], first[:16])
        assert (piece[16:] != first[16:]).any()
    given = np.zeros((16, 88), bool)
    given[np.arange(16), np.repeat([69, 69, 71, 73], 4) - 21] = given[:, 45 - 21] = True
    np.testing.assert_array_equal(first[:16], given)


def test_it_tells_how_well_it_fits(call, song, run):
    options = ("--fill", song, "--frames", "8:12", "--sweeps", 0, "--particles", 9)
    (piece,) = told("sample", "o.mid", "--run", run, *options)["pieces"]
    assert (piece["path"], piece["frames"], piece["drawn_frames"]) == ("o.mid", 32, 4)
    assert piece["particles"] == 9
    assert 1 <= piece["effective_least"] <= piece["effective_median"] <= 9 + 1e-9
    assert 1 <= piece["effective_after"] <= 9 + 1e-9
    per_frame = call_ok("eval", run, "--data", "o.mid", "--per-frame", "-q").out.splitlines()
    nats = np.array([float(line.split(",")[-1]) for line in per_frame[1:]])
    drawn = np.zeros(32, bool)
    drawn[8:12] = True
    assert piece["nats_per_drawn_frame"] == pytest.approx(nats[drawn].mean(), abs=1e-4)
    assert piece["nats_per_frame_around"] == pytest.approx(nats[~drawn].mean(), abs=1e-4)
    # What is given, without the frames before: the sum of all but what was drawn, about.
    assert -1.5 * nats[8:].sum() < piece["log_given"] < 0


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ("16:20", "what is given, which may be unlike the training data"),
        ("31:32", "the end of the piece"),
    ],
)
def test_what_few_particles_fit_is_said(call, song, struck_run, monkeypatch, part, what):
    monkeypatch.setattr("seqmodel.cli.sample.FEW_PARTICLES", 39.9999)
    options = ("--fill", song, "--notes", "C2:C4", "--particles", 40, "--temperature", 2)
    result = call_ok("sample", "o.mid", "--run", struck_run, *options, "--frames", part)
    said = re.search(r"^at frame (\d+) only \d+\.\d particles fit (.*): try", result.err, re.M)
    assert said is not None
    begin, end = map(int, part.split(":"))
    assert begin <= int(said[1]) <= end  # a note held over from there may be struck
    assert said[2] == what
    assert re.search(r"there, [\d.]+ around; [\d.]+ of 40 particles fit$", result.err, re.M)


@pytest.mark.parametrize("inspected", [False, True])
def test_pictures_have_another_colour_for_what_was_drawn(call, song, run, inspected):
    """Also those of the MIDI file, which knows it by its tracks."""
    options = ("--run", run, "--fill", song, "--bars", "2:2", "--temperature", 9)
    options = (*options, "--particles", 20)
    call_ok("sample", "o.mid" if inspected else "o.png", *options)
    if inspected:
        call_ok("inspect", "o.mid", "--plot", "o.png")
    pixels = np.asarray(Image.open("o.png").convert("RGB")).astype(int)
    middle = pixels.shape[1] // 2
    warm = (pixels[..., 0] > pixels[..., 2] + 60).sum(0)  # given
    cold = (pixels[..., 2] > pixels[..., 0] + 60).sum(0)  # drawn
    assert warm[:middle].sum() > 500
    assert cold[middle:].sum() > 500
    assert warm[middle + 50 :].sum() == cold[: middle - 50].sum() == 0


def test_more_particles_than_memory_are_refused(song, run, monkeypatch):
    monkeypatch.setattr("seqmodel.sampling.filling.available_memory", lambda: 10**6)
    command = ("sample", "o.mid", "--run", run, "--fill", song, "--below", "--particles", 10**5)
    says = "100,000 particles of 32 frames do not fit in memory: use at most"
    call_refused(*command, says=says, status=2)
    assert not Path("o.mid").exists()


@pytest.mark.parametrize(("key", "semitones"), [("Eb", 6), ("e", -5)])
def test_music_is_written_in_a_key(call, song, run, key, semitones):
    """The nearest way; what was given goes along."""
    options = ("--run", run, "--fill", song, "--time", "5:", "--notes", "C3:B3", "--flat")
    options = (*options, "--particles", 20)
    call_ok("sample", "as-is.mid", *options)
    call_ok("sample", "moved.mid", *options, "--key", key)
    moved = {(on, off, pitch + semitones) for on, off, pitch in notes_of(Path("as-is.mid"))}
    assert notes_of(Path("moved.mid")) == moved
    given, drawn = mido.MidiFile("moved.mid").tracks
    for track, velocity in ((given, 70), (drawn, 80)):
        assert {m.velocity for m in track if m.type == "note_on"} == {velocity}


def test_accents_are_those_of_the_metre_where_no_notes_show_how_loud_to_be(call, song, run):
    """Which once were those of 4/4; of notes that are neither the highest nor the lowest."""
    options = ("--run", run, "--frames", "12:20", "--sweeps", 0, "--temperature", 99)
    call_ok("sample", "song.npy", *options, "--fill", song)
    quiet = {}
    for metre in ("4/4", "3/4"):
        fill = ("--fill", "song.npy", "--metre", metre, "--force")
        call_ok("sample", "o.mid", *options, *fill)
        quiet[metre] = quietest_by_beat("o.mid")
    accents = {name: [of[beat] - of[beat + 0.25] for beat in (3, 4)] for name, of in quiet.items()}
    assert accents["3/4"][0] == 14 > accents["4/4"][0]  # a downbeat
    assert accents["4/4"][1] == 14 > accents["3/4"][1]
    waltz = [(0, mido.MetaMessage("time_signature", numerator=3, denominator=4))]
    path = save(Path("waltz.mid"), [waltz, notes([(2880, 3360, 60)])])  # after two bars of rest
    prime = ("--prime", path, "--prime-frames", 24, "--include-prime", "--length", 24)
    call_ok("sample", "o.mid", "--run", run, *prime, "--temperature", 99, "--force")
    found = quietest_by_beat("o.mid")
    assert found[9] - found[9.25] > 10 > found[8] - found[8.25]


def quietest_by_beat(path):
    found = {}
    for now, message in timed(mido.MidiFile(path).tracks[-1]):
        if message.type == "note_on":
            found[now / 480] = min(found.get(now / 480, 127), message.velocity)
    return found


# ---- the file that is kept -----------------------------------------------------------------------


@pytest.fixture
def band(song):
    """The song and three further tracks: a horn off the grid with bends, drums, and lyrics."""
    horn = [
        (0, mido.MetaMessage("track_name", name="Horn")),
        (0, mido.Message("program_change", channel=3, program=60)),
        *note(3, 563, 57, 3, 33),
        (203, mido.Message("pitchwheel", channel=3, pitch=-700)),
        tempo(563, mido.bpm2tempo(100)),
    ]
    drums = notes(((24 * k + 12, 24 * k + 24, 38, 99) for k in range(32)), channel=9)
    lyrics = enumerate(("für", "E", "lise"), 1)
    words = [(96 * k, mido.MetaMessage("lyrics", text=text)) for k, text in lyrics]
    words.append((1287, mido.MetaMessage("marker", text="applause")))
    file = midi([horn, drums, words], division=96)
    file.tracks.insert(0, mido.MidiFile(song).tracks[0])
    file.save("band.mid")
    return Path("band.mid")


SONG, HORN, DRUMS, WORDS, DRAWN = range(5)


@pytest.mark.parametrize("which", ["run", "struck_run"])
def test_a_filled_file_is_kept(call, request, band, which):
    """Event for event but for the notes of the bar, in its own key, whatever the run knows."""
    run = request.getfixturevalue(which)
    options = ("--run", run, "--fill", band, "--bars", "2:2", "--temperature", 5, "--sweeps", 0)
    drums = f"{band} has drums, which the run does not replace: they stay\n"
    assert drums in call_ok("sample", "o.mid", *options).err
    before, after = mido.MidiFile(band), mido.MidiFile("o.mid")
    assert (after.type, after.ticks_per_beat, len(after.tracks)) == (1, 96, 5)
    for number in (DRUMS, WORDS):
        assert timed(after.tracks[number]) == timed(before.tracks[number])
    kept = [each for each in timed(before.tracks[SONG]) if each[0] < 384]  # where the bar begins
    assert timed(after.tracks[SONG])[: len(kept)] == kept
    assert after.tracks[DRAWN].name == "drawn"
    call_ok("sample", "o.npy", *options)
    roll = np.load("o.npy") > 0
    drawn = np.zeros_like(roll)
    del after.tracks[DRUMS]
    after.save("pitched.mid")
    for begin, end, pitch in notes_of(Path("pitched.mid")):
        drawn[int(4 * begin + 0.5) : int(4 * end + 0.5), pitch - 21] = True
    np.testing.assert_array_equal(drawn[16:], roll[16:])


@pytest.mark.parametrize("which", ["run", "struck_run"])
def test_a_continued_file_is_kept(call, request, band, which):
    """Up to the primer's end, and nothing after it but what was drawn; or as a whole."""
    run = request.getfixturevalue(which)
    options = ("--run", run, "--prime", band, "--length", 24, "--temperature", 5)
    kept = call_ok("sample", "o.mid", *options, "--prime-frames", 10, "--include-prime")
    alone = call_ok("sample", "alone.mid", *options)
    moved = call_ok("sample", "m.mid", *options, "--include-prime", "--transpose", 3)
    call_ok("sample", "all.mid", *options, "--include-prime")
    for lines, key in (
        (kept.err, ", and is written in its own key\n"),
        (moved.err, ", and is written in the key asked for\n"),
        (alone.err, "\n"),
    ):
        assert (f"its tonic to C as in training{key}" in lines) == (which == "struck_run")
    before, cut, whole = (mido.MidiFile(name) for name in (band, "o.mid", "all.mid"))
    for number, track in enumerate(before.tracks):
        early = [each for each in timed(track) if each[0] < 240]
        assert timed(cut.tracks[number])[: len(early)] == early
        late = timed(cut.tracks[number])[len(early) :]
        assert {message.type for _, message in late} <= {"note_off", "end_of_track"}
        assert timed(whole.tracks[number]) == timed(track)
    for file, begin in ((cut, 240), (whole, 768)):
        notes = [tick for tick, each in timed(file.tracks[DRAWN]) if each.type == "note_on"]
        assert begin <= min(notes) <= max(notes) < begin + 24 * 24


def test_drawn_notes_go_into_a_track(call, band, run):
    """Which has another channel than a track of their own would."""
    options = ("--run", run, "--fill", band, "--bars", "2:2", "--temperature", 5, "--sweeps", 0)
    for number, name in enumerate(("Horn", 2)):
        call_ok("sample", f"{number}.mid", *options, "--into", name)
    after = mido.MidiFile("0.mid")
    assert Path("0.mid").read_bytes() == Path("1.mid").read_bytes()
    assert len(after.tracks) == 4
    assert len([each for each in after.tracks[HORN] if each.type == "note_on"]) > 20
    assert {each.channel for each in after.tracks[HORN] if not each.is_meta} == {3}


def test_a_foreign_file_is_warned_of(call, band, run, monkeypatch):
    """By how many times the nats per frame of valid it has, all but its first frame."""
    call_ok("sample", "o.npy", "--run", run, "--prime", band, "--include-prime", "--length", 1)
    loaded = load_run(run)
    nats = float(loaded.nll(np.load("o.npy")[:-1])[1:].mean())
    valid = min(line["valid_nats_per_frame"] for line in read_metrics(run))
    figures = f"{nats:.1f} nats per frame, compared with {valid:.1f} on valid"
    said = f"band.mid is unlike the training data of {run}: {figures};"
    for times, foreign in ((0.99 * nats / valid, True), (1.01 * nats / valid, False)):
        monkeypatch.setattr("seqmodel.cli.sample.FOREIGN", times)
        for use in (("--prime", band), ("--fill", band, "--frames", "3:4")):
            result = call_ok("sample", "o.mid", "--run", run, *use, "--force")
            assert (said in result.err) == foreign
    monkeypatch.setattr("seqmodel.cli.sample.JUDGED", 9)
    monkeypatch.setattr("seqmodel.media.music.sampling.MANY_FRAMES", 30)
    monkeypatch.setattr("seqmodel.cli.sample.FOREIGN", 0)
    nats = float(loaded.nll(np.load("o.npy")[:9])[1:].mean())
    said = call_ok("sample", "o.mid", "--run", run, "--prime", band, "--force").err
    assert said.startswith("band.mid: reading its 32 frames may take minutes\n")
    assert f"band.mid is unlike the training data of {run}: {nats:.1f} nats per frame" in said
