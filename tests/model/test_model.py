"""The model: frame t is predicted from the frames before t, and a carry holds all of the past."""

import pytest
import torch
from models import random_model

from seqmodel.config import resolve
from seqmodel.data.bundled import FRAMES
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.registry import medium_of
from seqmodel.model.build import build_model, with_sizes

T, B, D = 7, 3, 88
SOUND = AudioFrames(8000, 3, 7, mean=0.1, deviation=0.25)
KINDS = {
    "music": {"unit": "gru", "end": True},
    "a stack": {"unit": "lstm", "layers": 2, "end": True},
    "gaussian": {"output": "gaussian", "components": 3},
    "logistic": {"output": "logistic", "components": 3},
}
every_kind = pytest.mark.parametrize("kind", KINDS)
notes = pytest.mark.parametrize("kind", ["music", "a stack"])


def model_and_frames(kind, **options):
    """The model in float64, and frames (T, B, F) for it."""
    frame = SOUND if "components" in KINDS[kind] else FRAMES
    model = random_model({"model": "frame-wise"} | KINDS[kind] | options, frame).double()
    if frame is SOUND:
        return model, torch.randn(T, B, 3, dtype=torch.float64)
    return model, (torch.rand(T, B, D) < 0.4).double()


def predict(model, frames, carry):
    """The output's parameters for each frame, and the carry after the last."""
    reading = model.read(frames, carry)
    return model.output(reading.h), reading.after


@every_kind
def test_windows_and_steps_equal_one_run(kind):
    """Sampling goes by steps, evaluation by windows: all must be the same model."""
    model, frames = model_and_frames(kind)
    whole, end = predict(model, frames, model.start(B))
    for cuts in ((3,), (1, 2, 6)):
        carry, parts = model.start(B), []
        for window in frames.tensor_split(cuts):
            logits, carry = predict(model, window, carry)
            parts.append(logits)
        torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-14)
        for ours, theirs in zip(carry.tensors(), end.tensors(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)
    carry = model.start(B)
    for t, frame in enumerate(frames):
        h, state = model.step(carry)
        torch.testing.assert_close(model.output(h), whole[t], rtol=0, atol=1e-14)
        carry = type(carry)(state, model.encoder.append(carry.past, frame))


@notes
def test_a_carry_is_rebuilt_from_its_tensors(kind):
    """Resuming within a piece depends on it: each tensor in its place, each state of its type."""
    model, frames = model_and_frames(kind)
    _, carry = predict(model, frames, model.start(B))
    tensors = [torch.full_like(t, k) for k, t in enumerate(carry.tensors())]
    assert len(tensors) == (2 * 2 if kind == "a stack" else 1) + 1
    rebuilt = model.start(B).like(tensors)
    assert type(rebuilt.state) is type(carry.state)
    assert [float(t.unique()) for t in rebuilt.tensors()] == list(range(len(tensors)))
    assert all(a is b for a, b in zip(rebuilt.tensors(), tensors, strict=True))
    again = carry.like(carry.tensors())
    torch.testing.assert_close(
        predict(model, frames, again)[0], predict(model, frames, carry)[0], rtol=0, atol=0
    )


def test_dropout_acts_before_the_output_while_training_only():
    model, frames = model_and_frames("music", dropout=0.5)
    still = predict(model, frames, model.start(B))[0]
    torch.testing.assert_close(predict(model, frames, model.start(B))[0], still, rtol=0, atol=0)
    model.train()
    h, _ = model.unit(torch.cat([torch.zeros(1, B, D), frames[:-1]]).double())
    torch.manual_seed(1)
    kept = model.dropout(h)
    assert (kept == 0).any()
    torch.manual_seed(1)
    torch.testing.assert_close(predict(model, frames, model.start(B))[0], model.output.linear(kept))


@pytest.mark.parametrize("frame", [FRAMES, AudioFrames(8000)], ids=["music", "audio"])
def test_the_papers_sizes_and_equal_budgets(frame):
    """For both of the paper's media: 36/46/100 units for music, 195/227/400 for speech."""
    for unit, hidden in medium_of(frame).paper_hidden.items():
        config = with_sizes(resolve({"preset": "paper", "unit": unit}), frame)
        assert config.hidden == hidden
    sizes = {
        unit: with_sizes(resolve({"unit": unit, "params": 20_000}), frame)
        for unit in medium_of(frame).paper_hidden
    }
    for unit, config in sizes.items():
        count = build_model(config, frame).unit.parameter_count()
        assert count == pytest.approx(20_000, rel=0.03), unit
        assert config.params is None  # solved: the size now replaces it
    assert with_sizes(resolve({"hidden": 9}), frame).hidden == 9


def test_audio_is_read_in_windows_of_the_line():
    """The unit reads the 7 numbers before each frame of 3, standardised; zeros before the first."""
    model, frames = model_and_frames("gaussian")
    seen = []
    model.unit.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    _, _, past, carry = model.read(frames, model.start(B))
    line = torch.cat([torch.zeros(B, 7), frames.transpose(0, 1).reshape(B, -1)], 1)
    windows = torch.stack([line[:, 3 * t : 3 * t + 7] for t in range(T)])
    torch.testing.assert_close(past, windows, rtol=0, atol=0)
    torch.testing.assert_close(seen[0], (windows - 0.1) / 0.25)
    torch.testing.assert_close(carry.past.numbers, line[:, -7:], rtol=0, atol=0)
