"""Parts of music: which part each note of a MIDI file belongs to.

The names of tracks and instruments decide, `part_of`. Where they do not, and usual roles are among
the names of the parts, the words that tracks of each role are called by decide; then how a part
sounds beside the others of its file, `_by_sound`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.errors import UsageError
from seqmodel.media.music.grid import DRAWN, DRUM_CHANNEL
from seqmodel.media.music.midi import Score

PROGRAMS = 128
DRUMS = PROGRAMS
"""Stands for the program of a part that is drums, on channel 10, which needs none."""


class Part(NamedTuple):
    """A part of samples."""

    name: str
    program: int


OTHER = "other"
"""The last part, if there are notes that belong to no named one."""
MAX_PARTS = 12
"""Together with drums, `OTHER` and what was given, each has a channel."""
MAX_TRACKS = 8
"""Track names that become parts, at most."""

FAMILIES = (
    "piano", "chromatic percussion", "organ", "guitar", "bass", "strings", "ensemble", "brass",
    "reed", "pipe", "synth lead", "synth pad", "synth effects", "ethnic", "percussive",
    "sound effects",
)  # fmt: skip
"""The families of General MIDI, eight programs each."""
MELODIC = 112
"""Programs below this, from 0, are neither percussive nor effects."""

INSTRUMENTS = tuple(
    """
    acoustic grand piano, bright acoustic piano, electric grand piano, honky-tonk piano,
    electric piano 1, electric piano 2, harpsichord, clavinet, celesta, glockenspiel, music box,
    vibraphone, marimba, xylophone, tubular bells, dulcimer, drawbar organ, percussive organ,
    rock organ, church organ, reed organ, accordion, harmonica, tango accordion,
    nylon acoustic guitar, steel acoustic guitar, jazz electric guitar, clean electric guitar,
    muted electric guitar, overdriven guitar, distortion guitar, guitar harmonics, acoustic bass,
    fingered electric bass, picked electric bass, fretless bass, slap bass 1, slap bass 2,
    synth bass 1, synth bass 2, violin, viola, cello, contrabass, tremolo strings,
    pizzicato strings, orchestral harp, timpani, strings 1, strings 2, synth strings 1,
    synth strings 2, choir aahs, voice oohs, synth voice choir, orchestra hit, trumpet, trombone,
    tuba, muted trumpet, french horn, brass section, synth brass 1, synth brass 2, soprano sax,
    alto sax, tenor sax, baritone sax, oboe, english horn, bassoon, clarinet, piccolo, flute,
    recorder, pan flute, blown bottle, shakuhachi, whistle, ocarina, square lead, sawtooth lead,
    calliope lead, chiff lead, charang lead, voice lead, fifths lead, bass and lead, new age pad,
    warm pad, polysynth pad, choir pad, bowed pad, metallic pad, halo pad, sweep pad, rain,
    soundtrack, crystal, atmosphere, brightness, goblins, echoes, sci-fi, sitar, banjo, shamisen,
    koto, kalimba, bagpipe, fiddle, shanai, tinkle bell, agogo, steel drums, woodblock, taiko drum,
    melodic tom, synth drum, reverse cymbal, guitar fret noise, breath noise, seashore, bird tweet,
    telephone ring, helicopter, applause, gunshot
    """.replace("\n    ", " ").strip().split(", ")
)  # fmt: skip
"""The programs of General MIDI."""

BASS, MELODY, CHORDS = "bass", "melody", "chords"
ROLES = {
    "bass": BASS, "melody": MELODY, "lead": MELODY,
    "chords": CHORDS, "harmony": CHORDS, "accompaniment": CHORDS,
}  # fmt: skip
"""The names of parts that stand for a usual role -> the role."""
LETTER = r"[^\W\d_]"
WORD = rf"(?<!{LETTER})(?:{{0}})s?(?!{LETTER})"
"""A pattern for words, or their plurals, in a name."""


def _any_of(words: str) -> re.Pattern[str]:
    return re.compile(WORD.format("|".join(words.split())))


WORDS_OF_ROLES = tuple(
    (role, _any_of(words))
    for role, words in (
        (OTHER, "other"),
        # Who sings behind a lead is not the melody, and a hand is what it plays.
        (None, "bg bgv back backing backup background left right lh rh"),
        (BASS, "bass basse basso bassi bajo baixo contrabass kontrabass continuo"),
        (MELODY, "melody melodie mélodie melodia melodía lead vocal vox voice voix voz"),
        (MELODY, "sing singer solo gesang chant canto cantus"),
        (CHORDS, "chord accord acorde akkorde harmony accompaniment accomp comp rhythm pad keys"),
        (CHORDS, "piano klavier guitar gtr guitare guitarra gitarre chitarra string keyboard"),
        (CHORDS, "organ orgel orgue organo"),
    )
)
"""(Role, words in the names of its tracks), of which the first match counts; None: left open."""
DRUM_WORDS = _any_of(
    "drum drumkit drumset kit percussion perc kick bd snare sd hat hihat hh tom cymbal crash ride "
    "clap conga bongo shaker tambourine cowbell beat groove "
    "schlagzeug batterie batteria batería bateria"
)
"""Words in the names of parts that are for drums alone, unless an instrument is called so."""
SEVERAL = 1.5
"""Notes at once, on average while any sounds, from which on a part plays chords, not a line."""
LOW = 50
"""MIDI pitch, D3: a line whose mean pitch is lower is no melody, and any other no bass.

