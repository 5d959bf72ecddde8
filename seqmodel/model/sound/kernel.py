"""Hearing and telling, compiled: many samples of a batch in training, one by one in drawing.

A vector holds one number of several pieces, one per lane, so that the recursions along a lattice
and along time run side by side. Drawing has one lane.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from llvmlite import ir
from torch import Tensor

from seqmodel.kernels.code.emit import INT, Emitter, vector_lanes
from seqmodel.kernels.code.jit import compiled_once
from seqmodel.kernels.code.vectors import Vector
from seqmodel.kernels.run.calls import ITEMSIZE, Arena, step_call
from seqmodel.kernels.run.signature import NEW, Array, Signature, per_thread
from seqmodel.kernels.run.threads import Kernel, compile_kernel, parallel_for, thread_count
from seqmodel.model.encoder import CompiledInputs
from seqmodel.model.sound import predictors as features
from seqmodel.model.sound import steering
from seqmodel.model.sound.predictors import FULL, Predictors
from seqmodel.model.sound.steering import PUSHES, RANGES, VOICES, TrainingStatistics, no_statistics

_PEAKS = 4
"""Lags are compared in as many interleaved searches, none of which waits for another."""


class Ear:
    """Hears and tells a sample of each lane's piece.

    `place` gives the address of a part of the memory, of a line that of the value that is being
    heard; the numbers of a part and values of a line are a vector apart, the newer ones behind.
    """

    def __init__(
        self, e: Emitter, predictors: features.Predictors, known: Any, place: Callable[[str], Any]
    ) -> None:
        self._e, self._predictors, self._known, self._place = e, predictors, known, place

    def hear(self, sample: Vector, noise: tuple[Any, Callable[[], Vector]] | None = None) -> None:
        """The memory after a sample, in levels.

        `noise` is whether there is any, and what loads it; levels are without it.
        """
        predictors, grid_now, pure = self._predictors, self._hear_grid(sample), sample
        if noise is not None:
            (noisy, load), heard = noise, [sample.value]
            with self._e.when(noisy, heard) as inside:
                level = predictors.levels["slow"]
                clean, each = self._load(features.CLEAN), predictors.lattices[0]
                steps = self._rounded((clean + level.floor) * load() / grid_now)
                error = self._hear_lattice(features.CLEAN, sample + features.OFFSET, each)
                self._store(_mean(level, clean, error), features.CLEAN)
                inside[0] = (
                    (sample + steps * grid_now).clamp(-features.FULL, features.FULL - 1).value
                )
            sample = Vector(self._e, heard[0])
        sample, disturbed = sample + features.OFFSET, sample - pure
        newest = {features.SAMPLE: sample, features.SLOPE: sample - self._load(features.SAMPLE, -1)}
        for n, each in enumerate(predictors.lattices):
            newest[features.residual(n)] = self._hear_lattice(n, sample, each)
        for name, level in predictors.levels.items():
            self._store(_mean(level, self._load(name), newest[level.of] - disturbed), name)
        for line in predictors.lines:
            if line == features.SMOOTH:
                step = predictors.pitch.step
                values = [self._load(features.residual(0), -n) for n in range(step)]
                newest[line] = sum(values[1:], values[0]) * (1 / step)
            self._store(newest[line], line)
        self._hear_pitch(newest[predictors.pitch_line])

    def _hear_grid(self, sample: Vector) -> Vector:
        """The grid after a sample."""
        e, b, old, seen = self._e, self._e.builder, self._load("grid"), self._load("seen")
        whole = self._rounded(sample)
        bits = b.fptosi(whole.value, e.integers)
        lowest = b.sitofp(b.and_(bits, b.sub(e.whole(0), bits)), e.vector)
        broken = b.fcmp_ordered("!=", whole.value, sample.value)
        found = Vector(e, b.select(broken, e.constant(1.0), lowest))
        less = Vector(
            e, b.select(b.fcmp_ordered("<", old.value, found.value), old.value, found.value)
        )
        found = found.replaced(seen, ">", 0.0, less).replaced(sample, "==", 0.0, old)
        self._store(found, "grid")
        more = (seen + 1.0).clamp(0.0, float(features.Grid.MOST)).replaced(sample, "==", 0.0, seen)
        self._store(more, "seen")
        return found

    def _rounded(self, value: Vector) -> Vector:
        return Vector(self._e, self._e.rounded(value.value))

    def _hear_lattice(self, n: int | str, sample: Vector, each: features.Lattice) -> Vector:
        """The error of the n-th lattice, which then hears the sample."""
        e, zero, forgetting = self._e, self._e.zero(), each.forgetting
        error = sample - self._load(f"said {n}")
        k, b, num, den = (self._place(f"{part} {n}") for part in ("k", "b", "num", "den"))
        carried = [sample.value, sample.value, zero]  # f, the new b, the prediction
        with e.carrying(0, each.order, 1, carried) as (m, inside):
            at = e.mul(m, e.lanes)

            def load(part: Any, at: Any = at) -> Vector:
                return Vector(e, e.load(e.offset(part, at)))

            f, b_now, said = (Vector(e, value) for value in inside)
            k_m, b_m = load(k), load(b)
            num_m = load(num) * forgetting + (f + f) * b_m
            den_m = (load(den) * forgetting + 2 * features.Lattice.QUANTISATION) + f * f + b_m * b_m
            k_now = num_m * features.Lattice.INSIDE / den_m
            for value, part in ((num_m, num), (den_m, den), (k_now, k), (b_now, b)):
                e.store(value.value, e.offset(part, at))
            following = f - k_m * b_m, b_m - k_m * f, said + k_now * b_now
            inside[:] = [value.value for value in following]
        self._store(Vector(e, carried[2]).clamp(-features.FULL, features.FULL - 1), f"said {n}")
        return error

    def _hear_pitch(self, newest: Vector) -> None:
        e, of_pitch = self._e, self._predictors.pitch
        energy = self._load("energy") * of_pitch.forgetting + 1.0 + newest * newest
        acf, line = self._place("acf"), self._place(self._predictors.pitch_line)
        least, shortest = energy * features.Pitch.LEAST, e.constant(float(of_pitch.shortest))

        def compare(n: Any, best: list[Any]) -> None:
            """Update the autocorrelation at the n-th lag, and the best value and lag so far."""
            at, lag = e.offset(acf, e.mul(n, e.lanes)), e.add(n, of_pitch.shortest)
            ago = e.builder.sub(e.int(0), e.mul(lag, of_pitch.step, e.lanes))
            then = Vector(e, e.load(e.offset(line, ago)))
            value = Vector(e, e.load(at)) * of_pitch.forgetting + newest * then
            e.store(value.value, at)
            number = e.splat(e.builder.sitofp(lag, e.real), e.vector)
            best[:] = self._better((value.value, number), best)

        bests = [least.value, shortest] * _PEAKS
        whole = of_pitch.lags - of_pitch.lags % _PEAKS
        with e.carrying(0, whole, _PEAKS, bests) as (n, inside):
            for k in range(_PEAKS):
                pair = inside[2 * k : 2 * k + 2]
                compare(e.add(n, k), pair)
                inside[2 * k : 2 * k + 2] = pair
        best = bests[:2]
        for k in range(1, _PEAKS):
            best = self._better(bests[2 * k : 2 * k + 2], best)
        for n in range(whole, of_pitch.lags):
            compare(e.int(n), best)
        peak, lag = (Vector(e, value) for value in best)
        for value, part in ((energy, "energy"), (lag, "lag"), (peak / energy, "peak")):
            self._store(value, part)

    def _better(self, one: Any, best: Any) -> list[Any]:
        b = self._e.builder
        more = b.fcmp_ordered(">", one[0], best[0])
        return [b.select(more, one[0], best[0]), b.select(more, one[1], best[1])]

    def tell(self, told: Emitter, rows: list[Any]) -> None:
        """Write each lane's features to its row, in the type of `told`."""
        start = 0
        for feature in self._predictors.features:
            row = [told.offset(row, start) for row in rows]
            self._tell(feature, _Row(self._e, told, row))
            start += feature.size

    def _tell(self, feature: features.Feature, row: "_Row") -> None:
        anchor, slow = self._load("said 0"), self._level("slow")
        match feature:
            case features.Recent(line, size, level, factor):
                inverse, shift = (
                    _one(slow) / self._level(level),
                    anchor if line == features.SAMPLE else None,
                )
                with self._e.loop(0, size) as n:
                    value = self._load(line, self._e.builder.sub(self._e.int(0), n))
                    value = value if shift is None else value - shift
                    row.put(n, (value * inverse).clamp(-features.CLIP, features.CLIP) * factor)
            case features.Rival(n):
                row.put(
                    0,
                    ((self._load(f"said {n}") - anchor) / slow).clamp(
                        -features.CLIP, features.CLIP
                    ),
                )
            case features.Reflections(size):
                with self._e.loop(0, size) as n:
                    row.put(n, self._load("k 0", n))
            case features.Loudness(level, offset):
                row.put(0, self._level(level).log() * 0.5 - offset)
            case features.Period():
                self._tell_period(row, _one(slow) / slow)
            case features.Grid():
                now, seen = self._load("grid"), self._load("seen")
                share, odds = self._of_known("share"), _one(now)
                for least in range(features.Grid.MOST):
                    odds = (odds * now).replaced(seen, "<=", float(least), odds)
                odds = odds * share
                row.put(0, (odds / (odds + (1.0 - share))).replaced(now, "<=", 1.0, 0.0))
                row.put(1, now * (1 / features.FULL))
            case features.Anchor():
                for n, value in enumerate(self._steered(anchor, slow)):
                    row.put(n, value * (1 / features.FULL))

    def _steered(self, anchor: Vector, level: Vector) -> list[Vector]:
        """Both as `steering` moves them, which takes no time where the strength is 0."""
        e, strength, steered = self._e, self._of_known("strength"), [anchor.value, level.value]
        steers = e.builder.fcmp_unordered("!=", _lane(e, strength.value, 0), e.real(0.0))
        with e.when(steers, steered) as inside:
            (echo,) = self._one_period_ago(0)
            peak, voice = self._load("peak"), self._voice()
            sharper = (self._level("sharp") / self._of_known("sharpest")).maximum(_one(anchor))
            anchor = anchor * (strength * -1.0 * sharper.log()).exp()
            push, pull = self._push_and_spectral_pull()
            anchor = anchor + strength * (pull + peak * (1.0 - peak) * voice * echo)
            level = level * (strength * push).exp()
            inside[:] = [anchor.clamp(-features.FULL, features.FULL - 1).value, level.value]
        return [Vector(e, value) for value in steered]

    def _push_and_spectral_pull(self) -> tuple[Vector, Vector]:
        e, M = self._e, self._predictors.reported_coefficients
        at_loudness = self._between(self._level("loud").log() * (1 / math.log(2)))
        ranges, carried = e.offset(self._known, RANGES), [e.zero()]
        with e.carrying(0, M, 1, carried) as (m, inside):
            k, b = self._load("k 0", m), self._load("b 0", m)
            low, high = (at_loudness(ranges, 2 * M, e.add(m, n)) for n in (0, M))
            nearest = ((k.maximum(low) * -1.0).maximum(high * -1.0)) * -1.0
            inside[0] = (Vector(e, inside[0]) + (nearest - k) * steering.OUTSIDE * b).value
        return at_loudness(e.offset(self._known, PUSHES), 1, 0), Vector(e, carried[0])

    def _voice(self) -> Vector:
        share = self._load("lag") * (1 / self._predictors.pitch.longest)
        place = share.log() * (steering.AN_OCTAVE / math.log(2)) + (steering.NODES - 1)
        return self._between(place)(self._e.offset(self._known, VOICES), 1, 0)

    def _between(self, place: Vector) -> Callable[[Any, int, Any], Vector]:
        """As in `steering`: what gives a column of a table (NODES, size) at this place."""
        e, last = self._e, steering.NODES - 1
        place = place.clamp(0.0, last)
        lower = place.clamp(0.0, last - 0.5).value  # the last but one at most
        nodes = [e.builder.fptosi(_lane(e, lower, lane), INT) for lane in range(e.lanes)]
        whole = lanes_of(e, [e.builder.sitofp(node, e.real) for node in nodes])

        def column_of(table: Any, size: int, column: Any) -> Vector:
            below, above = (
                self._loaded([e.offset(table, e.mul(e.add(n, k), size), column) for n in nodes])
                for k in (0, 1)
            )
            return below + (above - below) * (place - whole)

        return column_of

    def _tell_period(self, row: "_Row", inverse: Vector) -> None:
        of_pitch, lag = self._predictors.pitch, self._load("lag")
        for k, value in enumerate(self._one_period_ago(features.TAPS)):
            row.put(k, (value * inverse).clamp(-features.CLIP, features.CLIP) * 0.5)
        row.put(2 * features.TAPS + 1, self._load("peak"))
        period = (lag * (1 / of_pitch.longest)).log() * (1 / math.log(2))
        row.put(2 * features.TAPS + 2, period)

    def _one_period_ago(self, taps: int) -> list[Vector]:
        """The residuals one period before the next, and `taps` steps around it."""
        e, step, lag = self._e, self._predictors.pitch.step, self._load("lag")
        line, places = self._place(self._predictors.pitch_line), []
        for lane in range(e.lanes):
            steps = e.builder.fptosi(_lane(e, lag.value, lane), INT)
            ago = e.builder.sub(e.int(1), e.mul(steps, step))
            places.append(e.offset(line, e.mul(ago, e.lanes), lane))
        back = [k * step * e.lanes for k in range(-taps, taps + 1)]
        return [self._loaded([e.offset(place, k) for place in places]) for k in back]

    def _loaded(self, places: list[Any]) -> Vector:
        """The number at each lane's place."""
        e = self._e
        return lanes_of(e, [e.builder.load(place, typ=e.real) for place in places])

    def _of_known(self, name: str) -> Vector:
        place = self._e.offset(self._known, TrainingStatistics._fields.index(name))
        return Vector(self._e, self._e.broadcast(place))

    def _level(self, name: str) -> Vector:
        return self._load(name) + self._predictors.levels[name].floor

    def _load(self, part: str, number: Any = 0) -> Vector:
        e = self._e
        return Vector(e, e.load(e.offset(self._place(part), e.mul(number, e.lanes))))

    def _store(self, value: Vector, part: str) -> None:
        self._e.store(value.value, self._place(part))


