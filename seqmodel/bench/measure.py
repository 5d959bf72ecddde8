"""Units, whole models of music and the model of sound, timed against torch.nn.

Timings stay comparable on a busy machine: contenders alternate, and medians are reported. Whatever
slows the machine down for a while then slows both down, and their ratio holds.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqmodel import units
from seqmodel.bench import peers
from seqmodel.config import MODELS, Config, resolve
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.audio.medium import AUDIO
from seqmodel.media.music.frames import PianoRollFrames
from seqmodel.media.music.grid import NOTES, Grid
from seqmodel.media.music.medium import MUSIC
from seqmodel.model.build import build_model, with_sizes
from seqmodel.model.sequence import SequenceModel
from seqmodel.outputs.logistic import SampleLogisticOutput
from seqmodel.sampling.sampler import Sampler
from seqmodel.training.update import window_loss
from seqmodel.unit_setting import unit_name
from seqmodel.units import UNITS, UnitSpec, unit_spec
from seqmodel.units.backends import AUTO, backend_for, choose_device
from seqmodel.units.module import units_of
from seqmodel.units.specification import Case

MIN_SECONDS = 50e-3
"""The minimum length of a timing in seconds; quicker tasks are repeated."""
MIN_ROUNDS = 5
"""The minimum number of rounds, besides a warm-up round."""

Task = Callable[[], object]
Row = dict[str, Any]


def rows_of(part: str, names: Sequence[str], device: str, seconds: float) -> Iterator[Row]:
    """The rows of units, models, sampling or sound, measured one by one, with these units if any.

    The `device` is that of units.
    """
    if part == "units":
        for size, unit in product(SIZES, names or UNITS):
            yield measure_unit(unit, size, device, seconds)
    elif part == "sound":
        for rate, unit in product(RATES, names or SOUND_UNITS):
            yield measure_sound(unit, rate, seconds)
    else:
        measure = measure_step if part == "models" else measure_sampling
        for model, default in MODEL_UNITS.items():
            for unit in names or default:
                yield measure(model, unit, seconds)


def compare(ours: Task, theirs: Task, seconds: float, **others: Task) -> Row:
    """Time ours, torch.nn's and others, alternating, for about `seconds`.

    Returns the median milliseconds of each with their spread, the number of rounds, and the time of
    all others as a multiple of ours. The first runs, which compile code and fill caches, do not
    count.
    """
    tasks = {"ours": ours, "torch_nn": theirs, **others}
    repeats = {}
    for name, task in tasks.items():
        _mean(task, 1)
        repeats[name] = math.ceil(MIN_SECONDS / _mean(task, 1))
    timings: dict[str, list[float]] = {name: [] for name in tasks}
    until = time.perf_counter() + seconds
    while len(timings["ours"]) < MIN_ROUNDS or time.perf_counter() < until:
        for name, task in tasks.items():
            timings[name].append(_mean(task, repeats[name]))
    timing = {
        name: {"ms": 1e3 * statistics.median(values), "spread_percent": spread_percent(values)}
        for name, values in timings.items()
    }
    ratios = {f"over_{name}": timing[name]["ms"] / timing["ours"]["ms"] for name in tasks}
    ratios.pop("over_ours")
    return {**timing, "rounds": len(timings["ours"]), **ratios}


def _mean(task: Task, repeats: int) -> float:
    """The mean seconds of `repeats` runs, after an untimed one.

    Training steps follow each other too: the first run after the other's turn finds neither its
    code nor its data in the caches, nor its memory where it left it.
    """
    _finish(task)
    begin = time.perf_counter()
    for _ in range(repeats):
        _finish(task)
    return (time.perf_counter() - begin) / repeats


def _finish(task: Task) -> None:
    """Run a task, and wait until a GPU has done its part."""
    task()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def spread_percent(values: Sequence[float]) -> float:
    """Half the interquartile range, in percent of the median."""
    low, median, high = statistics.quantiles(values, method="inclusive")
    return 100 * (high - low) / 2 / median


class Size(NamedTuple):
    """`hidden` (H) units over `inputs` (I), on a batch (B) of sequences of `frames` (T) each."""

    name: str
    inputs: int
    hidden: int
    batch: int
    frames: int
    hidden_with_cell: int | None = None
    """H of units with a cell, if different because they have more gates."""

    def hidden_of(self, spec: UnitSpec) -> int:
        """H for this unit."""
        return self.hidden_with_cell if self.hidden_with_cell and "c" in spec.state else self.hidden


SIZES = (
    Size("paper", 88, 46, 16, 200, hidden_with_cell=36),
    Size("speech", 20, 195, 32, 500),
    Size("h512", 88, 512, 32, 200),
    Size("one-row", 88, 46, 1, 200),
)


def measure_unit(name: str, size: Size, device_option: str, seconds: float) -> Row:
    """Time one unit at one size on the device that the option selects, with its fastest backend.

    A step is forward and backward, with the gradients of the input and of all weights. The forward
    pass is also timed alone, without recording for a backward pass, as in evaluation. On the CPU
    JAX takes part in the step if it is installed.
    """
    spec = unit_spec(name)
    inputs, hidden, batch, frames = size.inputs, size.hidden_of(spec), size.batch, size.frames
    case = Case(spec, torch.float32, torch.device("cpu"), batch, inputs, hidden)
    device = choose_device(device_option, case)
    x = torch.randn(frames, batch, inputs, device=device, requires_grad=True)
    d_h = torch.randn(frames, batch, hidden, device=device)
    ours = units.make(name, inputs, hidden).to(device)
    theirs = peers.layer(spec, inputs, hidden).to(device)

    def forward(layer: nn.Module) -> Task:
        return torch.no_grad()(partial(layer, x))

    def step(layer: nn.Module) -> Task:
        return partial(unit_step, layer, x, d_h)

    on_cpu = device.type == "cpu" and peers.has_jax()
    others = {"jax": peers.jax_step(units_of(ours)[0], x, d_h)} if on_cpu else {}
    return {
        **{"unit": spec.name, "size": size.name, "inputs": inputs, "hidden": hidden},
        **{"batch": batch, "frames": frames},
        **{"device": device.type, "backend": backend_for(AUTO, units_of(ours)[0].case(batch)).name},
        "forward": compare(forward(ours), forward(theirs), seconds / 2),
        "step": compare(step(ours), step(theirs), seconds / 2, **others),
    }


def unit_step(layer: nn.Module, x: Tensor, d_h: Tensor) -> None:
    """Forward over x (T, B, I), then backward from d_h (T, B, H) to x and the weights."""
    layer(x)[0].backward(d_h)
    for leaf in (x, *layer.parameters()):
        leaf.grad = None


def _training_step(model: SequenceModel, frames: Tensor) -> None:
    """Forward, loss and backward to all weights; frames (T, B, D) are data and get no gradient."""
    T, B, _ = frames.shape
    model.zero_grad()
    window_loss(model, frames, np.full(B, T), model.start(B)).total.backward()  # type: ignore[no-untyped-call]


# ---- models of music: the paper's over whole frames, and the tied one without its memory ----

ROLLS = PianoRollFrames(Grid.of_beats(4))
NOTES_ON = 4
"""Notes per frame."""
NOTE_LOGIT = math.log(NOTES_ON / (NOTES - NOTES_ON))
"""The logit of a note at that density, from which models start, so that they draw about as many."""
MODEL_UNITS = {"frame-wise": tuple(MUSIC.paper_hidden), "tied": ("gru",)}
"""The units measured by default in each model."""
TIED = {"hidden": 96, "note_hidden": 48}
"""The tied model's sizes along time and along pitch."""
BATCH = {"frame-wise": (200, 16), "tied": (160, 2)}
"""Frames and rows of a training step."""
TORCH_FRAMES = {"frame-wise": 256, "tied": 16}
"""Frames drawn at a time with torch.nn, which is slow."""


