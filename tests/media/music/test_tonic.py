"""The estimated key against the listed transpositions."""

import pytest
from midi_files import midi_file, note

from seqmodel.media.music.contents import semitones_to_c
from seqmodel.media.music.midi import read_score


def test_it_agrees_with_the_listed_transpositions(music, listing):
    """Guards --transpose-to-c: at least 95% of every third file, and over 92% of each set's."""
    agreed = {"nottingham": [], "musedata": [], "piano_midi": []}
    for name, entry in [*listing.items()][::3]:
        if name.split("/")[0] in agreed:
            estimate = semitones_to_c(read_score(music[name]))
            agreed[name.split("/")[0]].append(estimate == entry["transpose"])
    count = sum(map(len, agreed.values()))
    assert count > 500
    assert sum(map(sum, agreed.values())) >= 0.95 * count
    assert all(sum(found) > 0.92 * len(found) for found in agreed.values())


@pytest.mark.parametrize("tonic", range(12))
@pytest.mark.parametrize("scale", [(0, 2, 4, 5, 7, 9, 11, 12), (0, 2, 3, 5, 7, 8, 11, 12)])
def test_scales_go_to_c_by_the_nearer_way(tonic, scale):
    """Guards the sign and the range, -5 to 6, in both modes."""
    piece = b"".join(note(0, 480, pitch=48 + tonic + degree) for degree in (*scale, 7, 0))
    assert semitones_to_c(read_score(midi_file(piece))) == (-tonic if tonic < 6 else 12 - tonic)


def test_no_key_at_all_moves_nothing():
    """Guards pieces without notes, with drums only, and with all pitches alike."""
    for piece in (b"", note(0, 9, channel=9), b"".join(note(0, 9, pitch=p) for p in range(48, 60))):
        assert semitones_to_c(read_score(midi_file(piece))) == 0