class _Row:
    """Where features are written: an address for each lane, in the type of `told`."""

    def __init__(self, e: Emitter, told: Emitter, addresses: list[Any]) -> None:
        self._e, self._told, self._addresses = e, told, addresses

    def put(self, n: Any, value: Vector) -> None:
        """Write the n-th feature."""
        e, told, number = self._e, self._told, value.value
        if told.real != e.real:
            number = e.builder.fptrunc(number, ir.VectorType(told.real, e.lanes))
        for lane, address in enumerate(self._addresses):
            e.builder.store(_lane(e, number, lane), told.offset(address, n))


def lanes_of(e: Emitter, numbers: list[Any]) -> Vector:
    """A number in each lane."""
    value = ir.Constant(e.vector, ir.Undefined)
    for lane, number in enumerate(numbers):
        value = e.builder.insert_element(value, number, ir.IntType(32)(lane))
    return Vector(e, value)


def _lane(e: Emitter, value: Any, lane: int) -> Any:
    return e.builder.extract_element(value, ir.IntType(32)(lane))


def _mean(level: features.Level, former: Vector, now: Vector) -> Vector:
    size = now.where("<", 0.0, now * -1.0)
    return former * level.forgetting + size * (1 - level.forgetting)


def _one(like: Vector) -> Vector:
    return Vector(like.to, like.to.constant(1.0))


