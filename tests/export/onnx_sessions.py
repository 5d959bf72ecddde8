"""Runs with random weights, and sessions of onnxruntime on what they export."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from seqmodel.config import Config
from seqmodel.export.onnx.model import export_graph
from seqmodel.media.music.frames import PianoRollFrames, with_onsets
from seqmodel.media.music.grid import Grid
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.sound.steering import NODES, unpacked
from seqmodel.runs.folder import Run

TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64}


def music_frames(*, onsets=False):
    return PianoRollFrames(Grid.of_beats(4), onsets=onsets)


def run_of(frame, *, folder="runs/x", **options):
    """A run that was not trained; all its weights are random, none is 0."""
    config = Config(**{"data": "/home/someone/music", "dropout": 0.0, "hidden": 7, **options})
    config = with_sizes(config, frame)
    torch.manual_seed(1)
    model = build_model(config, frame).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
        if config.clock:
            model.encoder.clock.start_at(np.array([40, 52, 90]))
            model.encoder.clock.fit_held(np.arange(1, n) for n in (9, 14, 17))
    return Run(config, frame, 3, 90, folder=Path(folder), model=model)


def steer(encoder, draw):
    """Give a sample-wise model a loudness, voices, spectra and courses as in no training split."""
    known = unpacked(encoder.known, encoder.predictors.reported_coefficients)
    random = torch.rand(6, NODES, generator=draw, dtype=torch.float64)
    ranges = torch.cat([random[:1].t() - 0.9, random[1:2].t() * 0.5], 1)
    known = known._replace(
        share=0.3, grid=4.0, sharpest=900.0, roughest=60.0, pushes=0.1 * random[2] - 0.05,
        voices=random[3],
        ranges=ranges.repeat_interleave(known.ranges.shape[1] // 2, 1),
        afforded=0 * known.afforded + 0.8,
        courses=torch.rand(known.courses.shape, generator=draw, dtype=torch.float64),
    )  # fmt: skip
    encoder.known.copy_(known.packed())
    encoder.most_dc.fill_(5.0)
    encoder.loudest.fill_(30.0)


def song(length, *, onsets=False):
    """Frames (T, 88 or 176), the same bar again and again with mistakes: work for the echo."""
    random = np.random.default_rng(0)
    bar = random.random((16, 88)) < 0.06
    roll = np.concatenate([bar] * (length // 16 + 1))[:length]
    frames = (roll ^ (random.random(roll.shape) < 0.001)).astype(np.uint8)
    if onsets:
        frames = with_onsets(frames)
        held = frames[1:, :88] & frames[:-1, :88]
        frames[1:, 88:] |= held & (random.random(held.shape) < 0.3)
    return frames.astype(np.float32)


def heard(frames):
    """The frame before each."""
    return np.concatenate([np.zeros_like(frames[:1]), frames[:-1]])


class Session:
    """onnxruntime, with the state of a piece."""

    def __init__(self, run):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.file = export_graph(run)
        self._session = onnxruntime.InferenceSession(self.file, options)
        self._inputs = {each.name: each for each in self._session.get_inputs()}
        self._outputs = [each.name for each in self._session.get_outputs()]
        self.facts = self._session.get_modelmeta().custom_metadata_map
        self.settings = json.loads(self.facts["settings"])
        self.told = None
        self.restart()

    def restart(self):
        """Before the first frame."""
        states = (name for name in self._inputs if name.startswith("state."))
        self.state = {
            name: np.zeros(self._inputs[name].shape, TYPES[self._inputs[name].type])
            for name in states
        }

    def __call__(self, frames, *, labels=None, **inputs):
        """Missing `inputs` are nan; uniforms are 0.5, temperatures 1."""
        feeds = {"frames": frames}
        for name, each in self._inputs.items():
            if name.endswith("temperature"):
                feeds[name] = np.array(inputs.get(name, 1.0))
            elif name.startswith(("given", "uniforms")):
                value = 0.5 if name.startswith("uniforms") else np.nan
                usual = np.full((len(frames), each.shape[1]), value)
                feeds[name] = usual if inputs.get(name) is None else inputs[name]
        labels = self.told if labels is None else labels
        if labels is not None:
            feeds["labels"] = np.tile(labels, (len(frames), 1))
        feeds = {name: value.astype(np.float32) for name, value in feeds.items()}
        told = dict(zip(self._outputs, self._session.run(None, feeds | self.state), strict=True))
        self.state = {name: told.pop(name.replace("state", "new", 1)) for name in self.state}
        return told

    def steps(self, frames, given=None, **options):
        """The same in as many calls as there are rows."""
        given = np.full_like(frames, np.nan) if given is None else given
        told = [
            self(frames[t : t + 1], given=given[t : t + 1], **options) for t in range(len(frames))
        ]
        return {name: np.concatenate([each[name] for each in told]) for name in told[0]}
