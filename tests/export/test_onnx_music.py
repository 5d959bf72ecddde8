"""Runs on music in onnxruntime: likelihoods, draws and ends are seqmodel's own."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from onnx_sessions import Session, heard, music_frames, run_of, song
from playing import MARKS

from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.music.frames import PianoRollFrames, marks_in
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


MARKED = {
    "nade": {**MODELS["nade"], "by_part": True},
    "tied": tied("ages", "by_part", "nearby", unit="gru"),
    "only velocity": tied("ages", "rests", unit="gru", output="bernoulli"),
}


@pytest.fixture(scope="module", params=MARKED)
def marked(request):
    """A run that has learned marks, and its session."""
    marks = MARKS
    if request.param == "only velocity":
        marks = {"marks": {"velocity": MARKS["marks"]["velocity"]}}
    frame = replace(music_frames(onsets=True), **marks)
    run = run_of(frame, **MARKED[request.param])
    return run, Session(run)


def test_marks_are_those_of_sample(marked):
    """Guards their draw, from uniforms of their own, each mark given those before it."""
    run, session = marked
    names, length = [*run.frame.marks], 12
    for temperature in (1.0, 0.5, 0.0):
        sampler = Sampler(run.model, mark_temperature=temperature)
        wanted, _ = next(sampler.draw(Uniforms(3), shortest=np.inf))
        stream, levels = Uniforms(3).split(), set()
        session.restart()
        for t in range(length):
            struck = wanted[t, 88:176] > 0
            numbers = stream.take(int(struck.sum()), len(names))
            inputs = {f"uniforms.{name}": np.zeros((1, 88)) for name in names}
            for name, column in zip(names, numbers.T, strict=True):
                inputs[f"uniforms.{name}"][0, struck] = column
            before = wanted[t - 1 : t, :176] if t else np.zeros((1, 176))
            told = session(
                before, given=wanted[t : t + 1, :176], mark_temperature=temperature, **inputs
            )
            marks = marks_in(wanted[t : t + 1])
            for name in names:
                np.testing.assert_array_equal(told[f"drawn.{name}"], marks[name])
                levels |= set(marks[name][0])
        assert len(levels) > 2 * len(names) or temperature < 1  # 0 is no strike


def test_marks_cost_what_eval_says(marked):
    """Guards what is remembered of given marks, of unknown ones, and between calls."""
    run, session = marked
    frames, random = song(40, onsets=True), np.random.default_rng(1)
    struck = frames[:, 88:] > 0
    numbers = {}
    for name, levels in run.frame.marks.items():
        numbers[name] = random.integers(1, 1 + (len(levels.names) or 127), struck.shape) * struck
        numbers[name][random.random(struck.shape) < 0.2] = 0  # unknown
    reading = run.model.read(torch.from_numpy(frames).unsqueeze(1), run.model.start(1))
    columns = {name: each[:, np.newaxis] for name, each in numbers.items()}
    with torch.inference_mode():
        costs, _ = run.model.score_marks(reading, columns)
    session.restart()
    told = []
    for part in (slice(17), slice(17, None)):
        given = {f"given.{name}": each[part] for name, each in numbers.items()}
        told.append(session(heard(frames)[part], given=frames[part], **given))
    for name, own in numbers.items():
        logits, drawn = (
            np.concatenate([each[f"{kind}.{name}"] for each in told])[own > 0]
            for kind in ("logits", "drawn")
        )
        np.testing.assert_array_equal(drawn, own[own > 0])
        level = np.searchsorted(run.frame.marks[name].edges, own[own > 0])
        cost = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(level)), level]
        np.testing.assert_allclose(cost, costs[name], rtol=0, atol=1e-5)
