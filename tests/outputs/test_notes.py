"""Outputs of notes: exact nats, draws by their rule, compiled and plain the same."""

import itertools

import numpy as np
import pytest
import torch
from made import nade, some_frames
from onsets import HELD, OFF, STRUCK, as_frames, random_states
from scores import both, compiled, plain
from torch.distributions import Bernoulli

from seqmodel import units
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.outputs.bernoulli import BernoulliOutput, TiedBernoulliOutput
from seqmodel.outputs.nade import NadeOutput
from seqmodel.outputs.note_unit import NoteUnitOutput, notes_below
from seqmodel.outputs.notes import with_forced_strikes
from seqmodel.outputs.notes_tied import below_size
from seqmodel.outputs.protocol import Window


def tensors(states, dtype=torch.float64):
    """Frames and the previous frames, from states (T, ..., N)."""
    frames = torch.from_numpy(as_frames(states)).to(dtype)
    return frames, torch.cat([torch.zeros_like(frames[:1]), frames[:-1]])


def identity(notes, *, onsets=False):
    """An output with `end` whose h are its logits."""
    numbers = notes * (1 + onsets)
    output = BernoulliOutput(numbers + 1, notes, end=True, onsets=onsets)
    with torch.no_grad():
        output.linear.weight.copy_(torch.eye(numbers + 1))
        output.linear.bias.zero_()
    return output


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nats_and_slopes_of_a_confident_model_are_exact(score, dtype):
    """log(sigmoid(-1e4)) is -inf, log1p(exp(-30)) is rounded away next to 30."""
    output = identity(6).to(dtype)
    for logits, frame, nats, slopes in (
        ([1e4, -1e4, 1e4, -1e4, 40, -40], [1, 0, 0, 1, 0, 1], 20_080, [0, 0, 1, -1, 1, -1]),
        ([-12] * 6, [0] * 6, 6 * np.log1p(np.exp(-12.0)), [1 / (1 + np.exp(12))] * 6),
        ([30, -30] * 3, [1, 0] * 3, 6 * np.log1p(np.exp(-30.0)), [-1, 1] / (1 + np.exp(30.0))),
    ):
        h = torch.tensor([[[*logits, 0]]], dtype=dtype, requires_grad=True)
        found = score(output, h, torch.tensor([[frame]], dtype=dtype))
        found.sum().backward()
        eps = torch.finfo(dtype).eps
        close = {"rtol": 60 * eps, "atol": 1e-30 if score is compiled else 72 * eps}
        np.testing.assert_allclose(found.item(), nats, **close)
        np.testing.assert_allclose(h.grad.flatten()[:6], np.resize(slopes, 6), **close)


def test_nothing_is_scored_or_drawn_without_the_frames_before():
    """Guards against treating all bits as free: a wrong figure that nobody would notice."""
    output = BernoulliOutput(4, 3, onsets=True)
    h, frames, weights = torch.zeros(2, 1, 4), torch.zeros(2, 1, 6), torch.ones(2, 1)
    for attempt in (
        lambda: output.score(h, frames),
        lambda: output.weighted(h, frames, weights),
        lambda: output.nats(output(h), frames),
        lambda: output.draw_frame(h[:, 0], None, torch.zeros(2, 7), 1.0),
    ):
        with pytest.raises(ValueError, match="given the frames before"):
            attempt()


