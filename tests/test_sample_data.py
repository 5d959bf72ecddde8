"""The sample music, judged from its MIDI files alone, independently of the generator's code."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

import mido
import pytest

ROOM = Path(__file__).resolve().parent.parent / "sample_data"
SPLITS = {"train": 100, "valid": 20, "test": 20}
TONICS = {"C": 0, "G": 7, "F": 5, "D": 2, "Am": 9, "Em": 4, "Dm": 2}
RANGES = {"soprano": (60, 79), "alto": (55, 74), "tenor": (48, 67), "bass": (40, 62)}
EIGHTH = 240  # ticks


@dataclass
class Piece:
    name: str
    key: str
    bar: int  # eighths
    voices: list[list[int]]  # soprano first; the pitch of every eighth
    notes: list[tuple[int, int, int, int]]  # voice, start, end, pitch

    @property
    def chords(self) -> list[tuple[int, ...]]:
        """What sounds at every eighth, transposed so that the tonic has pitch class 0."""
        return [tuple(p - TONICS[self.key] for p in chord) for chord in self.eighths]

    @property
    def eighths(self) -> list[tuple[int, ...]]:
        return list(zip(*self.voices, strict=True))


def read(path: Path) -> Piece:
    head, *tracks = mido.MidiFile(path).tracks
    meta = {message.type: message for message in head}
    voices, notes = [], []
    assert [track.name for track in tracks] == list(RANGES)
    for voice, track in enumerate(tracks):
        line: list[int] = []
        now, sounding = 0, None
        for message in track:
            now += message.time
            if message.type != "note_on":
                continue
            if message.velocity:
                assert sounding is None
                assert now == len(line) * EIGHTH, "a voice rests"
                sounding = message.note
            else:
                assert sounding == message.note
                notes.append((voice, len(line), now // EIGHTH, sounding))
                line += [message.note] * (now // EIGHTH - len(line))
                sounding = None
        voices.append(line)
    bar = 2 * meta["time_signature"].numerator
    name = f"{path.parent.name}/{path.name}"
    return Piece(name, meta["key_signature"].key, bar, voices, notes)


@pytest.fixture(scope="module")
def pieces() -> list[Piece]:
    return [read(path) for path in sorted((ROOM / "music").rglob("*.mid"))]


def test_the_script_writes_what_is_committed(tmp_path: Path) -> None:
    """Guards against a script changed without its music, and unseeded randomness."""
    subprocess.run([sys.executable, ROOM / "make_music.py", tmp_path], check=True)

    def contents(folder: Path) -> dict[str, bytes]:
        paths = (path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}

    assert contents(tmp_path / "music") == contents(ROOM / "music")


def test_enough_pieces_in_little_space() -> None:
    """Guards against a lost split, and a corpus too large for the wheel."""
    paths = list((ROOM / "music").rglob("*.mid"))
    assert {s: sum(path.parent.name == s for path in paths) for s in SPLITS} == SPLITS
    assert len(paths) == sum(SPLITS.values())
    assert sum(path.stat().st_size for path in paths) < 400_000


def test_no_piece_twice(pieces: list[Piece]) -> None:
    """Guards against names that draw the same music, even transposed: valid would not be unseen."""
    assert len({untransposed(piece) for piece in pieces}) == len(pieces)


def untransposed(piece: Piece) -> tuple[tuple[int, ...], ...]:
    return tuple((v, s, e, p - piece.notes[0][3]) for v, s, e, p in piece.notes)


def test_the_pretrained_run_has_seen_nothing_of_valid_or_test(
    pieces: list[Piece], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any key. Guards its figures, which are of valid; sample_data/README.md has the command.

    Every tenth of its pieces tells, since each is drawn by its name alone.
    """
    (count,) = re.findall(r"make_music\.py more (\S+) ", (ROOM / "README.md").read_text())
    monkeypatch.syspath_prepend(ROOM)
    make_music, train = importlib.import_module("make_music"), set[tuple[tuple[int, ...], ...]]()
    for number in range(1, int(count) + 1, 10):
        make_music.compose(f"train/{number:03}").save(path := tmp_path / f"{number:03}.mid")
        train.add(untransposed(read(path)))
    assert len(train) == 100
    others = {untransposed(piece) for piece in pieces if not piece.name.startswith("train")}
    assert not train & others


def test_both_modes_and_both_metres_in_every_split(pieces: list[Piece]) -> None:
    """Guards against a choice that never varies, and a last chord that ends off the bar line."""
    for split in SPLITS:
        mine = [piece for piece in pieces if piece.name.startswith(split)]
        assert {piece.bar for piece in mine} == {6, 8}
        assert {piece.key for piece in mine} == set(TONICS)
    assert [piece.name for piece in pieces if len(piece.voices[0]) % piece.bar] == []


