"""What models of notes remember of a piece, the clock and rests of units, by definition."""

import math
from collections import defaultdict
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from metres import METRES, place_of
from models import clock_of, model_of, random_model, read_however_cut
from same_draws import same_draws

from seqmodel import units
from seqmodel.config import MODELS
from seqmodel.data.batches import load
from seqmodel.data.bundled import FRAMES
from seqmodel.evaluation.likelihood import likelihood
from seqmodel.media.music.grid import Grid
from seqmodel.media.music.metre import (
    MAX_SIGNATURES,
    metre_from_json,
    shifted,
    signature_row,
    signatures,
)
from seqmodel.model.ages import AGES, SILENT, SOUNDING, UNCHANGED, unchanged_before
from seqmodel.model.bars import BARS, BEATS, DIGITS, POSITIONS, REMAINING, write_position
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.clock import DIGITS as CLOCK_DIGITS
from seqmodel.model.clock import HORIZONS, MAX_HELD, MAX_LENGTHS, ODDS_SCALE, Clock
from seqmodel.model.echo import MAX_LENGTH, REACH_BACK, STEPS
from seqmodel.model.motifs import CONTEXTS, MAX_COUNT, MOTIFS
from seqmodel.model.notes import NoteEncoder
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.note_unit import NoteUnitOutput
from seqmodel.outputs.notes import with_forced_strikes
from seqmodel.outputs.notes_tied import below_size
from seqmodel.training.state import TrainingState
from seqmodel.training.update import window_gradient

pytestmark = pytest.mark.usefixtures("unoptimised")

OF_TWO = [[0, 6, 8]], [[-5, 3, 4], [19, 5, 8]]