@pytest.mark.parametrize("onsets", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_a_uniform_below_the_probability_is_a_note(temperature, onsets):
    """The documented rule that makes draws reproducible; [0, 1), so that p = 0 never sounds.

    Never held after silence, never struck without sounding.
    """
    logits = torch.tensor(
        [-200.0, 0.5, 0.7, 40.0, 40.0, -1.0, 0.3, -3.0, -1.0]
    )  # the last: the end
    uniforms = torch.from_numpy(np.random.default_rng(5).random((500, 9)))
    uniforms[0] = 0
    p = torch.sigmoid(logits / temperature) if temperature else (logits > 0).float()
    expected, past = (uniforms < p)[:, :8], None
    if onsets:
        states = np.array([STRUCK, OFF, HELD, STRUCK])
        past = torch.from_numpy(as_frames(states)).float().expand(500, 8)
        sounds, again = expected.chunk(2, 1)
        expected = torch.cat([sounds, sounds & (again | (past[:, :4] == 0))], 1)
    output, h = identity(8 // (1 + onsets), onsets=onsets), logits.expand(500, 9)
    assert torch.equal(output.draw_frame(h, past, uniforms, temperature).frame > 0, expected)
    ends = output.ends(h, uniforms)  # ignores temperature
    assert torch.equal(ends, uniforms[:, 8] < torch.sigmoid(torch.tensor(-1.0)))


def test_figures_count_notes_and_report_the_cost_of_strikes():
    """Guards against strikes counted as notes in the accuracy, and changes in the roll's nats."""
    frames, past = tensors(random_states(6, 30, 2, 5))
    output = BernoulliOutput(4, 5, onsets=True).double()
    h = torch.randn(30, 2, 4, dtype=torch.float64)
    inside = torch.arange(30)[:, None] < torch.tensor([30, 17])
    window = Window(h, frames, past, inside, inside)
    with torch.no_grad():
        sums = output.figure_sums(window)
        nats = output.nats(output(h), frames, past)[inside].sum()
        logits = output(h)[inside]
    values = output.figures(sums, nats=float(nats), frames=47, pieces=2)
    assert list(values) == ["accuracy", "precision", "recall", "onset_nats_per_frame"]
    sounding = frames[inside][:, :5]
    roll = -Bernoulli(logits=logits[:, :5]).log_prob(sounding).sum()
    assert values["onset_nats_per_frame"] == pytest.approx(float(nats - roll) / 47, rel=1e-12)
    right = ((logits[:, :5] > 0) & (sounding > 0)).sum().item()
    assert values["recall"] == right / (sounding > 0).sum().item()
    assert output.describe(values)[0].startswith("  of it, struck or held ")


H = 5


def nade_by_hand(output, h, frame):
    """The conditional probabilities of one frame's numbers in NumPy, by a loop over them."""
    weights = {name: value.double().numpy() for name, value in output.state_dict().items()}
    outputs = weights["linear.weight"] @ h.double().numpy() + weights["linear.bias"]
    F, K = weights["U"].shape
    chances = []
    for k in range(F):
        a = outputs[F : F + K] + sum(float(frame[e]) * weights["V"][e] for e in range(k))
        chances.append(1 / (1 + np.exp(-outputs[k] - sum(weights["U"][k] / (1 + np.exp(-a))))))
    return np.array(chances)


@pytest.mark.parametrize(("notes", "onsets", "end"), [(6, False, True), (89, True, False)])
def test_each_note_of_nade_is_given_those_below_it(notes, onsets, end):
    """Guards against a note that sees itself or those above, and against mixed-up columns."""
    output = nade(notes, 3, end=end, onsets=onsets)
    h = torch.randn(4, 2, H, dtype=torch.float64)
    frames, past = some_frames(4, 2, notes, onsets=onsets)
    logits, nats = output.note_logits(h, frames), plain(output, h, frames, past)
    for t, b in itertools.product(range(4), range(2)):
        frame = frames[t, b].numpy()
        p = nade_by_hand(output, h[t, b], frame)
        np.testing.assert_allclose(torch.sigmoid(logits[t, b]), p, rtol=1e-12)
        exact = -np.log(np.where(frame > 0, p, 1 - p))
        if onsets:
            exact[notes:] *= frame[:notes] * past[t, b, :notes].numpy()  # where strikes are free
        assert nats[t, b].item() == pytest.approx(exact.sum(), rel=1e-12)


class Train:
    """A training split, as far as an output without onsets reads it."""

    frames = 100

    def totals(self):
        return np.array([0, 1, 30, 99, 100])

    def __len__(self):
        return 4


def test_nade_starts_at_the_independent_marginals():
    """Whatever the hidden units do initially, and for any lower notes."""
    output = NadeOutput(H, 5, 7, end=True)
    output.start_at(Train())
    h, frames = torch.zeros(32, 1, H), (torch.rand(32, 1, 5) < 0.5).float()
    p = torch.sigmoid(output.note_logits(h, frames)).squeeze(1)
    expected = [(n + 0.5) / 101 for n in [0, 1, 30, 99, 100]]
    np.testing.assert_allclose(p, np.tile(expected, (32, 1)), rtol=1e-5)
    ends = output.end_score(h[0, 0], torch.ones(()))
    assert float(torch.exp(-ends).detach()) == pytest.approx(4.5 / 101, rel=1e-5)


def test_hidden_units_of_nade_do_not_stay_alike():
    """Units that start alike learn alike: K of them would be worth one."""
    output = NadeOutput(H, 6, 4)
    optimizer = torch.optim.Adam(output.parameters(), 0.01)
    h, (frames, _) = torch.randn(50, 1, H), some_frames(50, 1, 6, dtype=torch.float32)
    for _ in range(3):
        optimizer.zero_grad()
        output.score(h, frames).sum().backward()
        optimizer.step()
    for matrix in (output.V, output.U):
        assert torch.linalg.matrix_rank(matrix) == 4


@pytest.mark.parametrize("onsets", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_the_temperature_of_nade_divides_each_conditional_logit(temperature, onsets):
    """Each uniform is compared with a chance given the numbers drawn, where a number is free."""
    output = nade(9, 4, end=True, onsets=onsets)
    F = output.frame_size
    h, uniforms = torch.randn(100, H, dtype=torch.float64), torch.rand(100, F + 1).double()
    past = torch.cat([(torch.rand(100, 9) < 0.5).double(), torch.ones(100, F - 9)], 1)
    with torch.no_grad():
        drawn = output.draw_frame(h, past, uniforms, temperature)
    for row, frame in enumerate(drawn.frame.numpy()):
        p = nade_by_hand(output, h[row], frame)
        if temperature:
            p = 1 / (1 + np.exp(-np.log(p / (1 - p)) / temperature))
        expected = (uniforms[row, :F].numpy() if temperature else 0.5) < p
        if onsets:
            expected[9:] = expected[:9] & (expected[9:] | (past[row, :9].numpy() == 0))
        np.testing.assert_array_equal(frame, expected)
        logit = output(h[row])[-1]
        assert bool(drawn.ended[row]) == bool(uniforms[row, -1] < torch.sigmoid(logit))


def note_unit_output(
    unit="gru", *, notes=6, layers=1, backend="auto", end=False, onsets=False, hits=False,
    first=False
):  # fmt: skip
    """An output whose notes depend strongly on each other, in float64."""
    torch.manual_seed(3)
    made = units.make(unit, H + below_size(onsets=onsets), 4, backend, layers=layers)
    kind = {"onsets": onsets, "hits": hits, "first_change": first}
    output = NoteUnitOutput(H, made, notes, end=end, **kind).double()
    for weight in output.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    return output


def bernoulli_output(notes=6, *, onsets=False):
    torch.manual_seed(3)
    return TiedBernoulliOutput(H, notes, onsets=onsets).double()


def read_by_hand(frame, n, struck=None):
    """The definition, note by note."""
    below = [frame[n - 12 + k] if n - 12 + k >= 0 else 0 for k in range(12)]
    classes = [sum(frame[m] for m in range(n) if (m - n - k) % 12 == 0) for k in range(12)]
    strikes = [struck[n - 12 + k] if n - 12 + k >= 0 else 0 for k in range(12)] if struck else []
    return [*below, *classes, sum(frame[:n]) / 12, *strikes]


@pytest.mark.parametrize("onsets", [False, True])
@pytest.mark.parametrize("notes", [1, 12, 30])
def test_a_note_reads_the_notes_below_it(notes, onsets):
    frames = random_frames(4, notes, onsets)
    ours = notes_below(frames, onsets=onsets)
    assert ours.shape == (notes, 4, below_size(onsets=onsets))
    for k, frame in enumerate(frames.tolist()):
        struck = frame[notes:] if onsets else None
        for n in range(notes):
            expected = read_by_hand(frame[:notes], n, struck)
            assert ours[n, k].tolist() == pytest.approx(expected), (k, n)


def random_frames(count, notes, onsets, dtype=torch.float64):
    """Frames (count, F); with onsets about half of the sounding notes are struck."""
    random = torch.Generator().manual_seed(1)
    sounding = (torch.rand(count, notes, generator=random) < 0.4).to(dtype)
    if not onsets:
        return sounding
    return torch.cat([sounding, sounding * (torch.rand(count, notes, generator=random) < 0.5)], 1)


@pytest.mark.parametrize(
    ("unit", "T", "B", "notes", "layers", "onsets", "first"),
    [
        ("lstm", 5, 3, 13, 1, True, True),
        ("gru-reset-after", 5, 3, 13, 1, False, True),
        ("lstm-layer-norm", 5, 3, 13, 1, True, False),
        ("lstm", 3, 2, 88, 2, False, False),
        ("gru", 1, 1, 1, 1, True, False),
        ("gru", 4, 1, 2, 1, True, True),
    ],
)
def test_compiled_and_plain_agree_in_nats_and_every_gradient(
    unit, T, B, notes, layers, onsets, first, monkeypatch
):
    """Ragged pieces too: their padding is skipped, and with `first` frames that change nothing."""
    kind = {"notes": notes, "layers": layers, "onsets": onsets, "first": first, "end": first}
    compiled, plain = (
        note_unit_output(unit, backend=backend, **kind) for backend in ("cpu", "reference")
    )
    line = random_frames((T + 1) * B, notes, onsets).view(T + 1, B, -1)
    line[T // 2] = line[T // 2 - 1]
    line[T // 2, :, notes:] = 0
    if onsets:  # determined strikes must have their value
        line[1:] = with_forced_strikes(line[1:], line[:-1])
    frames, past = line[1:], line[:-1]
    lengths = np.array([T, -1, 1][:B])
    inside = torch.arange(T).unsqueeze(1) < torch.from_numpy(lengths)
    weights = inside.double() / inside.sum()
    found = []
    for output in (compiled, plain):
        torch.manual_seed(5)
        h = torch.randn(T, B * notes, H, dtype=torch.float64, requires_grad=True)
        nats = output.score(h, frames, past)
        loss = output.loss(h, frames, past, weights, lengths)
        torch.testing.assert_close(loss.nats, (nats * weights).sum().detach(), rtol=1e-12, atol=0)
        gradients = torch.autograd.grad(loss.total, [h, *output.parameters()])
        found.append([nats, *gradients])
        monkeypatch.setattr(
            "seqmodel.kernels.device.unsupported_reason", lambda tensors: "the plain path"
        )
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["frame-wise", "nade", "bernoulli", "note-unit", "first change"])
def test_with_onsets_the_likelihood_sums_to_one_after_any_frame(kind):
    """Over all 64 patterns of 3 notes sounding and struck; impossible ones have probability 0."""
    if kind == "frame-wise":
        output, rows = BernoulliOutput(H, 3, onsets=True).double(), 1
    elif kind == "nade":
        output, rows = nade(3, 4, onsets=True), 1
    elif kind == "bernoulli":
        output, rows = bernoulli_output(3, onsets=True), 3
    else:
        output, rows = note_unit_output(notes=3, onsets=True, first=kind == "first change"), 3
    bits = list(itertools.product((0.0, 1.0), repeat=6))
    frames = torch.tensor(bits, dtype=torch.float64).unsqueeze(1)
    for before in itertools.product((0.0, 1.0), repeat=3):
        past = torch.tensor([*before, *before], dtype=torch.float64).expand(64, 1, 6)
        h = torch.randn(1, rows, H, dtype=torch.float64).expand(64, rows, H)
        for score in (output.score, output.plain_nats):
            p = torch.exp(-score(h, frames, past)).detach()
            assert float(p.sum()) == pytest.approx(1, abs=1e-12)
            assert int((p > 0).sum()) == np.prod([3 if held else 2 for held in before])


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("kind", ["bernoulli", "note-unit", "hits", "first change", "first hit"])
def test_a_uniform_below_a_notes_probability_given_those_below_is_a_note(kind, temperature):
    """Of dependent notes the temperature is for those above the lowest that begins."""
    D, count, hits = 4, 300, kind in ("hits", "first hit")
    output = bernoulli_output(D)
    if kind != "bernoulli":
        output = note_unit_output(notes=D, hits=hits, first=kind.startswith("first"))
    h, before = torch.randn(1, D, H, dtype=torch.float64), [1.0, 0.0, 0.0, 1.0]
    uniforms = torch.from_numpy(Uniforms(5, 0).take(count, D + 1))
    past = torch.tensor(before, dtype=torch.float64).expand(count, D)
    rows = h.expand(count, D, H)
    frames = output.draw_frame(rows.reshape(-1, H), past, uniforms, temperature).frame
    logits = output.note_logits(rows, frames.unsqueeze(1), past.unsqueeze(1))
    logits = logits[:, 0].detach().numpy()
    held_from = [0.0] * D if hits else before  # a hit begins after a hit of the same sound, too
    for frame, logit, uniform in zip(frames.tolist(), logits, uniforms.numpy(), strict=True):
        for n in range(D):
            begun = any(x > held for x, held in zip(frame[:n], held_from, strict=False))
            heat = temperature if begun or kind == "bernoulli" else 1
            more = 3.5 * (1 - heat) if kind != "bernoulli" and not held_from[n] else 0
            p = 1 / (1 + np.exp(-logit[n] / heat - more)) if temperature else logit[n] > 0
            assert frame[n] == (p > uniform[n] if temperature else p), (frame, n)
    assert len(frames.unique(dim=0)) > 4 or not temperature
