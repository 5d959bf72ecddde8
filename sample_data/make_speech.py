"""Synthesises the sample speech: babble in three voices, by rule and by chance.

    python sample_data/make_speech.py [FOLDER]

writes FOLDER/speech/{train,valid,test}/NNN.flac (FOLDER: this one), 8 kHz, mono, 16 bits. Nobody's
voice is in it. As in a vocal tract, resonances shape the sources: glottal pulses, whose pitch
follows the melody of a phrase, and breath pass through formants that glide from sound to sound of
made-up syllables; the hiss of constrictions has a resonance of its own. A piece's only seed is its
own name, so every run writes the same samples, and adding pieces leaves the others unchanged.
"""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import soundfile

SPLITS = {"train": 14, "valid": 3, "test": 3}
PHRASES = 3  # in a piece
RATE = 8000
TICK = 16  # samples, 2 ms: how often the tract moves
HISS = 0.05  # relative to the pulses: an s is some 15 dB below an a
TILT = 1500.0  # Hz: above, the pulses fall off by 6 dB per octave, as in a relaxed voice
FLOOR = 2e-3  # of full scale, room noise: a recording is never quite silent


class Voice(NamedTuple):
    pitch: float  # Hz, of a relaxed phrase
    tract: float  # factor on the table's formants: a shorter tract's are higher
    breath: float  # noise of the glottis, relative to the pulses
    pace: float  # factor on the rules' syllable lengths


VOICES = (
    Voice(104, 0.94, 0.004, 1.10),
    Voice(132, 1.00, 0.006, 1.00),
    Voice(196, 1.12, 0.008, 1.00),
)


class Sound(NamedTuple):
    """The settings of the tract while a sound lasts."""

    formants: tuple[float, float, float]  # Hz
    voiced: float = 0.0  # how strong the pulses are
    hiss: float = 0.0  # how strong the noise of a constriction is
    centre: float = 2500.0  # Hz, where that noise is strongest
    width: float = 1000.0  # Hz


# G. E. Peterson, H. L. Barney, "Control methods used in a study of the vowels", 1952: men's means.
VOWELS = {
    "i": Sound((270, 2290, 3010), 1.0),
    "e": Sound((530, 1840, 2480), 1.0),
    "a": Sound((730, 1090, 2440), 1.0),
    "o": Sound((570, 840, 2410), 1.0),
    "u": Sound((300, 870, 2240), 1.0),
    "@": Sound((490, 1350, 1690), 0.8),
}
GLIDES = {
    "w": Sound((290, 610, 2150), 0.5),
    "j": Sound((260, 2070, 3020), 0.5),
    "l": Sound((360, 1300, 2700), 0.45),
    "m": Sound((250, 1000, 2200), 0.35),
    "n": Sound((250, 1450, 2500), 0.35),
}
HISSES = {
    "s": Sound((320, 1390, 2530), 0.0, 0.30, 3600, 700),
    "sh": Sound((300, 1840, 2750), 0.0, 0.35, 2500, 600),
    "f": Sound((340, 1100, 2080), 0.0, 0.10, 2200, 2500),
    "h": Sound((500, 1500, 2500), 0.0, 0.12, 1500, 1800),
    "z": Sound((240, 1390, 2530), 0.35, 0.18, 3600, 800),
}
# A stop is closed, then bursts; "voiced" ones hum while they are closed.
STOPS = {
    "p": Sound((400, 1100, 2150), 0.0, 0.25, 900, 1000),
    "t": Sound((400, 1600, 2600), 0.0, 0.40, 3400, 900),
    "k": Sound((300, 1990, 2850), 0.0, 0.40, 1900, 500),
    "b": Sound((200, 1100, 2150), 0.12, 0.15, 900, 1000),
    "d": Sound((200, 1600, 2600), 0.12, 0.20, 3200, 900),
    "g": Sound((200, 1990, 2850), 0.12, 0.25, 1900, 500),
}
ONSETS = (*GLIDES, *GLIDES, *GLIDES, *HISSES, *STOPS)  # glides come three times as often
CODAS = ("n", "s", "m", "l", "t")
FOURTH = (3300.0, 250.0)  # Hz: a fourth formant and its bandwidth
BANDWIDTHS = (70.0, 90.0, 140.0)


class Event(NamedTuple):
    seconds: float
    sound: Sound
    glide: float  # time constant of the formants' approach, in seconds
    accent: float = 0.0  # what it adds to the pitch, as a fraction


def speak(name: str) -> list[float]:
    rng = Random(name)
    voice = rng.choice(VOICES)
    samples: list[float] = []
    for _ in range(PHRASES):
        samples += synthesize(rng, voice, list(phrase(rng, voice)))
    loudest = max(map(abs, samples))
    gain = rng.uniform(0.4, 0.6) / loudest
    return [gain * x + FLOOR * rng.uniform(-1, 1) for x in samples]


# ---- From nothing to syllables ------------------------------------------------------------------
def phrase(rng: Random, voice: Voice) -> Iterator[Event]:
    """Three to six syllables between two silences, perhaps with a pause, one or two stressed."""
    rest = Sound(VOWELS["@"].formants)
    syllables = rng.randint(3, 6)
    stressed = set(rng.sample(range(syllables), rng.randint(1, 2)))
    pause = rng.randrange(1, syllables) if rng.random() < 0.3 else None
    yield Event(rng.uniform(0.05, 0.12), rest, 0.02)
    for k in range(syllables):
        if k == pause:
            yield Event(rng.uniform(0.08, 0.16), rest, 0.03)
        last = k == syllables - 1
        yield from syllable(rng, voice, stressed=k in stressed, last=last)
    yield Event(rng.uniform(0.06, 0.14), rest, 0.05)


