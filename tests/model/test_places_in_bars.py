"""The place in the bar: its text, run by Python and compiled, against exact fractions."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_model, read_however_cut
from texts import compiled

from seqmodel.data.batches import load
from seqmodel.data.bundled import FRAMES
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.export.onnx.encoders import _places
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.metre import MOST_SIGNATURES, given_of, signatures
from seqmodel.model.bars import BARS, BEATS, DIGITS, LEFT, PLACES, write_place
from seqmodel.model.build import with_sizes
from seqmodel.model.clock import Clock
from seqmodel.model.echo import echo_size
from seqmodel.model.notes import NoteEncoder
from seqmodel.training.state import TrainingState
from seqmodel.training.update import window_gradient

pytestmark = pytest.mark.usefixtures("unoptimised")

METRES = [(4, 4), (3, 4), (6, 8), (9, 8), (12, 8), (5, 4), (7, 8), (3, 8), (2, 2), (3, 16), (11, 4)]
EXAMPLE = {"to": np.zeros(BARS), "given": np.zeros(1, np.int64), "frames": 0}
COMPILED = compiled(write_place, EXAMPLE, signatures=MOST_SIGNATURES)


def by_hand(found, steps, frame):
    """The numbers of a frame, from quarter notes as fractions."""
    first, beats, of = max(each for each in found if each[0] <= frame)
    dotted = of >= 8 and beats in (6, 9, 12)
    count = beats // 3 if dotted else beats
    elapsed = Fraction(frame - first, steps) / Fraction(4 * (3 if dotted else 1), of)  # in beats
    beat = math.floor(elapsed)
    numbers = [0] * BARS
    numbers[math.floor((elapsed - beat) * PLACES)] = 1
    numbers[PLACES + min(beat % count, BEATS - 1)] = 1
    numbers[PLACES + BEATS + min(count - 1 - beat % count, LEFT - 1)] = 1
    numbers[-DIGITS:] = [int(digit) for digit in f"{beat // count % 8:03b}"[::-1]]
    return numbers


@settings(deadline=None, derandomize=True, database=None, max_examples=80)
@given(
    changes=st.lists(st.tuples(st.integers(1, 90), st.sampled_from(METRES)), max_size=5),
    first=st.sampled_from(METRES),
    steps=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24, 480]),
)
def test_the_place_is_the_definition(changes, first, steps):
    """Guards dotted beats, bars that are no whole number of frames, and where changes take over."""
    found = signatures(sorted([(0, first), *changes]), 100)
    told = given_of(found, Grid.of_beats(steps))
    for frame in range(0, 100, 1 + steps // 24):
        expected = by_hand(found, steps, frame)
        plain, fast = np.full((2, BARS), np.nan)
        write_place(plain, told, frame, MOST_SIGNATURES)
        COMPILED(to=fast, given=told, frames=frame)
        assert plain.tolist() == fast.tolist() == expected


def test_real_time_and_the_usual_are_told_apart():
    """Without its own a piece has the metre usual in train, or 4/4; real time counts fours."""
    waltz = replace(FRAMES, metre=(3, 4))
    assert np.array_equal(waltz.given({}), FRAMES.given({"metre": [[0, 3, 4]]}))
    assert np.array_equal(FRAMES.given({}), FRAMES.given({"metre": [[0, 4, 4]]}))
    seconds = replace(FRAMES, grid=Grid.of_seconds("0.1"))
    assert np.array_equal(seconds.given({}), FRAMES.given({}))


def told(*metres, grid=FRAMES.grid):
    """What is given of pieces, each of these signatures [frame, beats, of]."""
    return np.stack([replace(FRAMES, grid=grid).given({"metre": metre}) for metre in metres])


@pytest.mark.parametrize("clock", [False, True])
@pytest.mark.parametrize("echo", [False, True])
def test_each_note_is_told_its_own_pieces_place(echo, clock):
    """In one window, in windows with a carry, and frame by frame; pieces side by side differ."""
    encoder = NoteEncoder(
        13, echo=echo, bars=FRAMES.given({}), clock=Clock() if clock else None, ages=True
    )
    metres = [[0, 6, 8]], [[-5, 3, 4], [19, 5, 8]]
    frames = (torch.rand(70, 2, 13, generator=torch.Generator().manual_seed(3)) < 0.2).double()
    start = encoder.told(encoder.start(torch.zeros(1, dtype=torch.float64), 2), told(*metres))
    whole = read_however_cut(encoder, frames, start)
    first = len(encoder.inputs(start)[0]) - encoder.skip_size
    first += echo_size(onsets=False) if echo else 0
    found = whole.inputs[..., first : first + BARS].reshape(70, 2, 13, BARS)
    for t in range(70):
        for piece, metre in enumerate(metres):
            expected = torch.tensor(by_hand([tuple(each) for each in metre], 4, t))
            assert torch.equal(found[t, piece], expected.expand(13, BARS).double())


def test_likelihoods_are_of_each_pieces_own_metre(dataset):
    """Guards pieces that trade their metres in a batch, and windows that begin them anew."""
    model = random_model({"model": "tied", "output": "note-unit", "end": False}, seed=4)
    split = dataset["valid"]
    metres = [{"metre": [[0, *METRES[k % len(METRES)]]]} for k in range(len(split))]
    pieces = [replace(p, facts=m) for p, m in zip(split.pieces, metres, strict=True)]
    split = replace(split, pieces=pieces)
    nats = likelihood(model, split).piece_nats
    for k, piece in enumerate(split):
        given = split.given(np.array([k]))
        line = torch.from_numpy(piece.astype(np.float32)).unsqueeze(1)
        with torch.inference_mode():
            h, frames, past, _ = model.read(line, model.start(1, given))
            own = float(model.output.score(h, frames, past).sum())
        assert nats[k] == pytest.approx(own, rel=1e-4)
    usual = likelihood(model, replace(split, pieces=dataset["valid"].pieces)).piece_nats
    assert (abs(usual[1:] - nats[1:]) > 1e-3).any()


def test_training_is_on_each_pieces_own_metre(dataset, make_config):
    """The nats of a batch's first window, without dropout, are those of the pieces' metres."""
    config = make_config(model="tied", bars=True, unit="gru", hidden=3, output="auto")
    split = dataset["train"]
    facts = [{"metre": [[0, *METRES[k % len(METRES)]]]} for k in range(len(split))]
    split = replace(
        split,
        pieces=[replace(p, facts=m) for p, m in zip(split.pieces, facts, strict=True)],
    )
    state = TrainingState(with_sizes(config, split.frame), split, torch.device("cpu"))
    torch.nn.init.normal_(next(state.model.unit.parameters()))
    batch = load(split, np.arange(3))
    nats, _ = window_gradient(state, batch, 1)
    assert nats == pytest.approx(likelihood(state.model, split[:3]).piece_nats.sum(), rel=1e-4)
    assert load(split, np.arange(3), begin=2).given is None


def test_the_table_of_an_exported_model_repeats_the_places():
    """Guards a period that is too short, on grids that bars do not fit."""
    for metre in METRES:
        for steps in (1, 3, 4, 12):
            given = given_of(signatures([(0, metre)], 1), Grid.of_beats(steps))
            table = _places(given)
            for frame in range(0, 3000, 7):
                assert table[frame % len(table)].tolist() == by_hand([(0, *metre)], steps, frame)
