"""What MIDI files hold besides notes on a grid, and what of it is named as not kept."""

import io
from itertools import groupby, pairwise
from pathlib import Path

import mido
import pytest
from midi_files import midi_file, note, sounds_by_mido, tempo

from seqmodel.media.music.contents import Contents, left_out, parts_of
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_score


def by_mido(data: bytes) -> dict[str, object]:
    """What `Contents` finds in one file, message by message."""
    file = mido.MidiFile(file=io.BytesIO(data), clip=True)
    tempos, meters, keys, now = {0: 500_000}, [], [], 0
    for message in mido.merge_tracks(file.tracks):
        now += message.time
        if message.type == "set_tempo":
            tempos[now] = message.tempo
        elif message.type == "time_signature":
            meters.append(f"{message.numerator}/{message.denominator}")
        elif message.type == "key_signature":
            keys.append(message.key)
    velocities, played, programs, drums = [], {}, {}, 0
    for number, track in enumerate(file.tracks):
        for message in track:
            if message.type == "note_on" and message.velocity:
                velocities.append(message.velocity)
                played.setdefault((number, message.channel))
                drums += message.channel == 9
            elif message.type == "program_change":
                programs.setdefault((number, message.channel), []).append(message.program + 1)
    down, presses = set(), 0
    for message in mido.merge_tracks(file.tracks):  # a pedal is a channel's, in whatever track
        if message.type == "control_change" and message.control == 64 and message.channel != 9:
            presses += message.value >= 64 and message.channel not in down
            (down.add if message.value >= 64 else down.discard)(message.channel)
    used = {n for part in played if part[1] != 9 for n in programs.get(part, [1])}
    return {
        "velocities": [min(velocities), max(velocities)],
        "tempo_range_bpm": [round(60e6 / end(tempos.values()), 2) for end in (max, min)],
        "meters": {meter for meter, _ in groupby(meters)},
        "keys": {key for key, _ in groupby(keys)},
        "programs": {str(n) for n in used},
        "parts": len(played),
        "tempo_changes": len(tempos) - 1,
        "drum_notes": drums,
        "pedal": presses,
        **({"pedal_share": pedal_share(data, tempos, file.ticks_per_beat)} if presses else {}),
    }


def pedal_share(data: bytes, tempos: dict[int, int], beat: int) -> float:
    """What the pedal adds to the time that all notes but drums sound, by mido's messages."""

    def seconds(tick: int) -> float:
        changes = [*sorted(t for t in tempos if t < tick), tick]
        return sum((b - a) * tempos[a] for a, b in pairwise(changes)) / (1e6 * beat)

    sounds = [note[:3] for note in sounds_by_mido(data) if note[4] != 9]
    held = sum(seconds(silent) - seconds(off) for _, off, silent in sounds if off < silent)
    return held / sum(seconds(silent) - seconds(on) for on, _, silent in sounds)


def test_what_real_files_hold_agrees_with_mido(shared_data):
    for path in sorted((shared_data / "music/real").glob("*/*.mid"))[::37]:
        contents = Contents(PianoRollFrames(Grid.of_beats(4)))
        contents.add(read_score(path.read_bytes()))
        found, expected = contents.to_json(), by_mido(path.read_bytes())
        for name in ("meters", "keys", "programs"):
            assert set(found[name].values()) <= {1}
            found[name] = set(found[name])
        # A hit that never ends is no note.
        assert found.pop("drum_notes") == pytest.approx(expected.pop("drum_notes"), abs=1)
        share = expected.pop("pedal_share", 0)
        assert found.pop("pedal_share", 0) == pytest.approx(share, abs=6e-5)
        assert found == expected, path


def meta(kind: int, *body: int) -> bytes:
    return bytes([0, 0xFF, kind, len(body), *body])


def program(number: int, channel: int = 0) -> bytes:
    return bytes([0, 0xC0 | channel, number])


PEDAL = b"".join(bytes([0, 0xB0, 64, value]) for value in (10, 64, 100, 0, 127, 0))
SONG = midi_file(
    tempo(0, 500_000) + meta(0x58, 6, 3, 24, 8) + meta(0x59, 0xFD, 1) + meta(0x59, 9, 0)
    + meta(0x58, 4, 9, 24, 8) + tempo(480, 400_000) + meta(0x59, 2, 0),
    meta(0x03, *b" Lead ") + program(73) + note(0, 100) + program(40) + PEDAL + note(0, 100)
    + meta(0x03, *b"Other"),
    program(4, 2) + note(0, 480, channel=2) + note(0, 0, channel=2) + note(0, 60, channel=9),
    note(0, 60, pitch=30, channel=2),
)  # fmt: skip


def test_parts_programs_keys_and_pedal():
    """Guards what real files do not have: two programs of a part, one of another track's channel,
    impossible signatures, half pedalling."""
    score = read_score(SONG)
    assert (score.meters, score.keys, score.pedal) == (((0, 6, 8),), ("Cm", "D"), 2)
    names = ("track", "name", "channel", "programs", "notes")
    assert [tuple(part[name] for name in names) for part in parts_of(score)] == [
        (2, "Lead", 1, [74, 41], 2),
        (3, "", 3, [5], 2),
        (3, "", 10, [], 1),
        (4, "", 3, [5], 1),
    ]


@pytest.mark.parametrize(
    ("frame", "missing"),
    [
        (PianoRollFrames(Grid.of_beats(4)), ""),
        (PianoRollFrames(Grid.of_beats(4), drums=True), "drums"),
        (PianoRollFrames(Grid.of_seconds("0.1")), "tempo"),
    ],
)
def test_what_the_frames_do_not_hold_is_named(frame, missing):
    """Nothing is said of what is the same in all files and what a sampled file has too."""
    contents = Contents(frame)
    contents.add(read_score(midi_file(note(0, 480), meta(0x58, 4, 2, 24, 8) + tempo(0, 500_000))))
    assert left_out(contents.to_json(), frame) == []
    contents.add(read_score(SONG))
    louder = SONG.replace(bytes([0x90, 60, 64]), bytes([0x90, 60, 99]), 1)
    contents.add(read_score(louder))
    assert contents.to_json()["keys"] == {"Cm": 2, "D": 2}
    expected = [
        "velocities (64 to 99)",
        "2 tempo changes (120 to 150 bpm)",
        *["time signatures (6/8 and 4/4)"][: missing == "tempo"],
        "key signatures (Cm and D)",
        "parts (up to 4 in a piece)",
        "instruments (4 programs)",
        "pedal (pressed 4 times)",
        "drums (2 notes; --drums keep)",
    ]
    assert left_out(contents.to_json(), frame) == [
        phrase for phrase in expected if not missing or missing not in phrase
    ]


def test_what_pieces_hold_adds_up():
    """Guards a count that is lost where each piece is counted by itself first, as in `prepare`."""
    paths = sorted((Path(__file__).parents[3] / "sample_data" / "music" / "valid").iterdir())[:4]
    scores = [read_score(path.read_bytes()) for path in paths]
    frame = PianoRollFrames(Grid.of_seconds(6.0))
    whole, merged = Contents(frame), Contents(frame)
    for score in scores:
        alone = Contents(frame)
        alone.add(score)
        merged.update(alone)
        whole.add(score)
    assert vars(merged.timing) == vars(whole.timing)
    assert any(vars(whole.timing)["_merged"].values())
    assert merged.to_json() == whole.to_json()
