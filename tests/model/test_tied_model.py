"""The tied model: inputs, causality, transposition; levels of velocities, what they cost."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from models import model_of, random_model
from onsets import marked

from seqmodel.config import resolve
from seqmodel.data.bundled import FRAMES
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.marks import Levels
from seqmodel.media.music.frames import PianoRollFrames, marks_in, transposed, with_onsets
from seqmodel.media.music.grid import Grid
from seqmodel.media.registry import medium_of, presets_of_kind
from seqmodel.model import notes, sequence
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.encoder import Past
from seqmodel.model.marks import HELD, TO_DRAW, UNKNOWN, MarkOutput, Marks
from seqmodel.model.notes import FRAME_INPUTS, PITCH, NoteEncoder
from seqmodel.sampling.sampler import Sampler
from seqmodel.training.update import window_loss

pytestmark = pytest.mark.usefixtures("unoptimised")

OUTPUTS = pytest.mark.parametrize("output", ["bernoulli", "note-unit"])


def tied(output="note-unit", **options):
    given = {"model": "tied", "output": output, "hidden": 6} | options
    return random_model(given, std=0.4, seed=1).double()


def nats(model, frames):
    """The nats of each note (T, D) of one piece (T, D)."""
    line = torch.as_tensor(frames, dtype=torch.float64).unsqueeze(1)
    with torch.no_grad():
        h, x, past, _ = model.read(line, model.start(1))
        logits = model.output.note_logits(h, x, past)
    return torch.nn.functional.softplus((1 - 2 * line) * logits)[:, 0]


@pytest.mark.parametrize("onsets", [False, True])
@pytest.mark.parametrize(
    ("notes", "dtype"),
    [(1, torch.float64), (11, torch.float32), (12, torch.bfloat16), (88, torch.float64)],
)
def test_a_note_reads_the_frame_before(notes, onsets, dtype):
    """The definition, note by note: a window, pitch classes counted from n, a count."""
    random = torch.Generator().manual_seed(2)
    past = (torch.rand(3, notes * (1 + onsets), generator=random) < 0.3).double()
    encoder = NoteEncoder(notes, onsets=onsets)
    ours = encoder.encode_next(Past(past.to(dtype))).inputs.view(3, notes, -1)
    frames, struck = past[:, :notes], past[:, notes:].tolist()
    for k, frame in enumerate(frames.tolist()):
        for n in range(notes):
            around = [n + d if 0 <= n + d < notes else None for d in range(-12, 13)]
            window = [0 if m is None else frame[m] for m in around]
            classes = [
                sum(x for m, x in enumerate(frame) if (m - n - c) % 12 == 0) for c in range(12)
            ]
            expected = torch.tensor([*window, *classes, sum(frame) / 12], dtype=torch.float64)
            assert torch.equal(ours[k, n, :FRAME_INPUTS], expected.to(dtype)), (k, n)
            if onsets:
                strikes = [0 if m is None else struck[k][m] for m in around]
                assert ours[k, n, FRAME_INPUTS + PITCH :].tolist() == strikes
    pitch = ours[:, :, FRAME_INPUTS : FRAME_INPUTS + PITCH]
    assert (pitch[0] == pitch[2]).all()


KINDS = pytest.mark.parametrize(("onsets", "hits"), [(False, False), (True, False), (False, True)])


def random_notes(T, B, D, *, onsets):
    """Frames (T, B, F), which notes sound, and which are struck: some of those held, too."""
    sounding = torch.rand(T, B, D) < 0.7
    fresh = sounding & ~torch.cat([torch.zeros(1, B, D, dtype=torch.bool), sounding[:-1]])
    struck = fresh | (sounding & (torch.rand(T, B, D) < 0.3)) if onsets else fresh
    return (torch.cat([sounding, struck], 2) if onsets else sounding).double(), sounding, struck


@KINDS
def test_in_training_whole_notes_are_missing_from_what_is_read(onsets, hits, monkeypatch):
    """In half of the pieces; never from what is predicted, nor once the model is trained."""
    monkeypatch.setattr(notes, "FREEZE_SHARE", 0)
    T, B, D = 9, 400, 5
    torch.manual_seed(3)
    frames, sounding, struck = random_notes(T, B, D, onsets=onsets)
    encoder = NoteEncoder(D, onsets=onsets, hits=hits, noise=1.0)
    past = encoder.start(torch.zeros(1, dtype=torch.float64), B)
    found = encoder.train().encode(frames, past)
    assert torch.equal(found.frames, frames)
    assert torch.equal(found.past[1:], frames[:-1])
    read = found.inputs.view(T, B, D, -1)[1:, ..., 12] > 0  # the note itself, of those around it
    begins = sounding if hits else struck
    missing, again = np.zeros(B), 0
    for b in range(B):
        for n in range(D):
            for t in range(T - 1):
                if not sounding[t, b, n]:
                    assert not read[t, b, n]
                elif t and not begins[t, b, n]:
                    assert read[t, b, n] == read[t - 1, b, n]
                else:
                    missing[b] += not read[t, b, n]
                    again += bool(t and sounding[t - 1, b, n] and read[t, b, n] > read[t - 1, b, n])
    shares = missing / begins[:-1].sum((0, 2)).numpy()
    assert (shares == 0).mean() == pytest.approx(0.55, abs=0.1)
    assert shares.mean() == pytest.approx(0.25, abs=0.05)
    assert (again > 0) == (onsets or hits)  # what is struck again is another note
    clean = NoteEncoder(D, onsets=onsets).encode(frames, past)
    assert torch.equal(encoder.eval().encode(frames, past).inputs, clean.inputs)


@KINDS
def test_what_changes_is_told_after_what_is_read(onsets, hits):
    """Else a chord that is read as held for too long is never taught to end."""
    T, B, D = 30, 50, 5
    torch.manual_seed(5)
    frames, sounding, struck = random_notes(T, B, D, onsets=onsets)
    encoder = NoteEncoder(D, onsets=onsets, hits=hits, noise=1.0, first_change=True)
    found = encoder.train().encode(frames, encoder.start(frames.new_zeros(1), B))
    read = found.inputs.view(T, B, D, -1)[..., 12] > 0
    assert (read[1:] != sounding[:-1]).any()
    assert torch.equal(found.past[..., :D] > 0, read)
    assert torch.equal(found.frames[..., :D] > 0, sounding)
    if onsets:
        assert torch.equal(found.frames[..., D:] > 0, sounding & (struck | ~read))
    assert torch.equal(found.last.numbers, frames[-1])


@KINDS
def test_in_training_frames_are_read_as_held(onsets, hits, monkeypatch):
    """In one stretch of a window, without strikes, in as many windows as there should be."""
    T, B, D = 120, 300, 6
    torch.manual_seed(4)
    sounding = torch.rand(T, B, D) < 0.5
    frames = (torch.cat([sounding, sounding], 2) if onsets else sounding).double()
    encoder = NoteEncoder(D, onsets=onsets, hits=hits, noise=1e-9)
    monkeypatch.setattr(notes, "FREEZE_SHARE", 0.4e9)
    found = encoder.train().encode(frames, encoder.start(frames.new_zeros(1), B))
    assert torch.equal(found.frames, frames)
    inputs = found.inputs.view(T, B, D, -1)
    read, struck = inputs[1:, ..., 12], inputs[1:, ..., -13]  # after each frame but the last
    stretches = []
    for b in range(B):
        given = frames[:-1, b, :D]
        other = (read[:, b] != given).any(1)
        if onsets:
            other |= (struck[:, b] != given).any(1)
        if other.any():
            first, last = int(other.nonzero().min()), int(other.nonzero().max())
            held = read[first : last + 1, b]
            assert (held == (read[first - 1, b] if first and not hits else 0)).all()
            assert not (onsets and struck[first : last + 1, b].any())
            stretches.append((first, last + 1 - first))
    firsts, lengths = np.array(stretches).T
    assert len(stretches) / B == pytest.approx(0.4, abs=0.08)
    assert lengths.max() <= notes.FROZEN
    assert np.mean(lengths) == pytest.approx(notes.FROZEN / 2, abs=6)
    assert np.mean(firsts) == pytest.approx(T / 2, abs=10)


def test_flaws_become_rarer_as_the_learning_rate_falls(make_config, train, tmp_path, monkeypatch):
    """Were they as many to the end, the likelihood of flawless music would pay for them."""
    shares = []
    monkeypatch.setattr(NoteEncoder, "anneal", lambda _, share: shares.append(share))
    options = {"model": "tied", "unit": "gru", "output": "bernoulli", "schedule": "cosine"}
    train(make_config(**options, hidden=2, batch_size=11, epochs=3), tmp_path / "run")
    assert shares == pytest.approx([1, 0.75, 0.25])


@OUTPUTS
def test_a_frame_depends_on_all_frames_before_it_and_no_later_ones(output):
    """A model that sees its target would score wonderfully and compose nothing."""
    model, T = tied(output), 6
    frames = (torch.rand(T, 88) < 0.1).double()
    before = nats(model, frames)
    for t in range(T):
        changed = frames.clone()
        changed[t, 40] = 1 - changed[t, 40]
        after = nats(model, changed)
        assert torch.equal(after[:t], before[:t])
        same = slice(None, 40) if output == "note-unit" else [n for n in range(88) if n != 40]
        assert torch.equal(after[t, same], before[t, same])
        assert ((after != before)[t + 1 :]).any(1).all()
        # Within a frame a note depends on the notes below it, with note-unit only.
        assert bool((after != before)[t, 41:].any()) == (output == "note-unit")


@OUTPUTS
@pytest.mark.parametrize("semitones", [-5, 7])
def test_transposing_a_piece_transposes_its_likelihood(output, semitones):
    """Except for the inputs that give absolute pitch, and for the two ends of the keyboard."""
    model = tied(output)
    (time_axis,) = model.layers()
    with torch.no_grad():
        time_axis.W[:, FRAME_INPUTS : FRAME_INPUTS + PITCH] = 0
        if output == "note-unit":  # so that it forgets the lowest note within a few notes
            model.output.unit.U.mul_(0.3)
            model.output.unit.b.add_(2)
            model.output.first.joint.weight.zero_()  # the mean over all notes sees both ends
    roll = np.zeros((8, 88), np.uint8)
    roll[:, 40:50] = np.random.default_rng(4).random((8, 10)) < 0.4
    roll[4:] = roll[:4]  # so that there is an echo
    here, there = nats(model, roll), nats(model, transposed(roll, semitones))
    reach = slice(30, 60)
    moved = slice(30 + semitones, 60 + semitones)
    torch.testing.assert_close(there[:, moved], here[:, reach], rtol=0, atol=1e-4)
    assert float((there[:, reach] - here[:, reach]).abs().max()) > 1e-2


def test_windows_bound_the_rows_and_not_only_the_frames():
    """Guards memory use for long pieces: 8,192 frames of 88 rows each would take gigabytes."""
    assert tied().window(1) * 88 <= sequence.ROWS_AT_ONCE < (tied().window(1) + 1) * 88
    assert tied().window(4) == tied().window(1) // 4
    assert tied().window(10**6) == 1


def test_there_is_a_first_change_where_there_is_a_unit_along_pitch_but_for_drums():
    """Guards against a default that --output bernoulli would refuse, or that thins drums out."""
    kit = PianoRollFrames(Grid.of_beats(4), drums=True, kit=True)
    tied = {"model": "tied", "hidden": 4}
    for options, frame, expected in (
        (tied, FRAMES, True),
        (tied, kit, False),
        (tied | {"first_change": False}, FRAMES, False),
        (tied | {"first_change": True}, kit, True),
        (tied | {"output": "bernoulli"}, FRAMES, False),
        (tied | {"model": "frame-wise"}, FRAMES, False),
    ):
        config = with_sizes(
            resolve(options, None, presets_of_kind(medium_of(frame), frame.kind)), frame
        )
        assert config.first_change is expected
        build_model(config, frame)


LEVELS = Levels((30, 60, 90), (20.0, 50.5, 70.0, 100.0))
NAMED = Levels.of_names(["melody", "chords", "bass", "other"])
L = len(LEVELS)
both_kinds = pytest.mark.parametrize("kind", [LEVELS, NAMED], ids=["numbers", "names"])


def nothing(output, pieces=1):
    """What is remembered before the first frame."""
    return torch.zeros(pieces, output.memory_size, dtype=torch.float64)


def velocity_of(frames):
    return marks_in(frames)["velocity"]


def random_output(kind=LEVELS, notes=7, earlier=None, *, nearby=True):
    torch.manual_seed(4)
    output = MarkOutput(3, kind, notes, notes, earlier or {}, *(earlier or ()), nearby=nearby)
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
    levels = MarkOutput(1, LEVELS, 2, 1, {}).levels_of(frames, numbers)
    assert levels[:, 0].tolist() == [[UNKNOWN, 2], [HELD, 0], [0, 0]]


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
    counts, memory = (levels > 0).sum((0, 2)), nothing(output, B).to(dtype)
    features, _ = output._features(levels, {"part": parts}, memory, counts)
    pieces = [(levels[:, b].numpy(), parts[:, b].numpy()) for b in range(B)]
    expected = [
        row
        for own, of in pieces
        for row in features_by_definition(own, kind, of if by_part else None, nearby=nearby)
    ]
    assert np.allclose(features.numpy(), expected, atol=1e-12 if dtype == torch.float64 else 1e-5)
    assert np.abs(expected).max() > 1


@both_kinds
@pytest.mark.parametrize("temperature", [0.0, 0.4, 1.0])
def test_levels_are_drawn_by_what_they_cost(temperature, kind):
    """Of two notes of one frame the second given the first, each by its uniform."""
    output = random_output(kind, earlier={"part": 2})
    h, before = torch.randn(2, 7, 3, dtype=torch.float64), nothing(output)
    earlier = {"part": torch.zeros(2, 1, 7, dtype=torch.int64)}
    earlier["part"][1, 0, [4, 6]] = earlier["part"][0, 0, 1] = 2
    context, costs = torch.zeros(2, 1, 7, dtype=torch.int64), np.zeros((2, L, L))
    context[0, 0, 1], context[1, 0, 3] = 3, 2
    for one, two in product(range(L), range(L)):
        context[1, 0, [4, 6]] = torch.tensor([one + 1, two + 1])
        costs[:, one, two] = output.score(h, context, earlier, before)[0].detach()[-2:]
    odds = np.exp((costs.min() - costs) / (temperature or 1e-2))
    context[1, 0, [4, 6]] = TO_DRAW
    for uniforms in np.random.default_rng(1).random((80, 2)):
        drawn, after = output.draw(h, context, earlier, before, uniforms, temperature)
        assert torch.equal(output.remember(drawn, earlier, before), after)
        assert ((drawn == context) | (context == TO_DRAW)).all()
        levels = (drawn[1, 0, [4, 6]] - 1).tolist()
        for k, of in enumerate((odds[0, :, 0], odds[1, levels[0]])):
            assert levels[k] == (np.cumsum(of / of.sum())[:-1] <= uniforms[k]).sum()


def test_all_marks_together_sum_to_one_and_later_ones_read_earlier():
    """Guards against a mark that reads a later one, or the earlier ones of another note."""
    torch.manual_seed(4)
    both = Marks(3, {"part": NAMED, "velocity": LEVELS}, 7, 7, by_part=True, nearby=True)
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


@both_kinds
def test_where_a_piece_is_cut_does_not_matter(kind):
    output, levels = random_output(kind, earlier={"part": L}), random_levels(11, 2, 7)
    of = random_levels(11, 2, 7, seed=1)
    h = torch.randn(11, 14, 3, dtype=torch.float64)
    whole, after = output.score(h, levels, {"part": of}, nothing(output, 2))
    parts, memory = [], nothing(output, 2)
    for cut in (slice(0, 4), slice(4, 5), slice(5, 11)):
        nats, memory = output.score(h[cut], levels[cut], {"part": of[cut]}, memory)
        parts.append(nats)
    assert torch.cat(parts).sum().item() == pytest.approx(whole.sum().item(), abs=1e-9)
    assert torch.equal(memory, after)


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
