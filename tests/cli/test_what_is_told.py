"""What `prepare` and `inspect` tell of a grid that does not fit and of what is lost; advice that
the command at hand can follow."""

import json
from pathlib import Path

import mido
from calling import call_ok

SWING = [round(480 * (beat + place)) for beat in range(8) for place in (0, 2 / 3)]
OFF_GRID = (
    "50.0% of onsets lie on the grid (4 steps per beat), the others 42 ms off on average; 50.0% "
    "are triplets: try --steps-per-beat 12"
)


def write_band(path, *, drums_only=False):
    """A swinging bass, louder and louder, over drums on every beat, faster at the end."""
    bass = [mido.MetaMessage("track_name", name="Bass"), mido.Message("program_change", program=32)]
    bass.append(mido.Message("control_change", control=64, value=127))
    for k, (tick, before) in enumerate(zip(SWING, [0, *SWING], strict=False)):
        late = tick - before - (120 if k else 0)
        bass.append(mido.Message("note_on", note=40 + k, velocity=30 + k, time=late))
        bass.append(mido.Message("note_off", note=40 + k, time=120))
    drums = []
    for k in range(8):
        drums.append(mido.Message("note_on", note=36, channel=9, velocity=64, time=360 * (k > 0)))
        drums.append(mido.Message("note_off", note=36, channel=9, time=120))
    head = [
        mido.MetaMessage("key_signature", key="Bb"),
        mido.MetaMessage("time_signature", numerator=3, denominator=4),
        mido.MetaMessage("set_tempo", tempo=500_000),
        mido.MetaMessage("set_tempo", tempo=400_000, time=8 * 480),
    ]
    tracks = [head, drums] if drums_only else [head, bass, drums]
    mido.MidiFile(ticks_per_beat=480, tracks=[mido.MidiTrack(t) for t in tracks]).save(path)


def test_prepare_and_inspect_tell_what_is_lost(call):
    for split in ("train", "valid"):
        Path("m", split).mkdir(parents=True)
        write_band(Path("m", split, "band.mid"))
    lost = [
        "velocities (30 to 64)", "2 tempo changes (120 to 150 bpm)",
        "key signatures (Bb)", "parts (up to 2 in a piece)", "instruments (1 program)",
        "drums (16 notes; --drums keep)",
    ]  # fmt: skip
    told = call("prepare", "m", "-o", "d").err.splitlines()
    assert [
        line for line in told if "in two splits" not in line and "in train too" not in line
    ] == [
        "the sustain pedal lengthens 30 of 32 notes (93.9% of the sound); --pedal ignore leaves "
        "that out",
        OFF_GRID,
        f"not kept: {', '.join(lost)}",
    ]
    manifest = Path("d/manifest.json").read_bytes()
    values = json.loads(manifest)
    assert values["not_kept"] == lost
    assert values["timing"]["suggestion"] == "--steps-per-beat 12"
    shown = call("inspect", "d").out.splitlines()
    assert f"  {OFF_GRID}" in shown
    assert f"  not kept: {', '.join(lost)}" in shown
    call_ok("prepare", "m", "-o", "d", "--force")
    assert Path("d/manifest.json").read_bytes() == manifest
    told = call("prepare", "m", "-o", "e", "--steps-per-beat", 12, "--drums", "keep").err
    assert f"not kept: {', '.join(lost[:-1])}" in told.splitlines()


def test_inspect_describes_a_song(call):
    write_band(Path("band.mid"))
    shown = call("inspect", "band.mid")
    assert (shown.status, shown.err) == (0, "")
    tonic = json.loads(call("inspect", "band.mid", "--json").out)["tonic"]
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


def test_inspect_keeps_drums_and_takes_seconds(call):
    write_band(Path("drums.mid"), drums_only=True)
    shown = call_ok("inspect", "drums.mid").out.splitlines()
    assert shown[1].startswith("  8 hits")  # of a kit, since there is nothing else
    assert call("inspect", "drums.mid", "--drums", "drop").err == (
        "seqmodel: drums.mid: has no notes but drums; use --drums only\n"
    )
    for grid, frames in ((), 29), (("--step-seconds", "0.05"), 73):
        options = ("--drums", "keep", *grid)
        values = json.loads(call_ok("inspect", "drums.mid", *options, "--json").out)
        assert (values["frames"], values["drum_notes"]) == (frames, 8)
        assert values["notes_per_frame"] > 0
        call_ok("inspect", "drums.mid", *options, "--listen", "o.wav", "--plot", "o.png", "--force")


def write_smpte(path):
    write_band(path)
    data = bytearray(path.read_bytes())
    data[12:14] = 256 - 25, 40
    path.write_bytes(data)


def test_advice_can_be_followed_where_it_is_given(call, run):
    """Guards against options that `sample` and `eval` lack: there the run decides."""
    write_band(Path("drums.mid"), drums_only=True)
    write_smpte(Path("smpte.mid"))
    assert call("inspect", "smpte.mid").err == (
        "seqmodel: smpte.mid: is in SMPTE time, which has no beats; use --step-seconds\n"
    )
    call_ok("inspect", "smpte.mid", "--step-seconds", "0.1")
    for name, why, option in (
        ("drums.mid", "has no notes but drums", "--drums only"),
        ("smpte.mid", "is in SMPTE time, which has no beats", "--step-seconds"),
    ):
        advice = f"{name}: {why}; use a run of data prepared with {option}\n"
        for command, what in (
            (("sample", "o.mid", "--prime", name), "--prime "),
            (("sample", "o.mid", "--fill", name, "--below"), "--fill "),
            (("eval", "--data", name), ""),
        ):
            result = call(*command, "--run", run) if command[0] == "sample" else call(
                "eval", run, "--data", name
            )  # fmt: skip
            assert (result.status, result.err) == (1, f"seqmodel: {what}{advice}"), command
