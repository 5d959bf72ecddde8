"""Composes the sample music: short chorales for four voices, by rule and by chance.

    python sample_data/make_music.py [FOLDER [PIECES]]

writes FOLDER/music/{train,valid,test}/NNN.mid (FOLDER: this one), PIECES of them to train on (100).
No tune in it is anybody's: the grammar in harmony.py chooses the chords, a search finds four voices
that obey the rules of part-writing, and passing notes, neighbours and suspensions set them in
motion. A piece's only seed is its own name, so every run writes the same bytes, and adding pieces
leaves the others unchanged.
"""

import sys
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, combinations, pairwise, product
from pathlib import Path
from random import Random
from typing import NamedTuple

from harmony import (
    ALTERED,
    CADENCES,
    FORMS,
    KEYS,
    OMITS_FIFTH,
    OPENINGS,
    RHYTHMS,
    SCALE,
    STRONG,
    Chord,
    followers,
    read_chord,
)
from mido import Message, MetaMessage, MidiFile, MidiTrack, bpm2tempo

SPLITS = {"train": 100, "valid": 20, "test": 20}

# ---- Voices -------------------------------------------------------------------------------------
VOICES = ("soprano", "alto", "tenor", "bass")
RANGES = ((60, 79), (55, 74), (48, 67), (40, 62))  # C4-G5, G3-D5, C3-G4, E2-D4
SPACING = (12, 12, 19)  # the widest gap from each voice down to the next
LEAPS = (9, 5, 5, 12)  # the widest leap of each voice
UNSINGABLE = (6, 10, 11)  # leaps of a tritone or a seventh
MELODY = (4, 0, 0, 1, 1, 4, 99, 7, 12, 12)  # the soprano's cost of moving by so many semitones
PERFECT, CONSONANT = (0, 7), (0, 3, 4, 5, 7, 8, 9)
BEAM = 48  # partial settings kept at each chord
PASS, NEIGHBOUR, SUSPEND = 0.7, 0.1, 0.5  # how often each is used where possible
DIVISION, VELOCITY = 480, 72

Voicing = tuple[int, ...]  # four MIDI pitches, soprano first
Grid = list[list[int]]  # a voicing for every eighth
Place = tuple[int, int]  # an eighth and a voice


class Step(NamedTuple):
    chord: Chord
    beats: int
    place: float  # within its phrase, 0 to 1
    echo: int | None  # the earlier step whose notes are repeated here


class DeadEndError(Exception):
    """No way to continue: begin the piece again."""


def compose(name: str) -> MidiFile:
    rng = Random(name)
    signature, home, shift = rng.choice(KEYS)
    bar = rng.choice((4, 4, 3))
    form = rng.choice(FORMS)
    tempo = rng.choice(range(66, 97, 2))
    while True:
        try:
            steps = plan(rng, home, bar, form)
            setting = lead_voices(rng, steps, shift)
            break
        except DeadEndError:
            continue
    grid, struck = ornament(rng, steps, setting)
    head = [
        MetaMessage("time_signature", numerator=bar, denominator=4),
        MetaMessage("key_signature", key=signature),
        MetaMessage("set_tempo", tempo=bpm2tempo(tempo)),
    ]
    return write(head, [[pitch + shift for pitch in pitches] for pitches in grid], struck)


