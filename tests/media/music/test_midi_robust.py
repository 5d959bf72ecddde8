"""Broken files: a roll or a reason, never another error or memory out of proportion to the file."""

import random
import tracemalloc

import numpy as np
from midi_files import chunk, header, midi_file, note, piano_roll

from seqmodel.errors import SourceError
from seqmodel.media.music.contents import semitones_to_c
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.midi import read_score


def attempt(data, **options):
    """The roll, or None if the file is refused with a one-line reason."""
    try:
        score = read_score(data, **options)
        assert (score.off_tick >= score.on_tick).all()
        assert -5 <= semitones_to_c(score) <= 6
        return piano_roll(score, Grid.of_beats(4), drums=True)
    except SourceError as error:
        reason = str(error)
    assert reason
    assert "\n" not in reason
    return None


def test_awkward_files(awkward):
    """Guards against a traceback for any file from other projects' collections of odd files."""
    refused = {path.name for path in awkward if attempt(path.read_bytes()) is None}
    assert len(awkward) == 68
    assert refused == {
        "empty.mid",
        "zero-ticks-per-beat.mid",
        "test-control-7d-omni-mode-on.mid",
        "test-control-7f-poly-mode-on.mid",
        "test-silence-end-of-track.mid",
        "test-silence-text-metaevent.mid",
        "test-sysex-7e-09-01-gm1-enable.mid",
        "test-sysex-7e-09-03-gm2-enable.mid",
    }


def test_mutilated_files(awkward, music):
    """Guards every length and index in the reader: 200 files with changed, cut or added bytes."""
    rng = random.Random(7)
    whole = [path.read_bytes() for path in awkward] + list(music.values())[::100]
    whole = [data for data in whole if 0 < len(data) < 30_000]
    outcomes = []
    for _ in range(200):
        data = bytearray(rng.choice(whole))
        for _ in range(rng.choice([1, 3, 20])):
            at = rng.randrange(len(data) + 1)
            kind = rng.choice(["change", "change", "cut", "put", "end"] if data else ["put"])
            if kind == "change":
                data[at : at + 1] = rng.randbytes(1)
            elif kind == "cut":
                del data[at : at + rng.randrange(20)]
            elif kind == "put":
                data[at:at] = rng.randbytes(rng.randrange(8))
            elif rng.random() < 0.2:
                del data[at:]
        outcomes.append(attempt(bytes(data), restrike=rng.choice(["close", "discard"])) is None)
    assert 0.1 < np.mean(outcomes) < 0.9, "the test should see both rolls and reasons"


def test_claims_allocate_nothing():
    """Guards against a short file whose lengths or ticks ask for gigabytes."""
    body, claims = note(0, 5), (2**16, 2**31 - 1, 2**32 - 1)
    files = [
        *(header() + chunk(b"MTrk", body, claim) for claim in claims),
        *(header() + chunk(b"JUNK", body, claim) + chunk(b"MTrk", body) for claim in claims),
        header(tracks=65535) + chunk(b"MTrk", body),
        midi_file(b"\x00\xf0\x8f\xff\xff\xff" + body),
        midi_file(b"\x00\x90\x3c\x40" + b"\xff\xff\xff\x7f\x80\x3c\x40", division=1),
    ]
    attempt(midi_file(body))
    for data in files:
        tracemalloc.start()
        attempt(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 200_000
