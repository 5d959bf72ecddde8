"""`sample --fill`: music around what is given, from the command line."""

import json
import re
from pathlib import Path

import mido
import numpy as np
import pytest
from calling import Call, call_ok
from PIL import Image

MODEL = ("--model", "tied", "--hidden", 4, "--note-hidden", 3, "--epochs", 1)


@pytest.fixture(scope="module")
def struck_run(shared: Path, music: Path) -> Path:
    """A run with onsets, transposed to C, that models ends."""
    call_ok("prepare", music, "-o", shared / "c-struck", "--transpose-to-c")
    call_ok("train", shared / "c-struck", *MODEL, "--end", "--run", shared / "c-run", "-q")
    return shared / "c-run"


@pytest.fixture
def song(here: Path) -> Path:
    """Two bars at 80 bpm: a melody in A that repeats notes, over a held bass."""
    track = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=mido.bpm2tempo(80))])
    track.append(mido.Message("note_on", note=45, velocity=70))
    for pitch in (69, 69, 71, 73, 73, 76, 74, 73):
        track.append(mido.Message("note_on", note=pitch, velocity=70))
        track.append(mido.Message("note_off", note=pitch, time=96))
    track.append(mido.Message("note_off", note=45))
    mido.MidiFile(type=0, ticks_per_beat=96, tracks=[track]).save(here / "song.mid")
    return Path("song.mid")


def notes_of(path: Path) -> set[tuple[float, float, int]]:
    """(Begin, end in beats, pitch) of a file's notes, as mido reads it."""
    file, now, open_notes, found = mido.MidiFile(path), 0, {}, set()
    for message in mido.merge_tracks(file.tracks):
        now += message.time
        if message.type not in ("note_on", "note_off"):
            continue
        key = message.channel, message.note
        if message.type == "note_on" and message.velocity:
            open_notes[key] = now
        elif key in open_notes:
            begin = open_notes.pop(key)
            if now > begin:
                found.add((begin / file.ticks_per_beat, now / file.ticks_per_beat, message.note))
    return found


@pytest.mark.parametrize("which", ["run", "struck_run"])
def test_a_melody_is_harmonised_and_stays(
    call: Call, request: pytest.FixtureRequest, song: Path, which: str
):
    """Note for note, in its key and tempo, also where a run knows nothing of strikes."""
    run = request.getfixturevalue(which)
    said = call_ok("sample", "out.mid", "--run", run, "--fill", song, "--below", "--temperature", 9)
    assert f"out.mid: 32 frames from {run}, 32 of them drawn\n" in said.err
    ours, theirs = notes_of(Path("out.mid")), notes_of(song)
    melody = {note for note in theirs if note[2] > 45}
    assert melody <= ours
    assert len(ours) > len(melody) + 10
    for begin, _, pitch in ours - melody:
        (sung,) = {top for start, end, top in melody if start <= begin < end}
        assert pitch < sung
    tempos = [m.tempo for m in mido.MidiFile("out.mid").tracks[0] if m.type == "set_tempo"]
    assert tempos == [mido.bpm2tempo(80)]
    in_c = "song.mid was transposed by +3 semitones, its tonic to C as in training"
    assert (in_c in said.err) == (which == "struck_run")


def test_a_bar_is_drawn_anew_between_others(call: Call, song: Path, run: Path):
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


def test_it_tells_how_well_it_fits(call: Call, song: Path, run: Path):
    told = json.loads(
        call_ok(
            "sample", "o.mid", "--run", run, "--fill", song, "--frames", "8:12", "--sweeps", 0,
            "--particles", 9, "--json",
        ).out
    )  # fmt: skip
    (piece,) = told["pieces"]
    assert (piece["path"], piece["frames"], piece["drawn_frames"]) == ("o.mid", 32, 4)
    assert piece["particles"] == 9
    assert 1 <= piece["effective_least"] <= piece["effective_median"] <= 9 + 1e-9
    assert 1 <= piece["effective_after"] <= 9 + 1e-9
    call_ok("prepare", "o.mid", "-o", "o", "--split-by", "piece", "-q")
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
def test_what_few_particles_fit_is_said(
    call: Call, song: Path, struck_run: Path, monkeypatch: pytest.MonkeyPatch, part: str, what: str
):
    monkeypatch.setattr("seqmodel.cli.sample.FEW_PARTICLES", 39.9999)
    options = ("--fill", song, "--notes", "C2:C4", "--particles", 40, "--temperature", 2)
    told = call_ok("sample", "o.mid", "--run", struck_run, *options, "--frames", part)
    said = re.search(r"^at frame (\d+) only \d+\.\d particles fit (.*): try", told.err, re.M)
    assert said is not None
    begin, end = map(int, part.split(":"))
    assert begin <= int(said[1]) <= end  # a note held over from there may be struck
    assert said[2] == what


@pytest.mark.parametrize("inspected", [False, True])
def test_pictures_have_another_colour_for_what_was_drawn(
    call: Call, song: Path, run: Path, inspected: bool
):
    """Also those of the MIDI file, which knows it by its tracks."""
    options = ("--run", run, "--fill", song, "--bars", "2:2", "--temperature", 9)
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


def test_more_particles_than_memory_are_refused(call: Call, song: Path, run: Path, monkeypatch):
    monkeypatch.setattr("seqmodel.sampling.filling.available_memory", lambda: 10**6)
    options = ("--fill", song, "--below", "--particles", 10**5)
    result = call("sample", "o.mid", "--run", run, *options)
    assert result.status == 2
    assert result.err.startswith(
        "seqmodel: 100,000 particles of 32 frames do not fit in memory: take at most "
    )
    assert not Path("o.mid").exists()


@pytest.mark.parametrize(("key", "semitones"), [("A", 0), ("Eb", 6), ("e", -5)])
def test_music_is_written_in_a_key(call: Call, song: Path, run: Path, key: str, semitones: int):
    """The nearest way; what was given goes along."""
    options = ("--run", run, "--fill", song, "--time", "5:", "--notes", "C3:B3", "--flat")
    call_ok("sample", "as-is.mid", *options)
    call_ok("sample", "moved.mid", *options, "--key", key)
    moved = {(on, off, pitch + semitones) for on, off, pitch in notes_of(Path("as-is.mid"))}
    assert notes_of(Path("moved.mid")) == moved
    velocities = {m.velocity for m in mido.MidiFile("moved.mid") if m.type == "note_on"}
    assert velocities == {80}


def test_accents_are_those_of_the_files_metre(call: Call, song: Path, run: Path):
    """Which once were those of 4/4; without one it is that usual in train."""
    file = mido.MidiFile(song)
    file.tracks[0].insert(0, mido.MetaMessage("time_signature", numerator=3, denominator=4))
    file.save("waltz.mid")
    options = ("--run", run, "--bars", "2:2", "--sweeps", 0, "--particles", 3, "--notes", "C2:C2")
    loud: dict[str, dict[float, int]] = {}
    for name, metre in (("song", (4, 4)), ("waltz", (3, 4))):
        call_ok("sample", "o.mid", *options, "--fill", f"{name}.mid", "--force")
        now, loud[name] = 0, {}
        merged = mido.merge_tracks(mido.MidiFile("o.mid").tracks)
        for message in merged:
            now += message.time
            if message.type == "note_on" and message.note > 60:
                loud[name][now / 480] = message.velocity
        signatures = [(m.numerator, m.denominator) for m in merged if m.type == "time_signature"]
        assert signatures == [metre]
    assert loud["waltz"][3.0] > loud["song"][3.0]  # a downbeat
    assert loud["waltz"][4.0] < loud["song"][4.0]  # none