def compiled_inputs(
    predictors: Predictors,
    known: TrainingStatistics,
    samples: Tensor,
    memory: Tensor,
    ends: Tensor | None = None,
    noise: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The features (T, B, I) after each of `samples` (T, B), in [-1, 1), and the new memory (B, K).

    The predictors hear the samples through `noise` (T, B), times the level `slow` of the samples
    without noise, and rounded to the grid. The levels themselves are of the samples, and of what is
    missing to them, without noise too: if noise were in them, what follows would seem softer than
    what was heard, and free running would fade. Each piece ends after as many samples as `ends`
    (B,) says, by default all; its memory is that at its end. Features after it mean nothing, and
    are zeros after the ends of all pieces. Samples and features are float32 or float64 on the CPU.
    """
    (T, B), memory, dtype = samples.shape, memory.clone(), samples.dtype
    groups = -(-B // vector_lanes(ITEMSIZE))
    threads = thread_count(groups)
    job = _kernel(predictors, dtype).job(
        {
            "T": T, "B": B, "G": groups, "S": predictors.memory_size + T * len(predictors.lines),
            "threads": threads, "samples": samples.contiguous(), "kept": memory, "x": NEW,
            "noise": None if noise is None else noise.to(dtype), "known": known.packed(),
            "ends": torch.full((B,), T) if ends is None else ends, "work": NEW,
        }
    )  # fmt: skip
    parallel_for([job], threads)
    return job.made["x"], memory


def sound_call(predictors: Predictors, known: TrainingStatistics, arena: Arena) -> CompiledInputs:
    """The same for one sample of one piece, in float64."""
    sample, x = arena.take(1), arena.take(1, predictors.input_size)
    memory = arena.take(1, predictors.memory_size)
    call = step_call(
        _signature(predictors, torch.float64), _write_step, predictors, T=1, B=1,
        samples=sample.reshaped(1, 1), kept=memory, known=known.packed(),
        x=x.reshaped(1, *x.shape), threads=1,
    )  # fmt: skip
    return CompiledInputs(sample, x, [call], memory)


@compiled_once
def _signature(predictors: Predictors, dtype: torch.dtype) -> Signature:
    """The fields for many samples on several threads; those for one leave some out."""
    memory, inputs = f"{predictors.memory_size}", f"{predictors.input_size}"
    known = f"{len(no_statistics(predictors.reported_coefficients).packed())}"
    return Signature(
        "sound",
        ("T", "B"),
        (
            Array("samples", ("T", "B"), dtype),
            Array("noise", ("T", "B"), dtype, optional=True),
            Array("kept", ("B", memory), torch.float64),
            Array("known", (known,), torch.float64),
            Array("ends", ("B",), torch.int64, optional=True),
            Array("x", ("T", "B", inputs), dtype),
            per_thread("work", "S * LANES", optional=True),
        ),
        ("G", "S"),
    )


@compiled_once
def _kernel(predictors: Predictors, dtype: torch.dtype) -> Kernel:
    signature = _signature(predictors, dtype)

    def write(e: Emitter, f: dict[str, Any], thread: Any, threads: Any) -> None:
        work = e.offset(f["work"], e.mul(thread, e.padded(e.mul(f["S"], e.lanes))))
        first, last = e.share(f["G"], thread, threads)
        with e.loop(first, last) as group:
            _write_group(e, predictors, f, group, work, Emitter(e.builder, dtype.itemsize))

    return compile_kernel(signature, ITEMSIZE, write)


def _write_step(wide: Emitter, f: dict[str, Any], predictors: Predictors) -> None:
    e, starts = Emitter(wide.builder, ITEMSIZE, lanes=1), predictors.starts
    for line, size in predictors.lines.items():
        start = e.offset(f["kept"], starts[line])
        with e.loop(0, size - 1) as n:
            e.store(e.load(e.offset(start, n, 1)), e.offset(start, n))

    def place(part: str) -> Any:
        back = predictors.lines.get(part, 1) - 1
        return e.offset(f["kept"], starts[part], back)

    ear = Ear(e, predictors, f["known"], place)
    ear.hear(Vector(e, e.load(f["samples"])) * FULL)
    ear.tell(e, [f["x"]])


def _write_group(
    e: Emitter, predictors: Predictors, f: dict[str, Any], group: Any, work: Any, told: Emitter
) -> None:
    """All samples of as many pieces as there are lanes.

    Lanes without a piece repeat the last one: they write the same again. `work` holds the memories
    of the pieces, transposed, with each line followed by T places for what is to come. `told` has
    the type of samples and features.
    """
    b, T, K, size = e.builder, f["T"], predictors.memory_size, predictors.input_size
    starts, lines = predictors.starts, list(predictors.lines)
    end = b.sub(f["B"], e.int(1))

    def piece_in(lane: Any) -> Any:
        piece = e.add(e.mul(group, e.lanes), lane)
        return b.select(b.icmp_signed("<", piece, end), piece, end)

    def start(part: str) -> Any:
        """The number of places before a part in `work`."""
        return e.add(starts[part], e.mul(T, lines.index(part) if part in lines else 0))

    def transpose(lane: Any, first: int, count: int, at: Any, *, back: bool) -> None:
        """A piece's numbers from the `first` on, to or from the place `at` in `work`."""
        memory = e.offset(f["kept"], e.mul(piece_in(lane), K), first)
        with e.loop(0, count) as n:
            outside = e.offset(memory, n)
            inside = e.offset(work, e.mul(e.add(at, n), e.lanes), lane)
            source, target = (inside, outside) if back else (outside, inside)
            b.store(b.load(source, typ=e.real), target)

    def end_of(lane: Any) -> Any:
        return b.load(b.gep(f["ends"], [piece_in(lane)], source_etype=INT), typ=INT)

    fixed = min(starts[line] for line in lines)
    pieces = [piece_in(lane) for lane in range(e.lanes)]
    stop = [e.int(0)]
    with e.carrying(0, e.lanes, 1, stop) as (lane, inside):
        transpose(lane, 0, fixed, 0, back=False)
        for line, count in predictors.lines.items():
            transpose(lane, starts[line], count, start(line), back=False)
        until = end_of(lane)
        inside[0] = b.select(b.icmp_signed(">", until, inside[0]), until, inside[0])
    with e.loop(0, stop[0]) as t:

        def place(part: str) -> Any:
            newest = e.add(t, predictors.lines[part]) if part in lines else 0
            return e.offset(work, e.mul(e.add(start(part), newest), e.lanes))

        def gather(array: Any) -> Vector:
            places = [told.offset(array, e.mul(t, f["B"]), piece) for piece in pieces]
            numbers = [b.load(place, typ=told.real) for place in places]
            wide = told.real == e.real
            return lanes_of(e, numbers if wide else [b.fpext(n, e.real) for n in numbers])

        ear = Ear(e, predictors, f["known"], place)
        noisy = b.icmp_unsigned("!=", b.ptrtoint(f["noise"], INT), e.int(0))
        ear.hear(gather(f["samples"]) * FULL, (noisy, lambda: gather(f["noise"])))
        row = e.mul(t, f["B"])
        ear.tell(told, [told.offset(f["x"], e.mul(e.add(row, p), size)) for p in pieces])
        heard = e.add(t, 1)
        with e.loop(0, e.lanes) as lane, b.if_then(b.icmp_signed("==", end_of(lane), heard)):
            transpose(lane, 0, fixed, 0, back=True)
            for line, count in predictors.lines.items():
                transpose(lane, starts[line], count, e.add(start(line), heard), back=True)
    with e.loop(stop[0], T) as t, e.loop(0, e.lanes) as lane:
        row = e.add(e.mul(t, f["B"]), piece_in(lane))
        told.clear(told.offset(f["x"], e.mul(row, size)), e.int(size))
