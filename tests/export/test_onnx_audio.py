"""Runs on audio in onnxruntime: distributions and draws are seqmodel's own."""

import numpy as np
import pytest
import torch
from onnx_sessions import Session, heard, run_of, steer

from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.audio import mu_law
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.outputs.logistic import fine_share
from seqmodel.sampling.sampler import Sampler

SAMPLE_WISE = {"model": "sample-wise", "components": 3}
MODELS = {
    "gaussian": {"output": "gaussian", "components": 4},
    "sample-wise": {**SAMPLE_WISE, "steering": 1.0, "end": True},
    "unsteered": {**SAMPLE_WISE, "unit": "gru"},
    "on a grid, 22050 Hz": {**SAMPLE_WISE, "steering": 0.5, "layers": 2},
    "mu-law": {**SAMPLE_WISE, "end": True},
    "with labels": {**SAMPLE_WISE, "steering": 1.0},
}
KNOWN = {"who": ("a", "b"), "n": ("1", "2", "3")}
COLUMNS = [0, 1, 0, 0, 1]


def made(name):
    """A run, and 120 frames (T, 10) that it might have heard."""
    rate = 22050 if "22050" in name else 8000
    levels = "mu-law" if name == "mu-law" else "int16"
    known_labels = KNOWN if name == "with labels" else {}
    frame = AudioFrames(rate, 10, 20, levels, mean=0.001, deviation=0.11, known_labels=known_labels)
    run = run_of(frame, **MODELS[name])
    random, t = np.random.default_rng(0), np.arange(1200)
    sound = 9000 * np.exp(-(t % 700) / 300) * np.sin(2 * np.pi * 150 * t / rate)
    samples = np.rint(sound + random.normal(0, 150, 1200))
    samples[:90] = 0
    if "grid" in name:
        samples = np.rint(samples / 64) * 64
    frames = (samples / 32768).astype(np.float32).reshape(-1, 10)
    output, encoder = run.model.output, run.model.encoder
    with torch.no_grad():  # near where training starts, as far as it matters
        output.linear.weight.mul_(0.1)
    if name == "gaussian":
        output.start_at_data(frames)
    else:
        steer(encoder, torch.Generator().manual_seed(2))
    run = run.conditioned({"who": "b", "n": "3"} if known_labels else {})
    return run, mu_law.decode(mu_law.encode(frames)) if name == "mu-law" else frames


def parameters(name, run, frames):
    """Of the distribution and the end, by the output's specification."""
    model, output = run.model, run.model.output
    with torch.inference_mode():
        read = model.read(torch.from_numpy(frames).unsqueeze(1), model.start(1))
        found, scale = output(read.h).squeeze(1), output.deviation
        more = {"end_logits": output.end_logits(read.h).squeeze(1)} if output.end else {}
        if name == "mu-law":
            return {"logits": found, **more}
        if name == "gaussian":
            logits, means, log_scales = output._parts(found)
            scales = output._log_sigmas(log_scales).exp()
        else:
            (logits, means, log_scales), certainty, spacing, anchor = output._mixture(found)
            told = {"means": means.T + anchor, "spacing": spacing.unsqueeze(0)}
            told["fine_share"] = fine_share(certainty, spacing).unsqueeze(0)
            more |= {name: value.T for name, value in told.items()}
            return {"logits": logits, "scales": log_scales.exp(), **more}
    return {"logits": logits, "means": scale * means + output.mean, "scales": scale * scales}


def rows(run, frames):
    """What the graph reads: frames, or samples."""
    return frames.reshape(-1, run.model.output.frame_size)


@pytest.fixture(scope="module", params=MODELS)
def each(request):
    """A name, a run, the rows it might have heard, and its session, told the labels it knows."""
    run, frames = made(request.param)
    session = Session(run)
    session.told = COLUMNS if run.model.known_labels else None
    return request.param, run, frames, session


def test_distributions_and_ends_are_the_outputs(each):
    """Guards every predictor, feature and mixture, the memory between calls, and the end."""
    name, run, frames, session = each
    line = rows(run, frames)
    uniforms = np.full((len(line), run.model.output.uniforms_per_frame), 0.4)
    session.restart()
    told = session(heard(line), given=line, uniforms=uniforms)
    np.testing.assert_array_equal(told["drawn"], line)
    for parameter, value in parameters(name, run, frames).items():
        np.testing.assert_allclose(told[parameter], value, rtol=1e-5, atol=1e-5)
    if run.config.end:
        last = np.arange(len(line)) % 10 == 9
        logits = told["end_logits"]
        np.testing.assert_array_equal(told["ended"], last & (logits > np.log(0.4 / 0.6)))
    session.restart()
    halves = [
        session(heard(line)[part], given=line[part], uniforms=uniforms[part])
        for part in (slice(77), slice(77, None))
    ]
    for parameter, value in told.items():
        joined = np.concatenate([half[parameter] for half in halves])
        np.testing.assert_allclose(joined, value, rtol=1e-5, atol=1e-5)


def test_draws_are_those_of_sample(each):
    """Each after what `sample` drew: few samples differ by float32's rounding, none is far off."""
    name, run, _, session = each
    for temperature in (1.0, 0.7, 0.0):
        sampler = Sampler(run.model, temperature=temperature, guidance=1.0)
        wanted = np.concatenate(list(sampler.piece(64, seed=5, shortest=np.inf)))
        line = rows(run, wanted)
        uniforms = Uniforms(5).take(len(line), run.model.output.uniforms_per_frame)
        session.restart()
        told = session(heard(line), uniforms=uniforms, temperature=temperature)
        differences = np.abs(told["drawn"] - line)
        assert (differences > 0).mean() <= (0 if name == "mu-law" else 0.02)
        assert differences.max() <= (1 / 32768 if "grid" not in name else 1 / 512)
