"""What `prepare` prints and writes, and what it and `inspect` tell of music."""

import inspect
import json
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import soundfile
from calling import call_ok, call_refused, only, told, write_piece
from midi_tracks import notes, save, tempo
from mido import Message, MetaMessage
from noise import record

import seqmodel
from seqmodel.cli import prepare as command
from seqmodel.cli.options import options_of, with_media_options
from seqmodel.data.dataset import open_dataset
from seqmodel.media.definitions import Option
from seqmodel.media.music.corpus import load_midi
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.registry import MEDIA

OPTIONS = {
    "music": "--steps-per-beat=4 --step-seconds=1 --restrike=close --drums=drop --transpose-to-c "
    "--onsets --no-onsets --short-notes=keep --pedal=ignore --cache=c",
    "audio": "--rate=8000 --context=20 --frame=10 --levels=mu-law --clip-seconds=1",
}


IN_TIME = (
    "split in time: the first 80% of each recording or piece to train, then 10% to valid and 10% "
    "to test, with gaps; to choose, put files into folders named train, valid and test\n"
)


def but_copies(said):
    """The lines that are not about passages in two splits."""
    return [line for line in said.splitlines() if "or more frames of train" not in line]


def test_prepare_prints_a_summary_in_columns(call, music):
    """Guards counts that can be compared at a glance, and frames of before the pedal."""
    result = call("prepare", music, "-o", "d")
    assert but_copies(result.err) == []
    assert result.out == (
        "d: 88 notes struck or held, 4 steps per beat\n"
        "  train  10 pieces  320 frames  longest 32\n"
        "  valid   3 pieces   96 frames  longest 32\n"
        "  test    2 pieces   64 frames  longest 32\n"
        "  metre: 4/4 assumed for 15 pieces\n"
    )
    values = told("prepare", music, "-o", "e")
    assert values == json.loads(Path("e/manifest.json").read_text())
    assert "pedal" not in values["frame"]


def test_prepare_explains_what_it_skips(call, music):
    """Guards against files that silently vanish from the count; each name stays on one line."""
    shutil.copytree(music, "m")
    for k in range(7):
        Path(f"m/train/bad\n{k}.mid").write_text("x")
    Path("m/gone.mid").symlink_to("/nowhere")
    result = call("prepare", "m", "-o", "d")
    reason = "is not a MIDI file (it does not begin with MThd)"
    assert but_copies(result.err) == [
        "skipped 8 files:",
        "  m/gone.mid: no such file or directory",
        *[f"  m/train/bad\\n{k}.mid: {reason}" for k in range(4)],
        "  ... and 3 more; --json lists all",
    ]
    assert len(json.loads(Path("d/manifest.json").read_text())["skipped"]) == 8
    assert call("prepare", "m", "-o", "d", "--force", "-q").err == ""


def test_a_silent_recording_is_named_and_not_called_repaired(call):
    """An export that failed used to count among the others without a word."""
    for name, sound in (("a", np.zeros(9000)), ("b", np.eye(1, 9000, 8999)[0] / 4)):
        soundfile.write(f"{name}.wav", sound, 8000)
    said = call("prepare", "a.wav", "b.wav", "-o", "d").err
    assert "remarks on 1 file:\n  a.wav: is silent\n" in said


def test_prepare_says_how_many_pieces_no_folder_places(call, music):
    """Guards against a folder of another name, whose pieces go where their hashes say."""
    shutil.copytree(music / "train", "m/train")
    shutil.copytree(music / "valid", "m/VAL")
    shutil.copytree(music / "test", "m/extra")
    (first, *_) = sorted(Path("m/extra").iterdir())
    Path("m/extra/-.mid").touch()  # which is skipped, and so no example
    said = call("prepare", "m", "-o", "d").err
    words = "13 pieces split by folders named train, valid or test; the other 2, such as"
    assert f"{words} {first}, by a hash" in said
    Path("m/extra").rename("m/Testing")
    assert "split by folders" not in call("prepare", "m", "-o", "f").err


def test_prepare_warns_about_odd_splits(call, music):
    """Guards against silence about an empty valid split, or about a piece in two splits."""
    for split in ("train", "test"):
        Path(f"m/{split}").mkdir(parents=True)
        shutil.copy(music / "train" / "0.mid", f"m/{split}")
    twice, empty = but_copies(call("prepare", "m", "-o", "d").err)
    assert twice.startswith("1 piece appears in two splits, such as m/train/0.mid; figures on ")
    assert empty.startswith("no piece is in valid: add files, or put them into folders named train")


