"""The grammar of the sample music: chords and their successors, cadences, forms and rhythms.

Everything is in C major or A minor, and transposed when it is written down.
"""

from functools import cache
from typing import NamedTuple

# ---- Harmony ------------------------------------------------------------------------------------
# A chord's tones, bass first; an arrow shows where a tone must resolve: B↑ rises to C, F↓ falls to
# E. Then come the chords that may follow; one that is listed twice is twice as likely.
MAJOR = {
    "I": ("C E G", "I6 IV IV ii6 V V6 vi vi V43 vii°6 iii V65/ii V65/V V65/vi"),
    "I6": ("E G C", "IV IV ii6 ii65 V I vii°6 V65/V"),
    "ii": ("D F A", "V V7 V6 V65 vii°6"),
    "ii6": ("F A D", "V V7 V42 vii°6"),
    "ii65": ("F A C↓ D", "V V7"),
    "iii": ("E G B", "IV IV vi"),
    "IV": ("F A C", "V V V42 ii I6 I vii°6 ii65"),
    "IV6": ("A C F", "V V6 V65 I6"),
    "V": ("G B↑ D", "I I vi IV6 I6 V65/vi"),
    "V6": ("B↑ D G", "I I vi"),
    "V7": ("G B↑ D F↓", "I I vi"),
    "V65": ("B↑ D F↓ G", "I"),
    "V43": ("D F↓ G B↑", "I I6"),
    "V42": ("F↓ G B↑ D", "I6"),
    "vi": ("A C E", "ii ii6 IV IV ii65 I6 V65/V V43"),
    "vii°6": ("D F B↑", "I I6 I6"),
    "I64": ("G C↓ E↓", "V V7"),
    "V/V": ("D F#↑ A", "V"),
    "V65/V": ("F#↑ A C↓ D", "V"),
    "V65/ii": ("C#↑ E G↓ A", "ii"),
    "V65/vi": ("G#↑ B D↓ E", "vi"),
}
MINOR = {
    "i": ("A C E", "i6 iv iv ii°6 V V6 VI VI V43 vii°6 v6 VII V65/iv V65/III"),
    "i6": ("C E A", "iv iv ii°6 ii°65 V i vii°6"),
    "ii°6": ("D F B", "V V7 V42 vii°6"),
    "ii°65": ("D F A↓ B", "V V7"),
    "III": ("C E G", "VI VI iv ii°6"),
    "iv": ("D F A", "V V V42 ii°65 i6 i VII"),
    "iv6": ("F A D", "V V i6"),
    "v6": ("G B E", "VI iv6 iv6"),
    "V": ("E G#↑ B", "i i VI i6"),
    "V6": ("G#↑ B E", "i i"),
    "V7": ("E G#↑ B D↓", "i i VI"),
    "V65": ("G#↑ B D↓ E", "i"),
    "V43": ("B D↓ E G#↑", "i i6"),
    "V42": ("D↓ E G#↑ B", "i6"),
    "VI": ("F A C", "iv ii°6 ii°65 V V65/III"),
    "vii°6": ("B D G#↑", "i i6 i6"),
    "VII": ("G B D", "III III"),
    "i64": ("E A↓ C↓", "V V7"),
    "I": ("A C# E", ""),  # the tierce de Picardie, only at cadences
    "V65/iv": ("C#↑ E G↓ A", "iv"),
    "V65/III": ("B↑ D F↓ G", "III"),
}
HARMONY = {"C": MAJOR, "A": MINOR}
CADENCES = {
    "C": {
        "half": ["ii6 V", "IV V", "I6 V", "vi V/V V", "V65/V V"],
        "deceptive": ["ii6 V vi", "IV V7 vi", "I6 V vi"],
        "authentic": ["ii6 V I", "IV V7 I", "ii65 V7 I", "ii6 I64 V7 I", "IV I64 V I"],
        "plagal": ["I IV I", "V I IV I", "V7 vi IV I"],
    },
    "A": {
        "half": ["ii°6 V", "iv V", "iv6 V", "i6 V", "VI V"],
        "deceptive": ["iv V VI", "ii°6 V7 VI", "i6 V VI"],
        "authentic": ["ii°6 V i", "iv V7 i", "ii°65 V7 I", "ii°6 i64 V7 i", "iv i64 V I"],
        "plagal": ["i iv I", "V i iv i", "V7 VI iv I"],
    },
}
OPENINGS = {"C": "I I I I6 vi", "A": "i i i i6"}  # the first phrase opens with the first chord
OMITS_FIFTH = {"I", "i", "V7"}  # these may be without it: C C C E, G G B F

# ---- Form ---------------------------------------------------------------------------------------
# A phrase that returns begins as before but ends in its own way.
FORMS = [
    "A half, A authentic, B half, C authentic",
    "A half, A authentic, B deceptive, A authentic",
    "A authentic, B half, A authentic",
    "A half, B authentic, A half, C plagal",
    "A deceptive, A authentic, B half, B plagal",
    "A half, B deceptive, A authentic",
]
# The beats of each chord, bar by bar. The final chord is held one bar longer.
RHYTHMS = {
    4: ["1111 112", "211 112", "1111 112", "112 112", "1111 22"],
    3: ["111 111 111 3", "21 111 21 3", "21 21 111 3", "111 21 111 3"],
}
STRONG = {4: (0, 2), 3: (0, 1)}  # beats that may carry a cadential six-four chord

# The key in MIDI, the key it is transposed from, and the interval in semitones.
KEYS = [("C", "C", 0), ("G", "C", -5), ("F", "C", 5), ("D", "C", 2)]
KEYS += [("Am", "A", 0), ("Em", "A", -5), ("Dm", "A", 5)]

NATURALS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
SCALE = tuple(NATURALS.values())
ALTERED = {0: 1, 1: 0, 5: 6, 6: 5, 7: 8, 8: 7}  # C and C#, F and F#, G and G#


class Chord(NamedTuple):
    name: str
    tones: tuple[int, ...]  # pitch classes, bass first
    rising: frozenset[int]
    falling: frozenset[int]


@cache
def read_chord(name: str, home: str) -> Chord:
    tones = HARMONY[home][name][0].split()
    pitch_class = {tone: NATURALS[tone[0]] + ("#" in tone) for tone in tones}
    rising = frozenset(pitch_class[tone] for tone in tones if "↑" in tone)
    falling = frozenset(pitch_class[tone] for tone in tones if "↓" in tone)
    return Chord(name, tuple(pitch_class.values()), rising, falling)


def followers(name: str, home: str) -> list[str]:
    return HARMONY[home][name][1].split()