Lines that are called bass in songs have 33 to 48; those of guitars and tenors begin at 51.
"""
LASTING = 0.6
"""A line that sounds for a smaller share of the time of the longest such is a passing one."""


def parts_of(score: Score) -> list[dict[str, Any]]:
    """The parts of a file that have notes, each a channel of a track, in order, numbered from 1.

    A part has the programs of its channel in its track or, if there are none, in all tracks, or
    else program 1; of several those that notes have, of most notes first. Drums have none.
    """
    changes_of: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for track, channel, tick, program in score.events.programs:
        for where in ((track, channel), (channel,)):
            changes_of.setdefault(where, []).append((tick, program + 1))
    parts, part_ids = [], score.track << 4 | score.channel
    notes = np.bincount(part_ids)
    for number in np.flatnonzero(notes).tolist():
        track, channel = number >> 4, number & 15
        changes = changes_of.get((track, channel)) or changes_of.get((channel,)) or [(0, 1)]
        ticks, programs = zip(*sorted(changes, key=itemgetter(0)), strict=True)
        if len({*programs}) > 1:
            at = np.searchsorted(ticks, score.on_tick[part_ids == number], "right") - 1
            note_counts = Counter(dict.fromkeys(programs, 0))
            note_counts.update(programs[k] for k in at.clip(min=0).tolist())
            programs = tuple(program for program, n in note_counts.most_common() if n)
        parts.append(
            {
                "track": track + 1,
                "name": score.track_names[track].strip(),
                "channel": channel + 1,
                "programs": [] if channel == DRUM_CHANNEL else list(dict.fromkeys(programs)),
                "notes": int(notes[number]),
            }
        )
    return parts


def are_tuned(score: Score) -> NDArray[np.bool_]:
    """Which of the score's notes (N,) are of melodic programs: no percussion, no effects."""
    tuned = np.zeros(len(score.pitch), np.bool_)
    for part in parts_of(score):
        tuned[_notes_of(part, score)] = bool(part["programs"]) and part["programs"][0] <= MELODIC
    return tuned


def named_parts(text: str) -> tuple[str, ...]:
    """The names in "melody,chords,bass", and `OTHER`; UsageError if they are not valid names."""
    names = [name.strip() for name in text.split(",")]
    different = len({name.casefold() for name in names}) == len(names)
    if not all(names) or not different or text.startswith("-"):
        raise UsageError(f"--parts must be different names, such as melody,chords, not {text!r}")
    names = [*(name for name in names if name != OTHER), OTHER]
    if len(names) > MAX_PARTS + 1:
        raise UsageError(f"--parts has {len(names) - 1} names; at most {MAX_PARTS} are allowed")
    return tuple(names)


