"""The baselines, recounted with dictionaries, note by note and frame by frame."""

import math
from collections import Counter

import numpy as np
import pytest

from seqmodel.media.music.evaluation import NoteNgram, baseline_nats_per_frame


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
    again, could = Counter(), Counter()
    for frames in struck_dataset["train"]:
        for t, note in np.argwhere(frames[1:, :88] & frames[:-1, :88]):
            again[note] += int(frames[t + 1, 88 + note])
            could[note] += 1
    overall = (sum(again.values()) + 1) / (sum(could.values()) + 2)
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
