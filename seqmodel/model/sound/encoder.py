"""The inputs of the sample-wise model: what adaptive predictors reveal about the next sample."""

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqmodel.config import Config
from seqmodel.data.dataset import Split
from seqmodel.errors import UsageError
from seqmodel.kernels.device import one_thread
from seqmodel.kernels.run.calls import Arena
from seqmodel.media.definitions import FrameDefinition, known_labels
from seqmodel.media.labels import KnownLabels
from seqmodel.model.encoder import CompiledInputs, Encoded, Encoder, Past
from seqmodel.model.sound.kernel import compiled_inputs, sound_call
from seqmodel.model.sound.predictors import NOISE_SHARE, UNDECIDED, predictors_at
from seqmodel.model.sound.steering import (
    GUIDANCE,
    MAX_COURSES,
    TrainingStatistics,
    no_statistics,
    unpacked,
)
from seqmodel.model.sound.survey import corrected, courses, survey

STRETCH, NOISY = 0.3, 0.35
"""The mean length in seconds of a stretch with or without noise, and the share with noise."""

FREE_SAMPLES, FREE_SHARE, MIN_FREE_SECONDS = 2**19, 16, 2.0
"""After an epoch this many samples are drawn freely, or a 16th of train's if that is less; none if
that is under two seconds, which is too little to learn from."""

PULL_BUDGET = 0.02
"""The most that keeping voices up and following courses may cost together, in bits per sample, on
the beginnings of train by which they are scored."""


