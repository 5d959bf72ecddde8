"""How hard the notes of drawn frames are struck, drawn once the frames are."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqmodel.kernels.uniforms import Uniforms
from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.model.velocity import TO_DRAW
from seqmodel.sampling.plain import Drawing


class Place(NamedTuple):
    """All that the levels of the next frame depend on, in float64."""

    carry: Carry
    """What frames depend on."""
    memory: Tensor
    """What is remembered of levels, see `VelocityOutput`."""


class VelocityDraw:
    """Reads frames again, and gives each note that begins a velocity.

    Frames do not depend on levels: they are what they are without. Levels take uniforms from a
    stream of their own.
    """

    def __init__(self, model: SequenceModel, temperature: float) -> None:
        """`model` is in float64."""
        assert model.velocity is not None
        self._model, self._velocity, self._temperature = model, model.velocity, temperature
        means = np.rint(model.velocity.levels.means)
        self._played = np.append(0, means).astype(np.uint8)

    def after(self, carry: Carry, prime: NDArray[np.uint8]) -> Place:
        """The place after a primer (P, F + D), after whose frames the carry is."""
        memory = self._velocity.start(carry.past.numbers, 1)
        return Place(carry, self._velocity.remember(self._levels(prime), memory))

    def follow(self, chunks: Drawing, place: Place, uniforms: Uniforms) -> Drawing:
        """The frames (n, F) with their velocities, (n, F + D)."""
        for frames, ended in chunks:
            played, place = self.play(frames, place, uniforms)
            yield played, ended

    def play(
        self, frames: NDArray[np.uint8], place: Place, uniforms: Uniforms
    ) -> tuple[NDArray[np.uint8], Place]:
        """Frames (T, F) as (T, F + D), with a velocity where a note begins, and the place after.

        Notes of frames (T, F + D) that have one keep it, and later levels follow from it.
        """
        F, (carry, memory) = self._model.output.frame_size, place
        levels = self._levels(frames)
        levels[levels < 0] = TO_DRAW
        numbers = uniforms.take(int((levels == TO_DRAW).sum()))
        known, drawn = frames[:, F:], list[NDArray[np.uint8]]()
        at = used = 0
        for part in torch.split(levels, self._model.window(1)):
            line = torch.from_numpy(frames[at : at + len(part), :F].astype(np.float64))
            with torch.inference_mode():
                h, _, _, carry = self._model.read(line.unsqueeze(1), carry)
                wanted = int((part == TO_DRAW).sum())
                given = numbers[used : used + wanted]
                found, memory = self._velocity.draw(h, part, memory, given, self._temperature)
            at, used = at + len(part), used + wanted
            drawn.append(self._played[found[:, 0].numpy()])
        velocities = np.concatenate(drawn)
        if known.size:
            velocities = np.where((known > 0) & (velocities > 0), known, velocities)
        return np.concatenate([frames[:, :F], velocities], 1), Place(carry, memory)

    def _levels(self, frames: NDArray[np.uint8]) -> Tensor:
        """`VelocityOutput.levels_of` a piece (T, F), or (T, F + D) with velocities."""
        F, D = self._model.output.frame_size, self._velocity.notes
        known = frames[:, F:] if frames.shape[1] > F else np.zeros((len(frames), D), np.uint8)
        line = (torch.from_numpy(np.ascontiguousarray(part)) for part in (frames[:, :F], known))
        return self._velocity.levels_of(*(part.unsqueeze(1) for part in line))
