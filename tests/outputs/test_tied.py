"""Outputs with a row per note: probabilities that sum to one, compiled and plain the same."""

import itertools

import numpy as np
import pytest
import torch
from made import nade

from seqmodel.kernels.uniforms import Uniforms
from seqmodel.outputs.bernoulli import BernoulliOutput, TiedBernoulliOutput
from seqmodel.outputs.note_unit import NoteUnitOutput, notes_below
from seqmodel.outputs.notes import with_forced_strikes
from seqmodel.outputs.notes_tied import below_size
from seqmodel.units import make

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
