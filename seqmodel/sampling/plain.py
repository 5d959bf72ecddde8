"""Sampling by PyTorch, frame by frame: the reference implementations, for models in float64.

Particles are drafts of one piece, which advance together, some of their numbers given. A draft's
next frame is drawn several times over, as candidates, of which one is kept. A given number is one
whose uniform is forced: -1 is below every probability, and 2 below none, so that whatever draws
frames also places what is given.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel.kernels.uniforms import Uniforms
from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.outputs.notes import NotesOutput

Drawing = Iterator[tuple[NDArray[Any], bool]]
"""Frames without end, in chunks (n, F), each with whether the piece ends there."""
Draws = Callable[[Carry, Uniforms, float], Drawing]
"""Draws a piece that goes on from a carry and does not end before so many steps."""
FREE, ON, OFF = 0.0, -1.0, 2.0
"""Uniforms that a number is forced by; FREE forces nothing."""


class Candidates(NamedTuple):
    """The next frames of N particles, M candidates each."""

    frames: NDArray[np.uint8]
    """(N, M, F)"""
    logits: NDArray[np.float64]
    """(N, M, F), by which the numbers were drawn, see `NotesOutput.tempered`."""
    end: NDArray[np.float64]
    """(N,), the logits of the piece ending here; -inf if the model does not predict ends."""


def plain_sampler(model: SequenceModel, chunk: int, temperature: float) -> Draws:
    """Draws `chunk` steps at a time."""
    output, steps = model.output, model.encoder.steps

    def draw(carry: Carry, uniforms: Uniforms, shortest: float) -> Drawing:
        device, count = carry.past.numbers.device, 0
        while True:
            frames, ended = [], False
            numbers = uniforms.take(chunk, 1, output.uniforms_per_frame)
            with torch.inference_mode():
                for uniform in torch.from_numpy(numbers).to(device):
                    h, state = model.step(carry)
                    drawn = output.draw_frame(h, carry.past.numbers, uniform, temperature)
                    carry = Carry(state, model.encoder.append(carry.past, drawn.frame))
                    frames.append(drawn.frame[0].cpu().numpy())
                    count += 1
                    ended = bool(drawn.ended) and count % steps == 0 and count >= shortest
                    if ended:
                        break
            line = np.stack(frames).astype(output.frame_type)
            yield line.reshape(len(line) // steps, -1), ended

    return draw


class PlainParticles:
    """N drafts of a piece of music."""

    def __init__(self, model: SequenceModel, number: int, temperature: float) -> None:
        assert isinstance(model.output, NotesOutput)
        self._model, self._output = model, model.output
        self._number, self._temperature = number, temperature

    @property
    def size(self) -> int:
        """The bytes that each takes up; here of no account: slow long before it is large."""
        return 0

    def begin(self, carry: Carry) -> None:
        """All particles go on from the carry of a piece, its tensors in double precision."""
        all_of_one = np.zeros(self._number, np.int64)
        self._carry = _of_particles(carry, all_of_one, self._model.encoder.rows)

    def draw(self, forced: NDArray[np.float64], uniforms: Uniforms) -> Candidates:
        """Draw candidates for the next frame; `forced` is (N, M, F)."""
        output, (N, M, F) = self._output, forced.shape
        numbers = uniforms.take(N, M, F + 1)
        numbers[..., :F] = np.where(forced == FREE, numbers[..., :F], forced)
        with torch.inference_mode():
            h, state = self._model.step(self._carry)
            past = self._carry.past.numbers
            self._carry = self._carry._replace(state=state)
            drawn = [
                output.draw_frame(h, past, torch.from_numpy(numbers[:, m]), self._temperature).frame
                for m in range(M)
            ]
            logits = [
                output.tempered(
                    output.note_logits(h[None], frame[None], past[None])[0],
                    frame, past, self._temperature,
                )
                for frame in drawn
            ]  # fmt: skip
            end = np.full(N, -np.inf)
            if output.end:
                end = output.end_logits(h).numpy()
        frames = torch.stack(drawn, 1).numpy().astype(np.uint8)
        return Candidates(frames, torch.stack(logits, 1).numpy(), end)

    def keep(self, ancestors: NDArray[np.int64], frames: NDArray[np.uint8]) -> None:
        """Particle k becomes `ancestors[k]` followed by `frames[k]`, of n (n, F), at most N."""
        state, past, _ = _of_particles(self._carry, ancestors, self._model.encoder.rows)
        added = torch.from_numpy(frames).to(past.numbers)
        self._carry = Carry(state, self._model.encoder.append(past, added))


def _of_particles(carry: Carry, which: NDArray[np.int64], rows: int) -> Carry:
    """The carry of these particles, where a model has `rows` unit rows for each."""
    index = torch.from_numpy(which)
    of_rows = (index.unsqueeze(1) * rows + torch.arange(rows)).flatten()
    states = [state[of_rows] for layer in carry.layers() for state in layer]
    return carry.like([*states, *(part[index] for part in carry.past if part is not None)])
