"""Filling: what is given stays, what is drawn follows the model's conditional distribution."""

from itertools import product

import numpy as np
import pytest
import torch
from frequencies import assert_frequent
from onsets import as_frames, random_states
from piece_nats import frame_and_end_nats
from plain_particles import PlainParticles

from seqmodel import units
from seqmodel.model.clock import Clock
from seqmodel.model.encoder import WindowEncoder
from seqmodel.model.notes import NoteEncoder
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.bernoulli import BernoulliOutput, TiedBernoulliOutput
from seqmodel.outputs.nade import NadeOutput
from seqmodel.outputs.note_unit import NoteUnitOutput
from seqmodel.outputs.notes_tied import below_size
from seqmodel.sampling.filling import (
    FRAMES_AHEAD,
    FRAMES_SEEN,
    SURVIVORS,
    WEIGH,
    Filler,
    _Pass,
    run,
)

pytestmark = pytest.mark.usefixtures("unoptimised")

KINDS = ("bernoulli", "nade", "tied-bernoulli", "note-unit", "first-change", "labelled")


def build(kind, notes, *, end=False, onsets=False, seed=0):
    """A model of random weights, in which both the past and the notes below matter."""
    torch.manual_seed(seed)
    if kind in ("bernoulli", "nade"):
        encoder = WindowEncoder(2 * notes if onsets else notes, sparse=True)
        width = (7,) if kind == "nade" else ()
        output = (NadeOutput if kind == "nade" else BernoulliOutput)(
            6, notes, *width, end=end, onsets=onsets
        )
    else:
        rests = kind == "first-change"
        remembers = {"ages": rests, "rests": rests, "motifs": kind == "note-unit"}
        clock = Clock() if end else None
        encoder = NoteEncoder(notes, onsets=onsets, echo=True, clock=clock, **remembers)
        h_size = 6 + encoder.skip_size + 2 * (kind == "labelled")
        if kind == "tied-bernoulli":
            output = TiedBernoulliOutput(h_size, notes, end=end, onsets=onsets)
        else:
            below = below_size(onsets=onsets)
            unit = units.make("lstm", h_size + below, 5)
            first = kind == "first-change"
            output = NoteUnitOutput(h_size, unit, notes, end=end, onsets=onsets, first_change=first)
    known, columns = ({"who": ("a", "b")}, 2) if kind == "labelled" else ({}, 0)
    unit = units.make("gru", encoder.input_size + columns, 6)
    model = SequenceModel(encoder, unit, output, known_labels=known).conditioned([2] * len(known))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            strong = name.startswith("output") and ".first." not in name  # many add up in that
            weight.normal_(0, 1.5 if strong else 0.3)
    return model.double().eval()


def log_p(model, piece, *, ends=True):
    """log p of a piece (T, F) and, if the model predicts it, of its end, or of going on."""
    frames = torch.from_numpy(piece).double().unsqueeze(1)
    return -float(sum(nats.sum() for nats in frame_and_end_nats(model, frames, ends)))


def problem(kind, length):
    """A model, a piece, an empty mask of what is free, and whether they have onsets and ends."""
    onsets, piece = kind != "labelled", random_states(1, length, 9)
    piece = as_frames(piece) if onsets else (piece > 0).astype(np.uint8)
    return build(kind, 9, end=onsets, onsets=onsets), piece, np.zeros((length, 9), bool), onsets


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_and_plain_filling_draw_the_same(kind):
    """Given numbers, candidates, resampling and sweeps: every bit and every weight."""
    model, piece, free, onsets = problem(kind, 22)
    free[3:-5, 2:6] = free[3:17, -2:] = True
    fillers = [Filler(model, particles=7, candidates=3, temperature=0.9) for _ in range(2)]
    fillers[1].particles = PlainParticles(model, 7, 0.9)
    fillers[0].fill(piece[:9], free[:9], seed=6)  # another piece leaves nothing behind
    filled, told = [], []
    for filler in fillers:
        told.append([])
        filled.append(
            filler.fill(
                piece, free, seed=5, number=2, sweeps=1,
                progress=lambda done, total: told[-1].append((done, total)),
            )
        )  # fmt: skip
    assert told[0] == told[1] == sorted(told[0])
    assert told[0][-1][0] == told[0][-1][1]
    np.testing.assert_array_equal(filled[0].frames, filled[1].frames)
    np.testing.assert_allclose(filled[0].effective, filled[1].effective, rtol=1e-9)
    assert filled[0].log_given == pytest.approx(filled[1].log_given, rel=1e-9)
    ours, theirs = filled[0].frames, piece
    np.testing.assert_array_equal(ours[:, :9][~free], theirs[:, :9][~free])
    if onsets:  # a held note may lose what it was held from
        kept = ~free & ~np.pad(free[:-1], ((1, 0), (0, 0)))
        np.testing.assert_array_equal(ours[:, 9:][kept], theirs[:, 9:][kept])
        before = np.pad(ours[:-1, :9], ((1, 0), (0, 0)))
        assert (ours[:, 9:] >= (ours[:, :9] & ~before & 1)).all()  # none is held from silence
    assert (filled[0].frames != piece).any()
    assert filled[0].effective.min() < 3.5 or not onsets  # some were resampled


