"""New pieces from a trained model: ancestral sampling, frame by frame.

All draws come from one stated stream: NumPy's PCG64 seeded with (seed, number of the piece), of
which each frame takes as many uniforms as its output says: of music one float32 per note and one
for the end, of audio float64. The model computes in float64, so that a draw hardly ever hangs on a
rounding: the same seed gives the same piece, whatever the number of pieces, their length, the
backend or the machine.
"""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel import cpu
from seqmodel.model import Carry, SequenceModel
from seqmodel.outputs import BernoulliOutput
from seqmodel.runs import Run

# Frames drawn at a time, a few milliseconds' worth.
CHUNK = 256

# Frames of a primer, which takes far more memory while the model reads it than its frames do.
HEARD_AT_ONCE = 4096


def draw_frames(
    model: SequenceModel,
    random: np.random.Generator,
    *,
    temperature: float = 1.0,
    prime: NDArray[Any] | None = None,
) -> Iterator[tuple[NDArray[Any], bool]]:
    """Draw frames without end, in chunks (n, D), each with whether the piece ends behind it.

    Of music they are zeros and ones, of audio raw samples, multiples of 1/32768. `prime` (P, D) is
    what the model has heard before it begins.
    """
    plain = any(layer.backend == "reference" for layer in model.layers())
    plain = plain or cpu.why_not(model.parameters()) is not None
    carry = model.start(1)
    carry = carry.like([tensor.double() for tensor in carry.tensors()])
    if plain or prime is not None:
        model = copy.deepcopy(model).double().eval()
    heard = np.empty(0) if prime is None else prime
    for start in range(0, len(heard), HEARD_AT_ONCE):
        with torch.inference_mode():
            frames = np.asarray(heard[start : start + HEARD_AT_ONCE], np.float64)
            carry = model.read(torch.from_numpy(frames).unsqueeze(1), carry).after
    numbers = _uniforms(model, random)
    if plain:
        return _plainly(model, carry, numbers, temperature)
    from seqmodel.sample_cpu import draw_chunks  # the compiler loads at first use

    return draw_chunks(model, carry, numbers, CHUNK, temperature)


def _uniforms(model: SequenceModel, random: np.random.Generator) -> Iterator[NDArray[Any]]:
    """The uniforms of the frames, (CHUNK, U) at a time."""
    kind = np.float32 if isinstance(model.output, BernoulliOutput) else np.float64
    while True:
        yield random.random((CHUNK, model.output.uniforms_per_frame), kind)


def _plainly(
    model: SequenceModel, carry: Carry, uniforms: Iterator[NDArray[Any]], temperature: float
) -> Iterator[tuple[NDArray[Any], bool]]:
    """The specification of sampling."""
    output, context = model.output, model.unit.input_size
    for numbers in uniforms:
        frames, ended = [], False
        with torch.inference_mode():
            for uniform in torch.from_numpy(numbers).unsqueeze(1):
                parameters, state = model.step(carry)
                frame = output.draw(parameters, carry.past, uniform, temperature)
                carry = Carry(state, torch.cat([carry.past, frame], 1)[:, -context:])
                frames.append(frame[0].numpy())
                ended = isinstance(output, BernoulliOutput) and bool(
                    output.ends(parameters, uniform)
                )
                if ended:
                    break
        kind = np.uint8 if isinstance(output, BernoulliOutput) else np.float32
        yield np.stack(frames).astype(kind), ended


def sample_chunks(
    run: Run,
    length: int,
    *,
    seed: int,
    number: int = 0,
    temperature: float = 1.0,
    prime: NDArray[Any] | None = None,
) -> Iterator[NDArray[Any]]:
    """Draw one piece of `length` frames, or fewer where the run knows when pieces end.

    It comes in chunks (n, D), each as soon as it is drawn. `number` tells pieces of one seed apart.
    """
    random = np.random.Generator(np.random.PCG64([seed, number]))
    for frames, ended in draw_frames(run.model, random, temperature=temperature, prime=prime):
        yield frames[:length]
        length -= len(frames)
        if ended or length <= 0:
            return


def sample_piece(
    run: Run,
    length: int,
    *,
    seed: int,
    number: int = 0,
    temperature: float = 1.0,
    prime: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """The piece (T, D) of `sample_chunks`, whole."""
    chunks = sample_chunks(
        run, length, seed=seed, number=number, temperature=temperature, prime=prime
    )
    return np.concatenate(list(chunks))