def commonest_tracks(scores: Iterable[Score], *, drums: bool) -> tuple[Part, ...]:
    """The most common track names of scores, the highest-pitched first, and `OTHER`.

    Equal names are told apart as in `parts_of_notes`. Drums called like pitched notes are left out.
    """
    pieces, notes = Counter[tuple[str, bool]](), Counter[tuple[str, bool]]()
    pitches, spelling = Counter[tuple[str, bool]](), dict[str, str]()
    for score in scores:
        named = [part for part in _with_unique_names(parts_of(score)) if drums or part["programs"]]
        called = [(part["name"].casefold(), not part["programs"]) for part in named]
        pieces.update({*called})
        for part, (name, are_drums) in zip(named, called, strict=True):
            spelling[name] = min(spelling.get(name, part["name"]), part["name"])
            notes[name, are_drums] += part["notes"]
            pitches[name, are_drums] += int(score.pitch[_notes_of(part, score)].sum(dtype=int))
    if drums:  # that name is their own, see `with_drums`
        notes.pop(("drums", False), None)
    by_count = sorted(notes, key=lambda each: (-pieces[each], -notes[each], each))
    apart = [each for each in by_count if not each[1] or (each[0], False) not in notes]
    chosen = [each for each in apart if each[0] != OTHER][:MAX_TRACKS]
    chosen.sort(key=lambda each: -pitches[each] / notes[each])
    return (*(Part(spelling[name], DRUMS * kind) for name, kind in chosen), Part(OTHER, 0))


def parts_called(names: Sequence[str]) -> tuple[Part, ...]:
    """Parts with these names, those that drums are called by for `DRUMS`."""
    folded = [name.casefold() for name in names]
    drums = [name not in INSTRUMENTS and bool(DRUM_WORDS.search(name)) for name in folded]
    return tuple(Part(name, DRUMS * kind) for name, kind in zip(names, drums, strict=True))


