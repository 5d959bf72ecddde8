"""Statistics and baselines of rolls, copies across splits, voices, all recounted."""

import itertools
import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from noise import prepared
from onsets import as_frames, random_states, restrikes

from seqmodel.data.dataset import open_dataset
from seqmodel.errors import SeqmodelError
from seqmodel.media.music import copies
from seqmodel.media.music.copies import longest_copies, shares_in_train
from seqmodel.media.music.evaluation import (
    MusicComparison,
    NoteNgram,
    Statistics,
    baseline_nats_per_frame,
    chord_lengths,
    mean,
)
from seqmodel.media.music.frames import PianoRollFrames, note_lengths
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.published import read_published
from seqmodel.media.music.voices import assignment_nats, voices_cost


def roll_of(*frames):
    """Frames given as pitches."""
    roll = np.zeros((len(frames), 88), np.uint8)
    for t, pitches in enumerate(frames):
        roll[t, [pitch - 21 for pitch in pitches]] = 1
    return roll


# Two voices; the lower one rests, the upper one steps up by two, down by one.
TUNE = roll_of((60, 64), (60, 64), (66,), (), (60, 66), (54, 65))


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


def test_the_figure_is_the_mean_over_all_frames(dataset):
    """Not the mean of the pieces' means: pieces of one frame would weigh as much as long ones."""
    nats = baseline_nats_per_frame(dataset["train"], dataset["valid"])
    for name, order in (("marginal", 0), ("repeat", 1), ("note_ngram", 8)):
        ngram = NoteNgram(dataset["train"], order)
        every = np.concatenate([ngram.nats(roll) for roll in dataset["valid"]])
        assert nats[name] == pytest.approx(every.mean(), rel=1e-12)


class Pieces(list):
    """Pieces in memory."""

    @property
    def frames(self):
        return sum(map(len, self))

    @property
    def frame(self):
        size = self[0].shape[1]
        return PianoRollFrames(Grid.of_beats(4), onsets=size == 176, kit=size == 47)

    def read_rows(self, k):
        return self.frame.encode(self[k])


def by_looking_up(split, train, sizes):
    """The share of frames in windows of such sizes that train has too, each as its text."""

    def windows(piece, n):
        for t in range(len(piece) - n + 1):
            window = piece[t : t + n].reshape(n, -1, 88)
            notes = np.flatnonzero(window[:, 0].any(axis=0))
            if (window != window[:1]).any():  # so there are notes
                yield t, (window[..., notes[0] : notes[-1] + 1].tobytes(), notes[-1] - notes[0])

    inside = [np.zeros(len(piece), bool) for piece in split]
    for n in sizes:
        seen = {window for piece in train for _, window in windows(piece, n)}
        for piece, mask in zip(split, inside, strict=True):
            for t, window in windows(piece, n):
                mask[t : t + n] |= window in seen
    return sum(mask.sum() for mask in inside) / sum(map(len, split))


CHORDS = [[0, 0, 0, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [1, 1, 0, 1, 0]]
"""Silence, a chord, the same a semitone above, another."""

FEW = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=8
)  # a chord, and for how long it is held


@settings(max_examples=25)
@given(
    st.lists(st.tuples(FEW, st.integers(0, 83)), min_size=1, max_size=4),
    st.lists(st.tuples(FEW, st.integers(0, 83)), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([1, 30, 2**18]),
)
def test_every_window_is_found_in_any_key(split, train, onsets, at_once):
    """Guards the key of each window, rests, strikes, the ends of pieces, a part at a time."""

    def piece(chords, up):
        frames = np.zeros((sum(length for _, length in chords), 88), np.uint8)
        frames[:, up : up + 5] = np.repeat(
            [CHORDS[k] for k, _ in chords], [n for _, n in chords], axis=0
        )
        struck = frames & (np.diff(frames, axis=0, prepend=0) != 0)
        return np.concatenate([frames, struck], axis=1) if onsets else frames

    ours, theirs = (Pieces(piece(*p) for p in some) for some in (split, train))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "QUERY_FRAMES", at_once)
        patch.setattr(copies, "BLOCK", at_once)
        found = shares_in_train({"valid": ours}, theirs)["valid"]
    assert found == {
        "8": by_looking_up(ours, theirs, [8, 16, 32]),
        "16": by_looking_up(ours, theirs, [16, 32]),
        "32": by_looking_up(ours, theirs, [32]),
    }