class Backwards:
    """A pool of threads of which the last is done first."""

    def map(self, function, *arguments):
        return [function(*each) for each in reversed([*zip(*arguments, strict=True)])]


@pytest.mark.usefixtures("two_threads")
def test_threads_leave_each_others_candidates_alone():
    """Guards whole vectors of one thread written over what another has drawn."""
    model, piece, free, _ = problem("bernoulli", 8)
    free[2:] = True
    fillers = [Filler(model, particles=5, candidates=3) for _ in range(2)]
    fillers[1].particles._pool = Backwards()
    one, other = (filler.fill(piece, free, seed=5).frames for filler in fillers)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["nade", "note-unit"])
def test_what_is_given_stays_at_any_temperature(kind):
    """Guards notes whose logits, over a low temperature, no uniform is below."""
    model, piece, free, _ = problem(kind, 8)
    free[2:6, 4:] = True
    filled = Filler(model, particles=3, candidates=2, temperature=1e-3).fill(piece, free, seed=5)
    np.testing.assert_array_equal(filled.frames[:, :9][~free], piece[:, :9][~free])


@pytest.mark.parametrize("kind", KINDS)
def test_the_rest_is_scored_at_once_as_particles_would(monkeypatch, kind):
    """With strikes, the end and a temperature; otherwise sweeps accept what they should not."""
    model, piece, free, _ = problem(kind, 30)
    free[3:8, 2:6] = True
    filler, filled = Filler(model, particles=1, temperature=0.8), []
    monkeypatch.setattr("seqmodel.sampling.filling.WINDOW", 9)
    for seen in (len(piece), 2):
        monkeypatch.setattr("seqmodel.sampling.filling.FRAMES_SEEN", seen)
        filled.append(filler.fill(piece, free, seed=5))
    np.testing.assert_array_equal(filled[0].frames, filled[1].frames)
    assert filled[0].log_given == pytest.approx(filled[1].log_given, rel=1e-9)


def outcomes(model, piece, free):
    """Every possible piece, and its probability given what is given."""
    pieces = []
    for bits in product([0, 1], repeat=int(free.sum())):
        made = piece.copy()
        made[free] = bits
        pieces.append(made)
    logs = np.array([log_p(model, made) for made in pieces])
    return np.array(pieces), logs


@pytest.mark.parametrize(
    ("kind", "particles", "candidates", "sweeps", "draws", "survivors", "seen"),
    [
        ("nade", 12, 4, 0, 100, 8, 1),
        ("nade", 2, 3, 4, 80, 2, 1),
        ("nade", 4, 3, 8, 80, 4, 0),
        ("first-change", 12, 4, 0, 100, 12, 1),
    ],
)
def test_the_drawn_follow_the_exact_conditional(
    monkeypatch, kind, particles, candidates, sweeps, draws, survivors, seen
):
    """By enumeration; also where particles do not see what follows, and sweeps have to."""
    monkeypatch.setattr("seqmodel.sampling.filling.FRAMES_AHEAD", 0)
    monkeypatch.setattr("seqmodel.sampling.filling.FRAMES_SEEN", seen)
    monkeypatch.setattr("seqmodel.sampling.filling.SURVIVORS", survivors)
    model = build(kind, 4, end=True, seed=5 if kind == "first-change" else 3)  # many are likely
    piece = (random_states(1, 5, 4) > 0).astype(np.uint8)
    free = np.zeros(piece.shape, bool)
    free[1:4, 0] = free[2, 1] = True
    pieces, logs = outcomes(model, piece, free)
    exact = np.exp(logs - np.logaddexp.reduce(logs))
    filler = Filler(model, particles=particles, candidates=candidates)
    counts, given = np.zeros(len(pieces)), []
    for number in range(draws):
        filled = filler.fill(piece, free, seed=1, number=number, sweeps=sweeps)
        counts[int("".join(map(str, filled.frames[free])), 2)] += 1
        given.append(filled.log_given)
    assert_frequent(counts, exact * draws, draws, least=5)
    # What precedes the first free frame is not part of the estimate.
    before = log_p(model, piece[:1], ends=False)
    ratios = np.exp(np.array(given) - (np.logaddexp.reduce(logs) - before))
    error = ratios.std() / draws**0.5
    assert abs(ratios.mean() - 1) < 4 * error


