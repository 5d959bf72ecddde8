"""Sampling notes and sound: the stated stream, compiled and plain the same, frequencies."""

import copy
import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from frequencies import assert_frequent
from hypothesis import given
from hypothesis import strategies as st
from onsets import as_frames, random_states
from piece_nats import frame_and_end_nats
from same_draws import assert_strikes_are_possible, both_samplers, same_draws

from seqmodel import units
from seqmodel.config import resolve
from seqmodel.errors import SeqmodelError
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.medium import AUDIO
from seqmodel.model.build import build_model
from seqmodel.model.encoder import Past, WindowEncoder
from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.model.sound.predictors import predictors_at
from seqmodel.model.sound.steering import TrainingStatistics
from seqmodel.outputs.bernoulli import BernoulliOutput
from seqmodel.sampling import sampler as sample
from seqmodel.sampling.sampler import DrawnPiece, Freeze, Pause, Sampler, side_by_side


def by_hand(run, length, seed, number, prime=(), shortest=0):
    """The rule of the docstring by hand: a uniform per note and one for the end, frame by frame."""
    uniforms = Uniforms(seed, number).take(length, 89)
    model = copy.deepcopy(run.model).double()
    frames = []
    with torch.no_grad():
        carry = model.start(1)
        for heard in prime:
            _, state = model.step(carry)
            carry = Carry(state, Past(torch.tensor(heard, dtype=torch.float64)[None]))
        while len(frames) < length:
            h, state = model.step(carry)
            logits = model.output(h)
            uniform = uniforms[len(frames)]
            p = torch.sigmoid(logits[0, :88]).numpy()
            frames.append((uniform[:88] < p).astype(np.uint8))
            if len(frames) >= shortest and uniform[88] < torch.sigmoid(logits[0, 88]):
                break
            carry = Carry(state, Past(torch.tensor(frames[-1], dtype=torch.float64)[None]))
    return np.array(frames)


def draw_piece(run, length, **which):
    """A whole piece (T, 88)."""
    return np.concatenate(list(Sampler(run.model).piece(length, **which)))


@pytest.fixture
def endless(run, monkeypatch):
    """The run, but its pieces never end by themselves."""
    bias = run.model.output.linear.bias
    before = bias[88].item()
    with torch.no_grad():
        bias[88] = -100
        yield run
        bias[88] = before


@pytest.mark.parametrize(("notes", "end"), [(1, True), (8, False), (13, True), (88, False)])
def test_compiled_and_plain_sampling_strike_and_hold_the_same(monkeypatch, notes, end):
    """At borders between the halves of a frame, after a primer, and never held after silence."""
    monkeypatch.setattr(sample, "CHUNK", 50)
    torch.manual_seed(notes)
    unit = units.make("gru", 2 * notes, 11)
    output = BernoulliOutput(11, notes, end=end, onsets=True)
    model = SequenceModel(WindowEncoder(2 * notes, sparse=True), unit, output)
    with torch.no_grad():
        output.linear.weight.normal_()
        output.linear.bias[2 * notes :] = -5
    prime = as_frames(random_states(3, 9, notes))
    for temperature in (1.0, 0.8, 0.0):
        ours = same_draws(model, temperature=temperature, chunks=1, prime=prime)
        again = assert_strikes_are_possible(ours, prime[-1:, :notes])
        if temperature and len(ours) > 20:
            assert 0 < again.mean() < 1


def test_pieces_drawn_side_by_side_are_those_drawn_one_by_one(run):
    """Guards against threads that share an arena or a stream, and pieces out of order."""
    sampler = Sampler(run.model, chunk=8)
    lengths = [40, 3, 200, 1, 90]
    pieces = (sampler.piece(length, seed=2, number=k) for k, length in enumerate(lengths))
    assert sampler.is_compiled
    drawn = [(piece.ended, np.concatenate(chunks)) for piece, chunks in side_by_side(pieces, 3)]
    for k, (length, (ended, frames)) in enumerate(zip(lengths, drawn, strict=True)):
        piece = sampler.piece(length, seed=2, number=k)
        np.testing.assert_array_equal(frames, np.concatenate([*piece]))
        assert ended == piece.ended


def test_pieces_drawn_ahead_fit_in_memory(run, monkeypatch):
    """Hours of sound are drawn one after another, as they are written."""
    monkeypatch.setattr(sample, "thread_count", lambda pieces: min(pieces, 8))
    sampler, third = Sampler(run.model), sample.MAX_NUMBERS_AHEAD // 88 // 3
    assert [sampler.threads(5, n) for n in (100, third, sample.MAX_NUMBERS_AHEAD)] == [5, 3, 1]


