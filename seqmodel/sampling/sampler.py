"""New pieces from a trained model: ancestral sampling, frame by frame.

All draws come from one stated stream, that of `kernels.uniforms` for a seed and the number of the
piece, of which each frame takes as many uniforms as its output says: of music one per note and one
for the end. The model computes in float64, so that a draw hardly ever hangs on a rounding: the same
seed gives the same piece, whatever the number of pieces, their length, the backend or the machine.
"""

import copy
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel.kernels import device as cpu
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.outputs import BernoulliOutput

# Frames drawn at a time, a few milliseconds' worth.
CHUNK = 256

# Frames of a primer, which takes far more memory while the model reads it than its frames do.
HEARD_AT_ONCE = 4096


class Sampler:
    """What draws pieces from a model, each by itself; several may be under way at once.

    Its weights are copied once, for all of them: the model must not change meanwhile.
    """

    def __init__(self, model: SequenceModel, *, temperature: float = 1.0) -> None:
        self._model, self._temperature = model, temperature
        start = model.start(1)
        self._start = start.like([tensor.double() for tensor in start.tensors()])
        plain = any(layer.backend == "reference" for layer in model.layers())
        self._compiled = None
        if not plain and cpu.why_not(model.parameters()) is None:
            from seqmodel.sampling.compiled import (
                CompiledSampler,  # the compiler loads at first use
            )

            self._compiled = CompiledSampler(model, CHUNK, temperature)

    def draw(
        self, uniforms: Uniforms, *, prime: NDArray[Any] | None = None
    ) -> Iterator[tuple[NDArray[Any], bool]]:
        """Draw frames without end, in chunks (n, D), each with whether the piece ends behind it.

        Of music they are zeros and ones, of audio raw samples, multiples of 1/32768. `prime` (P, D)
        is what the model has heard before it begins.
        """
        carry = self._start if prime is None else self._after(prime)
        if self._compiled is not None:
            return self._compiled.draw(carry, uniforms)
        return _plainly(self._double, carry, uniforms, self._temperature)

    def piece(
        self, length: int, *, seed: int, number: int = 0, prime: NDArray[Any] | None = None
    ) -> Iterator[NDArray[Any]]:
        """Draw one piece of `length` frames, or fewer where the model knows when pieces end.

        It comes in chunks (n, D), each as soon as it is drawn. `number` tells pieces of one seed
        apart.
        """
        for frames, ended in self.draw(Uniforms(seed, number), prime=prime):
            yield frames[:length]
            length -= len(frames)
            if ended or length <= 0:
                return

    @cached_property
    def _double(self) -> SequenceModel:
        return copy.deepcopy(self._model).double().eval()

    def _after(self, prime: NDArray[Any]) -> Carry:
        carry = self._start
        for start in range(0, len(prime), HEARD_AT_ONCE):
            with torch.inference_mode():
                frames = np.asarray(prime[start : start + HEARD_AT_ONCE], np.float64)
                carry = self._double.read(torch.from_numpy(frames).unsqueeze(1), carry).after
        return carry


def _plainly(
    model: SequenceModel, carry: Carry, uniforms: Uniforms, temperature: float
) -> Iterator[tuple[NDArray[Any], bool]]:
    """The specification of sampling."""
    output, context = model.output, model.unit.input_size
    music = isinstance(output, BernoulliOutput)
    while True:
        frames, ended = [], False
        numbers = uniforms.take(CHUNK, 1, output.uniforms_per_frame)
        with torch.inference_mode():
            for uniform in torch.from_numpy(numbers):
                parameters, state = model.step(carry)
                frame = output.draw(parameters, carry.past, uniform, temperature)
                carry = Carry(state, torch.cat([carry.past, frame], 1)[:, -context:])
                frames.append(frame[0].numpy())
                ended = isinstance(output, BernoulliOutput) and bool(
                    output.ends(parameters, uniform)
                )
                if ended:
                    break
        yield np.stack(frames).astype(np.uint8 if music else np.float32), ended
