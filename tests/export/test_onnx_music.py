"""Runs on music in onnxruntime: likelihoods, draws and ends are seqmodel's own."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from onnx_sessions import Session, heard, music_frames, run_of, song

from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import Grid
from seqmodel.sampling.sampler import Sampler


def tied(*switched_on, **options):
    return {"model": "tied", **dict.fromkeys(switched_on, True), **options}


MODELS = {
    "bernoulli": {"end": True},
    "nade": {"output": "nade", "nade_hidden": 9, "end": True},
    "tied bernoulli": tied("ages", output="bernoulli"),
    "tied": tied("ages", "motifs", "echo", "clock", "held", "end"),
    "tied without memory": tied(unit="gru"),
    "tied up to a change": tied("first_change", "ages", "rests", unit="gru", layers=2),
    "tied by clock": tied("clock", "bars", "end", note_unit="mgu"),
    "tied in layers": tied(layers=2, note_layers=2, note_unit="sru"),
}
STRUCK = "nade", "tied bernoulli", "tied", "tied up to a change", "tied in layers"
# Each with onsets or without; None: drums.
CASES = [(name, name in STRUCK) for name in MODELS] + [("tied", False), ("tied", None)]
pytestmark = pytest.mark.usefixtures("unoptimised")


def nats(logits, frames, *, onsets=False):
    """-log p of frames, by NumPy, as the README of the room says."""
    cost = np.logaddexp(0, logits.astype(np.float64)) - frames * logits
    if not onsets:
        return cost.sum(1)
    free = (frames[:, :88] > 0) & (heard(frames)[:, :88] > 0)
    return cost[:, :88].sum(1) + (cost[:, 88:] * free).sum(1)


@pytest.fixture(scope="module", params=CASES, ids=str)
def each(request):
    """A run, what it might have heard, and its session."""
    name, onsets = request.param
    frame, frames = music_frames(onsets=bool(onsets)), song(100, onsets=bool(onsets))
    if onsets is None:
        frame = PianoRollFrames(Grid.of_beats(4), drums=True, kit=True)
        frames = frames[:, 20:67]
    run = run_of(frame, **MODELS[name])
    return run, frames, Session(run)


def test_likelihoods_and_ends_are_those_of_nll(each):
    """Guards every input of notes, which numbers of a frame each logit depends on, and the end."""
    run, frames, session = each
    output, U = run.model.output, run.model.output.uniforms_per_frame
    session.restart()
    told = session(heard(frames), given=frames, uniforms=np.full((len(frames), U), 0.3))
    np.testing.assert_array_equal(told["drawn"], frames)
    ours = nats(told["logits"], frames, onsets=output.onsets)
    np.testing.assert_allclose(ours, run.nll(frames), rtol=0, atol=1e-4)
    read = run.model.read(torch.from_numpy(frames).unsqueeze(1), run.model.start(1))
    with torch.inference_mode():
        logits = output.note_logits(read.h, read.frames, read.past).squeeze(1)
        if output.end:
            score = output.end_score(read.h, torch.ones(len(frames), 1)).squeeze(1).numpy()
            ends = np.logaddexp(0, -told["end_logits"])
            np.testing.assert_allclose(ends, score, rtol=0, atol=1e-5)
            np.testing.assert_array_equal(told["ended"], np.exp(-score) > 0.3)
    np.testing.assert_allclose(told["logits"], logits, rtol=0, atol=1e-5)
    session.restart()
    steps = session.steps(heard(frames)[:12], frames[:12])
    np.testing.assert_allclose(steps["logits"], told["logits"][:12], rtol=0, atol=1e-5)


def test_draws_are_those_of_sample(each):
    """Guards the draw: the same uniforms give the same frames as `seqmodel sample`."""
    run, _, session = each
    for temperature, length in ((1.0, 16), (0.6, 4), (0.0, 4)):
        sampler = Sampler(run.model, temperature=temperature)
        wanted = np.concatenate(list(sampler.piece(length, seed=5, shortest=np.inf)))
        uniforms = Uniforms(5).take(length, run.model.output.uniforms_per_frame)
        session.restart()
        frame = np.zeros((1, wanted.shape[1]))
        for t in range(length):
            told = session(frame, uniforms=uniforms[t : t + 1], temperature=temperature)
            frame = told["drawn"]
            np.testing.assert_array_equal(frame[0], wanted[t])


@pytest.mark.parametrize("name", ["nade", "tied"])
def test_a_part_may_be_given(name):
    """Guards the notes above a given melody, which must depend on it as on drawn ones."""
    run, frames = run_of(music_frames(onsets=True), **MODELS[name]), song(30, onsets=True)
    given, uniforms = frames.copy(), np.random.default_rng(2).random((30, 177))
    given[:, 30:50] = given[:, 118:138] = np.nan
    session = Session(run)
    told = session(heard(frames), given=given, uniforms=uniforms)
    known = ~np.isnan(given)
    np.testing.assert_array_equal(told["drawn"][known], frames[known])
    assert (told["drawn"] != frames).any()
    session.restart()
    again = session(heard(frames), given=told["drawn"])
    np.testing.assert_allclose(again["logits"], told["logits"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["bernoulli", "tied"])
def test_labels_are_an_input(name):
    """Guards the place of their columns, which are those of the metadata in order."""
    known = {"who": ("a", "b"), "n": ("1", "2", "3")}
    run = run_of(replace(music_frames(), known_labels=known), **MODELS[name])
    session, frames = Session(run), song(30)
    assert json.loads(session.facts["labels"]) == {n: list(v) for n, v in known.items()}
    for labels, columns in (({}, [0] * 5), ({"who": "b", "n": "3"}, [0, 1, 0, 0, 1])):
        session.restart()
        told = session(heard(frames), given=frames, labels=columns)
        wanted = run.conditioned(labels).nll(frames)
        np.testing.assert_allclose(nats(told["logits"], frames), wanted, rtol=0, atol=1e-4)


def test_a_metre_is_part_of_the_state():
    """Guards against pieces in three that are read, and drawn, as if in train's four."""
    run, frames = run_of(music_frames(), **MODELS["tied by clock"]), song(60)
    session = Session(run)
    for metre in ([[0, 4, 4]], [[0, 3, 4]], [[-5, 7, 8]]):
        piece = run.frame.metres({"metre": metre})
        session.restart()
        session.state["state.metre"] = piece[:4]
        told = session(heard(frames), given=frames)
        wanted = run.nll(frames, piece)
        np.testing.assert_allclose(nats(told["logits"], frames), wanted, rtol=0, atol=1e-4)


def test_the_echo_forgets_what_ours_forgets():
    """Guards a piece longer than the memory, where a place is taken again by an equal frame."""
    run = run_of(music_frames(), hidden=2, model="tied", output="bernoulli", echo=True)
    frames = song(4300)
    told = Session(run)(heard(frames), given=frames)
    np.testing.assert_allclose(nats(told["logits"], frames), run.nll(frames), rtol=0, atol=1e-4)