def test_an_error_in_a_piece_is_raised_where_the_piece_is_asked_for(run):
    def broken():
        yield np.zeros((1, 88)), False
        raise SeqmodelError("samples are not finite")

    sampler = Sampler(run.model)
    pieces = side_by_side([sampler.piece(9, seed=1), DrawnPiece(broken(), 5)], 2)
    assert next(pieces)[0].frames
    with pytest.raises(SeqmodelError, match="not finite"):
        next(pieces)


def test_pieces_that_nobody_asks_for_are_not_drawn_to_their_ends(endless):
    """Else Ctrl-C would wait for hours of music."""
    sampler, asked = Sampler(endless.model), []

    def pieces():
        for k in itertools.count():
            asked.append(sampler.piece(1 if k == 0 else 10**5, seed=1, number=k))
            yield asked[-1]

    drawn = side_by_side(pieces(), 2)
    assert next(drawn)[0] is asked[0]
    drawn.close()
    assert len(asked) == 3
    assert all(piece.frames < 10**5 for piece in asked)


def test_a_primer_is_read_frame_by_frame(endless, rolls):
    """What follows depends on the primer as `by_hand` has it, its last frame included."""
    prime = rolls["valid"][2]
    ours = draw_piece(endless, 40, seed=5, prime=prime)
    np.testing.assert_array_equal(ours, by_hand(endless, 40, 5, 0, prime=prime))
    nothing = draw_piece(endless, 40, seed=5, prime=prime[:0])
    np.testing.assert_array_equal(nothing, draw_piece(endless, 40, seed=5))


@pytest.mark.parametrize("plain", [False, True])
def test_an_end_can_be_put_off_and_forbidden(run, monkeypatch, plain):
    """At borders of a chunk too: what is drawn until then is what goes on from it."""
    monkeypatch.setattr(sample, "CHUNK", 32)
    if plain:
        monkeypatch.setattr(sample, "compiled_sampler", lambda *_: None)
    later, lengths = 0, set()
    for number, shortest in enumerate([1, 5, 31, 32, 33, 34, 64, 65, 90]):
        drawing = Sampler(run.model).piece(300, seed=6, number=number, shortest=shortest)
        piece = np.concatenate(list(drawing))
        np.testing.assert_array_equal(piece, by_hand(run, 300, 6, number, shortest=shortest))
        assert drawing.ended
        assert len(piece) >= shortest
        free = draw_piece(run, 300, seed=6, number=number)
        lengths.add(len(free))
        np.testing.assert_array_equal(piece[: len(free)], free)
        later += len(piece) > len(free)
    assert later > 3
    assert len(lengths) > 4
    eager = copy.deepcopy(run.model)
    with torch.no_grad():
        eager.output.linear.bias[88] = 100
    for shortest in (0, 1, 2, 32, 33, 34, 64, 65):
        drawing = Sampler(eager).piece(300, seed=6, shortest=shortest)
        assert len(np.concatenate(list(drawing))) == max(1, shortest)
        freeze = Freeze(999, 41)  # of train's pieces the shortest has 41 frames
        drawing = Sampler(eager).piece(300, seed=6, shortest=shortest, freeze=freeze)
        assert len(np.concatenate(list(drawing))) == max(20, shortest)
    primed = Sampler(eager).piece(300, seed=6, freeze=Freeze(999, 41), prime=np.zeros((15, 88)))
    assert len(np.concatenate(list(primed))) == 5
    endless = Sampler(run.model).piece(300, seed=6, shortest=math.inf)
    assert len(np.concatenate(list(endless))) == 300
    assert not endless.ended


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 7)), min_size=1, max_size=8),
    st.lists(st.integers(1, 9), min_size=1),
    st.integers(1, 6),
    st.integers(0, 20),
    st.integers(1, 30),
)
def test_a_piece_is_over_where_a_chord_outlasts_all_of_train(held, sizes, chord, shortest, limit):
    """However it is drawn in chunks. 0 is silence, which is no chord; a strike begins another."""
    frames = np.zeros((sum(length for _, length in held), 176), np.uint8)
    begin, over = 0, limit
    for note, length in held:
        frames[begin : begin + length, 40 + note] = note > 0
        frames[begin, 128 + note] = note > 0
        if note and length > chord and begin + length > shortest:
            over = min(over, max(begin + chord, shortest))
        begin += length
    cuts = np.cumsum(sizes)
    chunks = [*np.split(frames, cuts[cuts < begin])]
    piece = DrawnPiece(
        ((chunk, chunk is chunks[-1]) for chunk in chunks), limit, Freeze(chord, shortest)
    )
    drawn = np.concatenate([*piece])
    assert len(drawn) == piece.frames == min(over, begin)
    np.testing.assert_array_equal(drawn, frames[: len(drawn)])
    assert (piece.frozen, piece.ended) == (over < min(limit, begin), over >= begin <= limit)


