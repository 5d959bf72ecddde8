"""What the benchmark reports about its timings, since no test can say how fast anything is."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqmodel import units as seqmodel_units
from seqmodel.bench import measure, peers
from seqmodel.bench.measure import compare, spread_percent
from seqmodel.config import resolve
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.medium import AUDIO
from seqmodel.model.build import build_model
from seqmodel.training.update import window_loss
from seqmodel.units import UNITS, unit_spec
from seqmodel.units.convert import to_torch

TINY = measure.Size("tiny", 3, 5, 2, 4, hidden_with_cell=4)


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


def test_the_spread_is_half_the_interquartile_range():
    """Guards against a spread that one interrupted round blows up."""
    assert spread_percent([4.0, 5.0, 5.0, 6.0, 1000.0]) == pytest.approx(10.0)


def test_every_unit_is_measured_at_every_size(monkeypatch):
    """Guards against cases that are omitted, duplicated or mislabelled, and one backend's figures
    taken for another's."""
    monkeypatch.setattr(measure, "SHORTEST", 1e-6)
    monkeypatch.setattr(measure, "SIZES", (TINY, measure.Size("row", 2, 3, 1, 2)))
    monkeypatch.setattr(measure, "UNITS", {name: UNITS[name] for name in ("lstm", "mgu")})
    rows = [*measure.unit_rows([], "cpu", 0.0)]
    assert [(row["size"], row["unit"]) for row in rows] == [
        (size, name) for size in ("tiny", "row") for name in ("lstm", "mgu")
    ]
    for row in rows[:2]:
        sizes = tuple(row[key] for key in ("inputs", "hidden", "batch", "frames"))
        assert sizes == (3, 4 if "lstm" in row["unit"] else 5, 2, 4)
        assert (row["device"], row["backend"]) == ("cpu", "cpu")
    assert len([*measure.unit_rows(["gru"], "cpu", 0.0)]) == 2


def test_timings_wait_for_the_gpu(monkeypatch):
    """Guards against timing the launch instead of the work."""
    done = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append("finished"))
    for used in (False, True):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda used=used: used)
        measure._mean(lambda: done.append("launched"), 1)
    assert done == [*["launched"] * 2, *["launched", "finished"] * 2]


def test_a_step_leaves_no_gradients_behind():
    """Guards against timing the addition to a former step's gradients."""
    layer, x = seqmodel_units.make("gru", 3, 5), torch.randn(4, 2, 3, requires_grad=True)
    measure.unit_step(layer, x, torch.randn(4, 2, 5))
    assert x.grad is None
    assert all(weight.grad is None for weight in layer.parameters())


def test_units_and_models_have_the_papers_sizes():
    """Guards against a comparison at other sizes, or with unequal numbers of parameters."""
    paper, speech, *_ = measure.SIZES
    assert {name: paper.hidden_of(spec) for name, spec in UNITS.items()} == {
        name: 36 if "lstm" in name else 46 for name in UNITS
    }
    assert speech.hidden_of(UNITS["lstm"]) == 195
    found = [measure.config_of("frame-wise", unit).hidden for unit in ("lstm", "gru", "tanh")]
    assert found == [36, 46, 100]
    tied = measure.config_of("tied", "gru")
    assert (tied.hidden, tied.note_hidden, tied.layers, tied.echo) == (96, 48, 1, False)


def test_rolls_have_four_notes_and_models_start_at_that_density():
    """Guards against a density, given or drawn, that never or always takes the sparse path."""
    rolls = measure.piano_rolls(6, 5)
    assert rolls.shape == (6, 5, 88)
    assert set(rolls.unique().tolist()) == {0.0, 1.0}
    assert (rolls.sum(2) == 4).all()
    assert len(rolls.view(30, 88).unique(dim=0)) > 20
    config = measure.config_of("frame-wise", "gru")
    for model in (measure.our_model(config).output, measure.their_model(config)):
        played = torch.sigmoid(model.linear.bias.detach()).sum()
        assert float(played) == pytest.approx(4)


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
    monkeypatch.setattr(measure, "SHORTEST", 1e-6)
    row = measure.measure_sampling("frame-wise", "lstm", 0.0)
    assert (row["model"], row["unit"], row["hidden"]) == ("frame-wise", "lstm", 36)
    speeds = {"ours": 256e3 / row["ours"]["ms"], "torch_nn": 256e3 / row["torch_nn"]["ms"]}
    assert row["frames_per_second"] == pytest.approx(speeds)
    assert row["over_torch_nn"] == pytest.approx(speeds["ours"] / speeds["torch_nn"])
    monkeypatch.setattr(measure, "DRAWN", {"frame-wise": 2})
    row = measure.measure_sampling("frame-wise", "lstm", 0.0)
    assert row["frames_per_second"]["torch_nn"] == pytest.approx(2e3 / row["torch_nn"]["ms"])


def test_models_cover_the_papers_units_and_the_tied_gru(monkeypatch):
    """Guards against an omitted model, and units that are named but not measured."""
    asked = []

    def asking(model, unit, seconds):
        asked.append((model, unit, seconds))

    for named in ([], ["mgu"]):
        list(measure.model_rows(asking, named, 2.0))
    frame_wise = [("frame-wise", unit, 2.0) for unit in ("lstm", "gru", "tanh")]
    named = [("frame-wise", "mgu", 2.0), ("tied", "mgu", 2.0)]
    assert asked == [*frame_wise, ("tied", "gru", 2.0), *named]


def test_the_peer_of_sound_computes_the_same_loss():
    """Guards against a comparison with less, or other, work: equal weights give equal nats."""
    frame = AudioFrames(8000)
    ours = build_model(resolve({"unit": "gru-reset-after"}, presets=AUDIO.presets), frame).eval()
    layer = peers.layer(unit_spec("gru-reset-after"), ours.encoder.input_size, 128)
    layer.load_state_dict(to_torch(ours.unit).state_dict())
    frames = measure.noise(7, 3, 10)
    loss = window_loss(ours, frames, np.full(3, 7), ours.start(3), total_frames=1)
    torch.testing.assert_close(measure.their_loss(ours, layer, frames), loss.total)