class SoundEncoder(nn.Module, Encoder):
    """The unit makes a step for each sample, raw in [-1, 1), and reads features of its past: C = 1.

    Lattices, which adapt at different speeds, predict the next sample. Their recent errors, the
    pitch and levels tell how, and how well. `kernel.write_features` lists the features, all about 1
    in size or less and limited. The output reads them as well, E = I. The last four are how certain
    the recording's grid is and the grid itself, full scale being 1; the anchor, which is the first
    lattice's prediction in [-1, 1); and its level, the recent mean absolute error plus half a
    16-bit level. Outside training both are steered (`steering.py`).

    All features depend only on the past, so likelihoods stay exact, and they do not depend on how a
    piece is cut into windows. `Past.memory` follows from all samples but the last, which is in
    `Past.numbers`.

    In training with `noise`, pieces are read with noise for a third of the time, in stretches of
    `STRETCH` seconds on average, so that free running, which reads its own errors, stays on
    familiar ground (Valin, Skoglund 2019, "LPCNet: improving neural speech synthesis through linear
    prediction"). Each sample is read as x + share * level * n, rounded to the grid, where n is
    standard normal, level is that of the clean samples, and the share is drawn for each stretch
    from 0 to `noise`. The targets stay clean. The random numbers are torch's own. Stretches begin
    with windows, so they are no shorter than those.
    """

    def __init__(
        self,
        rate: int,
        frame_size: int,
        *,
        noise: float = 0.0,
        steering: float = 0.0,
        labels: KnownLabels = MappingProxyType({}),
    ) -> None:
        """For `rate` samples per second in frames of `frame_size`, S.

        With at most `MAX_COURSES` combinations of `labels`, samples follow their courses.
        """
        super().__init__()
        combinations = math.prod(1 + len(values) for values in labels.values())
        if not labels or not steering or combinations > MAX_COURSES:
            combinations = 0
        self.predictors, self.steps = predictors_at(rate, combinations), frame_size
        self.usual_guidance, self._guidance = GUIDANCE if combinations else 1.0, 1.0
        self.noise, self._rate, self._steering = noise, rate, steering
        self._labels = dict(labels)  # not a view, which cannot be copied
        sizes = [len(values) for values in labels.values()]
        strides = np.cumprod([1, *(1 + size for size in sizes[:0:-1])])[::-1]
        digits = [s * np.arange(1, 1 + size) for s, size in zip(strides, sizes, strict=False)]
        self.place_values = torch.from_numpy(np.concatenate([[], *digits]))
        """(N,), what each value of each label adds to the number of a combination."""
        self.input_size = self.skip_size = self.predictors.input_size
        self.known: Tensor
        stages = self.predictors.reported_coefficients
        self.register_buffer("known", no_statistics(stages, combinations).packed())
        self.most_dc: Tensor
        self.loudest: Tensor
        self.register_buffer("most_dc", torch.zeros(1).double())  # 0: not measured
        self.register_buffer("loudest", torch.zeros(1).double())

    @classmethod
    def build(cls, config: Config, frame: FrameDefinition) -> Self:
        steering = config.steering if frame.values == "samples" else 0.0  # a softmax has no anchor
        labels = known_labels(config, frame)
        how = {"noise": config.input_noise, "steering": steering}
        return cls(frame.rate, frame.frame_size, **how, labels=labels)

    def start_at(self, train: Split) -> None:
        """See `Encoder`: train's grids of recordings and, to steer, their loudness and spectra."""
        known = survey(train, self._rate, steered=self._steering > 0)
        if self.predictors.combinations:
            followed = courses(train, self._labels, self._rate)
            known = known._replace(courses=followed, afforded=torch.ones(1).double())
        self.known.copy_(known.packed())
        self.most_dc.fill_(known.most_dc)
        self.loudest.fill_(known.loudest)

    def free_frames(self, frames: int) -> int | None:
        """See `Encoder`: a share of train, if that is long enough."""
        samples = min(frames * self.steps // FREE_SHARE, FREE_SAMPLES)
        long_enough = samples >= MIN_FREE_SECONDS * self._rate
        return samples // self.steps * long_enough if self._steering else None

    def correct(self, drawn: NDArray[np.float32] | None, score: Callable[[], float]) -> None:
        """See `Encoder`: the loudness push, and voices and courses as far as affordable.

        The better the unit knows what comes next, the more a pull towards the last period, or what
        is usual for the labels, costs: the cost grows with the square of the pull's strength.
        """
        stages = self.predictors.reported_coefficients
        known = unpacked(self.known.cpu().clone(), stages)  # unaffected by changes to the buffer
        if drawn is not None:
            known = corrected(known, drawn.ravel(), self._rate)

        def bits(known: TrainingStatistics) -> float:
            self.known.copy_(known.packed())
            return score() / self.steps / math.log(2)

        pulls: dict[str, Any] = {"voices": known.voices}
        if self.predictors.combinations:
            pulls["afforded"] = torch.ones_like(known.afforded)
        nothing: dict[str, Any] = {name: 0 * pull for name, pull in pulls.items()}
        none = known._replace(**nothing)
        without, most = bits(none), PULL_BUDGET / len(pulls)
        for name, pull in pulls.items():
            cost = bits(none._replace(**{name: pull})) - without
            pulls[name] = pull * (math.sqrt(most / cost) if cost > most else 1.0)
        self.known.copy_(known._replace(**pulls).packed())

    def guide(self, factor: float) -> None:
        if not self.predictors.combinations:
            raise UsageError(
                "--guidance needs a run on 16-bit audio, with labels of at most "
                f"{MAX_COURSES} combinations, that was trained without --steering 0"
            )
        self._guidance = factor

    def restored(self, memory: Tensor) -> Tensor:
        added = self.predictors.memory_size - memory.shape[1]  # `dc`, before that also `initial`
        before, after = memory.tensor_split([self.predictors.starts["dc"] + 1 - added], 1)
        return torch.cat([before, memory.new_zeros(len(memory), added), after], 1)

    def start(self, like: Tensor, batch_size: int) -> Past:
        memory = self.predictors.start_memory(self._known().grid, batch_size, like.device)
        return Past(like.new_zeros(batch_size, 1), memory)

    def with_labels(self, past: Past, labels: Tensor) -> Past:
        if not self.predictors.combinations:
            return past
        assert past.memory is not None
        memory, values = past.memory.clone(), self.place_values.to(past.memory)
        memory[:, self.predictors.starts["combination"]] = labels.to(memory) @ values
        return past._replace(memory=memory)

    def encode(self, frames: Tensor, past: Past, lengths: Tensor | None = None) -> Encoded:
        """See `Encoder`; the past of each frame is the sample before it.

        Features of padding are finite. The CPU computes this for other devices as well: sample by
        sample, with few pieces, they would be slower.
        """
        assert past.memory is not None
        T, B, S = frames.shape
        with one_thread():
            frames = frames.to(past.numbers)
            samples = frames.transpose(1, 2).reshape(T * S, B, 1)
            line = torch.cat([past.numbers.unsqueeze(0), samples])
            ends = torch.full((B,), T * S) if lengths is None else S * lengths.cpu()
            last = line[ends.to(line.device), torch.arange(B, device=line.device)]
        known = self._known(0.0 if self.training else self._steering)
        noise, memory = self._noise(T * S, past.memory)
        read = self.predictors, known, line[:-1, :, 0].cpu(), memory.cpu()
        x, memory = compiled_inputs(*read, ends, noise)
        x = x.to(line)
        return Encoded(x, x, frames, line[:-1:S], Past(last, memory.to(line.device)))

    def carried_over(self, past: Past) -> Past:
        """See `Encoder`: everything is carried over but the grid, which belongs to one recording.

        The last sample, not yet read, is replaced by silence, which implies no grid.
        """
        assert past.memory is not None
        memory = self.predictors.afresh(past.memory, self._known().grid)
        return Past(torch.zeros_like(past.numbers), memory)

    def compiled(self, arena: Arena) -> CompiledInputs:
        return sound_call(self.predictors, self.steered(), arena)

    def steered(self) -> TrainingStatistics:
        """The statistics of train, with the strength of the steering outside training."""
        return self._known(self._steering)

    def _known(self, strength: float = 0.0) -> TrainingStatistics:
        known = unpacked(self.known.cpu(), self.predictors.reported_coefficients)
        return known._replace(
            strength=strength,
            guidance=self._guidance,
            most_dc=float(self.most_dc) or known.most_dc,
            loudest=float(self.loudest) or known.loudest,
        )

    def _noise(self, T: int, memory: Tensor) -> tuple[Tensor | None, Tensor]:
        """The noise of T samples as multiples of their level (T, B), if any; and the new memory."""
        if not (self.training and self.noise):
            return None, memory
        B, place = len(memory), self.predictors.starts[NOISE_SHARE]
        former, drawn = memory[:, place].cpu(), (1 - torch.rand(B) / NOISY).clamp(min=0)
        lasts = (torch.rand(B) < math.exp(-T / (STRETCH * self._rate))) & (former != UNDECIDED)
        share = torch.where(lasts, former, self.noise * drawn.double())
        memory = memory.clone()
        memory[:, place] = share.to(memory)
        return share.float() * torch.randn(T, B), memory