@given(st.integers(0, 99), st.integers(1, 9), st.integers(1, 4), st.integers(1, 60))
def test_another_piece_begins_where_a_pause_lasts_too_long(seed, chunk, longest, limit):
    """However it is drawn in chunks, and each piece from a stream of its own."""

    def draw(uniforms):
        while True:
            yield uniforms.take(chunk, 2) ** 2, False

    stream = Uniforms(seed)
    later = stream.split()
    piece = DrawnPiece(draw(stream), limit)
    piece.cut_pauses(Pause(0.3, longest), draw, later)
    drawn = np.concatenate([*piece])
    stream = Uniforms(seed)
    following, expected, held = stream.split(), [], 0
    while len(expected) < limit:
        expected.append(stream.take(2) ** 2)
        held = held + 1 if max(expected[-1]) <= 0.3 else 0
        if held > longest:
            stream, following, held = following, following.split(), 0
    np.testing.assert_array_equal(drawn, expected)


kinds = pytest.mark.parametrize("kind", ["gaussian", "logistic"])
SMALL = AudioFrames(8000, 3, 7, mean=0.1, deviation=0.25)


def frame_wise_model(kind, frame=SMALL, *, unit="gru", hidden=9, components=4, layers=1):
    """A model with no parameter at zero and components unlike each other, whose past matters."""
    torch.manual_seed(5)
    config = {"unit": unit, "hidden": hidden, "layers": layers, "components": components}
    config["model"] = "frame-wise"
    model = build_model(resolve(config | {"output": kind}, presets=AUDIO.presets), frame)
    output, K = model.output, components
    with torch.no_grad():
        for layer in model.layers():
            for gate in layer.gates().values():
                for term in ("V", "b", "bU"):
                    if gate.get(term) is not None:
                        gate[term].uniform_(-1, 1)
        output.linear.weight.mul_(10)
        if kind == "gaussian":
            output.linear.bias.normal_()
            output.linear.bias[(frame.frame_size + 1) * K :].sub_(2)
        else:
            output.mixture.weight.mul_(20)
            output.mixture.bias[: 2 * K].normal_()
            output.mixture.bias[2 * K :].normal_(-2)
            output.predictor.copy_(0.9 ** torch.arange(1, frame.context + 1).flip(0) / 10)
            output.correction.normal_(0, 0.1)
            output.residual.fill_(0.4)
    return model


def draw(model, chunks=3, temperature=1.0):
    """The first `chunks` chunks, as frames (T, F)."""
    sampler = sample.Sampler(model, temperature=temperature)
    drawn = list(itertools.islice(sampler.draw(Uniforms(3, 1)), chunks))
    assert not any(ended for _, ended in drawn)
    return np.concatenate([frames for frames, _ in drawn])


@pytest.fixture
def short_chunks(monkeypatch):
    """Chunks of 20 frames: the plain path is slow."""
    monkeypatch.setattr(sample, "CHUNK", 20)


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize(
    ("frame_size", "context", "components", "layers"),
    [(1, 1, 1, 1), (8, 8, 8, 1), (9, 20, 1, 2), (2, 57, 11, 1), (17, 2, 11, 1)],
)
def test_compiled_and_plain_sampling_draw_the_same(frame_size, context, components, layers):
    """Of full and partial vectors; contexts lie within a frame or span more than a chunk."""
    frame = AudioFrames(8000, frame_size, context, mean=0.1, deviation=0.25)
    model = frame_wise_model("gaussian", frame, components=components, layers=layers)
    prime = np.random.default_rng(0).integers(-9000, 9000, (5, frame_size)) / 32768
    for temperature in (1.0, 0.5, 0.0) if layers == 2 else (1.0,):
        same_draws(model, temperature=temperature, prime=prime)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@kinds