# ---- From the form to a chord progression -------------------------------------------------------
def plan(rng: Random, home: str, bar: int, form: str) -> list[Step]:
    steps: list[Step] = []
    begun: dict[str, tuple[int, list[int], list[str]]] = {}  # theme: first step, rhythm, opening
    for theme, cadence in (phrase.split() for phrase in form.split(", ")):
        repeats = theme in begun
        if not repeats:
            rhythm = [int(beats) for beats in rng.choice(RHYTHMS[bar]).replace(" ", "")]
            openings = OPENINGS[home].split()
            begun[theme] = (len(steps), rhythm, [rng.choice(openings) if steps else openings[0]])
        first, rhythm, opening = begun[theme]
        names = harmonize(rng, home, bar, rhythm, opening, CADENCES[home][cadence])
        for i, (name, beats) in enumerate(zip(names, rhythm, strict=True)):
            echo = first + i if repeats and i < len(opening) else None
            steps.append(Step(read_chord(name, home), beats, i / (len(names) - 1), echo))
        begun[theme] = (first, rhythm, names[: (len(names) - 1) // 2])
    return [*steps[:-1], steps[-1]._replace(beats=steps[-1].beats + bar)]


def harmonize(
    rng: Random, home: str, bar: int, rhythm: list[int], opening: list[str], cadences: list[str]
) -> list[str]:
    """Walk through the grammar from the opening until a cadence fits in the remaining time."""
    for _ in range(100):
        names, cadence = list(opening), rng.choice(cadences).split()
        while len(names) < len(rhythm) - len(cadence):
            names.append(rng.choice(followers(names[-1], home)))
        joins = cadence[0] in followers(names[-1], home)
        names += cadence
        # a six-four chord leans on its dominant, so it takes the stronger beat
        leans = [sum(rhythm[:i]) % bar for i, name in enumerate(names) if name.endswith("64")]
        if joins and all(beat in STRONG[bar] for beat in leans):
            return names
    raise DeadEndError


# ---- From chords to four voices -----------------------------------------------------------------
def lead_voices(rng: Random, steps: list[Step], shift: int) -> list[Voicing]:
    """Beam search for a cheap path through the chords; some noise keeps the pieces different."""
    starts = voicings(steps[0].chord, shift)
    paths = [(abs(voicing[0] + shift - 66) + rng.random(), [voicing]) for voicing in starts]
    for before, step in pairwise(steps):
        best: dict[Voicing, tuple[float, list[Voicing]]] = {}
        melody = 66 + 32 * step.place * (1 - step.place) - shift  # the soprano draws an arch
        for cost, path in paths:
            for toll, voicing in moves(path[-1], before.chord, step.chord, shift):
                if step.echo is not None and voicing != path[step.echo]:
                    continue
                if step is steps[-1] and (voicing[0] - voicing[3]) % 12:
                    continue  # the melody ends on the tonic
                total = cost + toll + abs(voicing[0] - melody) / 3 + 2 * rng.random()
                if voicing not in best or total < best[voicing][0]:
                    best[voicing] = (total, [*path, voicing])
        paths = sorted(best.values())[:BEAM]
        if not paths:
            raise DeadEndError
    return paths[0][1]


@cache
def voicings(chord: Chord, shift: int) -> list[Voicing]:
    """Every voicing of the chord that is in range, well spaced, complete and correctly doubled."""
    needed = set(chord.tones) - ({chord.tones[2]} if chord.name in OMITS_FIFTH else set())
    ranges = [range(low - shift, high - shift + 1) for low, high in RANGES]
    found = []
    for voicing in product(*([p for p in pitches if p % 12 in chord.tones] for pitches in ranges)):
        gaps = zip(voicing, voicing[1:], SPACING, strict=False)
        classes = [pitch % 12 for pitch in voicing]
        if (
            classes[3] == chord.tones[0]
            and all(0 < high - low <= widest for high, low, widest in gaps)
            and needed <= set(classes)
            and all(classes.count(tone) == 1 for tone in chord.rising | chord.falling)
        ):
            found.append(voicing)
    return found


@cache
def moves(old: Voicing, here: Chord, there: Chord, shift: int) -> list[tuple[float, Voicing]]:
    """The voicings that may follow, each with the cost of moving there."""
    return [
        (effort(old, new, there), new)
        for new in voicings(there, shift)
        if leads(old, new, here, there)
    ]


def leads(old: Voicing, new: Voicing, here: Chord, there: Chord) -> bool:
    """Whether the rules let four voices go from one chord to the next."""
    lines = list(zip(old, new, strict=True))
    bass, soprano = new[3] - old[3], new[0] - old[0]
    hidden = bass * soprano > 0 and abs(soprano) > 2 and (new[0] - new[3]) % 12 in PERFECT
    crossing = any(new[v] <= old[v + 1] or new[v + 1] >= old[v] for v in range(3))
    # where C gives way to C#, one voice must sing both
    altered = [p for p in old if ALTERED.get(p % 12) in there.tones and p % 12 not in there.tones]
    inflected = any(p in altered and q - p == ALTERED[p % 12] - p % 12 for p, q in lines)
    return (
        not (hidden or crossing)
        and all(sings(p, q, leap, here, there) for (p, q), leap in zip(lines, LEAPS, strict=True))
        and not parallel(old, new)
        and (inflected or not altered)
    )


def sings(p: int, q: int, leap: int, here: Chord, there: Chord) -> bool:
    """Whether one voice may go from p to q."""
    step = q - p
    if p % 12 in here.rising | here.falling:  # it stays while it can, then resolves
        if p % 12 in there.tones:
            return step == 0
        return step == 1 if p % 12 in here.rising else step in (-1, -2)
    augmented = abs(step) == 3 and {p % 12, q % 12} == {5, 8}  # F-G#
    return abs(step) <= leap and abs(step) not in UNSINGABLE and not augmented


def parallel(old: Sequence[int], new: Sequence[int]) -> bool:
    """Whether two voices go from one perfect fifth or octave to another."""
    moving = [(p, q) for p, q in zip(old, new, strict=True) if p != q]
    return any(
        (p - r) % 12 == (q - s) % 12 and (q - s) % 12 in PERFECT
        for (p, q), (r, s) in combinations(moving, 2)
    )


def effort(old: Voicing, new: Voicing, there: Chord) -> float:
    """The cost of a move: the melody prefers steps, the inner voices rest, the bass motion."""
    soprano, alto, tenor, bass = (abs(q - p) for p, q in zip(old, new, strict=True))
    cost = MELODY[soprano] + 0.7 * (alto + tenor) + (bass / 4 if bass else 2)
    classes = [pitch % 12 for pitch in new]
    if len(set(classes)) < len(there.tones):
        cost += 3  # the fifth is missing
    if "6" in there.name and "64" not in there.name:
        cost += 1.5 * (classes.count(there.tones[0]) - 1)  # a doubled third in the bass is heavy
    return cost


# ---- From chords to music -----------------------------------------------------------------------
def ornament(rng: Random, steps: list[Step], setting: list[Voicing]) -> tuple[Grid, set[Place]]:
    """Set the voices in motion; also return where a note is struck again rather than held."""
    grid = [list(v) for step, v in zip(steps, setting, strict=True) for _ in range(2 * step.beats)]
    onsets = [0, *accumulate(2 * step.beats for step in steps)]
    struck = {(t, v) for t in onsets for v in range(4)}
    for i, step in enumerate(steps):
        start, end = onsets[i], onsets[i + 1]
        if step.echo is not None and steps[i + 1].echo is not None:
            source = onsets[step.echo]
            grid[start:end] = [list(pitches) for pitches in grid[source : source + end - start]]
            struck -= {(start, v) for v in range(4) if (source, v) not in struck}
            continue
        if step.place > 0:  # suspensions: a note is held over, clashes, and resolves downwards
            for v in rng.sample(range(3), 3):
                old, new = setting[i - 1][v], setting[i][v]
                prepared = grid[start - 2][v] == grid[start - 1][v] == old
                grates = old - new in (1, 2) and old % 12 not in step.chord.tones
                alone = all((new - other) % 12 for other in setting[i][:3] if other != new)
                if prepared and grates and alone and rng.random() < SUSPEND:
                    times = range(start, start + min(step.beats, 2))
                    if change(grid, times, v, old):
                        struck.remove((start, v))
        if step.place < 1:  # passing notes and neighbours, on a chord's last eighth
            tones = step.chord.tones + steps[i + 1].chord.tones
            for v in rng.sample(range(4), 4):
                p, q = setting[i][v], setting[i + 1][v]
                chance = {0: NEIGHBOUR, 3: PASS, 4: PASS}.get(abs(q - p), 0)
                if grid[end - 2][v] == p and rng.random() < chance:
                    pitch = rng.choice(between(p, q))
                    if ALTERED.get(pitch % 12) not in tones:
                        change(grid, range(end - 1, end), v, pitch)
    return grid, struck


def between(p: int, q: int) -> list[int]:
    """The neighbours of one note, or what fills a third: in the scale if possible."""
    near = [r for r in range(p - 2, p + 3) if r not in (p, q) and abs(r - q) <= 2]
    return [r for r in near if r % 12 in SCALE] or near


def change(grid: Grid, times: range, voice: int, pitch: int) -> bool:
    """Give a voice a pitch at these times, if that leaves the part-writing clean."""
    before = grid[times[0]][voice]
    for t in times:
        grid[t][voice] = pitch
    clean = all(is_clean(grid, t, voice) for t in times)
    for t in times:
        grid[t][voice] = pitch if clean else before
    return clean


def is_clean(grid: Grid, t: int, voice: int) -> bool:
    now = grid[t]
    for other in {0, 1, 2, 3} - {voice}:
        interval = abs(now[voice] - now[other])
        together = t % 2 == 1 and now[other] != grid[t - 1][other]  # two ornaments at once
        if interval == 1 or (together and interval % 12 not in CONSONANT):
            return False
    crossing = any(high <= low for high, low in pairwise(now))
    around = (s for s in (t - 2, t - 1, t + 1, t + 2) if s < len(grid))
    return not crossing and not any(parallel(grid[min(s, t)], grid[max(s, t)]) for s in around)


# ---- From music to MIDI -------------------------------------------------------------------------
def write(head: list[MetaMessage], grid: Grid, struck: set[Place]) -> MidiFile:
    """One track per voice, each on its own channel, so that none cuts off another's note."""
    midi = MidiFile(ticks_per_beat=DIVISION, tracks=[MidiTrack(head)])
    for voice, name in enumerate(VOICES):
        track = MidiTrack([MetaMessage("track_name", name=name)])
        line = [pitches[voice] for pitches in grid]
        begins = [t for t, p in enumerate(line) if (t, voice) in struck or p != line[t - 1]]
        for start, end in pairwise([*begins, len(line)]):
            note = Message("note_on", channel=voice, note=line[start], velocity=VELOCITY)
            track += [note, note.copy(velocity=0, time=(end - start) * DIVISION // 2)]
        midi.tracks.append(track)
    return midi


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    train = {"train": int(sys.argv[2])} if len(sys.argv) > 2 else {}
    for split, pieces in {**SPLITS, **train}.items():
        target = folder / "music" / split
        target.mkdir(parents=True, exist_ok=True)
        for number in range(1, pieces + 1):
            compose(f"{split}/{number:03}").save(target / f"{number:03}.mid")


if __name__ == "__main__":
    main()