def with_drums(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts and, before `OTHER`, one for drums, unless a nameless track of drums has a part."""
    nameless: dict[str, Any] = {"name": "", "programs": []}
    names, drums = [part.name for part in parts], [part.program == DRUMS for part in parts]
    if part_of(nameless, names, drums) < len(parts):
        return parts
    return (*parts[:-1], Part(_family(nameless), DRUMS), parts[-1])


def _with_unique_names(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The `parts_of` a file, named by their family if they have no name or share it."""
    counts = Counter(part["name"].casefold() for part in parts)
    unique = {name for name, count in counts.items() if name and count == 1}
    return [
        part if part["name"].casefold() in unique else part | {"name": _family(part)}
        for part in parts
    ]


def _notes_of(part: dict[str, Any], score: Score) -> NDArray[np.bool_]:
    """Which of the score's notes (N,) belong to one of its `parts_of`."""
    return (score.track == part["track"] - 1) & (score.channel == part["channel"] - 1)


def _family(part: dict[str, Any]) -> str:
    return FAMILIES[(part["programs"][0] - 1) // 8] if part["programs"] else "drums"


def part_of(part: dict[str, Any], names: Sequence[str], drums: Sequence[bool] = ()) -> int:
    """Which of the `names` one of `parts_of` a file belongs to, from 1; 0 for none.

    Its own name, else the first that occurs as a word, or its plural, in its name or in that of
    its first instrument or the instrument's family, else `OTHER`. A bass drum is no bass. Where it
    is known which names are for `drums`, these have no others, and drums have none but these.
    """
    wanted = [name.casefold() for name in names]
    instrument = INSTRUMENTS[part["programs"][0] - 1] if part["programs"] else ""
    part_name = part["name"].casefold()
    for text, pattern in (
        (part_name, "{0}$"),
        (part_name, f".*{WORD}"),
        (f"{_family(part)}, {instrument}", f".*{WORD}"),
    ):
        for number, name in enumerate(wanted, 1):
            own = drums[number - 1] if drums else not part["programs"] and name not in ROLES
            fits = name != OTHER and own == (not part["programs"])
            if fits and re.match(pattern.format(re.escape(name)), text):
                return number
    return wanted.index(OTHER) + 1 if OTHER in wanted else 0


def _numbers(
    parts: list[dict[str, Any]], score: Score, names: Sequence[str], drums: Sequence[bool]
) -> list[int]:
    """Which of the `names` each of the `parts_of` a file belongs to, from 1; 0 for none.

    That of `part_of`, else, unless it is drums, that of its role: by the words in its own name, or
    `_by_sound`. The only name that a file has is its title, and is no part's own.
    """
    numbers = [part_of(part, names, drums) for part in _with_unique_names(parts)]
    wanted = [name.casefold() for name in names]
    rest = wanted.index(OTHER) + 1 if OTHER in wanted else 0
    roles = {ROLES[name]: wanted.index(name) + 1 for name in reversed(wanted) if name in ROLES}
    if not roles:
        return numbers
    called = [part["name"].casefold() for part in parts]
    drawn = [name.startswith(DRAWN) for name in called]
    own = {name for name, added in zip(called, drawn, strict=True) if name and not added}
    by_sound = list[int]()
    for k, part in enumerate(parts):
        if numbers[k] != rest or not part["programs"]:
            continue
        fitting = (role for role, words in WORDS_OF_ROLES if words.search(called[k]))
        is_title = len(own) == 1 and not drawn[k] and called[k] != OTHER
        role = None if is_title else next(fitting, None)
        if role:
            numbers[k] = roles.get(role, rest)
        elif part["programs"][0] <= MELODIC:
            by_sound.append(k)
    # What was drawn into a file takes no role from the part that it replaces or joins.
    taken = {number for number, added in zip(numbers, drawn, strict=True) if not added}
    for k, role in _by_sound([parts[k] for k in by_sound], score):
        number = roles.get(role, rest)
        if role == CHORDS or number not in taken:
            numbers[by_sound[k]] = number
    return numbers


def _by_sound(parts: Sequence[dict[str, Any]], score: Score) -> Iterator[tuple[int, str]]:
    """(Place, role) of those of the `parts_of` a file that have a role by how they sound.

    What plays `SEVERAL` notes at once has chords. Of the lines that are below `LOW` on average the
    lowest is the bass, of the others the highest the melody, of equals the first; lines that sound
    for less than `LASTING` of the time of the longest of them do not count.
    """
    lines: dict[str, list[tuple[float, int, int]]] = {BASS: [], MELODY: []}
    for k, part in enumerate(parts):
        notes = _notes_of(part, score)
        on, off, pitch = score.on_tick[notes], score.off_tick[notes], score.pitch[notes].mean()
        order = np.argsort(on)
        begin, end = on[order], np.maximum.accumulate(off[order])
        sounds = int(end[-1] - begin[0] - np.maximum(begin[1:] - end[:-1], 0).sum())
        if (off - on).sum() >= SEVERAL * max(sounds, 1):
            yield k, CHORDS
        else:
            role, away = (BASS, pitch) if pitch < LOW else (MELODY, -pitch)
            lines[role].append((away, k, sounds))
    for role, some in lines.items():
        longest = max((sounds for *_, sounds in some), default=0)
        lasting = [line for line in some if line[2] >= LASTING * longest]
        yield from ((k, role) for _, k, _ in sorted(lasting)[:1])


def parts_of_notes(
    score: Score, names: Sequence[str], drums: Sequence[bool] = ()
) -> tuple[NDArray[np.uint8], Counter[tuple[int, int]]]:
    """The part of each note (N,), and the number of notes of each (part, program or `DRUMS`).

    A track without a name, or with one shared in its file, is named by its instrument's family.
    `drums` as in `part_of`. Without names, no note is of any part, and nothing is counted.
    """
    found = np.zeros(len(score.pitch), np.uint8)
    if not names:
        return found, Counter()
    programs, parts = Counter[tuple[int, int]](), parts_of(score)
    for part, number in zip(parts, _numbers(parts, score, names, drums), strict=True):
        found[_notes_of(part, score)] = number
        programs[number, [*part["programs"], DRUMS + 1][0] - 1] += part["notes"]
    return found, programs
