"""The clock: how soon a piece may end, by its frames so far and the lengths of training pieces."""

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from models import compiled_and_plain, random_model

from seqmodel.evaluation.likelihood import likelihood
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.clock import DIGITS, HORIZONS, MOST_LENGTHS, ODDS_SCALE, Clock
from seqmodel.model.notes import NoteEncoder
from seqmodel.sampling.sampler import Sampler

LENGTHS = [12, 30, 30, 33, 40]


def clock(lengths, *, metre=False):
    made = Clock(metre=metre)
    made.start_at(np.array(lengths))
    return made


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
    table = clock(lengths).table()
    count = 2 * max(lengths)
    chances = chances_by_hand(lengths, count + max(HORIZONS))
    assert table.shape == (count, len(HORIZONS) + 1)
    ends = torch.sigmoid(table[:, -1] * ODDS_SCALE)
    assert ends.tolist() == pytest.approx(chances[:count], rel=1e-5, abs=2e-9)
    for t in (0, 5, max(lengths), count - 1):
        for k, frames in enumerate(HORIZONS):
            stays = math.prod(1 - chance for chance in chances[t : t + frames])
            assert float(table[t, k]) == pytest.approx(1 - stays, abs=1e-6)


def test_ends_are_rare_before_the_shortest_piece_and_ever_likelier_after_the_longest():
    ends = torch.sigmoid(
        clock([112] * 25 + [144] * 34 + [156] * 15 + [204] * 26).table()[:, -1] * 8
    )
    assert float(ends[:105].sum()) < 0.02
    assert (ends[203:].diff() >= 0).all()
    assert float(ends[203]) > 0.5


def test_of_many_pieces_the_lengths_are_taken_evenly():
    lengths = np.random.default_rng(1).permutation(np.arange(1, 1025))
    assert clock(lengths).lengths.tolist() == list(range(1, 1025, 1024 // MOST_LENGTHS))


def pieces(frames, batch, size):
    random = torch.Generator().manual_seed(3)
    return (torch.rand(frames, batch, size, generator=random) < 0.2).double()


def test_the_metre_is_told_by_digits_of_the_number_of_frames():
    """Beside what is told of the end, or alone."""
    table = clock(LENGTHS, metre=True).table()
    digits = [[int(d) for d in f"{t % 2**DIGITS:0{DIGITS}b}"[::-1]] for t in range(128)]
    assert table[:, :DIGITS].tolist() == digits  # 80 rows, up to a multiple of 64
    assert torch.equal(table[:80, DIGITS:], clock(LENGTHS).table())
    alone = Clock(end=False, metre=True)
    alone.start_at(np.array(LENGTHS))
    assert alone.table().tolist() == digits[:64]


@pytest.mark.parametrize("metre", [False, True])
@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("onsets", [False, True])
def test_each_note_reads_the_row_of_the_frames_so_far(onsets, echo, metre):
    """In one window, in windows with a carry, and frame by frame; beyond the table's rows."""
    encoder = NoteEncoder(13, onsets=onsets, echo=echo, clock=clock([9, 10], metre=metre))
    table, last = encoder.clock.table(), 63 if metre else 19
    frames = pieces(70, 2, 13 * (1 + onsets))
    start = encoder.start(torch.zeros(1, dtype=torch.float64), 2)
    whole = encoder.encode(frames, start)
    for t in range(70):
        row = table[t if t <= last else t - 64 if metre else last]
        assert torch.equal(whole.inputs[t, :, -len(row) :], row.expand(26, len(row))), t
    assert torch.equal(whole.inputs[..., -encoder.skip_size :], whole.skip)
    first = encoder.encode(frames[:11], start)
    assert torch.equal(encoder.encode(frames[11:], first.last).inputs, whole.inputs[11:])
    past = start
    for t, frame in enumerate(frames):
        assert torch.equal(encoder.inputs(past)[0], whole.inputs[t])
        past = encoder.append(past, frame)
    assert all(map(torch.equal, past, whole.last))


def tied(output, *, lengths=LENGTHS, **options):
    model = random_model({"model": "tied", "output": output, "end": True} | options, seed=4)
    model.encoder.clock.start_at(np.array(lengths))
    model.output.start_ends_at(model.encoder.end_odds)
    return model


@pytest.mark.parametrize(
    ("output", "echo", "clock", "metre"),
    [
        ("bernoulli", False, True, False),
        ("bernoulli", True, False, True),
        ("note-unit", False, True, True),
        ("note-unit", True, True, True),
    ],
)
def test_compiled_and_plain_sampling_read_the_same_clock(output, echo, clock, metre):
    """From a primer, whose frames count, to the end, or beyond the table's rows."""
    model = tied(output, echo=echo, end=clock, clock=clock, metre=metre)
    compiled, plain, ended = compiled_and_plain(model, pieces(7, 1, 88)[:, 0].numpy())
    assert ended == clock
    np.testing.assert_array_equal(compiled, plain)


def without_evidence(model):
    """The model, its ends left to the clock."""
    with torch.no_grad():
        model.output.ending.weight[:, :-1] = 0
    return model


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_samples_last_as_long_as_training_pieces(temperature):
    """Without the clock they end at any time, on average after its mean."""
    lengths = [20] * 30 + [30] * 30
    sampler = Sampler(without_evidence(tied("bernoulli", lengths=lengths)), temperature=temperature)
    found = [len(next(sampler.draw(Uniforms(1, k)))[0]) for k in range(60)]
    assert len([length for length in found if 18 <= length <= 32]) > 54
    assert {20, 30} <= set(found)


def test_training_starts_from_the_lengths_of_the_training_pieces(make_config, dataset):
    """Without evidence from h, the nats of a piece's end are those of its length."""
    config = make_config(model="tied", clock=True, end=True, unit="gru", hidden=3, output="auto")
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
