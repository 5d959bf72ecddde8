"""New pieces from the average of several models, see `evaluation.average`: drawn frame by frame."""

import math
from collections.abc import Sequence
from itertools import count
from typing import Any

from numpy.typing import NDArray

from seqmodel.kernels.uniforms import Uniforms
from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.sampling.plain import Drawing
from seqmodel.sampling.sampler import PieceSampler, Sampler


class AverageSampler(PieceSampler):
    """Draws each frame from one of the models, and lets all of them read it.

    A uniform chooses the model, each as likely as the others, and those that follow in the stream
    are the frame's; whether the piece ends with it is that model's word too. So the probability of
    a piece is exactly that of the average. Between frames PyTorch reads them, which takes most of
    the time. Marks, if the first model has any, are its own.
    """

    def __init__(
        self,
        models: Sequence[SequenceModel],
        *,
        temperature: float = 1.0,
        given: NDArray[Any] | None = None,
        mark_temperature: float | None = None,
    ) -> None:
        """The temperatures are those of each model; `given` is as in `Sampler`."""
        of_marks = mark_temperature
        self._samplers = [
            Sampler(model, temperature=temperature, given=given, chunk=1, mark_temperature=of_marks)
            for model in models
        ]

    def draw(
        self, uniforms: Uniforms, *, prime: NDArray[Any] | None = None, shortest: float = 0
    ) -> Drawing:
        """See `PieceSampler.draw`; ends drawn before frame `shortest` are passed over."""
        carries = [s.start if prime is None else s.after(prime) for s in self._samplers]
        frames = self._frames(carries, uniforms, shortest)
        return self._samplers[0].played(frames, carries[0], prime, uniforms)

    def _frames(self, carries: list[Carry], uniforms: Uniforms, shortest: float) -> Drawing:
        """The frames that follow the models' `carries`, without marks."""
        for frames in count(1):
            k = int(uniforms.take(1)[0] * len(carries))
            endless = 0 if frames >= shortest else math.inf
            frame, ended = next(self._samplers[k].go_on(carries[k], uniforms, endless))
            yield frame, ended
            carries = [s.after(frame, c) for s, c in zip(self._samplers, carries, strict=True)]