def measure_step(model: str, unit: str, seconds: float) -> Row:
    """Time a training step on piano-rolls."""
    config, (T, B) = config_of(model, unit), BATCH[model]
    ours, theirs, frames = our_model(config), their_model(config), piano_rolls(T, B)
    batch_frames = frames.to(torch.uint8)  # as in training batches

    def their_step() -> None:
        theirs.zero_grad()
        theirs(frames).backward()

    timings = compare(lambda: _training_step(ours, batch_frames), their_step, seconds)
    return {**_sizes(config), "batch": B, "frames": T, **timings}


def measure_sampling(model: str, unit: str, seconds: float) -> Row:
    """Time drawing one piece; building the sampler, which all pieces share, does not count."""
    config = config_of(model, unit)
    sampler, theirs = Sampler(our_model(config).eval()), their_model(config)

    def draw() -> Any:
        return next(sampler.draw(Uniforms(1)))[0]  # the first chunk (n, D) of a piece

    frames = {"ours": len(draw()), "torch_nn": TORCH_FRAMES[model]}
    timings = compare(draw, lambda: theirs.draw(TORCH_FRAMES[model]), seconds)
    speed = {name: 1e3 * count / timings[name]["ms"] for name, count in frames.items()}
    ratio = speed["ours"] / speed["torch_nn"]
    return {**_sizes(config), **timings, "frames_per_second": speed, "over_torch_nn": ratio}