def test_one_long_recording_trains_at_once(call):
    """Guards against a batch of one endless row, and against cutting what is short already."""
    record(Path("long.wav"), 60_000, rate=1000)
    result = call("prepare", "long.wav", "-o", "d")
    cut = "cut 1 recording longer than 8 s into clips of 8 s; change it with --clip-seconds\n"
    assert (result.status, result.err) == (0, cut + IN_TIME)
    assert result.out == (
        "d: 1,000 Hz, frames of 10 samples, context 20\n"
        "  train  6 pieces  4,800 frames  48.0 s  longest 800\n"
        "  valid   1 piece    540 frames   5.4 s  longest 540\n"
        "  test   2 pieces    540 frames   5.4 s  longest 400\n"
    )
    assert call("train", "d", "--epochs", 1, "--hidden", 4).status == 0
    record(Path("short/a.wav"), 8000)
    for source, *whole in (("long.wav", "--clip-seconds", 0), ("short",)):
        assert call("prepare", source, "-o", "e", "--force", *whole).err == IN_TIME


@pytest.mark.parametrize(
    ("rate", "remark"),
    [(22_050, ""), (44_100, "at 44,100 Hz training takes 2.8 times as long as at 16,000 Hz; ")],
)
def test_what_a_high_rate_costs_is_said(rate, remark, call):
    """CD-quality recordings, trained on for minutes, give only noise."""
    record(Path("a.wav"), 4 * rate, rate=rate)
    err = call("prepare", "a.wav", "-o", "d").err
    assert err.startswith(remark)
    assert ("--rate 16000 resamples" in err) == bool(remark)
    told = call("prepare", "a.wav", "-o", "e", "--rate", rate)  # as the user wants it
    assert (told.status, "resamples" in told.err) == (0, False)


def test_prepare_reads_paths_globs_and_odd_names(call, music):
    """Guards names with spaces, brackets, accents and bytes that are not UTF-8."""
    odd = b"caf\xe9.mid".decode("utf-8", "surrogateescape")
    names = ["a b.mid", "[x]*?.mid", "überraschung 音.mid", "-dash.mid", odd]
    paths = [f"m/{name}" for name in names]
    Path("m").mkdir()
    for k, path in enumerate(paths):
        shutil.copy(music / "train" / f"{k}.mid", path)
    for given, stdin in (
        (["-"], "".join(f"{path}\n" for path in paths)),
        (["m/*.mid"], ""),
        (paths, ""),
    ):
        call_ok("prepare", *given, "-o", "d", "--force", stdin=stdin)
        assert len(open_dataset("d")["train"]) == len(names)
    call_ok("inspect", "d")


def test_paths_on_stdin_may_end_with_a_zero_byte(call, music):
    """Guards `find -print0 | seqmodel prepare -0 -`: a name may contain a newline."""
    for k, name in enumerate(("a.mid", "b\nc.mid")):
        shutil.copy(music / "train" / f"{k}.mid", name)
    call_ok("prepare", "-", "-0", "-o", "d", stdin="a.mid\0b\nc.mid\0")
    sources = open_dataset("d")["train"].sources
    assert [source.partition("#")[0] for source in sources] == ["a.mid", "b\nc.mid"]
    call_refused("prepare", "-0", "a.mid", "-o", "e", says="-0 needs -", status=2)
    says = "...stdin has lines: leave out -0"
    call_refused("prepare", "-", "-0", "-o", "e", says=says, status=2, stdin="a.mid\nb.mid\n")
    for given in ("MThd\0\0\0\6", "a.mid\0b.mid\0"):  # a file, not a list of files; no -0
        says = "...stdin has NUL bytes: use -0"
        call_refused("prepare", "-", "-o", "e", says=says, status=2, stdin=given)


def test_rolls_that_state_no_grid_say_which_is_assumed(call):
    """Guards against sampled music at double speed, for a grid that nobody chose."""
    Path("rolls").mkdir()
    np.savez("rolls/r.npz", train=np.ones((5, 88), np.uint8), valid=np.ones((5, 88), np.uint8))
    told = "not state the grid: 2 steps per beat assumed; --steps-per-beat sets another"
    for source in ("rolls", "rolls/*.npz", "rolls/r.npz"):
        result = call("prepare", source, "-o", "d", "--force")
        assert result.out.startswith("d: 88 notes, 2 steps per beat\n")
        assert f"rolls/r.npz does {told}" in result.err.splitlines()
    assert f"  rolls/r.npz does {told}\n" in call("inspect", "d").out
    np.save("rolls/s.npy", np.ones((5, 88), np.uint8))
    said = call("prepare", "rolls", "-o", "e").err.splitlines()
    assert f"2 files, such as rolls/r.npz, do {told}" in said
    result = call("prepare", "rolls", "-o", "f", "--steps-per-beat", 3)
    assert result.out.startswith("f: 88 notes, 3 steps per beat\n")
    assert "grid" not in result.err


