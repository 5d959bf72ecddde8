"""What `prepare` and `inspect` tell of a grid, of what is lost and of how notes are read."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from calling import call_ok, call_refused, only, told
from midi_tracks import notes, save, tempo
from mido import Message, MetaMessage

import seqmodel
from seqmodel.media.music.corpus import load_midi
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.registry import MEDIA

SWING = [round(480 * (beat + place)) for beat in range(8) for place in (0, 2 / 3)]
OFF_GRID = (
    "50.0% of onsets lie on the grid (4 steps per beat), the others 42 ms off on average; 50.0% "
    "are triplets: try --steps-per-beat 12"
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
    lost = ["velocities (30 to 64)", "2 tempo changes (120 to 150 bpm)", "key signatures (Bb)"]
    lost += ["parts (up to 2 in a piece)", "instruments (1 program)"]
    lost += ["drums (16 notes; --drums keep)"]
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
    assert f"not kept: {', '.join(lost[:-1])}" in said.splitlines()


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
        for command, what in (
            (("sample", "o.mid", "--run", run, "--prime", name), "--prime "),
            (("sample", "o.mid", "--run", run, "--fill", name, "--below"), "--fill "),
            (("eval", run, "--data", name), f"cannot score with {run}: "),
        ):
            call_refused(*command, says=f"{what}{advice}")


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
    "3 of 5 notes follow one of their pitch without a gap and join it; prepare --onsets "
    "keeps them apart"
)
IN_ONE_FRAME = (
    "1 of 5 notes begin in the same frame as another of their pitch; a finer grid keeps them apart"
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


def test_a_beat_of_staccato_is_heard(shared_data):
    """96 staccato eighths, a tenth of a beat each, once made a dataset without a note."""
    call_ok("prepare", shared_data / "music/real/stacc.mid", "--split-by", "piece", "-o", "d")
    assert only("d")[:, 88:].sum() == 96
    assert json.loads(Path("d/manifest.json").read_text())["notes"]["merged"] == 0