def config_of(model: str, unit: str) -> Config:
    """The model of this name, at the paper's size or, for other units, at the paper's budget."""
    given: dict[str, Any] = {"model": model, "unit": unit, "preset": "paper"}
    if model == "tied":
        given |= TIED | {"output": "note-unit"} | dict.fromkeys(MODELS[model].settings, False)
    return with_sizes(resolve(given), ROLLS)


def our_model(config: Config) -> SequenceModel:
    """The model in our code."""
    model = build_model(config, ROLLS)
    nn.init.constant_(model.output.get_parameter("linear.bias"), NOTE_LOGIT)
    return model


def their_model(config: Config) -> peers.FrameWise | peers.Tied:
    """The same model with torch.nn's layers."""
    spec, hidden, note_hidden = unit_spec(config.unit), config.hidden, config.note_hidden
    assert hidden is not None
    if note_hidden is None:
        model: peers.FrameWise | peers.Tied = peers.FrameWise(spec, NOTES, hidden)
    else:
        model = peers.Tied(spec, NOTES, hidden, note_hidden)
    nn.init.constant_(model.linear.bias, NOTE_LOGIT)
    return model


def piano_rolls(frames: int, batch: int) -> Tensor:
    """Frames (T, B, D), each with `NOTES_ON` random notes sounding."""
    places = torch.rand(frames, batch, NOTES).topk(NOTES_ON).indices
    return torch.zeros(frames, batch, NOTES).scatter(2, places, 1.0)


def _sizes(config: Config) -> Row:
    sizes = {"hidden": config.hidden, "note_hidden": config.note_hidden}
    return {"model": config.model, "unit": unit_name(config.unit), **sizes}


# ---- the sample-wise model of sound ----

RATES = (8000, 16_000)
SOUND_UNITS = ("gru",)
CHUNKS = 40
"""Chunks of some 256 samples each, drawn at a time."""


def measure_sound(unit: str, rate: int, seconds: float) -> Row:
    """Time a training step, its features alone, and drawing one piece, all at default sizes.

    Both steps read the same features from our encoder. torch.nn's uses its own layer, and our
    output's plain specification instead of the compiled score.
    """
    frame = AudioFrames(rate)
    config = with_sizes(resolve({"unit": unit}, presets=AUDIO.presets), frame)
    assert config.hidden is not None
    ours = build_model(config, frame)
    samples, B = config.truncate, config.batch_size
    frames = noise(samples // frame.frame_size, B, frame.frame_size)
    layer = peers.layer(unit_spec(unit), ours.encoder.input_size, config.hidden)
    weights = [*layer.parameters(), *ours.output.parameters()]

    def their_step() -> None:
        for weight in weights:
            weight.grad = None
        their_loss(ours, layer, frames).backward()  # type: ignore[no-untyped-call]

    def features() -> None:
        ours.encoder.encode(frames, ours.start(B).past)

    step = compare(lambda: _training_step(ours, frames), their_step, seconds)
    read = compare(features, features, 0.0)["ours"]["ms"]
    return {
        **{"model": config.model, "unit": unit_name(config.unit), "hidden": config.hidden},
        **{"rate": rate, "batch": B, "samples": samples},
        **step,
        "features_percent": 100 * read / step["ours"]["ms"],
        "real_time": _real_time(ours, rate),
    }


def their_loss(ours: SequenceModel, layer: nn.RNNBase, frames: Tensor) -> Tensor:
    """The nats of frames (T, B, F), summed: our features, `layer`, our output's specification."""
    encoded = ours.encoder.encode(frames, ours.start(frames.shape[1]).past)
    assert encoded.skip is not None
    rows = torch.cat([layer(encoded.inputs)[0], encoded.skip], 2)
    output = ours.output
    assert isinstance(output, SampleLogisticOutput)
    return output.nats(output(rows), encoded.frames, encoded.past).sum()


def _real_time(model: SequenceModel, rate: int) -> float:
    """Seconds of sound drawn in a second; building the sampler does not count."""
    chunks = Sampler(model.eval()).draw(Uniforms(1))
    next(chunks)
    begin = time.perf_counter()
    drawn = sum(chunk.size for chunk, _ in islice(chunks, CHUNKS))
    return drawn / (time.perf_counter() - begin) / rate


def noise(T: int, B: int, F: int) -> Tensor:
    """Frames (T, B, F) of 16-bit noise."""
    return (torch.randn(T, B, F) * 1000).round() / 32768