def test_the_published_chorales_are_quarter_notes(call, shared_data):
    """They were taken for eighths, like the other sets; a set is known by its pieces, not name."""
    rolls = shared_data / "music/rolls"
    for name in ("JSB_Chorales", "MuseData", "Piano_midi", "Nottingham"):
        grid = "1 step" if name == "JSB_Chorales" else "2 steps"
        shutil.copy(rolls / f"{name}.mat", "a.mat")
        said = f"  {grid} per beat ({name[:3]}"
        assert call("inspect", "a.mat").out.splitlines()[1].startswith(said)
    shutil.copy(rolls / "JSB_Chorales.mat", "b.mat")
    says = "a.mat has 2 steps per beat and b.mat has 1 step per beat: choose a grid"
    call_refused("prepare", "a.mat", "b.mat", "-o", "e", says=f"...{says}")
    result = call("prepare", "b.mat", "-o", "e", "--steps-per-beat", 4)
    assert result.out.startswith("e: 88 notes, 4 steps per beat\n")
    read = "b.mat has 1 step per beat (JSB chorales), read as 4 steps per beat"
    assert but_copies(result.err) == [read]


@pytest.mark.parametrize("media", OPTIONS)
def test_options_of_the_other_medium_are_refused(media):
    """Guards against an option that is accepted but has no effect."""
    write_piece(Path("music/0.mid"), 1)
    record(Path("audio/0.wav"), 8000)
    (other,) = OPTIONS.keys() - {media}
    for option in OPTIONS[media].split():
        says = f"{option.partition('=')[0]} is for {media}, and {other}/... is {other}"
        call_refused("prepare", other, "-o", "d", option, says=says, status=2)
        call_ok("prepare", media, "-o", "d", "--force", option)


def test_media_may_have_options_of_one_name():
    """Guards against commands with two parameters of that name, and media that refuse their own."""

    def rows(medium):
        return (Option("rate", f"That of {medium.name}.", int),)

    taking = with_media_options(rows)(lambda **given: None)
    assert [*inspect.signature(taking).parameters] == ["rate"]
    for medium in MEDIA.values():
        assert options_of(medium, {"rate": 3}, rows, "") == {"rate": 3}


def test_an_interrupted_prepare_says_how_it_goes_on(call, music, monkeypatch):
    """Not of few files, which are soon read again; SIGTERM ends it as Ctrl-C does."""
    ended = "seqmodel: ended by SIGTERM; nothing half-written is left\n"
    for error, status, after in ((KeyboardInterrupt, 130, ""), (SystemExit(143), 143, ended)):
        monkeypatch.setattr("seqmodel.data.prepare.prepare", Mock(side_effect=error))
        for many, options, said in (
            (1000, [], ""),
            (10, [], "with --cache FOLDER, prepare resumes where it was interrupted\n"),
            (1000, ["--cache", "c"], "run the same command to resume: c has what was read\n"),
        ):
            monkeypatch.setattr(command, "MANY_FILES", many)
            result = call("prepare", music, "-o", "d", *options)
            assert (result.status, result.out, result.err) == (status, "", said + after)


@pytest.mark.parametrize(
    ("name", "grid", "mixes"),
    [
        ("run", {"steps_per_beat": 4}, True),
        ("seconds_run", {"step_nanoseconds": 100_000_000}, False),
    ],
)
def test_a_sampled_roll_keeps_its_grid(call, music, name, grid, mixes, request):
    """Sampled on four steps per beat or 0.1 s, it was prepared again as eighths."""
    Path("in").mkdir()
    folder = request.getfixturevalue(name)
    call_ok("sample", "in/o.npy", "--run", folder, "--length", 40, "--seed", 1)
    call_ok("prepare", "in", "-o", "d", "--split-by", "piece")
    manifest = open_dataset("d").manifest
    assert (manifest["frame"]["grid"], "grid_remarks" in manifest) == (grid, False)
    assert np.array_equal(np.load("in/o.npy"), np.load("in/o.npy", mmap_mode="r"))
    theirs = Path("in/o.npy").read_bytes().replace(b"steps_per_beat", b"somebody_elses")
    Path("theirs.npy").write_bytes(theirs.replace(b"step_nanoseconds", b"of_somebody_else"))
    assert call("inspect", "theirs.npy").status == 0
    assert call("prepare", "in", music, "-o", "e").status == (0 if mixes else 1)


