"""Filling: part of a piece is redrawn, given all the rest.

Sequential Monte Carlo (Gordon, Salmond, Smith 1993): particles advance frame by frame; free numbers
are drawn, given ones scored, and the likelihood of what is given is a particle's weight. Each
particle draws several candidates for a frame and keeps one by their weights, whose mean becomes its
own (Fearnhead, Papaspiliopoulos, Roberts 2008): voices under a given melody have seen it. Particles
are resampled when their effective number falls below half.

Sweeps of particle Gibbs (Andrieu, Doucet, Holenstein 2010) then redraw one stretch after another.
The current piece remains among the particles, given what comes before and after, so that each sweep
leaves the model's conditional distribution unchanged.

Particles see only some frames of what follows. The rest is read at once, and only for the piece
that a pass proposes, which is accepted by the likelihood of the rest (delayed acceptance: Christen,
Fox 2005). That is as exact, since a pass is reversible.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.kernels.run import threads
from seqmodel.kernels.run.calls import ITEMSIZE
from seqmodel.kernels.run.signature import NEW, Array, Field, Signature
from seqmodel.kernels.run.threads import Kernel, compile_text
from seqmodel.kernels.uniforms import Uniforms
from seqmodel.media.samples import Progress, no_progress
from seqmodel.model.sequence import Carry, SequenceModel
from seqmodel.outputs.notes import NotesOutput
from seqmodel.sampling.compiled import FREE, OFF, ON, CompiledParticles
from seqmodel.sampling.sampler import Sampler
from seqmodel.system.machine import available_memory

CANDIDATES = 8
"""Drafts of a frame by each particle."""
STRETCH = 8
"""Frames that a sweep redraws at a time."""
BYTES_PER_NUMBER = 80
"""Temporary memory for each number of a candidate, in total."""
NEGLIGIBLE_NATS = 15.0
"""Once nothing more is drawn, a particle this many nats behind the best is given up."""
FRAMES_AHEAD, SURVIVORS = 8, 8
"""Frames after the last drawn one that all particles score, and the number then resampled."""
FRAMES_SEEN = 64
"""Frames after the last drawn one that particles score at all. The rest of a piece can be a hundred
times as long, and hardly distinguishes them."""
WINDOW = 128
"""Frames of the rest read at a time; what more of them need does not fit in caches."""


@dataclass(frozen=True)
class Filled:
    """A piece, part of which was drawn."""

    frames: NDArray[np.uint8]
    """(T, F), or (T, F + M) with marks if the model has any"""
    effective: NDArray[np.float64]
    """(n,), the effective number of particles at each frame from the first to the last with
    anything free."""
    paths: float
    """The effective number of distinct paths, once the frames that particles see are scored; after
    the first few of them it is that of the few still left."""
    log_given: float
    """An estimate of log p(what is given) from the first of these frames on."""


class Filler:
    """Fills pieces by a model, whose weights must not change in the meantime.

    The distribution is that of `sampler`'s frames at a temperature above 0, given the rest of the
    piece and, if the model predicts ends, that it ends with its last frame. `metres` is as in
    `Sampler`.
    """

    def __init__(
        self,
        model: SequenceModel,
        *,
        particles: int,
        candidates: int = CANDIDATES,
        temperature: float = 1.0,
        mark_temperature: float | None = None,
        metres: NDArray[np.int64] | None = None,
    ) -> None:
        self.candidates, self.number, self._temperature = candidates, particles, temperature
        self._sampler = Sampler(
            model, temperature=temperature, metres=metres, mark_temperature=mark_temperature
        )
        output = self._sampler.double.output
        if not isinstance(output, NotesOutput):
            raise UsageError(f"{type(output).__name__} cannot fill: it is not a NotesOutput")
        self.output = output
        self.particles = CompiledParticles(self._sampler.model, particles, temperature)

    def fill(
        self,
        piece: NDArray[np.uint8],
        free: NDArray[np.bool_],
        *,
        seed: int,
        number: int = 0,
        sweeps: int = 0,
        progress: Progress = no_progress,
    ) -> Filled:
        """Draw the `free` notes (T, D) of `piece` (T, F); there must be some.

        If the model has marks, they are drawn for drawn notes, given the frames; other notes keep
        theirs in `piece` (T, F + M), or get drawn ones.

        With onsets, a note that the piece holds over from a free one is struck again if what is
        drawn does not lead into it. `number` distinguishes pieces with the same seed.

        Raises:
            UsageError: if this many particles do not fit in memory.
            SeqmodelError: if what is given is impossible after everything that was drawn.
        """
        uniforms = Uniforms(seed, number)
        F = self.output.frame_size
        piece, given_marks = piece[:, :F], piece[:, F:]
        given_marks = np.where(np.tile(free, given_marks.shape[1] // free.shape[1]), 0, given_marks)
        free = self._free_numbers(piece, free)
        (frames_to_draw,) = np.nonzero(free.any(1))
        begin, end = int(frames_to_draw[0]), int(frames_to_draw[-1]) + 1
        self._check_memory(end - begin)
        # Progress in frames of all particles: in such time one piece is read this far.
        frames, rest = len(frames_to_draw), len(piece) - end
        after = min(rest, FRAMES_AHEAD) + rest // self.number
        total, done = frames + after + sweeps * frames * (1 + after / STRETCH), 0.0

        def did(amount: float) -> None:
            nonlocal done
            done += amount
            progress(round(done), round(total))

        first, nats = self._sampler.read(piece[:begin]), np.full(len(piece), np.nan)
        filled = _Pass(self, piece, free, first, uniforms, nats, did).run()
        did(after)
        for _ in range(sweeps):
            frames_read, carry = 0, None
            shift = int(uniforms.take(1)[0] * STRETCH)  # so that no frame is always at an edge
            for start in range(begin - shift, end, STRETCH):
                stretch = np.zeros_like(free)
                stretch[max(begin, start) : start + STRETCH] = True
                (drawn,) = np.nonzero((free & stretch).any(1))
                if len(drawn):
                    carry = self._sampler.read(filled.frames[frames_read : drawn[0]], carry)
                    frames_read = int(drawn[0])
                    redrawn = _Pass(self, filled.frames, free & stretch, carry, uniforms, nats, did)
                    filled = replace(filled, frames=redrawn.run(retain=True).frames)
                    did(len(drawn) * after / STRETCH)
        marks = self._sampler.marks
        if marks is None:
            return filled
        before = marks.read(self._sampler.start, filled.frames[:0])
        with_marks = np.concatenate([filled.frames, given_marks], axis=1)
        return replace(filled, frames=marks.draw_marks(with_marks, before, uniforms.split())[0])

    def nats(self, piece: NDArray[np.uint8], begin: int, carry: Carry) -> NDArray[np.float64]:
        """-log p (T,) of the frames of a piece (T, F) from `begin` on, after a carry; else NaN."""
        output, nats = self.output, np.full((len(piece), 1), np.nan)
        for start in range(begin, len(piece), WINDOW):
            line = torch.from_numpy(piece[start : start + WINDOW]).unsqueeze(1)
            with torch.inference_mode():
                h, x, past, carry = self._sampler.double.read(line, carry)
                logits = output.note_logits(h, x, past)
                logits = output.tempered(logits, x, past, self._temperature)
                each = output.nats(logits, x, past)
                if output.end:
                    last = torch.arange(start, start + len(line)) == len(piece) - 1
                    each += output.end_score(h, last.to(each).unsqueeze(1))
            nats[start : start + WINDOW] = each.numpy()
        return nats[:, 0]

    def _check_memory(self, frames: int) -> None:
        size = self.output.frame_size
        path_bytes = frames * -(-size // 8)  # in bits
        needed = self.particles.size + path_bytes + BYTES_PER_NUMBER * self.candidates * size
        if self.number * needed > available_memory() // 2:
            limit = available_memory() // 2 // needed
            raise UsageError(
                f"{self.number:,} particles of {frames:,} frames do not fit in memory: use at "
                f"most {limit:,}, or fill a shorter part"
            )

    def _free_numbers(self, piece: NDArray[np.uint8], free: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The numbers (T, F) of a piece that are not given, from its notes (T, D)."""
        if not self.output.onsets:
            return free
        sounding, struck = np.split(piece > 0, 2, axis=1)
        from_free = np.pad(free[:-1], ((1, 0), (0, 0))) & sounding & ~struck
        return np.concatenate([free, free | from_free], axis=1)