@pytest.mark.parametrize(
    ("name", "percent"),
    [
        ("JSB_Chorales", [3.89, 1.78, 1.78]),
        ("Nottingham", [42.97, 4.77, 2.02]),
        ("MuseData", [3.19, 0.39, 0.08]),
        ("Piano_midi", [1.04, 0.19, 0.0]),
    ],
)
def test_copies_within_the_published_sets(shared_data, name, percent):
    rolls = read_published(shared_data / f"music/rolls/{name}.mat").splits
    found = shares_in_train({"valid": Pieces(rolls["valid"])}, Pieces(rolls["train"]))["valid"]
    assert [round(100 * share, 2) for share in found.values()] == percent


def test_drums_are_compared_as_they_stand():
    """Guards against a kit in some key: the same rhythm on the next sound is another."""
    hits = np.zeros((8, 47), np.uint8)
    hits[::2, [3, 7]] = 1
    splits = {"valid": Pieces([hits]), "test": Pieces([hits, 1 - hits])}
    found = shares_in_train(splits, Pieces([hits.copy()]))
    assert (found["valid"]["8"], found["test"]["8"]) == (1, 0.5)
    assert shares_in_train(splits, Pieces([np.roll(hits, 1, axis=1)]))["valid"]["8"] == 0


def test_the_lowest_note_is_found_however_many_sound():
    """Guards words that a float64 rounds up to the next power of two."""
    words = [0, *(2**k for k in range(64)), *(2**k - 1 for k in range(54, 65))]
    found = copies._first_bit(np.array(words, np.uint64))
    assert found.tolist() == [64 - word.bit_length() for word in words]


class CountedRows(np.ndarray):
    """Rows that count how often they are measured."""

    measured = 0

    def __len__(self):
        CountedRows.measured += 1
        return super().__len__()


def test_the_time_for_copies_grows_with_the_pieces_not_their_square(monkeypatch):
    """Measuring all pieces held at each new one made preparing a large collection crawl."""
    pieces = Pieces(np.zeros((1, 88), np.uint8) for _ in range(200))
    monkeypatch.setattr(
        Pieces, "read_rows", lambda some, k: np.zeros((1, 11), "u1").view(CountedRows)
    )
    assert len([*copies._blocks(pieces)]) == 1
    assert CountedRows.measured < 5 * len(pieces)


FRAMES = np.zeros((5, 176), np.uint8)
"""Silence, the lowest key, the highest key, both, both with the lowest one struck."""
FRAMES[[1, 3, 4], 0] = FRAMES[[2, 3, 4], 87] = FRAMES[4, 88] = 1
PIECE = st.lists(st.integers(0, 4), min_size=1, max_size=12)


def by_trying(piece, train):
    """The longest stretch of a piece that is at any place of any other."""
    for length in range(len(piece), 0, -1):
        stretches = {tuple(piece[t : t + length]) for t in range(len(piece) - length + 1)}
        for other in train:
            for t in range(len(other) - length + 1):
                if tuple(other[t : t + length]) in stretches:
                    return length
    return 0


@given(st.lists(PIECE, max_size=4), st.lists(PIECE, max_size=4))
def test_the_longest_copy_is_found(pieces, train):
    """Guards against packing 176 numbers as 88, too: frames differ if their strikes do."""
    expected = [by_trying(piece, train) for piece in pieces]
    found = longest_copies([FRAMES[p] for p in pieces], [FRAMES[p] for p in train])
    assert found.tolist() == expected


R = -1
"""A rest."""


def pieces(voices):
    """Pieces of so many voices that share a few pitches."""
    frame = st.tuples(*[st.sampled_from([R, 60, 61, 64, 72])] * voices)
    return st.lists(frame, min_size=1, max_size=5)


@given(st.integers(1, 4).flatmap(lambda v: st.tuples(pieces(v), pieces(v))))
def test_the_probabilities_of_the_voices_of_a_frame_sum_to_1(given):
    """Guards a pitch left to nobody, one forgotten, a context by who sings what."""
    train, (*past, last) = given
    learned = assignment_nats(np.array(train, np.int8), Counter())[1]
    pitches = set(last) - {R}
    ways = [
        way
        for way in itertools.product([R, *pitches], repeat=len(last))
        if set(way) - {R} == pitches
    ]
    nats = [assignment_nats(np.array([*past, way], np.int8), learned)[0][-1] for way in ways]
    assert math.isclose(sum(math.exp(-n) for n in nats), 1.0)
    assert len(ways) == 1 or all(n > 0 for n in nats)