def test_voices_keep_their_ranges_and_their_order(pieces: list[Piece]) -> None:
    """Guards against ranges shifted the wrong way with the key, and ornaments that cross voices."""
    faults = [
        (piece.name, name)
        for piece in pieces
        for (name, (low, high)), line in zip(RANGES.items(), piece.voices, strict=True)
        if not low - 2 <= min(line) <= max(line) <= high + 2  # a neighbour note may exceed it
    ]
    assert faults == []
    crossed = [
        (piece.name, eighth, chord)
        for piece in pieces
        for eighth, chord in enumerate(piece.eighths)
        if any(upper <= lower for upper, lower in pairwise(chord))
    ]
    assert crossed == []


def parallels(chords: list[tuple[int, ...]]) -> Iterator[tuple[int, int, int]]:
    for t, (old, new) in enumerate(pairwise(chords)):
        for v, w in combinations(range(4), 2):
            both_move = old[v] != new[v] and old[w] != new[w]
            before, after = (old[v] - old[w]) % 12, (new[v] - new[w]) % 12
            if both_move and before == after and after in (0, 7):
                yield t, v, w


@pytest.mark.parametrize("eighths", [2, 1], ids=["beats", "eighths"])
def test_no_parallel_fifths_or_octaves(pieces: list[Piece], eighths: int) -> None:
    """Guards the voice-leading search, and ornaments that spoil what it found."""
    faults = [(piece.name, *p) for piece in pieces for p in parallels(piece.eighths[::eighths])]
    assert faults == []


def test_leading_tones_rise_and_sevenths_fall(pieces: list[Piece]) -> None:
    """Guards the arrows of the chord table: from dominant to tonic, 7 goes to 8 and 4 to 3."""
    resolved = 0
    for piece in pieces:
        for old, new in pairwise(piece.chords[::2]):
            before, after = {p % 12 for p in old}, {p % 12 for p in new}
            if {7, 11} <= before <= {7, 11, 2, 5} and after in (
                {0, 3, 7},
                {0, 4, 7},
                {0, 3},
                {0, 4},
            ):
                for p, q in zip(old, new, strict=True):
                    if p % 12 == 11:
                        assert q - p == 1, piece.name
                    if p % 12 == 5:
                        assert q - p in (-1, -2), piece.name
                    resolved += p % 12 in (11, 5)
    assert resolved > 300


def test_every_piece_closes_on_its_tonic(pieces: list[Piece]) -> None:
    """Guards cadences and forms: the end is V-I or IV-I, in root position, tonic in the melody."""
    for piece in pieces:
        last = piece.chords[-1]
        third = 3 if piece.key.endswith("m") else 4
        assert {p % 12 for p in last} - {7} in ({0, third}, {0, 4}), piece.name
        assert last[0] % 12 == last[3] % 12 == 0, piece.name
        held = next(end - start for v, start, end, _ in reversed(piece.notes) if v == 3)
        assert held >= piece.bar, "the last chord is held a bar or longer"
        # a beat before: suspensions and passing notes may hide its third for an eighth of it
        before = piece.chords[-held - 2 : -held]
        degrees = {p % 12 for chord in before for p in chord}
        authentic = before[0][3] % 12 == 7 and 11 in degrees
        plagal = before[0][3] % 12 == 5 and degrees & {8, 9}
        assert authentic or plagal, piece.name


def test_notes_fit_the_key_that_is_named(pieces: list[Piece]) -> None:
    """Guards against a key signature that ignores transposition, and too much chromaticism."""
    major, minor = {0, 2, 4, 5, 7, 9, 11}, {0, 2, 3, 5, 7, 8, 10, 11}
    for piece in pieces:
        scale = minor if piece.key.endswith("m") else major
        pitches = [(p - TONICS[piece.key]) % 12 for *_, p in piece.notes]
        assert sum(p in scale for p in pitches) >= 0.9 * len(pitches), piece.name


def test_melodies_sing(pieces: list[Piece]) -> None:
    """Guards the costs of the search: mostly steps, few repeats, and eighths that move."""
    leaps = [
        abs(q - p)
        for piece in pieces
        for p, q in pairwise(p for voice, *_, p in piece.notes if voice == 0)
    ]
    assert sum(leap in (1, 2) for leap in leaps) > 0.7 * len(leaps)
    assert sum(leap == 0 for leap in leaps) < 0.2 * len(leaps)
    short = [end - start == 1 for piece in pieces for _, start, end, _ in piece.notes]
    assert 0.1 < sum(short) / len(short) < 0.5
