"""The clock: how soon a piece may end, by its frames so far and the lengths of training pieces."""

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from models import clock_of

from seqmodel.evaluation.likelihood import likelihood
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.clock import DIGITS, HORIZONS, MAX_LENGTHS, ODDS_SCALE, Clock

pytestmark = pytest.mark.usefixtures("unoptimised")

LENGTHS = [12, 30, 30, 33, 40]


def chances_by_hand(lengths, count):
    """p(the piece has t + 1 frames | it has over t), by the definition, for each t."""
    N, mean = len(lengths), sum(lengths) / len(lengths)
    logs = [math.log(length) for length in lengths]

    def longer(frames):
        total = math.exp(-frames / mean)
        for own, length in zip(logs, lengths, strict=True):
            near = sorted(abs(own - other) for other in logs)[min(N - 1, round(math.sqrt(N)))]
            width = max(near, 1 / length)
            total += 1 - NormalDist(own, width).cdf(math.log(frames))
        return total / (N + 1)

    chances = [1 - longer(t + 1.5) / longer(t + 0.5) for t in range(count)]
    longest = max(lengths)
    return chances[: longest - 1] + [
        max(chances[longest - 1 : t + 1]) for t in range(longest - 1, count)
    ]


@pytest.mark.parametrize("lengths", [LENGTHS, [7], [20] * 9, [1, 90]])
def test_the_table_is_the_definition(lengths):
    table = clock_of(lengths).table()
    count = 2 * max(lengths)
    chances = chances_by_hand(lengths, count + max(HORIZONS))
    assert table.shape == (count, len(HORIZONS) + 1)
    ends = torch.sigmoid(table[:, -1] * ODDS_SCALE)
    assert ends.tolist() == pytest.approx(chances[:count], rel=1e-5, abs=2e-9)
    for t in (0, 5, max(lengths), count - 1):
        for k, frames in enumerate(HORIZONS):
            stays = math.prod(1 - chance for chance in chances[t : t + frames])
            assert float(table[t, k]) == pytest.approx(1 - stays, abs=1e-6)


def test_of_many_pieces_the_lengths_are_taken_evenly():
    lengths = np.random.default_rng(1).permutation(np.arange(1, 1025))
    assert clock_of(lengths).lengths.tolist() == list(range(1, 1025, 1024 // MAX_LENGTHS))


def test_the_metre_is_told_by_digits_of_the_number_of_frames():
    """Beside what is told of the end, or alone."""
    table = clock_of(LENGTHS, metre=True).table()
    digits = [[int(d) for d in f"{t % 2**DIGITS:0{DIGITS}b}"[::-1]] for t in range(128)]
    assert table[:, :DIGITS].tolist() == digits  # 80 rows, up to a multiple of 64
    assert torch.equal(table[:80, DIGITS:], clock_of(LENGTHS).table())
    alone = clock_of(LENGTHS, end=False, metre=True)
    assert alone.table().tolist() == digits[:64]


@pytest.mark.parametrize("last", [[8, 8, 11, 8], [8] * 9])
def test_a_chord_held_as_long_as_a_last_one_is_evidence_of_the_end(last):
    """The ratio of odds given how long nothing has changed to odds without, by the definition."""
    others = [1, 2, 4, 2, 8, 3]
    held = Clock(held=True)
    ages = [np.concatenate([[0], *(1 + np.arange(n) for n in [*others, end])])[:-1] for end in last]
    held.fit_held(ages)
    chances = chances_by_hand(last, 40)
    prior, going = math.log(len(last) / sum(len(age) - 1 for age in ages)), float(len(last))
    for age in range(40):
        times = sum(int((piece == age).sum()) for piece in ages)
        chance = going * chances[age] / max(going, times)
        expected = math.log(chance / (1 - chance)) - prior
        assert float(held.held[age]) * ODDS_SCALE == pytest.approx(expected, abs=1e-4), age
        going *= 1 - chances[age]
    assert float(held.held[7]) > 0 > float(held.held[1])
    assert (held.held[10:].diff() >= 0).all()  # to the end, where nothing was ever seen
    held.fit_held([np.zeros(1, int)] * 2)
    assert held.held.isfinite().all()  # pieces of one frame, which is always the last


def without_evidence(model):
    """The model, its ends left to the clock."""
    with torch.no_grad():
        model.output.ending.weight[:, :-1] = 0
    return model


def test_training_starts_from_the_lengths_of_the_training_pieces(make_config, dataset):
    """Without evidence from h, the nats of a piece's end are those of its length."""
    config = make_config(
        model="tied", clock=True, held=False, end=True, unit="gru", hidden=3, output="auto"
    )
    model = build_model(with_sizes(config, dataset.frame), dataset.frame)
    train, valid = dataset["train"], dataset["valid"]
    model.start_at(train)
    chances = chances_by_hand(train.lengths.tolist(), int(valid.lengths.max()))
    expected = [
        -math.log(chances[length - 1]) - sum(math.log1p(-c) for c in chances[: length - 1])
        for length in valid.lengths.tolist()
    ]
    nats = likelihood(without_evidence(model), valid).figures["end_nats_per_piece"]
    assert nats == pytest.approx(sum(expected) / len(expected), rel=1e-4)