def syllable(rng: Random, voice: Voice, *, stressed: bool, last: bool) -> Iterator[Event]:
    onset = rng.choice(ONSETS) if rng.random() < 0.9 else ""
    vowel = rng.choice("iiaaoueeu" if stressed else "iaoue@@@")
    yield from consonant(rng, voice, onset)
    length = rng.uniform(0.16, 0.26) if stressed else rng.uniform(0.1, 0.16)
    length *= voice.pace * (1.4 if last else 1)
    yield Event(length, VOWELS[vowel], 0.025, 0.18 if stressed else 0.0)
    if stressed and rng.random() < 0.35:  # a diphthong
        yield Event(0.09 * voice.pace, VOWELS[rng.choice("iu")], 0.05, 0.1)
    if rng.random() < 0.3:
        yield from consonant(rng, voice, rng.choice(CODAS))


def consonant(rng: Random, voice: Voice, name: str) -> Iterator[Event]:
    pace = voice.pace * rng.uniform(0.8, 1.2)
    if name in GLIDES:
        yield Event(0.065 * pace, GLIDES[name], 0.02)
    elif name in HISSES:
        yield Event(0.10 * pace, HISSES[name], 0.02)
    elif name in STOPS:
        stop = STOPS[name]
        yield Event(0.055 * pace, stop._replace(hiss=0.0), 0.012)
        yield Event(0.012, stop._replace(voiced=0.0), 0.01)
        if stop.voiced == 0:  # breath, until the glottis closes again
            yield Event(0.035 * pace, stop._replace(hiss=0.07, centre=1600, width=2000), 0.03)


# ---- From syllables to sound --------------------------------------------------------------------
class Resonance:
    """A two-pole resonance, which may be retuned while it sounds."""

    def __init__(self) -> None:
        self.a, self.b, self.c, self.y, self.z = 1.0, 0.0, 0.0, 0.0, 0.0

    def tune(self, centre: float, width: float) -> None:
        radius = math.exp(-math.pi * width / RATE)
        self.c = -radius * radius
        self.b = 2 * radius * math.cos(2 * math.pi * min(centre, 0.47 * RATE) / RATE)
        self.a = 1 - self.b - self.c

    def __call__(self, x: float) -> float:
        self.y, self.z = self.a * x + self.b * self.y + self.c * self.z, self.y
        return self.y


def synthesize(rng: Random, voice: Voice, events: list[Event]) -> list[float]:
    tract = [Resonance() for _ in range(4)]
    narrow = Resonance()
    tract[3].tune(FOURTH[0] * min(voice.tract, 1.08), FOURTH[1])
    total = sum(event.seconds for event in events)
    rises = rng.random() < 0.25  # as in a question
    wave: list[float] = []
    formants = list(events[0].sound.formants)
    voiced = hiss = accent = 0.0
    place, flow, strength, wobble = 0.0, 0.0, 1.0, 1.0  # `place`: in the glottis's period
    tilted, soft = 0.0, 1 - math.exp(-2 * math.pi * TILT / RATE)
    for event in events:
        sound = event.sound
        narrow.tune(sound.centre * voice.tract, sound.width)
        near = 1 - math.exp(-TICK / RATE / event.glide)
        quick = 1 - math.exp(-TICK / RATE / (0.004 if sound.hiss > 0.2 else 0.012))
        for _ in range(round(event.seconds * RATE / TICK)):
            formants = [f + near * (g - f) for f, g in zip(formants, sound.formants, strict=True)]
            voiced += quick * (sound.voiced - voiced)
            hiss += quick * (sound.hiss - hiss)
            accent += 0.04 * (event.accent - accent)
            for resonance, centre, width in zip(tract, formants, BANDWIDTHS, strict=False):
                resonance.tune(centre * voice.tract, width)
            done = len(wave) / RATE / total
            tune = 1.08 - 0.22 * done + (0.6 * max(0.0, done - 0.7) if rises else 0.0)
            pitch = voice.pitch * (tune + accent)
            for _ in range(TICK):
                place += pitch * wobble / RATE
                if place >= 1:
                    place -= 1
                    strength, wobble = rng.uniform(0.97, 1.03), rng.uniform(0.997, 1.003)
                opened = glottis(place)
                noise = rng.uniform(-1, 1)
                source = strength * (opened - flow) + voice.breath * opened * noise
                flow = opened
                tilted += soft * (source - tilted)
                x = voiced * tilted
                for resonance in tract:
                    x = resonance(x)
                wave.append(x + HISS * hiss * narrow(noise))
    return wave


def glottis(place: float) -> float:
    """The airflow at a place in the period: the glottis opens slowly and closes quickly."""
    if place < 0.4:
        return 0.5 - 0.5 * math.cos(math.pi * place / 0.4)
    if place < 0.56:
        return math.cos(0.5 * math.pi * (place - 0.4) / 0.16)
    return 0.0


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for split, pieces in SPLITS.items():
        target = folder / "speech" / split
        target.mkdir(parents=True, exist_ok=True)
        for number in range(1, pieces + 1):
            samples = np.round(32767 * np.array(speak(f"{split}/{number:03}"))).astype(np.int16)
            soundfile.write(target / f"{number:03}.flac", samples, RATE, subtype="PCM_16")


if __name__ == "__main__":
    main()
