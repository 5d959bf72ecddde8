"""New pieces from a trained model: ancestral sampling, frame by frame.

All draws come from one specified stream, `kernels.uniforms`, keyed by a seed and the number of the
piece; each frame uses as many uniforms as the output declares. The model computes in float64, so
that draws almost never depend on rounding: the same seed gives the same piece for any number of
pieces, length, backend or machine.
"""

import copy
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import count, takewhile
from threading import Event
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel.kernels.run.threads import thread_count
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.audio.frames import AudioFrames
from seqmodel.media.music.frames import chord_ages
from seqmodel.media.sound import FULL_SCALE
from seqmodel.model.notes import NoteEncoder
from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.runs.folder import Run
from seqmodel.sampling.compiled import DrawStream, Stream, compiled_sampler
from seqmodel.sampling.marks import MarksDraw
from seqmodel.units.own_module import ModuleUnit

CHUNK = 256
"""Steps drawn at a time, which takes a few milliseconds."""
MAX_NUMBERS_AHEAD = 1 << 26
"""The most numbers of pieces that are drawn ahead: they have to fit in memory."""
ALLOWED_PAUSE_SECONDS = 0.5
"""A pause of so many seconds is not too long, whatever train is like."""


class Sampler:
    """Draws pieces from a model, independently of each other; several may be in progress at once.

    The weights are copied once, for all pieces: the model must not change in the meantime. Drawing
    uses compiled code on the CPU, wherever and with whatever backend the model was trained.
    `metres` (G,), see `FrameDefinition.metres`, is by default the usual one in train; `guidance` is
    as in `SequenceModel.guided`.

    Attributes:
        model: on the CPU.
    """

    def __init__(
        self,
        model: SequenceModel,
        *,
        temperature: float = 1.0,
        metres: NDArray[np.int64] | None = None,
        chunk: int | None = None,
        mark_temperature: float | None = None,
        guidance: float | None = None,
    ) -> None:
        """`chunk` is the number of steps to draw at a time; by default temperatures are equal."""
        on_cpu = next(model.parameters()).is_cpu
        self.model = (model if on_cpu else copy.deepcopy(model).cpu()).guided(guidance)
        self._temperature = temperature
        self._mark_temperature = temperature if mark_temperature is None else mark_temperature
        self._steps = self.model.encoder.steps
        self._chunk = self._steps * max(1, (chunk or CHUNK) // self._steps)
        start = self.model.start(1, None if metres is None else metres[np.newaxis])
        tensors = [t.detach() for t in start.tensors()]  # a module's start can be learned
        tensors = [t.double() if t.is_floating_point() else t for t in tensors]
        self.start = start.like(tensors)._replace(levels=None)

    def draw(
        self, uniforms: Uniforms, *, prime: NDArray[Any] | None = None, shortest: float = 0
    ) -> Stream:
        """Draw endless frames.

        Frames of music are zeros and ones; those of audio are raw samples, multiples of 1/32768.
        The marks of notes that begin follow, if the model has any: (n, F + M).
        `prime` (P, F), or (P, F + M), is the model's input before the first drawn frame. The piece
        does not end before frame `shortest`, or never if it is infinite.

        Before frame `shortest` each is drawn from its distribution given the past and that the
        piece continues. That is simply the frame's distribution, because given the past, an end
        does not depend on the frame before it.
        """
        carry = self.start if prime is None else self.read(prime)
        return self.with_marks(self.draw_from(carry, uniforms, shortest), carry, prime, uniforms)

    def piece(
        self,
        length: int,
        *,
        seed: int,
        number: int = 0,
        prime: NDArray[Any] | None = None,
        shortest: float = 0,
        freeze: "Freeze | Pause | None" = None,
    ) -> "DrawnPiece":
        """Draw one piece of `length` frames, or fewer if the model predicts when pieces end.

        `number` distinguishes pieces with the same seed; `prime` and `shortest` are as in `draw`.
        With `freeze` music also ends when it has frozen, but not before frame `shortest`, and in no
        way before it has `Freeze.least` with the primer; of sound another piece begins there.
        """
        uniforms = Uniforms(seed, number)
        later = uniforms.split()
        if isinstance(freeze, Freeze):
            given = 0 if prime is None else len(prime)
            shortest = max(shortest, freeze.least - given)
            freeze = freeze._replace(piece=max(freeze.piece, shortest))
        frames = self.draw(uniforms, prime=prime, shortest=shortest)
        if isinstance(freeze, Pause):
            piece = DrawnPiece(frames, length)
            piece.cut_pauses(freeze, self.draw, later)
            return piece
        return DrawnPiece(frames, length, freeze)

    def with_marks(
        self, frames: Stream, carry: Carry, prime: NDArray[Any] | None, uniforms: Uniforms
    ) -> Stream:
        """Frames that follow a primer, with their marks if any; the carry is that after it."""
        if self.marks is None:
            return frames
        prime = np.zeros((0, self.model.output.frame_size)) if prime is None else prime
        carry = self.marks.read(carry, np.asarray(prime, np.uint8))
        return self.marks.add_marks(frames, carry, uniforms.split())

    @cached_property
    def marks(self) -> MarksDraw | None:
        """The draw of marks, if the model has any."""
        return None if self.model.marks is None else MarksDraw(self.double, self._mark_temperature)

    def draw_from(self, carry: Carry, uniforms: Uniforms, shortest: float = 0) -> Stream:
        """Like `draw`, from a carry of `read`."""
        draws = self._compiled or plain_sampler(self.double, self._chunk, self._temperature)
        return draws(carry, uniforms, shortest * self._steps)

    def threads(self, number: int, length: int) -> int:
        """The number of threads for `side_by_side` to draw `number` pieces of this length.

        Several only if all is compiled, because torch's threads clash.
        """
        python = any(isinstance(layer, ModuleUnit) for layer in self.model.layers())
        parallel = self.is_compiled and self.model.marks is None and not python
        fits = MAX_NUMBERS_AHEAD // (length * self.model.output.frame_size)
        return max(1, min(thread_count(number), fits)) if parallel else 1

    @property
    def is_compiled(self) -> bool:
        """Whether steps run in compiled code; otherwise one takes a millisecond or more."""
        return self._compiled is not None

    @cached_property
    def _compiled(self) -> DrawStream | None:
        return compiled_sampler(self.model, self._chunk, self._temperature)

    @cached_property
    def double(self) -> SequenceModel:
        """The model in float64."""
        return copy.deepcopy(self.model).double().eval()

    def read(self, prime: NDArray[Any], carry: Carry | None = None) -> Carry:
        """The carry, in float64, after frames (P, F or more) from a piece's start or a carry."""
        carry = carry or self.start
        window = self.model.window(1)
        if self.model.marks is not None:
            prime = prime[:, : self.model.output.frame_size]
        for start in range(0, len(prime), window):
            frames = np.asarray(prime[start : start + window], np.float64)
            with torch.inference_mode():
                line = torch.from_numpy(frames).unsqueeze(1)
                carry = self.double.read(line, carry).after
        return carry


class AverageSampler(Sampler):
    """Draws each frame from one of the models, and lets all of them read it.

    A uniform chooses the model, all equally likely, and the next ones in the stream draw the frame
    from it, as well as whether the piece ends there. So the probability of a piece is exactly that
    of the average. PyTorch reads the frames, which takes most of the time. Marks, if the first
    model has any, are drawn by that.
    """

    def __init__(self, models: Sequence[SequenceModel], **settings: Any) -> None:
        """The settings are those of each model's `Sampler`."""
        first, *others = models
        super().__init__(first, chunk=1, **settings)
        self._samplers = [self, *(Sampler(model, chunk=1, **settings) for model in others)]

    def draw(
        self, uniforms: Uniforms, *, prime: NDArray[Any] | None = None, shortest: float = 0
    ) -> Stream:
        """See `Sampler.draw`; ends drawn before frame `shortest` are ignored."""
        carries = [s.start if prime is None else s.read(prime) for s in self._samplers]
        frames = self._frames(carries, uniforms, shortest)
        return self.with_marks(frames, carries[0], prime, uniforms)

    def threads(self, number: int, length: int) -> int:
        return 1

    def _frames(self, carries: list[Carry], uniforms: Uniforms, shortest: float) -> Stream:
        """The frames that follow the models' `carries`, without marks."""
        for frames in count(1):
            k = int(uniforms.take(1)[0] * len(carries))
            endless = 0 if frames >= shortest else math.inf
            frame, ended = next(self._samplers[k].draw_from(carries[k], uniforms, endless))
            yield frame, ended
            carries = [s.read(frame, c) for s, c in zip(self._samplers, carries, strict=True)]


def plain_sampler(model: SequenceModel, chunk: int, temperature: float) -> DrawStream:
    """Draws `chunk` steps at a time by PyTorch: the specification of compiled sampling.

    It also draws from outputs without a compiled draw. The model is in float64 on the CPU.
    """
    output, steps = model.output, model.encoder.steps

    def draw(carry: Carry, uniforms: Uniforms, shortest: float) -> Stream:
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


class Freeze(NamedTuple):
    """Where a piece is over though no end was drawn: a chord lasts too long, and is cut there.

    Most are last chords after which a model that has seen few ends missed its own, and would hold
    on. Pieces shorter than train's shortest do not end like this, because in the middle of a piece
    a chord that is too long does little harm. And no piece ends before half of that: such ends are
    mistakes of models that have seen few.
    """

    chord: int
    """Frames that a chord may last, see `FrameDefinition.longest_hold`."""
    piece: float
    """Frames of train's shortest piece."""

    @property
    def least(self) -> float:
        """Frames before which no piece ends."""
        return self.piece // 2

    @classmethod
    def of(cls, run: Run) -> "Self | Pause | None":
        """The limits of a run; None if any is unknown, or of music that does not end."""
        frame, encoder = run.frame, run.model.encoder
        if isinstance(frame, AudioFrames):
            if run.config.end or not frame.longest_pause:
                return None
            samples = max(frame.longest_pause, round(ALLOWED_PAUSE_SECONDS * frame.rate))
            return Pause(frame.pause_level / FULL_SCALE, -(-samples // frame.frame_size))
        chord = frame.longest_hold
        clock = encoder.clock if isinstance(encoder, NoteEncoder) else None
        piece = None if clock is None else clock.shortest
        return cls(chord, piece) if run.config.end and chord and piece else None

    def first(self, recent: NDArray[Any], begin: int) -> int | None:
        """The first frame, from `begin` on, that is too much; `recent` are the last frames."""
        ages = chord_ages(recent)
        places = begin + np.arange(len(ages))
        (frozen,) = np.nonzero((ages > self.chord) & (places >= self.piece))
        return int(places[frozen[0]]) if len(frozen) else None


class Pause(NamedTuple):
    """Where another piece of sound begins though none ends: a pause outlasts nearly all of train's.

    Training looks back over milliseconds, so that a model does not learn how long pauses last, and
    may never leave one.
    """

    level: float
    """What no sample in it exceeds."""
    frames: int
    """How long it may last; the piece ends with the frame after."""


class DrawnPiece:
    """A piece to iterate over once, in chunks (n, F), each as soon as it is drawn."""

    frames = 0
    """Frames drawn so far."""
    ended = False
    """Whether the model ended the piece, rather than the limit."""
    frozen = False
    """Whether it ended where it had frozen."""
    pauses_cut = 0
    """How often another piece began because of a pause."""

    def __init__(self, chunks: Stream, limit: int, freeze: Freeze | None = None) -> None:
        self._chunks, self._limit, self._freeze = chunks, limit, freeze

    def __iter__(self) -> Iterator[NDArray[Any]]:
        recent = None
        while self.frames < self._limit and not (self.ended or self.frozen):
            chunk, ended = next(self._chunks)
            after = self.frames + len(chunk)
            end = min(after, self._limit)
            if self._freeze is not None:
                recent = np.concatenate([chunk[:0] if recent is None else recent, chunk])
                frozen = self._freeze.first(recent, after - len(recent))
                if frozen is not None and frozen < end:
                    end, self.frozen = frozen, True
                recent = recent[-self._freeze.chord :]
            self.ended = ended and end == after
            chunk = chunk[: end - self.frames]
            self.frames = end
            yield chunk

    def cut_pauses(self, pause: Pause, draw: Callable[[Uniforms], Stream], later: Uniforms) -> None:
        """Let another piece of `draw` begin after each that is too long, from its own stream."""

        def cut(frames: Stream, later: Uniforms) -> Stream:
            quiet = 0
            while True:
                chunk, ended = next(frames)
                sounds = np.flatnonzero((np.abs(chunk) > pause.level).any(1))
                starts, ends = np.append(-1 - quiet, sounds), np.append(sounds, len(chunk))
                (long,) = np.nonzero(ends - starts > pause.frames + 1)
                if len(long):
                    yield chunk[: starts[long[0]] + pause.frames + 2], False
                    uniforms, later = later, later.split()
                    frames, quiet = draw(uniforms), 0
                    self.pauses_cut += 1
                else:
                    yield chunk, ended
                    quiet = ends[-1] - starts[-1] - 1

        self._chunks = cut(self._chunks, later)


def side_by_side(
    pieces: Iterable[DrawnPiece], threads: int
) -> Iterator[tuple[DrawnPiece, Iterable[NDArray[Any]]]]:
    """Each piece and its chunks, in order; several threads draw whole pieces ahead."""
    if threads == 1:
        yield from ((piece, piece) for piece in pieces)
        return
    stopped, pending = Event(), deque[Future[tuple[DrawnPiece, list[NDArray[Any]]]]]()

    def drawn(piece: DrawnPiece) -> tuple[DrawnPiece, list[NDArray[Any]]]:
        return piece, [*takewhile(lambda _: not stopped.is_set(), piece)]

    with ThreadPoolExecutor(threads) as pool:
        try:
            for piece in pieces:
                pending.append(pool.submit(drawn, piece))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:  # also if the caller stops early
            stopped.set()
            pool.shutdown(cancel_futures=True)
