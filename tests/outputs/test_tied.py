"""Outputs with a row per note: probabilities that sum to one, compiled and plain the same."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from same_draws import same_draws

from seqmodel.config import resolve
from seqmodel.data.bundled import FRAMES
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.model.build import build_model, with_sizes
from seqmodel.outputs.bernoulli import TiedBernoulliOutput
from seqmodel.outputs.note_unit import NoteUnitOutput, notes_below
from seqmodel.outputs.notes import as_drawn, note_count
from seqmodel.outputs.notes_tied import below_size
from seqmodel.sampling.sampler import Sampler
from seqmodel.units import UNITS, make

H = 5


def note_unit_output(
    unit="gru", *, notes=6, layers=1, backend="auto", end=False, onsets=False, hits=False,
    first=False
):  # fmt: skip
    """An output whose notes depend strongly on each other, in float64."""
    torch.manual_seed(3)
    made = make(unit, H + below_size(onsets=onsets), 4, backend, layers=layers)
    kind = {"onsets": onsets, "hits": hits, "first_change": first}
    output = NoteUnitOutput(H, made, notes, end=end, **kind).double()
    for weight in output.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    return output


def bernoulli_output(notes=6, *, onsets=False):
    torch.manual_seed(3)
    return TiedBernoulliOutput(H, notes, onsets=onsets).double()


def all_frames(notes):
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=notes)), dtype=torch.float64)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    ("unit", "backend"), [(unit, ("cpu", "reference")[k % 2]) for k, unit in enumerate(UNITS)]
)
def test_the_likelihood_of_all_frames_sums_to_one(unit, backend):
    """Guards against a note that reads itself or one above it."""
    frames = all_frames(7).unsqueeze(1)
    for output in (note_unit_output(unit, notes=7, backend=backend), bernoulli_output(7)):
        for _ in range(3):
            h = torch.randn(1, 7, H, dtype=torch.float64).expand(len(frames), 7, H)
            p = torch.exp(-output.score(h, frames, frames))
            assert float(p.detach().sum()) == pytest.approx(1, abs=1e-12)
            assert p.max() > 2 * p.min()  # else uniform would do


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
    [(unit, 5, 3, 13, 1, k % 2 == 0, k % 3 == 0) for k, unit in enumerate(UNITS)]
    + [
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
        line[1:] = as_drawn(line[1:], line[:-1])
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


@pytest.mark.parametrize("kind", ["bernoulli", "note-unit", "first change"])
def test_with_onsets_the_likelihood_sums_to_one_after_any_frame(kind):
    """Over all 64 patterns of 3 notes sounding and struck; impossible ones have probability 0."""
    output = (
        bernoulli_output(3, onsets=True)
        if kind == "bernoulli"
        else note_unit_output(notes=3, onsets=True, first=kind == "first change")
    )
    frames = all_frames(6).unsqueeze(1)
    for before in itertools.product((0.0, 1.0), repeat=3):
        past = torch.tensor([*before, *before], dtype=torch.float64).expand(64, 1, 6)
        h = torch.randn(1, 3, H, dtype=torch.float64).expand(64, 3, H)
        p = torch.exp(-output.score(h, frames, past)).detach()
        assert float(p.sum()) == pytest.approx(1, abs=1e-12)
        assert int((p > 0).sum()) == np.prod([3 if held else 2 for held in before])


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("kind", ["bernoulli", "note-unit", "hits", "first change", "first hit"])
def test_draws_are_as_likely_as_the_score_says(kind, temperature):
    """Frequencies against exact probabilities, from one h: chi-square of 16 frames.

    Of dependent notes the temperature is for those above the lowest that begins: it leaves alone
    how likely any does. A hit begins after a hit of the same sound, too.
    """
    D, count, hits, first = 4, 20_000, kind in ("hits", "first hit"), kind.startswith("first")
    output = bernoulli_output(D)
    if kind != "bernoulli":
        output = note_unit_output(notes=D, hits=hits, first=first)
    h = torch.randn(1, D, H, dtype=torch.float64)
    frames, before = all_frames(D), [1.0, 0.0, 0.0, 1.0]
    told = torch.tensor(before, dtype=torch.float64).expand(16, 1, D)
    logits = (
        output.note_logits(h.expand(16, D, H), frames.unsqueeze(1), told)[:, 0].detach().numpy()
    )
    held_from, p = [0.0] * D if hits else before, np.ones(16)
    for k, frame in enumerate(frames.tolist()):
        for n in range(D):
            begun = any(x > held for x, held in zip(frame[:n], held_from, strict=False))
            heat = temperature if begun or kind == "bernoulli" else 1
            more = 3.5 * (1 - heat) if kind != "bernoulli" and not held_from[n] else 0
            sounds = 1 / (1 + np.exp(-logits[k, n] / heat - more))
            p[k] *= sounds if frame[n] else 1 - sounds
    if temperature == 1:
        whole = frames.unsqueeze(1)
        scores = output.score(h.expand(16, D, H), whole, told)[:, 0].detach().numpy()
        assert p == pytest.approx(np.exp(-scores))
    uniforms = torch.from_numpy(Uniforms(5, 0).take(count, D + 1))
    past = torch.tensor(before, dtype=torch.float64).expand(count, D)
    drawn = output.draw_frame(h.expand(count, D, H).reshape(-1, H), past, uniforms, temperature)
    counts = Counter(map(tuple, drawn.frame.tolist()))
    found = np.array([counts[tuple(frame)] for frame in frames.tolist()])
    expected = p * count
    assert ((found - expected) ** 2 / expected).sum() < 37.7  # 15 degrees of freedom, p = 0.001


def test_at_temperature_zero_each_note_takes_its_likelier_value_given_those_below():
    output = note_unit_output(notes=6)
    h = torch.randn(6, H, dtype=torch.float64)
    uniforms = torch.rand(1, 7, dtype=torch.float64)
    frame = output.draw_frame(h, uniforms[:, :6], uniforms, 0).frame
    logits = output.note_logits(h.unsqueeze(0), frame.unsqueeze(0))[0]
    assert torch.equal(frame, (logits > 0).double())
    assert 0 < frame.sum() < 6


def tied_model(unit, output, layers, *, end=True, hidden=21, frame=FRAMES, first=False):
    torch.manual_seed(7)
    options = {"model": "tied", "output": output, "unit": unit, "layers": layers, "end": end}
    options |= {"first_change": first}
    model = build_model(with_sizes(resolve(options | {"hidden": hidden}), frame), frame)
    with torch.no_grad():  # so that the past and the notes matter
        model.output.linear.weight.mul_(8)
        model.output.linear.bias.fill_(-2)
        if end:
            model.output.ending.weight.mul_(4)
            model.output.ending.bias.fill_(-5)
    return model


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    ("unit", "output", "layers"),
    [
        ("lstm", "note-unit", 2),
        ("gru", "note-unit", 1),
        ("tanh", "note-unit", 1),
        ("gru", "bernoulli", 2),
    ],
)
def test_compiled_and_plain_sampling_draw_the_same(unit, output, layers, monkeypatch):
    """Units on both axes, stacks, ends, onsets, drums and temperatures, note for note."""
    monkeypatch.setattr("seqmodel.sampling.sampler.CHUNK", 2)
    onsets = layers == 2
    frame = replace(FRAMES, onsets=onsets, kit=unit == "tanh")
    first = output == "note-unit" and unit in ("tanh", "gru", "lstm")
    model = tied_model(unit, output, layers, frame=frame, first=first)
    prime = random_frames(2, note_count(frame), onsets).numpy()
    for temperature in (0.8, 0.0) if layers == 2 else (0.8,):
        same_draws(model, temperature=temperature, prime=prime)


@pytest.mark.parametrize("output", ["bernoulli", "note-unit"])
def test_the_end_is_drawn_as_often_as_its_probability_says(output):
    """In compiled sampling: with zero weights a piece ends at each frame with probability 1/8."""
    model = tied_model("gru", output, 1, hidden=3)
    with torch.no_grad():
        model.output.ending.weight.zero_()
        model.output.ending.bias.fill_(-np.log(7))
    sampler = Sampler(model)
    lengths = [len(next(sampler.draw(Uniforms(1, k)))[0]) for k in range(400)]
    assert np.mean(lengths) == pytest.approx(8, abs=3 * 7.5 / 20)