SWING = [round(480 * (beat + place)) for beat in range(8) for place in (0, 2 / 3)]
OFF_GRID = (
    "50.0% of onsets lie on the grid (4 steps per beat), the others 42 ms off on average; 50.0% "
    "are triplets; try --steps-per-beat 12"
)


def write_band(path, *, drums_only=False):
    """A swinging bass, louder and louder, over drums on every beat, faster at the end."""
    head = [(0, MetaMessage("key_signature", key="Bb")), tempo(0, 500_000), tempo(3840, 400_000)]
    head.append((0, MetaMessage("time_signature", numerator=3, denominator=4)))
    bass = [(0, MetaMessage("track_name", name="Bass")), (0, Message("program_change", program=32))]
    bass.append((0, Message("control_change", control=64, value=127)))
    bass += notes([(tick, tick + 120, 40 + k, 30 + k) for k, tick in enumerate(SWING)])
    drums = notes([(480 * k, 480 * k + 120, 36) for k in range(8)], channel=9)
    save(path, [head, drums] if drums_only else [head, bass, drums])


def test_prepare_and_inspect_tell_what_is_lost(call):
    for split in ("train", "valid"):
        Path("m", split).mkdir(parents=True)
        write_band(Path("m", split, "band.mid"))
    lost = ["velocities (30 to 64; --velocity)", "2 tempo changes (120 to 150 bpm)"]
    lost += ["key signatures (Bb)", "parts (up to 2 in a piece; --tracks)"]
    lost += ["instruments (1 program)", "drums (16 notes; --drums keep)"]
    said = call("prepare", "m", "-o", "d").err.splitlines()
    pedal, *rest = [each for each in said if not re.search("two splits|of train", each)]
    assert pedal.startswith("the sustain pedal lengthens 30 of 32 notes (93.9% of the sound); ")
    assert rest == [OFF_GRID, f"not kept: {', '.join(lost)}"]
    manifest = Path("d/manifest.json").read_bytes()
    values = json.loads(manifest)
    assert values["not_kept"] == lost
    assert values["timing"]["suggestion"] == "--steps-per-beat 12"
    shown = call("inspect", "d").out.splitlines()
    assert {f"  {OFF_GRID}", f"  not kept: {', '.join(lost)}"} <= set(shown)
    call_ok("prepare", "m", "-o", "d", "--force")
    assert Path("d/manifest.json").read_bytes() == manifest
    said = call("prepare", "m", "-o", "e", "--steps-per-beat", 12, "--drums", "keep").err
    lost[-1] = "which notes are drums (16; --tracks)"
    assert f"not kept: {', '.join(lost)}" in said.splitlines()
    for name in ("flute", "drums"):
        said = call("prepare", "m", "-o", name, "--drums", "keep", "--parts", name).err
        assert "which notes are drums" not in said


def test_a_tempo_is_told_without_an_exponent(call):
    save(Path("fast.mid"), [[tempo(0, 1), tempo(480, 500_000), *notes([(0, 960, 60)])]])
    assert " at 120 to 60,000,000 bpm, " in call("inspect", "fast.mid").out


def test_inspect_describes_a_song(call):
    write_band(Path("band.mid"))
    shown = call("inspect", "band.mid")
    assert (shown.status, shown.err) == (0, "")
    tonic = told("inspect", "band.mid")["tonic"]
    assert shown.out == (
        "band.mid: MIDI format 1, 3 tracks\n"
        "  24 notes from E2 to G3, 8 of them drums, velocities 30 to 64, pedal pressed 1 time, "
        "93.9% of the sound\n"
        '    track 2 "Bass": program 33 (bass), 16 notes\n'
        "    track 3: drums, 8 notes\n"
        "  4.0 s at 120 to 150 bpm, 1 tempo change, in 3/4\n"
        f"  tonic {tonic} (estimated), key signature Bb\n"
        "  32 frames at 4 steps per beat, 8.25 notes per frame\n"
        f"  {OFF_GRID}\n"
    )