class _Pass:
    """One run of the particles over a piece, from the first frame with free numbers on."""

    def __init__(
        self,
        filler: Filler,
        piece: NDArray[np.uint8],
        free: NDArray[np.bool_],
        carry: Carry,
        uniforms: Uniforms,
        nats: NDArray[np.float64],
        did: Callable[[float], None],
    ) -> None:
        """Start from the carry before the first frame with free numbers; call `did(1)` at each.

        `nats` (T,) are those of the piece, NaN where they are not known, and are kept up to date.
        """
        self._filler, self._output = filler, filler.output
        self._piece, self._free, self._uniforms = piece, free, uniforms
        self._carry, self._nats, self._did = carry, nats, did
        (drawn,) = np.nonzero(free.any(1))
        self._begin, self._end = int(drawn[0]), int(drawn[-1]) + 1
        self._stop = min(self._end + FRAMES_SEEN, len(piece))
        self._particles = filler.particles
        self._particles.begin(carry)
        before = piece[self._begin - 1] if self._begin else np.zeros_like(piece[0])
        self._number = filler.number
        self._last = np.repeat(before[None], self._number, 0)  # the particles' previous frames
        self._history = list[tuple[NDArray[np.int64], NDArray[np.uint8]]]()

    def run(self, *, retain: bool = False) -> Filled:
        """Draw; with `retain` the first particle is the current piece.

        `log_given` is then meaningless, because the rest is not scored once one particle is left.
        """
        weights = np.zeros(self._number)  # logarithms
        effective, log_given, paths = list[float](), 0.0, 1.0
        first_retained = retain  # whether the first is still the retained one
        for t in range(self._begin, self._stop):
            frames, weights = self._advance(t, weights, retain=retain)
            shares, number, evidence = self._normalise(weights, t)
            ancestors = np.arange(len(weights))
            if t < self._end:
                effective.append(number)
                if number < self._number / 2:
                    ancestors = self._resample(shares, self._number, retain=retain)
                    log_given += evidence
                    weights = np.zeros(self._number)
                self._history.append((ancestors, np.packbits(frames[ancestors], axis=1)))
                if self._free[t].any():
                    self._did(1)
            elif retain and len(weights) == 1:
                break
            else:  # nothing more is drawn: equal paths have one future
                if t == self._end:
                    weights = self._merge(weights)
                ancestors = np.flatnonzero(weights >= weights.max() - NEGLIGIBLE_NATS)
                first_retained &= bool(ancestors[0] == 0)
                weights = weights[ancestors]
                if t == self._end + FRAMES_AHEAD and len(weights) > SURVIVORS:
                    shares, number, evidence = self._normalise(weights, t)
                    survivors = self._resample(shares, SURVIVORS, retain=first_retained)
                    survivors, copies = np.unique(survivors, return_counts=True)
                    ancestors, weights = ancestors[survivors], np.log(copies)
                    log_given += evidence
                    paths = number / self._normalise(weights, t)[1]
                    self._number = SURVIVORS
                self._history.append((ancestors, np.empty((0, 0), np.uint8)))
            self._last = frames[ancestors]
            self._particles.keep(ancestors, self._last)
        shares, number, evidence = self._normalise(weights, self._stop - 1)
        piece = self._trace(self._draw_one(shares))
        if self._stop == len(piece):
            self._nats[:] = np.nan  # the piece may have changed
        elif not (retain and (piece == self._piece).all()):
            piece = self._accepted(piece, retain)
            evidence -= self._nats[self._stop :].sum()
        return Filled(piece, np.array(effective), paths * number, log_given + evidence)

    def _accepted(self, piece: NDArray[np.uint8], retain: bool) -> NDArray[np.uint8]:
        """The proposed piece, or with `retain` perhaps the current one, by what particles miss."""
        nats = self._filler.nats(piece, self._begin, self._carry)
        if retain:
            if np.isnan(self._nats[self._stop]):
                self._nats[:] = self._filler.nats(self._piece, self._begin, self._carry)
            gain = (self._nats - nats)[self._stop :].sum()
            if log(1 - self._uniforms.take(1)[0]) > gain:
                return self._piece
        self._nats[:] = nats
        return piece

    def _normalise(
        self, weights: NDArray[np.float64], t: int
    ) -> tuple[NDArray[np.float64], float, float]:
        """See `share`; the mean is over all particles, including merged and given up ones."""
        arrays = run(SHARE, N=len(weights), number=self._number, weights=weights)
        number, evidence = arrays["facts"].tolist()
        if evidence == LOG_ZERO:
            raise SeqmodelError(f"what is given is impossible from frame {t} on")
        return arrays["shares"], number, evidence

    def _merge(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The weights, with those of equal paths summed in one of them and -inf in the others."""
        k, paths = np.arange(len(weights)), []
        for ancestors, packed in reversed(self._history):
            paths.append(packed[k])
            k = ancestors[k]
        _, firsts, which = np.unique(
            np.hstack(paths), axis=0, return_index=True, return_inverse=True
        )
        merged = np.full(len(weights), -np.inf)
        np.logaddexp.at(merged, firsts[which.ravel()], weights)
        return merged

    def _advance(
        self, t: int, weights: NDArray[np.float64], *, retain: bool
    ) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """The particles' frames at t (N, F), and their logarithmic weights (N,) including these."""
        free, x, (N, F) = self._free[t], self._piece[t], self._last.shape
        forced = np.where(free, FREE, np.where(x > 0, ON, OFF))
        # If nothing is given, or nothing drawn, all candidates would have the same weight.
        candidates = self._filler.candidates if free.any() and not free.all() else 1
        forced = np.broadcast_to(forced, (N, candidates, F)).copy()
        if retain:
            forced[0, 0] = np.where(x > 0, ON, OFF)
        drawn, logits = self._particles.draw(forced, self._uniforms)
        at = self._uniforms.take(N) if candidates > 1 else np.zeros(N)
        weights = weights.copy()
        chosen = run(
            WEIGH, N=N, M=candidates, F=F, D=self._output.notes, frames=drawn,
            logits=logits, x=x, free=free.view(np.uint8), before=self._last, at=at,
            weights=weights, ends=int(self._output.end), over=int(t == len(self._piece) - 1),
        )["chosen"]  # fmt: skip
        if retain:
            chosen[0] = 0
        return drawn[np.arange(N), chosen], weights

    def _resample(self, shares: NDArray[np.float64], N: int, *, retain: bool) -> NDArray[np.int64]:
        """Ancestors (N,) by systematic resampling; with `retain` multinomial, keeping the first."""
        if not retain:
            return resampled(shares, self._uniforms.take(1), N)
        return np.append(0, resampled(shares, self._uniforms.take(N - 1), N - 1))

    def _draw_one(self, shares: NDArray[np.float64]) -> int:
        return int(resampled(shares, self._uniforms.take(1), 1)[0])

    def _trace(self, k: int) -> NDArray[np.uint8]:
        """The piece of particle k."""
        frames = self._piece.copy()
        for t in range(self._begin + len(self._history) - 1, self._begin - 1, -1):
            ancestors, packed = self._history[t - self._begin]
            if t < self._end:
                frames[t] = np.unpackbits(packed[k], count=frames.shape[1])
            k = int(ancestors[k])
        return frames


# ---- computations on particles, for `seqmodel sample` and pages


LOG_ZERO = -math.inf
MIN_EXPONENT = -700.0
"""An argument for which exp is negligible."""
WEIGH = Signature(
    "weigh",
    ("N", "M", "F", "D", "ends", "over"),  # whether pieces end, and whether this one does here
    (
        Array("frames", ("N", "M", "F"), torch.uint8),  # of M candidates
        Array("logits", ("N", "M", "F + 1")),
        Array("x", ("F",), torch.uint8),  # what is given, where not free
        Array("free", ("F",), torch.uint8),
        Array("before", ("N", "F"), torch.uint8),  # the particles' previous frames
        Array("at", ("N",)),  # uniforms
        Array("gains", ("N", "M")),
        Array("weights", ("N",)),  # logarithms, of which the frame's are added
        Array("chosen", ("N",), torch.int64),
    ),
)
SHARE = Signature(
    "share",
    ("N", "number"),
    (Array("weights", ("N",)), Array("shares", ("N",)), Array("facts", ("2",))),
)
RESAMPLE = Signature(
    "resample",
    ("N", "count", "A"),  # A uniforms: one for each ancestor, or one for all
    (Array("shares", ("N",)), Array("at", ("A",)), Array("ancestors", ("count",), torch.int64)),
)


def kernel_of(signature: Signature) -> Kernel:
    """The kernel of `weigh`, `share` or `resample`."""
    texts: dict[Signature, Any] = {WEIGH: weigh, SHARE: share, RESAMPLE: resample}
    return compile_text(signature, ITEMSIZE, texts[signature], over="N")


def run(signature: Signature, **fields: int | NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Run one of these over all items; missing arrays are created, and returned by name."""
    arguments = dict[str, Field](dict.fromkeys((a.name for a in signature.arrays), NEW))
    for name, field in fields.items():
        arguments[name] = field if isinstance(field, int) else torch.from_numpy(field)
    outputs = threads.run(kernel_of(signature), 1, arguments)
    return {name: tensor.numpy() for name, tensor in outputs.items()}


def resampled(
    shares: NDArray[np.float64], at: NDArray[np.float64], count: int
) -> NDArray[np.int64]:
    """The ancestors (count,) of `resample`."""
    outputs = run(RESAMPLE, N=len(shares), count=count, A=len(at), shares=shares, at=at)
    return outputs["ancestors"]


def weigh(f: Any, first: Any, last: Any) -> None:
    """Choose one of each particle's candidates by the likelihood of what is given, and gain it."""
    for k in range(first, last):
        best = LOG_ZERO
        for m in range(f.M):
            place = (k * f.M + m) * f.F
            logits = f.logits[place + k * f.M + m :]
            f.gains[k * f.M + m] = log_given(f, f.frames[place:], logits, f.before[k * f.F :])
            best = max(best, f.gains[k * f.M + m])
        total = 0.0
        for m in range(f.M):
            gain = f.gains[k * f.M + m] - best
            total += exp(gain) if gain > MIN_EXPONENT else 0.0
            f.gains[k * f.M + m] = total
        f.weights[k] += best + log(total / f.M) if total > 0.0 else LOG_ZERO
        if f.ends:
            end = f.logits[k * f.M * (f.F + 1) + f.F]
            f.weights[k] -= softplus(-end if f.over else end)
        count = 0
        for m in range(f.M - 1):
            count += f.gains[k * f.M + m] <= f.at[k] * total
        f.chosen[k] = count


def log_given(f: Any, frame: Any, logits: Any, before: Any) -> Any:
    """log p of a frame's given numbers, by which its candidates are weighted."""
    nats = 0.0
    product = 1.0
    for j in range(f.F):
        if not f.free[j]:
            if frame[j] != f.x[j]:
                nats = -LOG_ZERO
            # The strike of a note that does not sound, or did not before, is determined by that.
            if j < f.D or (frame[j - f.D] and before[j - f.D]):
                z = -logits[j] if f.x[j] else logits[j]
                nats += max(z, 0.0)
                size = max(z, -z)
                product *= 1.0 + exp(-size) if size < -MIN_EXPONENT else 1.0
    return -nats - log(product)


def softplus(z: Any) -> Any:
    """log(1 + exp(z))."""
    return max(z, 0.0) + log(1.0 + (exp(-max(z, -z)) if max(z, -z) < -MIN_EXPONENT else 0.0))


def share(weights: Any, shares: Any, facts: Any, N: Any, number: Any) -> None:
    """Logarithmic weights as shares, the effective number of particles, the log mean weight.

    The mean is over the initial `number` of particles.
    """
    best = LOG_ZERO
    for k in range(N):
        best = max(best, weights[k])
    total = 0.0
    for k in range(N):
        less = weights[k] - best
        shares[k] = exp(less) if less > MIN_EXPONENT else 0.0
        total += shares[k]
    squares = 0.0
    for k in range(N):
        shares[k] /= total
        squares += shares[k] * shares[k]
    facts[0] = 1.0 / squares
    facts[1] = best + log(total / number) if total > 0.0 else LOG_ZERO


def resample(shares: Any, at: Any, ancestors: Any, N: Any, count: Any, A: Any) -> None:
    """Ancestors by their shares: systematic with one uniform for all, otherwise multinomial."""
    for n in range(count):
        ancestors[n] = 0
    reached = 0.0
    for k in range(N - 1):
        reached += shares[k]
        for n in range(count):
            place = (at[0] + n) / count if A == 1 else at[n]
            ancestors[n] += reached < place
