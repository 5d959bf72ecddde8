"""Compiled sampling draws what plain sampling draws, whatever a model is made of."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from models import random_model
from onsets import as_frames, random_states
from same_draws import assert_strikes_are_possible, same_draws

from seqmodel.data.bundled import FRAMES, FRAMES_WITH_ONSETS
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.outputs.note_unit import NoteUnitOutput
from seqmodel.sampling import sampler

STRUCK, SOUND = FRAMES_WITH_ONSETS, AudioFrames(8000, 9)
KIT = replace(FRAMES, drums=True, kit=True)
KNOWN = {"who": ("ann", "bob"), "digit": ("1", "2", "10")}
WIDE, TIED = {"model": "frame-wise"}, {"model": "tied"}
CASES = {
    "one number": (FRAMES, WIDE | {"unit": "lstm", "hidden": 1}),
    "a panel and more": (STRUCK, WIDE | {"unit": "gru-reset-after", "hidden": 13}),
    "means": (STRUCK, WIDE | {"unit": "lstm-layer-norm", "hidden": 21, "layers": 2, "end": True}),
    "layers": (FRAMES, WIDE | {"unit": "tanh", "hidden": 25, "layers": 3, "end": True}),
    "module for each note": (FRAMES, TIED | {"unit": "own_modules:Attention", "end": True}),
    "nade": (FRAMES, WIDE | {"output": "nade", "nade_hidden": 64, "unit": "lstm", "end": True}),
    "nade, onsets": (STRUCK, WIDE | {"output": "nade", "nade_hidden": 13, "end": True}),
    "notes alone": (
        FRAMES,
        TIED | {"output": "bernoulli", "clock": True, "layers": 2, "end": True},
    ),
    "metre": (FRAMES, TIED | {"output": "bernoulli", "metre": True}),
    "layers on both axes": (STRUCK, TIED | {"unit": "lstm", "layers": 2, "note_layers": 2}),
    "drums": (KIT, TIED | {"unit": "tanh", "first_change": True}),
    "all": (FRAMES, TIED | {"motifs": True, "metre": True, "end": True}),
    "labels of a module": (FRAMES, WIDE | {"unit": "own_modules:LayerNormLSTM"}),
    "labels of notes alone": (STRUCK, TIED | {"output": "bernoulli", "rests": True}),
    "labels of notes": (STRUCK, TIED | {"rests": True}),
    "labels of sound": (SOUND, {"model": "sample-wise"}),
    "sound": (SOUND, {"model": "sample-wise", "components": 33, "end": True}),
    "sound, one component": (SOUND, {"model": "sample-wise", "components": 1}),
    "levels": (AudioFrames(8000, 9, dtype="mu-law"), {"model": "sample-wise"}),
}


def made(name):
    """A model that ends pieces after some dozen frames if it ends any, and frames before."""
    frame, options = CASES[name]
    frame = replace(frame, known_labels=KNOWN) if name.startswith("labels") else frame
    model = random_model({"end": False} | options, frame)
    clock, output = getattr(model.encoder, "clock", None), model.output
    with torch.no_grad():
        if clock and clock.end:
            clock.start_at(np.array([9, 11, 11, 12, 14]))
            output.start_ends_at(model.encoder.end_odds)
        elif output.end:
            (output.ending if frame is SOUND else output.linear).bias[-1].sub_(4)
        if clock and clock.held is not None:
            clock.fit_held(np.arange(1, n) for n in (9, 14, 17))
    if frame.frame_size == 176:
        return model, as_frames(random_states(3, 7, 88, density=0.2))
    prime = np.random.default_rng(3).random((7, frame.frame_size)) < 0.2
    return model, prime * (1 if frame.values == "binary" else 0.01)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", CASES)
def test_the_same_is_drawn(name, monkeypatch):
    """Across chunks, after a primer, to the end, hot and cold; labels, if any, tell."""
    model, prime = made(name)
    chunk = 2 if isinstance(model.output, NoteUnitOutput) else 32  # by PyTorch that is slow
    monkeypatch.setattr(sampler, "CHUNK", chunk)
    told = [model, model.conditioned([1, 3])] if model.known_labels else [model]
    hot, *other = (same_draws(each, temperature=0.8, chunks=3, prime=prime) for each in told)
    cold = same_draws(model, temperature=0.0, prime=prime)
    assert not any(np.array_equal(hot, each) for each in (cold, *other))
    if hot.dtype == np.uint8:
        assert (len(hot) < 3 * chunk) == model.output.end
        assert 0.01 < hot.mean() < 0.9
    if hot.shape[1] == 176:
        again = assert_strikes_are_possible(hot, prime[-1:, :88])
        assert 0.02 < again.mean() < 0.98
