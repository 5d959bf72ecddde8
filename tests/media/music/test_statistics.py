"""Statistics and baselines of rolls, recounted over single notes and frames."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onsets import as_frames, random_states, restrikes

from seqmodel.media.music.evaluation import (
    MusicComparison,
    NoteNgram,
    Statistics,
    baseline_nats_per_frame,
    chord_lengths,
    mean,
)
from seqmodel.media.music.frames import note_lengths


def roll_of(*frames):
    """Frames given as pitches."""
    roll = np.zeros((len(frames), 88), np.uint8)
    for t, pitches in enumerate(frames):
        roll[t, [pitch - 21 for pitch in pitches]] = 1
    return roll


# Two voices; the lower one rests, the upper one steps up by two, down by one.
TUNE = roll_of((60, 64), (60, 64), (66,), (), (60, 66), (42, 65))


def test_a_small_tune_counted_by_hand():
    """Guards what is counted of whole pieces, and pieces that run into each other."""
    of = Statistics([TUNE])
    assert (of.longest["note"], of.longest["chord"]) == ([2], [2])
    assert of.figures()["dissonance"] == 2 / 4
    assert of.voices == 2
    assert mean(of.counts["note_lengths"]) == 9 / 7
    of = Statistics([TUNE[:2], TUNE[:2], TUNE[2:]])
    assert of.counts["note_lengths"] == {2: 4, 1: 5}
    assert of.longest["note"] == [2, 2, 1]
    assert of.counts["notes_per_frame"] == {2: 6, 1: 1, 0: 1}


def test_how_pieces_end():
    """The last chord is the last that sounds, and it stands on the tonic if its bass does."""
    cadence = [(55, 59, 62)] * 4 + [(48, 64, 67, 72)] * 8 + [()]
    in_c = roll_of(*cadence)
    of = Statistics([in_c, in_c[:4], np.roll(in_c, -5, axis=1), TUNE[3:4]])
    assert of.lengths == [13, 4, 13, 1]
    assert of.last_chords == [8, 4, 8, 0]
    assert of.on_tonic == [True, True, True, False]
    inverted = [(52, 64, 67, 72) if chord[:1] == (48,) else chord for chord in cadence]
    assert Statistics([roll_of(*inverted)]).on_tonic == [False]


def notes_one_by_one(frames):
    found = []
    for note in range(88):
        length = 0
        for row in frames:
            if length and (not row[note] or row[88 + note]):
                found.append(length)
                length = 0
            length += int(row[note])
        found += [length] * (length > 0)
    return found


def chords_one_by_one(frames):
    found, last = [], None
    for row in frames:
        chord = row[:88].tobytes()
        if chord != last or row[88:].any():
            found.append([row[:88].any(), 0])
        found[-1][1] += 1
        last = chord
    return [length for sounds, length in found if sounds]


@given(st.integers(0, 12), st.integers(0, 2**32), st.sampled_from([0.3, 0.8]))
def test_notes_and_chords_match_a_loop_over_the_frames(length, seed, density):
    """Guards the first and last frames, the lowest and the highest key, and restruck chords."""
    wide = np.zeros((length, 88), np.uint8)
    wide[:, [0, 1, 40, 87]] = random_states(seed, length, 4, density=density)
    frames = as_frames(wide)
    assert sorted(note_lengths(frames)) == sorted(notes_one_by_one(frames))
    assert chord_lengths(frames).tolist() == chords_one_by_one(frames)


def test_each_hit_of_a_kit_is_a_chord_of_its_own():
    """Guards drums that are struck in each frame, taken for a chord that is held."""
    hits = np.repeat(np.array([1, 0, 1], np.uint8), [3, 2, 1])[:, None] * np.eye(47, dtype="u1")[46]
    assert chord_lengths(hits).tolist() == [1, 1, 1, 1]


@given(arrays(np.uint8, st.tuples(st.integers(1, 8), st.just(5)), elements=st.integers(0, 1)))
def test_distributions_match_a_loop_over_the_frames(states):
    """Guards the lowest and the highest key, which are 87 semitones apart, and silent frames."""
    roll = np.zeros((len(states), 88), np.uint8)
    roll[:, [0, 11, 40, 46, 87]] = states
    expected = {"notes_per_frame": [], "intervals": [], "pitch_classes": [], "melodic_steps": []}
    tops = []
    for frame in roll:
        pitches = [21 + note for note in range(88) if frame[note]]
        expected["notes_per_frame"].append(len(pitches))
        expected["pitch_classes"] += [pitch % 12 for pitch in pitches]
        expected["intervals"] += [b - a for a in pitches for b in pitches if a < b]
        tops.append(max(pitches, default=None))
    for before, after in pairwise(tops):
        if None not in (before, after) and before != after:
            expected["melodic_steps"].append(after - before)
    of = Statistics([roll])
    for name, values in expected.items():
        assert of.counts[name] == Counter(values), name


@pytest.fixture
def train(tmp_path, write_dataset):
    """Pieces of chords held for two frames, the lowest note for all six."""
    walk = [(48, 60 + k, 64 + k) for k in (0, 2, 4) for _ in range(2)]
    return write_dataset(tmp_path, {"train": [roll_of(*walk)] * 3})["train"]


def test_drones_and_silences_are_found(train):
    """A note, a whole chord or a rest, longer than in training, not as long, wherever it is."""
    walk, rest = train[0], np.zeros((2, 88), np.uint8)
    note = roll_of(*[(48, 60 + k % 3) for k in range(7)])
    chord = roll_of(*[(48, 60, 64)] * 3)
    values = MusicComparison().compare([walk, note, chord, chord[:2]], None, train)
    longest = [f"longest_{kind}" for kind in ("note", "chord", "silence")]
    assert [values["train"][name] for name in longest] == [6, 2, 0]
    drawn = values["drawn"]
    assert [drawn[name] for name in longest] == [7, 3, 0]
    assert drawn["long_note_share"] == drawn["long_chord_share"] == 1 / 4
    assert (drawn["shortest"], drawn["longest"], drawn["length"]) == (2, 7, 4.5)
    assert drawn["length_share"] == 1 / 4
    assert "split" not in values
    silent = [np.concatenate(parts) for parts in ((rest, walk), (walk, rest, walk), (walk, rest))]
    drawn = MusicComparison().compare([walk, *silent, rest], None, train)["drawn"]
    assert (drawn["longest_silence"], drawn["long_silence_share"]) == (2, 4 / 5)
    assert Statistics([*silent, rest, walk]).longest["silence"] == [2, 2, 2, 2, 0]


def test_training_data_is_at_distance_0_and_wholly_copied(train):
    values = MusicComparison().compare([train[0]], train, train)
    for name in ("drawn", "split"):
        assert set(values[name]["distances"].values()) == {0}
        assert values[name]["copied_share"] == 1
        assert values[name]["copied_frames"] == values[name]["most_copied_frames"] == 6
    assert values["voices"] == 3
    assert values["drawn"]["voices_share"] == 1


def test_samples_of_limited_length_are_compared_with_beginnings(tmp_path, write_dataset):
    """Pieces that begin sparse do not make short samples seem so; drones are of whole pieces."""
    sparse = roll_of(*[(60,)] * 2, *[(48, 60, 64, 67)] * 6)
    train = write_dataset(tmp_path, {"train": [sparse] * 3})["train"]
    whole = MusicComparison().compare([sparse[:2]], train, train)
    cut = MusicComparison().compare([sparse[:2]], train, train, 2)
    assert whole["train"]["notes_per_frame"] == 26 / 8
    assert whole["drawn"]["distances"]["notes_per_frame"] == 6 / 8
    assert cut["train"]["notes_per_frame"] == cut["split"]["notes_per_frame"] == 1
    assert set(cut["drawn"]["distances"].values()) == {0}
    assert cut["train"]["longest_chord"] == 6


class Counted:
    """p(on) of one note: (on + 2 p(on | shorter context)) / (seen + 2), starting from one half."""

    def __init__(self, columns, order):
        self.on, self.seen = Counter(), Counter()
        self.order = order
        for column in columns:
            for t, value in enumerate(column):
                for k in range(order + 1):
                    self.seen[self.past(column, t, k)] += 1
                    self.on[self.past(column, t, k)] += int(value)

    @staticmethod
    def past(column, t, k):
        """The last k values before t, silence before the first."""
        return tuple(int(column[s]) if s >= 0 else 0 for s in range(t - k, t))

    def p(self, context):
        shorter = self.p(context[1:]) if context else 0.5
        return (self.on[context] + 2 * shorter) / (self.seen[context] + 2)

    def nats(self, column):
        for t, value in enumerate(column):
            p = self.p(self.past(column, t, self.order))
            yield -math.log(p if value else 1 - p)


@pytest.mark.parametrize("order", [0, 1, 8])
def test_note_ngrams_are_counts_with_backoff(dataset, rolls, order):
    ngram = NoteNgram(dataset["train"], order)
    for roll in rolls["valid"][:3]:
        expected = np.zeros(len(roll))
        heard = np.flatnonzero(np.concatenate(rolls["train"] + rolls["valid"]).any(0))
        times = dict.fromkeys(heard.tolist(), 1) | {87: 88 - len(heard)}  # for all that are silent
        for note, count in times.items():
            counted = Counted([piece[:, note] for piece in rolls["train"]], order)
            expected += count * np.array([*counted.nats(roll[:, note])])
        np.testing.assert_allclose(ngram.nats(roll), expected, rtol=1e-12)


def test_what_never_happened_in_train_costs_much_but_not_infinitely(tmp_path, write_dataset):
    """A note once held for long enough to make the probability of its end round to 0."""
    held = np.ones((100_000, 88), np.uint8)
    train = write_dataset(tmp_path, {"train": [held]})["train"]
    nats = NoteNgram(train, 8).nats(np.concatenate([held[:20], np.zeros((1, 88), np.uint8)]))
    assert np.isfinite(nats).all()
    assert nats[-1] > 88 * 50


def test_strikes_are_counted_where_a_note_continues(dataset, struck_dataset):
    """Recounted here; the roll's part is as without onsets, so that figures are comparable."""
    again, could = restrikes(struck_dataset["train"])
    overall = (again.sum() + 1) / (could.sum() + 2)
    nats = 0.0
    for frames in struck_dataset["valid"]:
        for t, note in np.argwhere(frames[1:, :88] & frames[:-1, :88]):
            p = (again[note] + 2 * overall) / (could[note] + 2)
            nats -= math.log(p if frames[t + 1, 88 + note] else 1 - p)
    split = struck_dataset["valid"]
    found = baseline_nats_per_frame(struck_dataset["train"], split)
    rolls = baseline_nats_per_frame(dataset["train"], dataset["valid"])
    assert found.keys() == rolls.keys()
    for name, figure in found.items():
        assert figure - rolls[name] == pytest.approx(nats / split.frames, rel=1e-9)
