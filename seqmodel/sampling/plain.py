"""Sampling by PyTorch, frame by frame: the specification, of outputs without compiled draw the way.

The model is in float64 on the CPU.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel.kernels.uniforms import Uniforms
from seqmodel.model.sequence import Carry, SequenceModel

Drawing = Iterator[tuple[NDArray[Any], bool]]
"""Frames without end, in chunks (n, F), each with whether the piece ends there."""
Draws = Callable[[Carry, Uniforms, float], Drawing]
"""Draws a piece that goes on from a carry and does not end before so many steps."""


def plain_sampler(model: SequenceModel, chunk: int, temperature: float) -> Draws:
    """Draws `chunk` steps at a time."""
    output, steps = model.output, model.encoder.steps

    def draw(carry: Carry, uniforms: Uniforms, shortest: float) -> Drawing:
        count = 0
        while True:
            frames, ended = [], False
            numbers = uniforms.take(chunk, 1, output.uniforms_per_frame)
            with torch.inference_mode():
                for uniform in torch.from_numpy(numbers):
                    h, state = model.step(carry)
                    drawn = output.draw_frame(h, carry.past.numbers, uniform, temperature)
                    past = model.encoder.append(carry.past, drawn.frame)
                    carry = carry._replace(state=state, past=past)
                    frames.append(drawn.frame[0].numpy())
                    count += 1
                    ended = bool(drawn.ended) and count % steps == 0 and count >= shortest
                    if ended:
                        break
            line = np.stack(frames).astype(output.frame_type)
            yield line.reshape(len(line) // steps, -1), ended

    return draw
