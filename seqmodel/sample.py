"""New pieces from a trained model: ancestral sampling, frame by frame.

All draws come from one stated stream: NumPy's PCG64 seeded with (seed, number of the piece), of
which each frame takes one float32 uniform per note and one for the end. So the same seed gives the
same piece, whatever the number of pieces, their length or the backend.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel.model import Carry, SequenceModel
from seqmodel.runs import Run

# Frames whose uniforms are drawn at a time.
CHUNK = 256


def draw_frames(
    model: SequenceModel,
    random: np.random.Generator,
    *,
    temperature: float = 1.0,
    prime: NDArray[Any] | None = None,
) -> Iterator[tuple[NDArray[np.uint8], bool]]:
    """Draw frames (D,) without end, each with whether the piece ends there.

    `prime` (P, D) is what the model has heard before it begins.
    """
    notes = model.output.notes
    with torch.inference_mode():
        carry = model.start(1)
        if prime is not None and len(prime):
            heard = torch.from_numpy(np.asarray(prime, np.float32)).unsqueeze(1)
            carry = model(heard, carry)[1]
    while True:
        uniforms = torch.from_numpy(random.random((CHUNK, 1, notes + 1), np.float32))
        for uniform in uniforms:
            with torch.inference_mode():
                parameters, state = model.step(carry)
                frame, ends = model.output.draw(parameters, uniform, temperature)
                carry = Carry(state, frame)
                drawn = frame[0].numpy().astype(np.uint8)
            yield drawn, bool(ends)


def sample_piece(
    run: Run,
    length: int,
    *,
    seed: int,
    number: int = 0,
    temperature: float = 1.0,
    prime: NDArray[Any] | None = None,
) -> NDArray[np.uint8]:
    """Draw one piece (T, D) of `length` frames, or fewer where the run knows when pieces end.

    `number` tells pieces of one seed apart.
    """
    random = np.random.Generator(np.random.PCG64([seed, number]))
    frames = []
    for frame, ends in draw_frames(run.model, random, temperature=temperature, prime=prime):
        frames.append(frame)
        if ends or len(frames) >= length:
            break
    return np.stack(frames)