def test_a_frame_is_scored_before_it_is_learned():
    """Guards counts that know the frame itself or those after it."""
    voices = np.array([[60, 55], [60, 55], [55, 60], [60, 60]], np.int8)
    nats = [assignment_nats(voices[:n], Counter())[0] for n in range(1, 5)]
    for n in range(4):
        assert np.array_equal(nats[n], nats[3][: n + 1])


def test_a_duet_by_hand():
    """By hand: with n counts in a context, an option of k with c of them has (c + 1/k) / (n + 1).

    The upper voice has two options wherever both pitches sound, and leaves one to the lower. In a
    unison, each has two as long as the upper one sings.
    """
    voices = [[64, 60], [64, 60], [64, 60], [60, 64], [67, 67], [67, 67], [67, R], [R, R]]
    half = Fraction(1, 2)
    by_hand = [
        half,  # after silence
        half,  # both held, for the first time
        (1 + half) / 2,  # again
        half / 3,  # crossed after two that were not
        half * half,  # both leap
        half * half,  # both held
        ((1 + half) / 2) * (half / 2),  # so held again, but the lower one rests
        1,  # nothing to choose
    ]
    nats, own = assignment_nats(np.array(voices, np.int8), Counter())
    np.testing.assert_allclose(np.exp(-nats), [float(p) for p in by_hand], rtol=1e-12)
    again = assignment_nats(np.array(voices, np.int8), own)[0]
    assert again[0] == pytest.approx(-math.log((1 + 0.5) / 2))


@pytest.fixture
def chorales(tmp_path):
    random = np.random.default_rng(0)
    for split in ("train", "valid"):
        found = np.empty(3, object)
        for k in range(3):
            found[k] = random.integers(59, 64, (20 + k, 4)).astype(float)
            found[k][found[k] == 59] = -1
        np.savez(tmp_path / f"{split}.npz", **{split: found})
    prepared(tmp_path, tmp_path / "d", PianoRollFrames(Grid.of_beats(4)))
    return tmp_path / "d"


def test_train_is_learned_first_and_each_piece_by_itself(chorales):
    """Guards against a piece that learns from those before it in its own split."""
    dataset = open_dataset(chorales)
    train, valid = (
        [np.array(piece.facts["voices"], np.int8) for piece in dataset[split].pieces]
        for split in ("train", "valid")
    )
    learned = Counter()
    for voices in train:
        learned += assignment_nats(voices, learned)[1]
    nats, notes = voices_cost(dataset["valid"], dataset["train"])
    expected = sum(assignment_nats(voices, learned)[0].sum() for voices in valid)
    assert nats == pytest.approx(expected)
    assert notes == sum(voices.size for voices in valid) == 4 * (20 + 21 + 22)
    alone = voices_cost(dataset["valid"][2:], dataset["train"])[0]
    assert alone == pytest.approx(assignment_nats(valid[2], learned)[0].sum())


@pytest.mark.parametrize("wrong", ["[[60, 60, 60, 60]]", "60", '"abc"', "[[1, 2], [3]]", "[[999]]"])
def test_voices_that_do_not_sing_the_notes(chorales, wrong):
    """Guards against an index edited by hand: it is no part of a piece's hash."""
    index = chorales / "valid.jsonl"
    first, *rest = index.read_text().splitlines()
    index.write_text("\n".join([first.split('"voices"')[0] + f'"voices": {wrong}}}', *rest]))
    dataset = open_dataset(chorales)
    with pytest.raises(SeqmodelError, match="piece 0 of valid do not sing its notes"):
        voices_cost(dataset["valid"], dataset["train"])


def test_the_cost_of_voices_of_the_chorales(shared_data):
    """The figure in docs: a context that no longer holds a voice to its line costs more."""
    chorales = read_published(shared_data / "music/jsb16/Jsb16thSeparated.json").pieces
    learned = Counter()
    for roll in chorales["train"]:
        learned += assignment_nats(roll.pitches, learned)[1]
    nats = np.concatenate([assignment_nats(r.pitches, learned)[0] for r in chorales["valid"]])
    assert round(nats.mean(), 4) == 0.0668