def test_advice_can_be_followed_where_it_is_given(run):
    """Guards against options that `sample` and `eval` lack: there the run decides."""
    write_band(Path("drums.mid"), drums_only=True)
    assert call_ok("inspect", "drums.mid").out.splitlines()[1].startswith("  8 hits")
    for grid, frames in ((), 29), (("--step-seconds", "0.05"), 73):
        options = ("--drums", "keep", *grid, "--listen", "o.wav", "--plot", "o.png")
        values = told("inspect", "drums.mid", *options, "--force")
        assert (values["frames"], values["drum_notes"]) == (frames, 8)
    write_band(Path("smpte.mid"))
    data = bytearray(Path("smpte.mid").read_bytes())
    data[12:14] = 256 - 25, 40
    Path("smpte.mid").write_bytes(data)
    call_ok("inspect", "smpte.mid", "--step-seconds", "0.1")
    for name, more, why, option in (
        ("drums.mid", ("--drums", "drop"), "has no notes but drums", "--drums only"),
        ("smpte.mid", (), "is in SMPTE time, which has no beats", "--step-seconds"),
    ):
        call_refused("inspect", name, *more, says=f"{name}: {why}; use {option}")
        advice = f"{name}: {why}; use a run of data prepared with {option}"
        for words, what in (
            (("sample", "o.mid", "--run", run, "--prime", name), "--prime "),
            (("sample", "o.mid", "--run", run, "--fill", name, "--below"), "--fill "),
            (("eval", run, "--data", name), ""),
        ):
            call_refused(*words, says=f"{what}{advice}")


# ---- the sustain pedal ---------------------------------------------------------------------------

LENGTHENS = (
    "the sustain pedal lengthens 1 of 2 notes (50.0% of the sound); --pedal ignore leaves that out"
)
KEYS, SOUND = 2, 8
"""The frames of the first note by its key, and by the pedal."""


@pytest.fixture
def pedalled(here):
    """C4 for half a beat, held by the pedal for a beat and a half more; then E4 for two beats."""
    pedal = [(at, Message("control_change", control=64, value=v)) for at, v in ((0, 127), (960, 0))]
    return save(here / "m/train/a.mid", [[*pedal, *notes([(0, 240, 60), (960, 1440, 64)])]])


@pytest.mark.parametrize(
    ("options", "frames"),
    [
        ([], SOUND),
        (["--pedal=ignore"], KEYS),
        (["--no-onsets"], KEYS),
        (["--restrike=discard"], KEYS),
        (["--restrike=discard", "--no-onsets", "--pedal=extend"], SOUND),
    ],
)
def test_when_the_pedal_lengthens_notes(call, pedalled, options, frames):
    """Guards the published rolls, which do without, and strikes of what the pedal holds."""
    told = call("prepare", "m", "-o", "d", *options).err
    assert only("d")[:, 60 - 21].sum() == frames
    longer = frames == SOUND
    frame = seqmodel.open_dataset("d").frame
    assert (LENGTHENS in told.splitlines(), frame.pedal) == (longer, longer)
    assert ("pedal (pressed 1 time)" in told) is not longer
    assert (f"  {LENGTHENS}\n" in call("inspect", "d").out) is longer
    manifest = json.loads(Path("d/manifest.json").read_text())
    assert manifest["frame"].get("pedal", False) is longer
    assert manifest["notes"].get("lengthened", 0) == longer


@pytest.mark.parametrize(("options", "frames"), [([], KEYS), (["--pedal=extend"], SOUND)])
def test_files_among_rolls_are_read_as_those_are(pedalled, options, frames):
    np.save("m/train/a.npy", np.ones((3, 88), np.uint8))
    call_ok("prepare", "m", "-o", "d", "--steps-per-beat=4", *options)
    totals = [int(piece[:, 60 - 21].sum()) for piece in seqmodel.open_dataset("d")["train"]]
    assert sorted(totals) == sorted([frames, 3])


def test_a_run_reads_files_with_its_datas_pedal(pedalled):
    """The same file has the same content, and so the same split, whatever is heard of it."""
    held = PianoRollFrames(Grid.of_beats(4), onsets=True, pedal=True)
    for frame, length in ((held, SOUND), (PianoRollFrames(Grid.of_beats(4), onsets=True), KEYS)):
        assert PianoRollFrames.from_json(frame.to_json()) == frame
        assert ("pedal" in frame.to_json()) == frame.pedal
        piece = load_midi(pedalled, frame)
        assert piece.frames[:, 60 - 21].sum() == length
        assert piece.content_hash == load_midi(pedalled, held).content_hash
    assert frame.differences(held) == [
        "without notes held by the pedal, not with notes held by the pedal"
    ]