def piece_of(T, notes, *, onsets, seed):
    """Frames (T, F): a spell without changes, all of it transposed, then three kinds of frames."""
    random = np.random.default_rng(seed)
    changes, struck = random.random((2, T, notes)) < [[[0.08]], [[0.05]]]
    A, C = 2 * T // 5, 4 * T // 5
    changes[A // 6 : A * 8 // 9] = struck[A // 6 : A * 8 // 9] = False
    sounding = np.cumsum(changes, 0) % 2
    sounding[:, 0] = 0  # never
    sounding[A : 2 * A, 5:] = sounding[:A, :-5]
    sounding[C:] = (random.random((3, notes)) < 0.3)[random.integers(0, 3, T - C)]
    if not onsets:
        return sounding.astype(float)
    drawn = torch.from_numpy(np.hstack([sounding, struck]).astype(float))
    return with_forced_strikes(drawn, torch.cat([torch.zeros(1, 2 * notes), drawn[:-1]])).numpy()


def ages_by_hand(frames, notes):
    """The inputs (T, D, AGES) after each frame, from the whole piece at once."""
    sounding = frames[:, :notes] > 0
    before = np.vstack([np.zeros((1, notes), bool), sounding[:-1]])
    struck = frames[:, notes:] > 0 if frames.shape[1] > notes else sounding & ~before
    found = np.zeros((len(frames), notes, AGES))
    moved = (struck | (sounding != before)).any(1)
    for t in range(len(frames)):
        latest = np.flatnonzero(moved[: t + 1])
        still = t - latest[-1] + 1 if len(latest) else t + 1
        for n in range(notes):
            strikes, sounded = np.flatnonzero(struck[: t + 1, n]), sounding[: t + 1, n].nonzero()[0]
            age = t - strikes[-1] + 1 if sounding[t, n] else 0
            silent = t - sounded[-1] if len(sounded) and not sounding[t, n] else np.inf
            found[t, n] = [
                *(age >= k for k in SOUNDING),
                *(silent <= k for k in SILENT),
                *(still >= k for k in UNCHANGED),
            ]
    return found


def longest_stretch(heard):
    """Of a list of frames: the longest stretch's length, and the frame that followed."""
    last, best, after = len(heard) - 1, 0, None
    for j in range(max(0, last - REACH_BACK + 1), last):
        length = 0
        while length < min(j + 1, MAX_LENGTH) and heard[j - length] == heard[last - length]:
            length += 1
        if length and length >= best:  # the latest wins a tie
            best, after = length, heard[j + 1]
    return best, after


def echo_by_hand(frames, notes):
    line, found = frames.tolist(), []
    for t in range(len(line)):
        length, after = longest_stretch(line[: t + 1])
        known = np.array([length >= step for step in STEPS])
        halves = np.reshape(after or [0.0] * len(line[0]), (-1, notes, 1))
        found.append(np.hstack([np.tile(known, (notes, 1)), *(half * known for half in halves)]))
    return np.array(found)


def motifs_by_hand(frames, notes):
    """By counts in a dictionary."""
    found = np.zeros((len(frames), notes, MOTIFS))
    seen = defaultdict(lambda: [0, 0])
    keys = {}
    wide = np.pad(frames, ((max(n for n, *_ in CONTEXTS), 0), (24, 24)))
    for t, frame in enumerate(frames):
        for (_, note), key in keys.items():
            counts, sounds = seen[key], int(frame[note])
            counts[sounds] = min(counts[sounds] + 1, MAX_COUNT)
            if counts[1 - sounds] > 2:
                counts[1 - sounds] = counts[1 - sounds] // 2 + 1
        keys = {}
        for k, (back, width, absolute) in enumerate(CONTEXTS):
            end = len(wide) - len(frames) + t + 1
            for note in range(notes):
                around = wide[end - back : end, note + 24 - width : note + 25 + width]
                if around.any():
                    keys[k, note] = k, around.tobytes(), note if absolute else None
        for (k, note), key in keys.items():
            silent, sounded = seen[key]
            if silent + sounded:
                odds = np.log((sounded + 0.4) / (silent + 0.4)) / 4
                told = odds, 1, np.log2(1 + silent + sounded) / 4
                found[t, note, 3 * k : 3 * k + 3] = told
    return found


def place_by_hand(found, steps, frame):
    """The numbers of a frame in the bar."""
    place, beat, bar, count = place_of(frame, found, steps)
    numbers = [0] * BARS
    numbers[math.floor(place * POSITIONS)] = 1
    numbers[POSITIONS + min(beat, BEATS - 1)] = 1
    numbers[POSITIONS + BEATS + min(count - 1 - beat, REMAINING - 1)] = 1
    numbers[-DIGITS:] = [int(digit) for digit in f"{bar % 8:03b}"[::-1]]
    return numbers


def expected_of(piece, encoder, metre):
    """What each note reads besides the frame before, at each of a piece (T, F)."""
    frames = np.vstack([np.zeros_like(piece[:1]), piece[:-1]])  # after a frame of silence
    notes, clock, ages = encoder.rows, encoder.clock, ages_by_hand(frames, encoder.rows)
    held = unchanged_before(piece.astype(np.uint8), notes)
    told = []
    if encoder.echo:
        told.append(echo_by_hand(frames, notes))
    if len(encoder.bars):
        places = [place_by_hand(metre, 4, t) for t in range(len(frames))]
        told.append(np.tile(np.array(places)[:, None], (notes, 1)))
    if clock:
        table = clock.table().numpy()
        last = len(table) - clock.period
        rows = [t if t < last else last + (t - last) % clock.period for t in range(len(frames))]
        told.append(np.tile(table[rows][:, None], (notes, 1)))
        if clock.held is not None:
            told[-1][..., -1] += clock.held.numpy()[held.clip(max=MAX_HELD - 1)][:, None]
    told += [ages] * encoder.ages
    assert notes < 30 or len(frames) < 150 or ages.any((0, 1)).all()
    if encoder.motifs:
        told.append(motifs_by_hand(frames[:, :notes], notes))
    assert ((held[:, None] >= UNCHANGED) == ages[:, 0, -len(UNCHANGED) :]).all()
    return np.concatenate(told, 2)


@pytest.mark.parametrize(
    ("T", "notes", "onsets", "parts"),
    [
        (190, 30, False, "echo bars ages motifs"),
        (190, 65, True, "echo clock ages"),  # frames of three words
        (70, 13, True, "bars metre motifs"),
        (70, 64, False, "echo metre clock"),
        (600, 3, False, "held clock ages"),
        (30, 13, False, "ages"),
    ],
)
def test_notes_read_what_the_definitions_say_however_a_piece_is_cut(T, notes, onsets, parts):
    """Guards places of numbers in x and of integers in the memory, and their carrying on."""
    clock = clock_of([9, 10], metre="metre" in parts, held="held" in parts, end="clock" in parts)
    if clock.held is not None:
        clock.held.copy_(torch.arange(MAX_HELD) / 8)
    encoder = NoteEncoder(
        notes,
        onsets=onsets,
        bars=FRAMES.metres({}) if "bars" in parts else None,
        clock=clock if clock.size else None,
        **{name: name in parts for name in ("echo", "ages", "motifs")},
    )
    pieces = [piece_of(T, notes, onsets=onsets, seed=seed) for seed in (1, 2)]
    start = encoder.start(torch.zeros(1, dtype=torch.float64), 2)
    start = encoder.with_metres(
        start, np.stack([FRAMES.metres({"metre": metre}) for metre in OF_TWO])
    )
    whole = read_however_cut(encoder, torch.from_numpy(np.stack(pieces, 1)), start)
    told = whole.skip.view(T, 2, notes, -1).numpy()
    for b, (piece, metre) in enumerate(zip(pieces, OF_TWO, strict=True)):
        expected = expected_of(piece, encoder, metre)
        np.testing.assert_allclose(told[:, b], expected, rtol=0, atol=1e-12)
        assert T < 100 or "echo" not in parts or expected[..., : len(STEPS)].any((0, 1)).all()


def test_frames_too_far_back_are_forgotten():
    """Guards the ring buffer: an overwritten frame must not be found, nor a run beyond it."""
    numbers = np.arange(REACH_BACK + 60) % 200 + 1  # recurs after 200 frames
    frames = (numbers[:, np.newaxis] >> np.arange(8) & 1).astype(float)
    frames[20] = 0  # recurs once with the first just within reach, then just out of reach
    encoder = NoteEncoder(8, echo=True)
    for again, known in ((20 + REACH_BACK - 1, 1), (20 + REACH_BACK, 0)):
        piece = torch.from_numpy(frames[: again + 2].copy()).unsqueeze(1)
        piece[again] = 0
        skip = encoder.encode(piece, encoder.start(piece.new_zeros(1), 1)).skip
        told = np.zeros((8, 2, len(STEPS)))
        told[:, 0, 0], told[:, 1, 0] = known, known * frames[21]
        assert skip[again + 1].tolist() == told.reshape(8, -1).tolist()
        assert (skip[again, :, : len(STEPS)] == 1).all()


def test_without_echo_and_clock_there_is_no_memory():
    """So that old checkpoints still give the same models."""
    options = {"model": "tied", "unit": "gru", "hidden": 6}
    model = model_of(options | dict.fromkeys(MODELS["tied"].settings, False))
    assert model.start(2).past.memory is None
    assert model.layers()[0].input_size == NoteEncoder(88).input_size == 58
    assert len(model.start(1).tensors()) == 2


@settings(deadline=None, derandomize=True, database=None, max_examples=40)
@given(
    changes=st.lists(st.tuples(st.integers(1, 90), st.sampled_from(METRES)), max_size=5),
    first=st.sampled_from(METRES),
    steps=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24, 480]),
    cut=st.integers(0, 99),
)
def test_the_place_is_the_definition(changes, first, steps, cut):
    """Guards dotted beats, bars that are no whole number of frames, changes, and excerpts."""
    found = signatures(sorted([(0, first), *changes]), 100)
    heard = metre_from_json(shifted([list(each) for each in found], cut))
    told = signature_row(heard, Grid.of_beats(steps))
    for frame in range(cut, 100, 1 + steps // 24):
        expected = place_by_hand(found, steps, frame)
        place = np.full(BARS, np.nan)
        write_position(place, told, frame - cut, MAX_SIGNATURES)
        assert place.tolist() == expected


def test_real_time_and_the_usual_are_told_apart():
    """Without its own a piece has the metre usual in train, or 4/4; real time counts fours."""
    waltz = replace(FRAMES, metre=(3, 4))
    assert np.array_equal(waltz.metres({}), FRAMES.metres({"metre": [[0, 3, 4]]}))
    assert np.array_equal(FRAMES.metres({}), FRAMES.metres({"metre": [[0, 4, 4]]}))
    seconds = replace(FRAMES, grid=Grid.of_seconds("0.1"))
    assert np.array_equal(seconds.metres({}), FRAMES.metres({}))


def with_metres(split):
    """The split, each piece in another metre than the next."""
    facts = [{"metre": [[0, *METRES[k % len(METRES)]]]} for k in range(len(split))]
    pieces = [replace(p, facts=m) for p, m in zip(split.pieces, facts, strict=True)]
    return replace(split, pieces=pieces)


def test_likelihoods_are_of_each_pieces_own_metre(dataset):
    """Guards pieces that trade their metres in a batch, and windows that begin them anew."""
    model = random_model({"model": "tied", "output": "note-unit", "end": False}, seed=4)
    split = with_metres(dataset["valid"])
    nats = likelihood(model, split).piece_nats
    for k, piece in enumerate(split):
        given = split.metres(np.array([k]))
        line = torch.from_numpy(piece.astype(np.float32)).unsqueeze(1)
        with torch.inference_mode():
            h, frames, past, _ = model.read(line, model.start(1, given))
            own = float(model.output.score(h, frames, past).sum())
        assert nats[k] == pytest.approx(own, rel=1e-4)
    usual = likelihood(model, dataset["valid"]).piece_nats
    assert (abs(usual[1:] - nats[1:]) > 1e-3).any()


def test_training_is_on_each_pieces_own_metre(dataset, make_config):
    """The nats of a batch's first window, without dropout, are those of the pieces' metres."""
    config = make_config(model="tied", bars=True, unit="gru", hidden=3, output="auto")
    split = with_metres(dataset["train"])
    state = TrainingState(with_sizes(config, split.frame), split, torch.device("cpu"))
    torch.nn.init.normal_(next(state.model.unit.parameters()))
    batch = load(split, np.arange(3))
    nats, _ = window_gradient(state, batch, 1)
    assert nats == pytest.approx(likelihood(state.model, split[:3]).piece_nats.sum(), rel=1e-4)
    assert load(split, np.arange(3), begin=2).metres is None


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
def test_the_table_of_a_clock_is_the_definition(lengths):
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


def test_a_clock_takes_the_lengths_of_many_pieces_evenly():
    lengths = np.random.default_rng(1).permutation(np.arange(1, 1025))
    assert clock_of(lengths).lengths.tolist() == list(range(1, 1025, 1024 // MAX_LENGTHS))


def test_the_metre_is_told_by_digits_of_the_number_of_frames():
    """Beside what is told of the end, or alone."""
    table = clock_of(LENGTHS, metre=True).table()
    digits = [[int(d) for d in f"{t % 2**CLOCK_DIGITS:0{CLOCK_DIGITS}b}"[::-1]] for t in range(128)]
    assert table[:, :CLOCK_DIGITS].tolist() == digits  # 80 rows, up to a multiple of 64
    assert torch.equal(table[:80, CLOCK_DIGITS:], clock_of(LENGTHS).table())
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
    held.fit_held([np.arange(3)], brief=5)
    assert held.held[3:5].tolist() == [0, 0]  # of dense music, where two frames are no end
    assert float(held.held[5]) > 0
    held.fit_held([np.zeros(1, int)] * 2)
    assert held.held.isfinite().all()  # pieces of one frame, which is always the last


def test_a_model_of_dense_music_takes_no_short_chord_for_the_end(dataset):
    """Guards bands, whose chords last a frame or two, against ends wherever three are alike."""
    train = dataset["train"]
    train = replace(train, frame=replace(train.frame, longest_chord=1))  # 16 frames are two seconds
    encoder = NoteEncoder(88, ages=True, clock=Clock(held=True))
    encoder.start_at(train)
    seen = max(int(unchanged_before(piece, 88).max()) for piece in train)
    assert seen < 15
    assert (encoder.clock.held[seen + 1 : 16] == 0).all()
    assert float(encoder.clock.held[16]) > 0


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


KINDS = pytest.mark.parametrize(
    ("onsets", "hits"), [(False, False), (True, False), (False, True)], ids=["", "onsets", "hits"]
)


def resting_model(D, *, onsets, hits):
    torch.manual_seed(D)
    encoder = NoteEncoder(D, onsets=onsets, hits=hits, ages=True, echo=True, rests=True)
    unit = units.make("lstm", encoder.input_size, 3, layers=2)
    h_size = 3 + encoder.skip_size
    along_pitch = units.make("gru", h_size + below_size(onsets=onsets), 4)
    output = NoteUnitOutput(
        h_size, along_pitch, D, onsets=onsets, hits=hits, end=True, first_change=True
    )
    model = SequenceModel(encoder, unit, output).double()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    for weight in output.first.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    torch.nn.init.constant_(output.first.own.bias, -2.0)
    torch.nn.init.constant_(output.ending.bias, -9.0)
    return model.eval()


def moves(frame, before, D, *, hits):
    """The definition, note by note: something begins, ends, or is struck."""
    return any(a != b for a, b in zip(frame[:D], before[:D], strict=True)) or any(
        frame if hits else frame[D:]
    )


@KINDS
def test_a_unit_that_rests_is_the_one_moved_by_hand(onsets, hits):
    """However a piece is cut, in a ragged batch, and step by step."""
    D, T = 4, 60
    model = resting_model(D, onsets=onsets, hits=hits)
    random = np.random.default_rng(1)
    line = np.repeat(random.random((T, D)) < 0.4, 1 + random.integers(0, 5, T), 0)[:T]
    line = line & (random.random(T) < 0.5)[:, None] if hits else line
    struck = line & ~np.pad(line[:-1], ((1, 0), (0, 0)))
    struck |= line & (random.random((T, D)) < 0.1)
    piece = torch.from_numpy(np.concatenate([line, struck], 1) if onsets else line).double()
    pieces = torch.stack([piece, piece], 1)
    heard = torch.cat([torch.zeros_like(piece[:2]), piece[:-1]])  # two frames before each
    with torch.no_grad():
        encoded = model.encoder.encode(piece.unsqueeze(1), model.start(1).past)
        state, rows, moved = model.start(1).state, [], 0
        h = state[-1][0].unsqueeze(0)
        for t in range(T):
            if t == 0 or moves(heard[t + 1].tolist(), heard[t].tolist(), D, hits=hits):
                h, state = model.unit(encoded.inputs[t : t + 1], state)
                moved += 1
            rows.append(torch.cat([h[0], encoded.skip[t]], 1))
        assert 5 < moved < T - 10
        read = model.read(pieces, model.start(2))
        torch.testing.assert_close(read.h[:, :D], torch.stack(rows))
        carry, cut = model.start(2), []
        for start in range(0, T, 7):
            reading = model.read(pieces[start : start + 7], carry)
            cut.append(reading.h)
            carry = reading.after
        torch.testing.assert_close(torch.cat(cut), read.h)
        ragged = model.read(pieces, model.start(2), torch.tensor([T, 23]))
        alone = model.read(pieces[:23, 1:], model.start(1))
        torch.testing.assert_close(ragged.h[:23, D:], alone.h)
        for ours, whole in zip(ragged.after.tensors()[:4], alone.after.tensors()[:4], strict=True):
            torch.testing.assert_close(ours[D:], whole)
        carry = model.start(1)
        for t in range(12):
            h, state = model.step(carry)
            torch.testing.assert_close(h, read.h[t, :D])
            past = model.encoder.append(carry.past, piece[t : t + 1])
            carry = carry._replace(state=state, past=past)


@KINDS
def test_compiled_and_plain_sampling_of_units_that_rest_draw_the_same(onsets, hits, monkeypatch):
    """The skipped calls: a unit that went on, or was kept too long, would draw other notes."""
    monkeypatch.setattr("seqmodel.sampling.sampler.CHUNK", 24)
    D = 6
    drawn = same_draws(resting_model(D, onsets=onsets, hits=hits))
    before = np.concatenate([np.zeros_like(drawn[:1]), drawn[:-1]])
    pairs = zip(drawn.tolist(), before.tolist(), strict=True)
    moved = [moves(frame, last, D, hits=hits) for frame, last in pairs]
    assert 0.1 < np.mean(moved) < 0.9
