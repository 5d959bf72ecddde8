"""The model: frame t is predicted from the frames before t, and a carry holds all of the past."""

import pytest
import torch
from models import random_model

from seqmodel.config import resolve
from seqmodel.data.bundled import FRAMES
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.registry import medium_of
from seqmodel.model.build import build_model, with_sizes
from seqmodel.units.module import Unit

T, B, D = 7, 3, 88
SOUND = AudioFrames(8000, 3, 7, mean=0.1, deviation=0.25)
KINDS = {
    "music": {"unit": "gru", "end": True},
    "a stack": {"unit": "lstm", "layers": 2, "end": True},
    "gaussian": {"output": "gaussian", "components": 3},
    "logistic": {"output": "logistic", "components": 3},
}


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


@pytest.mark.parametrize("kind", KINDS)
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
    """Chung et al. 2014, section 4: some 20,000 weights for music, 169,000 for speech."""
    medium, hidden = medium_of(frame), [36, 46, 100] if frame is FRAMES else [195, 227, 400]
    for unit, size in zip(("lstm", "gru", "tanh"), hidden, strict=True):
        paper = resolve({"preset": "paper", "unit": unit}, presets=medium.presets)
        assert with_sizes(paper, frame).hidden == size
        assert (paper.optimizer, paper.weight_noise, paper.clip) == ("rmsprop", 0.075, 1.0)
        assert (paper.learning_rate_draws, paper.schedule) == (10, "constant")
        if frame is not FRAMES:
            assert (frame.context, frame.frame_size, paper.components) == (20, 10, 20)
        for model in ("frame-wise", "tied") if frame is FRAMES else ("frame-wise",):
            options = {"model": model, "unit": unit, "params": 20_000}
            config = with_sizes(resolve(options), frame)
            layers = build_model(config, frame).modules()
            counts = [m.parameter_count() for m in layers if isinstance(m, Unit)]
            assert len(counts) == (2 if model == "tied" else 1)  # of time, and of pitch
            assert sum(counts) == pytest.approx(20_000, rel=0.03), unit
            assert config.params is None  # solved: the size now replaces it


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