def test_music_without_a_pedal_agrees_with_a_run_on_music_with_one(pedalled, music):
    """But not if its pedals were ignored: there notes are shorter."""
    shutil.copytree(music, "m", dirs_exist_ok=True)
    call_ok("prepare", "m", "--out", "d")
    call_ok("train", "d", "--hidden", 4, "--epochs", 1, "--no-end", "--run", "r")
    call_ok("prepare", music, "--out", "none")
    call_ok("prepare", "m", "--pedal=ignore", "--out", "ignored")
    assert call_ok("eval", "r", "--data", "none").err == ""
    assert "(without notes held by the pedal" in call_ok("eval", "r", "--data", "ignored").err


# ---- notes that round to no frame, or repeat a sounding one --------------------------------------

REPEATED = (
    "merged 3 of 5 notes that follow one of their pitch without a gap; prepare --onsets keeps them "
    "apart"
)
IN_ONE_FRAME = (
    "merged 1 of 5 notes that begin in the same frame as another of their pitch; a finer grid "
    "keeps them apart"
)
SHORT = (
    "dropped 3 of 5 notes that fill no frame; prepare --short-notes keep, or a finer grid, keeps "
    "them"
)


@pytest.fixture
def short(here):
    """Five notes of one pitch, 10 ticks to a frame: the second short and right after the first, the
    next two within one frame. Two tracks have them, which makes no more."""
    track = notes([(*on, 60) for on in ((0, 10), (10, 13), (20, 22), (22, 24), (40, 60))])
    return save(here / "short.mid", [track, track], division=40)


@pytest.mark.parametrize(
    ("options", "states", "line"),
    [
        ("", [1, 1, 1, 0, 1, 2], IN_ONE_FRAME),
        ("--no-onsets", [1, 1, 1, 0, 1, 1], REPEATED),
        ("--no-onsets --short-notes drop", [1, 0, 0, 0, 1, 1], SHORT),
        ("--no-onsets --restrike discard", [1, 0, 0, 0, 1, 1], SHORT),
        ("--no-onsets --restrike discard --short-notes keep", [1, 1, 1, 0, 1, 1], REPEATED),
    ],
)
def test_prepare_counts_notes_that_do_not_show(call, short, options, states, line):
    options = ("--split-by", "piece", "--json", *options.split())
    result = call_ok("prepare", short, "-o", "d", *options)
    assert line in result.err.splitlines()
    manifest = json.loads(result.out)
    merged, dropped = {IN_ONE_FRAME: (1, 0), REPEATED: (3, 0), SHORT: (0, 3)}[line]
    assert manifest["notes"] == {"read": 5, "dropped": dropped, "merged": merged}
    assert manifest["frame"].get("short_notes", False) is (line != SHORT)
    frames = only("d")
    key = frames[:, 60 - 21] if frames.shape[1] == 88 else 2 * frames[:, 39] - frames[:, 88 + 39]
    assert key.tolist() == states
    assert f"  {line}\n" in call("inspect", "d").out


@pytest.mark.parametrize("keep", [True, False])
def test_a_run_reads_short_notes_as_its_data_were_read(short, here, keep):
    """Guards runs and datasets of before the rule, whose definition lacks it."""
    music, frame = MEDIA["music"], PianoRollFrames(Grid.of_beats(4), short_notes=keep)
    assert ("short_notes" in frame.to_json()) is keep
    again = music.frame_from_json(frame.to_json())
    assert again == frame
    assert again.differences(PianoRollFrames(Grid.of_beats(4))) == []
    (work,) = music.corpus(music.settings_like(again), [short], here).works(short)
    assert work.frames == 6
    (rows,) = work.rows(0, work.frames)
    assert again.decode(rows)[:, 60 - 21].tolist() == [1, keep, keep, 0, 1, 1]


def test_published_rolls_keep_their_rule(here, shared_data):
    """Guards files that a run trained on the rolls continues: they are read as the rolls were."""
    np.save(here / "a.npy", np.ones((3, 88), np.uint8))
    for k, source in enumerate((shared_data / "music/rolls/JSB_Chorales.mat", here / "a.npy")):
        call_ok("prepare", source, "-o", f"d{k}")
        assert seqmodel.open_dataset(f"d{k}").frame.short_notes is bool(k)