def test_few_particles_see_what_follows_and_none_the_rest(monkeypatch):
    """Guards against minutes for two bars of a song: all used to be scored to its end."""
    model = build("nade", 9, seed=4)
    piece = (random_states(1, 90, 9) > 0).astype(np.uint8)
    free = np.zeros(piece.shape, bool)
    free[2:6] = True
    filler, scored = Filler(model, particles=24), []
    draw = filler.particles.draw
    filler.particles.draw = lambda forced, uniforms: (
        scored.append(len(forced)) or draw(forced, uniforms)
    )
    filled = filler.fill(piece, free, seed=1)
    far = 4 + FRAMES_AHEAD + 1
    assert len(scored) == 4 + FRAMES_SEEN
    assert min(scored[:far]) > SURVIVORS >= max(scored[far:])
    monkeypatch.setattr("seqmodel.sampling.filling.SURVIVORS", 24)
    monkeypatch.setattr("seqmodel.sampling.filling.FRAMES_SEEN", 90)
    whole = filler.fill(piece, free, seed=1)
    assert filled.paths == pytest.approx(whole.paths, rel=0.02)  # little tells them apart


def test_sweeps_decide_by_the_rest_as_it_is(monkeypatch):
    """Guards likelihoods of a piece that a pass near its end has changed since."""
    run, decided = _Pass.run, []

    def checked(self, *, retain=False):
        known = self._nats.copy()
        if self._stop < len(known) and not np.isnan(known[self._stop]):
            rest = slice(self._stop, None)
            true = self._filler.nats(self._piece, self._begin, self._carry)
            np.testing.assert_allclose(known[rest], true[rest])
            decided.append(self._stop)
        return run(self, retain=retain)

    monkeypatch.setattr(_Pass, "run", checked)
    piece = (random_states(1, 150, 9) > 0).astype(np.uint8)
    free = np.zeros((150, 9), bool)
    free[4:, :2] = True
    Filler(build("nade", 9, seed=4), particles=2, candidates=2).fill(piece, free, seed=1, sweeps=2)
    assert decided


def test_a_given_strike_is_weighed_by_each_particles_own_previous_frame():
    """It is determined after silence, and only then."""
    logits, weights = np.array([[[1.0, 2.0, 0.0]]] * 2), np.zeros(2)
    run(
        WEIGH, N=2, M=1, F=2, D=1, ends=0, over=0, frames=np.ones((2, 1, 2), np.uint8),
        logits=logits, x=np.ones(2, np.uint8), free=np.zeros(2, np.uint8),
        before=np.array([[0, 0], [1, 1]], np.uint8), at=np.zeros(2), weights=weights,
    )  # fmt: skip
    note, strike = -np.log1p(np.exp(-logits[0, 0, :2]))
    np.testing.assert_allclose(weights, [note, note + strike])


@pytest.mark.parametrize("given", [0, 4])
def test_what_is_retained_survives_every_resampling(monkeypatch, given):
    """Were it lost, a sweep would be a first draft again; few are left for the `given` frames."""
    model = build("nade", 9, seed=4)
    piece = (random_states(1, 64, 9) > 0).astype(np.uint8)
    free = np.zeros(piece.shape, bool)
    free[: 64 - given, 2:6] = True
    monkeypatch.setattr("seqmodel.sampling.filling.FRAMES_AHEAD", 0)
    monkeypatch.setattr("seqmodel.sampling.filling.SURVIVORS", 2)
    resampled = []
    resample = _Pass._resample

    def counted(self, shares, N, *, retain):
        resampled.append(retain)
        return resample(self, shares, N, retain=retain)

    monkeypatch.setattr(_Pass, "_resample", counted)
    monkeypatch.setattr(_Pass, "_draw_one", lambda self, shares: 0)
    monkeypatch.setattr("seqmodel.sampling.filling.NEGLIGIBLE_NATS", np.inf)
    filler = Filler(model, particles=6, candidates=2)
    first, swept = (filler.fill(piece, free, seed=1, sweeps=n).frames for n in (0, 3))
    np.testing.assert_array_equal(first, swept)
    assert (first != piece).any()
    assert sum(resampled) > 10