def test_numbers_that_are_not_finite_are_drawn_as_such(kind, temperature):
    """Guards against an error of Python's `round` for what `sample` refuses in one line."""
    model = frame_wise_model(kind)
    layer = model.output.linear if kind == "gaussian" else model.output.mixture
    with torch.no_grad():
        layer.bias.fill_(torch.nan)
    assert np.isnan(draw(model, temperature=temperature)).all()


@pytest.mark.usefixtures("short_chunks")
def test_generators_do_not_share_or_outlive_their_memory():
    """Two at once, and one whose chunk is kept: nothing may be overwritten."""
    model = frame_wise_model("gaussian")
    whole = draw(model, 2)
    sampler = sample.Sampler(model)
    first = sampler.draw(Uniforms(3, 1))
    kept = next(first)[0]
    other = sampler.draw(Uniforms(9))
    del sampler
    next(other)
    rest = next(first)[0]
    del first
    next(other)
    np.testing.assert_array_equal(np.concatenate([kept, rest]), whole)


def sample_wise_model(frame_size, *, unit="gru", layers=1, log_scale=-1.0, rate=8000):
    """A model whose past matters, and whose recordings may have been kept with 15 bits."""
    torch.manual_seed(2)
    config = {"model": "sample-wise", "unit": unit, "hidden": 6, "layers": layers, "end": True}
    frame = AudioFrames(rate, frame_size, 7, mean=0.1, deviation=0.25)
    model = build_model(resolve(config, presets=AUDIO.presets), frame).eval()
    output = model.output
    pushes, voices = torch.rand(2, 16, dtype=torch.float64) - 0.5
    M = 2 * predictors_at(rate).reported_coefficients
    ranges = torch.rand(16, M, dtype=torch.float64) - 0.5 + torch.linspace(0, 0.4, M)
    known = TrainingStatistics(0.4, 2.0, 50.0, 50.0, pushes, pushes, voices, voices, ranges)
    model.encoder.known.copy_(known.packed())
    with torch.no_grad():
        output.linear.weight.mul_(5 if log_scale > -2 else 0.02)
        output.linear.bias.view(3, -1)[2].add_(log_scale)
        output.ending.weight.mul_(20)
        output.ending.bias.fill_(-1)
    return model


def test_likelihood_is_frequency(monkeypatch):
    """Of whole pieces of two frames of two samples, with scales of about a step."""
    monkeypatch.setattr(sample, "CHUNK", 4)
    model, draws = sample_wise_model(2, log_scale=-6.5), 5000
    sampler, found = sample.Sampler(model), Counter()
    for number in range(draws):
        piece = sampler.piece(2, seed=4, number=number)
        levels = (np.concatenate(list(piece)).ravel() * 32768).astype(int)
        found[tuple(levels.tolist()), piece.ended] += 1
    expected, seen = [], []
    for length in (2, 4):
        of_length = [key for key in found if len(key[0]) == length]
        pieces = torch.tensor([piece for piece, _ in of_length], dtype=torch.float64) / 32768
        ended = torch.tensor([ended for _, ended in of_length], dtype=torch.float64)
        frames = pieces.view(len(pieces), -1, 2).transpose(0, 1)
        p = torch.exp(-sum(frame_and_end_nats(model.double(), frames, ended)).sum(0))
        expected += (p * draws).tolist()
        seen += [found[key] for key in of_length]
    assert_frequent(seen, expected, draws, least=60)


@pytest.mark.parametrize(
    ("unit", "layers", "temperature", "rate"), [("gru", 1, 1.0, 44100), ("lstm", 2, 0.8, 8000)]
)
def test_compiled_and_plain_sampling_of_single_samples_draw_the_same(
    unit, layers, temperature, rate, monkeypatch
):
    """Across chunks, from a primer, up to the same end, which only a whole frame may have."""
    monkeypatch.setattr(sample, "CHUNK", 20)
    model = sample_wise_model(3, unit=unit, layers=layers, rate=rate)
    model.output.ending.bias.requires_grad_(False).fill_(-4)
    prime = np.random.default_rng(1).normal(0, 0.01, (30, 3)).astype(np.float32)
    samplers, lengths = both_samplers(model, temperature=temperature), []
    for number in range(4):
        drawn = [
            each.piece(60, seed=7, number=number, prime=prime, shortest=5) for each in samplers
        ]
        ours, theirs = (np.concatenate(list(piece)) for piece in drawn)
        np.testing.assert_array_equal(ours, theirs)
        assert drawn[0].ended == drawn[1].ended
        assert ours.shape[1] == 3
        lengths.append(len(ours))
    assert min(lengths) >= 5
    assert len(set(lengths)) > 2
