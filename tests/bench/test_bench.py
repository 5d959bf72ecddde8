"""What the benchmark reports about its timings, since no test can say how fast anything is."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqmodel import units
from seqmodel.bench import measure, peers
from seqmodel.bench.measure import compare
from seqmodel.config import resolve
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.medium import AUDIO
from seqmodel.model.build import build_model
from seqmodel.training.update import window_loss
from seqmodel.units import unit_spec
from seqmodel.units.convert import to_torch
from seqmodel.units.specification import by_gate


def test_contenders_take_turns_and_neither_cold_nor_short_runs_count(monkeypatch):
    """Guards against timing all of one contender first, counting cold runs, an inverted ratio."""
    now, ran = [0.0], []
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def runs(name, seconds):
        cold = ran[-1:] != [name]
        ran.append(name)
        now[0] += 100.0 if cold else seconds

    taken = compare(lambda: runs("a", 0.02), lambda: runs("b", 0.1), 0.0)
    assert "".join(ran) == "aaaabbbb" + 5 * "aaaabb"
    assert (taken["rounds"], taken["over_torch_nn"]) == (5, pytest.approx(5))
    assert taken["ours"] == {"ms": pytest.approx(20), "spread_percent": pytest.approx(0, abs=1e-9)}
    assert taken["torch_nn"]["ms"] == pytest.approx(100)
    # A round takes 100.06 seconds and 100.1.
    assert compare(lambda: runs("a", 0.02), lambda: runs("b", 0.1), 1500.0)["rounds"] == 8


def test_timings_wait_for_the_gpu(monkeypatch):
    """Guards against timing the launch instead of the work."""
    done = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append("finished"))
    for used in (False, True):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda used=used: used)
        measure._mean(lambda: done.append("launched"), 1)
    assert done == [*["launched"] * 2, *["launched", "finished"] * 2]


@pytest.mark.parametrize("name", ["lstm-nopeephole", "gru-reset-after"])
def test_the_peer_computes_the_same_loss(name):
    """Guards against giving torch.nn less, or more, to do."""
    config, rolls = measure.config_of("frame-wise", name), measure.piano_rolls(9, 3)
    ours, theirs = measure.our_model(config), measure.their_model(config)
    theirs.layer.load_state_dict(to_torch(ours.unit).state_dict())
    theirs.linear.load_state_dict(ours.output.linear.state_dict())
    h = ours.read(rolls, ours.start(3)).h
    torch.testing.assert_close(theirs(rolls), ours.output.score(h, rolls).sum())


def test_the_tied_peer_is_the_same_model():
    """Guards against a step that computes something else: equal weights give equal nats."""
    config = measure.config_of("tied", "gru-reset-after")
    config = replace(config, hidden=5, note_hidden=4)
    ours, theirs = measure.our_model(config).eval(), measure.their_model(config)
    theirs.time.load_state_dict(to_torch(ours.unit).state_dict())
    theirs.pitch.load_state_dict(to_torch(ours.output.unit).state_dict())
    theirs.linear.load_state_dict(ours.output.linear.state_dict())
    frames = measure.piano_rolls(6, 3)
    with torch.no_grad():
        h, x, past, _ = ours.read(frames, ours.start(3))
        expected = ours.output.score(h, x, past).sum()
        torch.testing.assert_close(theirs(frames), expected, rtol=1e-5, atol=0)
    assert theirs.draw(3).shape == (3, 88)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_the_peer_draws_notes_at_the_given_frequency(name):
    """Guards against running torch.nn's loop on a different kind of frames than ours."""
    theirs = peers.FrameWise(unit_spec(name), 30, 4)
    with torch.no_grad():
        theirs.linear.bias.copy_(torch.tensor([9.0] * 10 + [-9.0] * 20))
    drawn = theirs.draw(50)
    assert drawn.shape == (50, 30)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert drawn[:, :10].mean() > 0.9
    assert drawn[:, 10:].mean() < 0.1


def test_speeds_are_those_of_the_frames_drawn(monkeypatch):
    """Guards against a speed for another number of frames than timed, or a ratio of the times."""
    monkeypatch.setattr(measure, "MIN_SECONDS", 1e-6)
    row = measure.measure_sampling("frame-wise", "lstm", 0.0)
    assert (row["model"], row["unit"], row["hidden"]) == ("frame-wise", "lstm", 36)
    speeds = {"ours": 256e3 / row["ours"]["ms"], "torch_nn": 256e3 / row["torch_nn"]["ms"]}
    assert row["frames_per_second"] == pytest.approx(speeds)
    assert row["over_torch_nn"] == pytest.approx(speeds["ours"] / speeds["torch_nn"])
    monkeypatch.setattr(measure, "TORCH_FRAMES", {"frame-wise": 2})
    row = measure.measure_sampling("frame-wise", "lstm", 0.0)
    assert row["frames_per_second"]["torch_nn"] == pytest.approx(2e3 / row["torch_nn"]["ms"])


def test_the_peer_of_sound_computes_the_same_loss():
    """Guards against a comparison with less, or other, work: equal weights give equal nats."""
    frame = AudioFrames(8000)
    ours = build_model(resolve({"unit": "gru-reset-after"}, presets=AUDIO.presets), frame).eval()
    layer = peers.layer(unit_spec("gru-reset-after"), ours.encoder.input_size, 128)
    layer.load_state_dict(to_torch(ours.unit).state_dict())
    frames = measure.noise(7, 3, 10)
    loss = window_loss(ours, frames, np.full(3, 7), ours.start(3), total_frames=1)
    torch.testing.assert_close(measure.their_loss(ours, layer, frames), loss.total)


@pytest.mark.skipif(not peers.has_jax(), reason="pip install 'seqmodel[bench]'")
@pytest.mark.parametrize("name", units.UNITS)
def test_jax_computes_what_the_unit_does(name):
    """Guards against giving JAX less, or other, work: equal weights, equal h and gradients."""
    torch.manual_seed(3)
    unit = units.make(name, 5, 4)
    with torch.no_grad():
        for weight in unit.parameters():
            weight.normal_(0, 0.5)
    x, d_h = torch.randn(7, 3, 5, requires_grad=True), torch.randn(7, 3, 4)
    expected = unit(x)[0]
    expected.backward(d_h)
    h, d_weights, d_x = peers.jax_step(unit, x, d_h)()
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(torch.tensor(h.tolist()), expected, **close)
    torch.testing.assert_close(torch.tensor(d_x.tolist()), x.grad, **close)
    gradients = {term: w if w is None else w.grad for term, w in unit.weights().items()}
    for gate, terms in by_gate(unit.spec, gradients).items():
        for term, expected in terms.items():
            if expected is not None:
                found = torch.tensor(d_weights[gate][term].tolist())
                torch.testing.assert_close(found, expected, msg=f"{term}{gate}", **close)
