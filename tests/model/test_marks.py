"""Levels of velocities: what they cost, and how they are drawn."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from models import model_of, random_model
from onsets import marked

from seqmodel.data.bundled import FRAMES
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.marks import Levels
from seqmodel.media.music.frames import marks_in, with_onsets
from seqmodel.media.music.parts import DRUMS
from seqmodel.model.marks import MarkOutput, Marks
from seqmodel.model.marks_kernel import HELD, TO_DRAW, UNKNOWN
from seqmodel.model.notes import absolute_pitch
from seqmodel.sampling.sampler import Sampler
from seqmodel.training.update import window_loss

pytestmark = pytest.mark.usefixtures("unoptimised")

LEVELS = Levels((30, 60, 90), (20.0, 50.7, 70.0, 100.0))
NAMED = Levels.of_names(["melody", "chords", "bass", "other"])
L = len(LEVELS)
both_kinds = pytest.mark.parametrize("kind", [LEVELS, NAMED], ids=["numbers", "names"])


def nothing(output, pieces=1):
    """What is remembered before the first frame."""
    return torch.zeros(pieces, output.memory_size, dtype=torch.float64)


def velocity_of(frames):
    return marks_in(frames)["velocity"]


def random_output(kind=LEVELS, earlier=None, *, rows=7, nearby=True):
    torch.manual_seed(4)
    parts = next(iter(earlier or ()), None)
    output = MarkOutput(3, kind, absolute_pitch(7), rows, earlier or {}, parts, nearby=nearby)
    output = output.double()
    for weight in output.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return output


def random_levels(T, B, notes, seed=0):
    """Levels of about a third of the notes, some of them unknown, and notes that are held."""
    random = np.random.default_rng(seed)
    levels = random.integers(1, L + 1, (T, B, notes))
    levels[random.random(levels.shape) < 0.1] = UNKNOWN
    levels[random.random(levels.shape) < 0.65] = 0
    levels[(levels == 0) & (random.random(levels.shape) < 0.2)] = HELD
    levels[T // 2] = 0
    return torch.from_numpy(levels)


def test_notes_that_sound_on_are_held():
    """Guards what parts know of their voices: neither silence nor a strike of no known level."""
    frames = torch.zeros(3, 1, 4)
    frames[0, 0] = torch.tensor([1, 1, 1, 1])  # both struck
    frames[1, 0, 0] = 1  # the first sounds on
    numbers = torch.zeros(3, 1, 2)
    numbers[0, 0, 1] = 55
    levels = MarkOutput(1, LEVELS, absolute_pitch(2), 1, {}).levels_of(frames, numbers)
    assert levels[:, 0].tolist() == [[UNKNOWN, 2], [HELD, 0], [0, 0]]


def test_a_new_model_has_drums_on_their_keys():
    """Guards hits on keys that drums of train never have, from models that have learned little."""
    marks = {"part": NAMED, "velocity": LEVELS}
    frame = replace(
        FRAMES, onsets=True, marks=marks, programs=(73, DRUMS, 32, 0), drum_keys={36: 400, 42: 3}
    )
    model = model_of({"hidden": 3}, frame)
    assert torch.equal(model.encoder.pitch, absolute_pitch(88, frame.drum_keys))
    levels = dict.fromkeys(marks, torch.zeros(1, 3, 88, dtype=torch.int64))
    for piece, key in enumerate((36, 42, 37)):
        levels["part"][0, piece, key - 21] = 2
    h, *_ = model.read(torch.zeros(1, 3, 176), model.start(3))
    nats, _ = model.marks.score(h, levels, model.marks.start(h, 3))
    assert model.marks["part"].hidden.weight[0].count_nonzero() == 1
    often, rarely, never = nats["part"].exp().tolist()
    assert often < rarely < len(NAMED) / 2
    assert never > 5 * len(NAMED)
    older = model_of({"hidden": 3}, replace(frame, drum_keys={}))
    for equal in (model.marks["velocity"], older.marks["part"]):
        assert not equal.out.weight[:, 0].any()


def features_by_definition(levels, kind, parts, *, nearby):
    """What each strike of known level of a piece (T, D) reads; with parts (T, D) of its own too."""
    means = np.array(kind.means)
    value = np.append(0, (means - means.mean()) / means.std())
    known: list[tuple[int, int, int]] = []  # (frame, note, level)
    expected = []
    for t, frame in enumerate(levels):
        for note in np.flatnonzero(frame > 0).tolist():
            below = [strike for strike in known if strike[0] == t]
            past = [strike for strike in known if strike[0] < t]
            last_chord = [strike for strike in past if strike[0] == past[-1][0]]
            own = [strike for strike in known if strike[1] == note]
            above = np.flatnonzero(np.isin(frame[note + 1 :], (0, HELD), invert=True))

            def mean(rate_of):
                found = 0.0
                for number, (_, at, level) in enumerate(known, 1):
                    found += rate_of(number, at) * (value[level] - found)
                return found

            away = t - own[-1][0] if own else None
            chord = [value[level] for _, _, level in last_chord]
            lower = [value[level] for _, _, level in below]
            latest = known[-1][2] if known else 0
            row = [
                mean(lambda number, at: max(0.3, 1 / number)),
                mean(lambda number, at: max(0.03, 1 / number)),
                mean(lambda number, at, n=note: 0.5 * np.exp(-abs(at - n) / 4)),
                mean(lambda number, at, n=note: 0.25 * np.exp(-abs(at - n) / 12)),
                value[own[-1][2]] if own else 0.0,
                1 / away if own else 0.0,
                16 / (16 + away) if own else 0.0,
                value[latest],
                1 / (t - past[-1][0]) if past else 1 / (t + 1),
                float(np.mean(chord)) if chord else 0.0,
                chord[0] if chord else 0.0,
                chord[-1] if chord else 0.0,
                float(bool(below)),
                (note - below[-1][1]) / 12 if below else 0.0,
                float(np.mean(lower)) if below else 0.0,
                len(below) / 4,
                lower[0] if below else 0.0,
                float(above.size > 0),
                (above[0] + 1) / 12 if above.size else 0.0,
                above.size / 4,
            ]
            one_hot = np.zeros((2, L + 1))
            one_hot[0, latest] = one_hot[1, own[-1][2] if own else 0] = 1
            of_names = [
                number
                for name in range(1, len(kind.names) + 1)
                for number in of_name(known, name, t, note, frame)
            ]
            of_part = () if parts is None else of_own_part(known, parts, t, note)
            around = of_nearby(known, value, t, note) if nearby else ()
            expected.append([*row, *one_hot[:, 1:].ravel(), *of_names, *around, *of_part])
            known.append((t, note, int(frame[note])))
    return expected


def of_name(known, name, t, note, frame):
    """What a strike reads of a name, from all strikes (frame, note, name) before."""
    share = 0.0
    for _, at, level in known:
        share += 0.5 * np.exp(-abs(at - note) / 4) * ((level == name) - share)
    own = [strike for strike in known if strike[2] == name]
    if not own:
        return [0.0, 0.0, 0.0, 0.0, share, 0.0]
    when, last, _ = own[-1]
    below = note - last
    latest = {at: level for _, at, level in known}
    held = any(latest.get(at) == name for at in np.flatnonzero(frame == HELD).tolist())
    near = [below / 12, 1 / (1 + abs(below)), 1 / (1 + t - when), float(when == t)]
    return [*near, share, float(held or when == t)]


def of_nearby(known, value, t, note):
    """Means of levels, weighted by nearness in time and in pitch; then of all notes alike."""
    when, at, level = np.array(known, int).reshape(-1, 3).T
    values, found = value[level], list[float]()
    for span in (2, 16, 128):
        recent = np.exp((when - t) / span)
        for reach in (1, 4, 12):
            weights = recent * np.exp(-((at - note) ** 2) / (2 * reach**2))
            found += [weights @ values / (weights.sum() + 0.02), 1 - 1 / (1 + weights.sum())]
        mean, square = (recent @ values**power / (recent.sum() + 0.02) for power in (1, 2))
        found += [mean, square - mean**2]
    return found


def of_own_part(known, parts, t, note):
    """The last level in the part of a strike, one-hot, and the log of how common each was in it."""
    own = [level for at, of, level in known if parts[at, of] == parts[t, note] > 0]
    last = np.arange(1, L + 1) == (own[-1] if own else 0)
    ages = np.arange(len(own))[::-1, None]
    often = 1 / L + (0.95**ages * (np.array(own)[:, None] == np.arange(1, L + 1))).sum(0)
    return [*last, *np.log(often / often.sum() * L)]


@pytest.mark.parametrize(("by_part", "nearby"), [(False, False), (True, False), (True, True)])
@both_kinds
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_a_strike_reads_follows_from_all_strikes_before(kind, dtype, by_part, nearby):
    """Guards against what is remembered a frame, a note or a part off, or never forgotten."""
    T, B, D = 15, 2, 7
    earlier = {"part": 3} if by_part else None
    output = random_output(kind, earlier=earlier, nearby=nearby).to(dtype)
    levels, parts = random_levels(T, B, D, seed=3), random_levels(T, B, D, seed=3).clamp(max=3)
    parts = torch.where(parts > 0, 1 + (parts + torch.arange(D)) % 3, parts)
    parts[0], parts[-1, 0] = UNKNOWN, UNKNOWN
    memory = nothing(output, B).to(dtype)
    features, _ = output._features(levels, {"part": parts}, memory)
    pieces = [(levels[:, b].numpy(), parts[:, b].numpy()) for b in range(B)]
    expected = [
        row
        for own, of in pieces
        for row in features_by_definition(own, kind, of if by_part else None, nearby=nearby)
    ]
    assert np.allclose(features.numpy(), expected, atol=1e-12 if dtype == torch.float64 else 1e-5)
    assert np.abs(expected).max() > 1


@both_kinds
@pytest.mark.parametrize(("temperature", "rows"), [(0.0, 7), (0.4, 1), (1.0, 7)])
def test_levels_are_drawn_by_what_they_cost(temperature, rows, kind):
    """Of two notes of one frame the second given the first, each by its uniform."""
    output = random_output(kind, earlier={"part": 2, "velocity": 3}, rows=rows)
    h, before = torch.randn(2, rows, 3, dtype=torch.float64), nothing(output)
    earlier = {name: torch.zeros(2, 1, 7, dtype=torch.int64) for name in ("part", "velocity")}
    earlier["part"][1, 0, [4, 6]] = earlier["part"][0, 0, 1] = 2
    earlier["velocity"][1, 0, [4, 6]] = torch.tensor([3, 1])
    context, costs = torch.zeros(2, 1, 7, dtype=torch.int64), np.zeros((2, L, L))
    context[0, 0, 1], context[1, 0, 3] = 3, 2
    for one, two in product(range(L), range(L)):
        context[1, 0, [4, 6]] = torch.tensor([one + 1, two + 1])
        costs[:, one, two] = output.score(h, context, earlier, before)[0].detach()[-2:]
    odds = np.exp((costs.min() - costs) / (temperature or 1e-2))
    context[1, 0, [4, 6]] = TO_DRAW
    for uniforms in np.random.default_rng(1).random((80, 2)):
        drawn = torch.stack([*earlier.values(), context])
        numbers = np.stack([*[np.full(2, np.nan)] * 2, uniforms], 1)
        after = output.draw(h, drawn, before, numbers, temperature)
        drawn = drawn[2]
        assert torch.equal(output.remember(drawn, earlier, before), after)
        assert ((drawn == context) | (context == TO_DRAW)).all()
        levels = (drawn[1, 0, [4, 6]] - 1).tolist()
        for k, of in enumerate((odds[0, :, 0], odds[1, levels[0]])):
            assert levels[k] == (np.cumsum(of / of.sum())[:-1] <= uniforms[k]).sum()


def test_all_marks_together_sum_to_one_and_later_ones_read_earlier():
    """Guards against a mark that reads a later one, or the earlier ones of another note."""
    torch.manual_seed(4)
    both = Marks(
        3, {"part": NAMED, "velocity": LEVELS}, absolute_pitch(7), 7, by_part=True, nearby=True
    )
    both = both.double()
    for weight in both.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    h, total, costs = torch.randn(1, 7, 3, dtype=torch.float64), 0.0, {}
    for one, two, *loud in product(range(1, L + 1), repeat=4):
        part, velocity = torch.zeros(2, 1, 1, 7, dtype=torch.int64)
        part[0, 0, [2, 5]], velocity[0, 0, [2, 5]] = torch.tensor([one, two]), torch.tensor(loud)
        nats, _ = both.score(h, {"part": part, "velocity": velocity}, both.start(h, 1))
        total += float(torch.exp(-sum(each.sum() for each in nats.values())).detach())
        costs[one, two, *loud] = {name: each.tolist() for name, each in nats.items()}
    assert total == pytest.approx(1, abs=1e-9)
    first, other_part, other_above = costs[1, 1, 2, 2], costs[2, 1, 2, 2], costs[1, 2, 2, 2]
    assert costs[1, 1, 3, 3]["part"] == first["part"]
    assert other_part["velocity"][0] != first["velocity"][0]
    assert other_above["velocity"][0] == first["velocity"][0]
    assert other_above["velocity"][1] != first["velocity"][1]


@pytest.mark.parametrize("by_part", [True, False])
def test_new_models_begin_with_what_is_usual_in_the_part(by_part):
    """Guards the default of new runs and its first weights; older runs do not have these."""
    marks = {"part": NAMED, "velocity": LEVELS}
    frame = replace(FRAMES, onsets=True, marks=marks, programs=(0, 1, 2, 3))
    model = model_of({"hidden": 4} if by_part else {"hidden": 4, "by_part": False}, frame)
    frames, part = torch.zeros(12, 1, 176), np.zeros((12, 1, 88), np.uint8)
    part[:, 0, 40], part[:, 0, 60] = 1, 2
    frames[:, 0, [40, 60, 128, 148]] = 1  # struck in each
    numbers = {"part": part, "velocity": 50 * part}
    nats = model.score_marks(model.read(frames, model.start(1)), numbers)[0]["velocity"]
    counts = (1 - 0.95 ** np.arange(12)) / 0.05
    expected = np.log((1 + counts) / (0.25 + counts)).repeat(2) if by_part else np.log(L)
    assert np.allclose(nats.detach(), expected, atol=1e-5)


def test_new_runs_read_the_levels_nearby_unless_these_are_names():
    """Older runs do not have the weights; parts far from each other have no mean."""
    frame = replace(FRAMES, onsets=True, marks={"part": NAMED, "velocity": LEVELS})
    new, old = (model_of({"hidden": 4} | more, frame).marks for more in ({}, {"nearby": False}))
    more = {name: new[name].out.in_features - old[name].out.in_features for name in new}
    assert more == {"part": 0, "velocity": 24}


def test_no_number_is_denormal_after_a_silence():
    """In arithmetic with such numbers a frame of silence took 37 times as long."""
    output, levels = random_output().float(), random_levels(1000, 1, 7)
    levels[5:] = 0
    memory = output.remember(levels, {}, nothing(output).float()).abs()
    assert memory[memory > 0].min() >= torch.finfo(torch.float32).tiny


def test_all_marks_remember_what_is_before_a_cut():
    torch.manual_seed(4)
    both = Marks(
        3, {"part": NAMED, "velocity": LEVELS}, absolute_pitch(7), 7, by_part=True, nearby=True
    ).double()
    h = torch.randn(8, 14, 3, dtype=torch.float64)
    levels = {name: random_levels(8, 2, 7, seed=k) for k, name in enumerate(both)}
    nats, whole = both.score(h, levels, both.start(h, 2))
    first, rest = (
        {name: each[cut] for name, each in levels.items()} for cut in (slice(5), slice(5, 8))
    )
    assert whole.abs().sum() > 0
    early, between = both.score(h[:5], first, both.start(h, 2))
    late, after = both.score(h[5:], rest, between)
    assert torch.equal(after, whole)
    for name, own in nats.items():
        parts = early[name].sum() + late[name].sum()
        torch.testing.assert_close(parts, own.sum(), rtol=0, atol=1e-9)
    assert torch.equal(both.remember(rest, both.remember(first, both.start(h, 2))), whole)


def test_levels_leave_the_gradient_of_frames_as_it_is():
    """Guards nats per frame against what levels cost, and levels against not being learned."""
    model = random_model({"end": True}, replace(FRAMES, onsets=True, marks={"velocity": LEVELS}))
    roll = (np.random.default_rng(5).random((9, 88)) < 0.1).astype(np.uint8)
    frames, loud = with_onsets(roll)[:, None], np.full((9, 1, 88), 70, np.uint8)
    gradients = []
    for known in ({}, {"velocity": loud}):
        model.zero_grad()
        line = torch.from_numpy(frames)
        loss = window_loss(model, line, np.array([9]), model.start(1), marks=known)
        loss.total.backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters()})
    without, with_levels = gradients
    for name, gradient in without.items():
        if name.startswith("marks."):
            assert with_levels[name].abs().max() > 0
        else:
            assert torch.equal(gradient, with_levels[name])


def test_samples_have_marks_and_the_frames_of_a_model_without():
    """Guards the stream of uniforms, places where chunks meet, and what follows a primer."""
    options = {"unit": "gru", "hidden": 4, "end": False}
    named = {"marks": {"part": NAMED, "velocity": LEVELS}, "programs": (0, 1, 2, 3)}
    frame = replace(FRAMES, onsets=True, **named)
    model, plain = (
        random_model(options, frame, std=1.0),
        random_model(options, replace(frame, marks={}, programs=())),
    )
    plain.load_state_dict(model.state_dict(), strict=False)
    prime = with_onsets((np.random.default_rng(5).random((6, 88)) < 0.05).astype(np.uint8))
    loud = np.where(prime[:, 88:] > 0, 40, 0).astype(np.uint8)
    primed = marked(prime, velocity=loud)
    pieces = []
    for chunk, window in ((1, None), (7, None), (64, None), (64, 3)):
        if window:  # what is read at a time
            model.window = lambda pieces: 3
        sampler = Sampler(model, chunk=chunk)
        frames = sampler.draw(Uniforms(1), prime=primed)
        piece = marked(prime[:0])
        while len(piece) < 20:
            piece = np.concatenate([piece, next(frames)[0]])
        pieces.append(piece[:20])
    first, *others = pieces
    assert all((first == other).all() for other in others)
    drawn, _ = next(Sampler(plain, chunk=20).draw(Uniforms(1), prime=prime))
    assert (first[:, :176] == drawn).all()
    assert ((velocity_of(first) > 0) == (drawn[:, 88:] > 0)).all()
    assert ((marks_in(first)["part"] > 0) == (drawn[:, 88:] > 0)).all()
    assert set(np.unique(marks_in(first)["part"])) == {*range(L + 1)}
    assert set(np.unique(velocity_of(first))) <= {0, *np.rint(LEVELS.means)}
    silent, _ = next(Sampler(model, chunk=20).draw(Uniforms(1), prime=primed * (primed < 2)))
    assert (velocity_of(silent) != velocity_of(first)).any()  # the primer's levels count


def test_velocities_that_are_known_are_kept_and_count():
    """Guards a file's own notes in a fill: they sound as they did, and what is drawn follows."""
    model = random_model({"end": False}, replace(FRAMES, onsets=True, marks={"velocity": LEVELS}))
    frames = with_onsets((np.random.default_rng(5).random((9, 88)) < 0.1).astype(np.uint8))
    strikes = frames[:, 88:] > 0
    own = np.where(strikes, np.random.default_rng(6).integers(1, 128, strikes.shape), 0)
    own[4:] = 0
    sampler = Sampler(model)
    place = sampler.marks.read(sampler.start, frames[:0])
    played, _ = sampler.marks.draw_marks(marked(frames, velocity=own), place, Uniforms(1))
    assert (velocity_of(played)[:4] == own[:4]).all()
    assert ((velocity_of(played)[4:] > 0) == strikes[4:]).all()
    quiet = marked(frames, velocity=np.minimum(own, 1))
    others, _ = sampler.marks.draw_marks(quiet, place, Uniforms(1))
    assert (velocity_of(others)[4:] != velocity_of(played)[4:]).any()
