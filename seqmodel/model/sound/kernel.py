"""What the sound encoder computes for each sample, as texts of `kernels.code.language`.

Each text is about one piece. Compiled for training, it runs one piece per vector lane, so that the
recursions along a lattice and along time run side by side; for drawing there is one lane.
"""

import math
from math import exp, log
from typing import Any

import torch
from torch import Tensor

from seqmodel.kernels.code.emit import vector_lanes
from seqmodel.kernels.code.jit import compiled_once
from seqmodel.kernels.code.language import copy, independent, side_by_side, unrolled
from seqmodel.kernels.run.calls import ITEMSIZE, Arena, kernel_call
from seqmodel.kernels.run.signature import NEW, THREADS, Array, KernelFields, Signature
from seqmodel.kernels.run.threads import Kernel, compile_text, run, thread_count
from seqmodel.model.encoder import CompiledInputs
from seqmodel.model.sound.predictors import (
    CLIP,
    FULL,
    INSIDE,
    MAX_SEEN,
    MIN_PEAK,
    OFFSET,
    QUANTISATION,
    TAPS,
    Predictors,
)
from seqmodel.model.sound.steering import (
    AN_OCTAVE,
    FADING,
    LOUDER,
    MAX_FOLLOWED,
    MAX_KEPT_UP,
    MAX_LOUDER,
    MOMENTS,
    NODES,
    OUTSIDE,
    PUSHES,
    RANGES,
    VOICES,
    TrainingStatistics,
    no_statistics,
)

LOG_2 = math.log(2)


def compiled_inputs(
    predictors: Predictors,
    known: TrainingStatistics,
    samples: Tensor,
    memory: Tensor,
    ends: Tensor | None = None,
    noise: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The features (T, B, I) after each of `samples` (T, B), in [-1, 1), and the new memory (B, K).

    The predictors read the samples with `noise` (T, B) added, scaled by the level `slow` of the
    clean samples and rounded to the grid. The levels themselves are measured without the noise,
    both of samples and of errors: otherwise what follows would seem softer than it was, and free
    running would fade. Each piece ends after `ends` (B,) samples, by default after all; its memory
    is the one at its end. Features after the end are meaningless, and zeros after the ends of all
    pieces. Samples and features are float32 or float64 on the CPU.
    """
    (T, B), memory, dtype = samples.shape, memory.clone(), samples.dtype
    lanes = vector_lanes(ITEMSIZE)
    groups = -(-B // lanes)
    threads = thread_count(groups)
    fields: KernelFields = {
        "T": T, "B": B, "G": groups, "S": predictors.memory_size + T * len(predictors.lines),
        "threads": threads, "samples": samples.contiguous(), "kept": memory, "x": NEW,
        "noisy": int(noise is not None), "noise": None if noise is None else noise.to(dtype),
        "known": known.packed(), "strengths": known.strengths(),
        "ends": torch.full((B,), T) if ends is None else ends, "work": NEW,
    }  # fmt: skip
    made = run(_kernel(predictors, dtype, lanes), threads, fields)
    return made["x"], memory


def sound_call(predictors: Predictors, known: TrainingStatistics, arena: Arena) -> CompiledInputs:
    """The same for one sample of one piece, in float64."""
    sample, x = arena.take(1), arena.take(1, predictors.input_size)
    memory, kernel = arena.take(1, predictors.memory_size), _kernel(predictors, torch.float64, 1)
    call = kernel_call(
        kernel, T=1, B=1, samples=sample.reshaped(1, 1), kept=memory, known=known.packed(),
        strengths=known.strengths(),
        x=x.reshaped(1, *x.shape), threads=1,
    )  # fmt: skip
    return CompiledInputs(sample, x, [call], memory)


@compiled_once
def _kernel(predictors: Predictors, dtype: torch.dtype, lanes: int) -> Kernel:
    """The kernel for samples and features of one type, with as many pieces at once as lanes."""
    memory, inputs = f"{predictors.memory_size}", f"{predictors.input_size}"
    nothing = no_statistics(predictors.reported_coefficients, predictors.combinations)
    known = f"{len(nothing.packed())}"
    signature = Signature(
        "sound",
        ("T", "B"),
        (
            Array("samples", ("T", "B"), dtype),
            Array("noise", ("T", "B"), dtype, optional=True),
            Array("kept", ("B", memory)),
            Array("known", (known,)),
            Array("strengths", ("4",)),
            Array("ends", ("B",), torch.int64, optional=True),
            Array("x", ("T", "B", inputs), dtype),
            Array("work", (THREADS, "S", f"{lanes}"), optional=True),
        ),
        ("G", "S", "noisy"),
    )
    text = read_pieces if lanes > 1 else read_sample
    return compile_text(signature, ITEMSIZE, text, over="G", lanes=lanes, p=predictors)


# ---- texts of `kernels.code.language`; p is the predictors --------------------------------------


def read_pieces(f: Any, first: Any, last: Any, lane: Any) -> None:
    """The features x (T, B, I) and the memories `kept` (B, K) of groups of pieces.

    `work` holds the memories of a group, with the lanes side by side and T places after each line
    for what is to come. Lanes without a piece repeat the last one and write the same numbers.
    """
    p = f.p
    for group in range(first, last):
        own = f.work[f.thread * f.S * f.lanes :]
        memory = side_by_side(own)
        stop = 0
        for k in range(f.lanes):
            piece = min(group * f.lanes + k, f.B - 1)
            move_memory(f, f.kept[piece * p.memory_size :], own[k:], 0, False)
            stop = max(stop, f.ends[piece])
        pieces = min(group * f.lanes + lane, f.B - 1)
        for t in range(stop):
            place = t * f.B + pieces
            advance(memory, f.samples[place] * FULL, f.noise, place, f.noisy, f.T, t + 1, p)
            write_features(f, memory, f.x[place * p.input_size :], f.T, t + 1)
            for k in range(f.lanes):
                piece = min(group * f.lanes + k, f.B - 1)
                if f.ends[piece] == t + 1:
                    move_memory(f, f.kept[piece * p.memory_size :], own[k:], t + 1, True)
        for t in range(stop, f.T):
            row = f.x[(t * f.B + pieces) * p.input_size :]
            for n in range(p.input_size):
                row[n] = 0.0


def read_sample(f: Any) -> None:
    """The same for one sample of one piece, in place."""
    p = f.p
    shift_lines(f.kept, p)
    memory = side_by_side(f.kept)
    advance(memory, side_by_side(f.samples)[0] * FULL, f.noise, 0, 0, 0, 0, p)
    write_features(f, memory, side_by_side(f.x), 0, 0)


def shift_lines(memory: Any, p: Any) -> None:
    """Make room for a value at the end of each line."""
    for n in unrolled(len(p.line_names)):
        line = memory[p.starts[p.line_names[n]] :]
        copy(line[1:], line, p.lines[p.line_names[n]] - 1)


def move_memory(f: Any, kept: Any, memory: Any, t: Any, back: bool) -> None:
    """Copy a piece's memory into `work` before its first sample, or back after t of them."""
    p = f.p
    move(kept, memory, p.starts["samples"], f.lanes, back)
    for n in unrolled(len(p.line_names)):
        name = p.line_names[n]
        place = start_of(name, f.T, t, p) * f.lanes
        move(kept[p.starts[name] :], memory[place:], p.lines[name], f.lanes, back)


def move(kept: Any, memory: Any, count: Any, lanes: int, back: bool) -> None:
    """Copy numbers to `memory`, where they are `lanes` apart, or back."""
    for n in range(count):
        if back:
            kept[n] = memory[n * lanes]
        else:
            memory[n * lanes] = kept[n]


def start_of(line: str, T: Any, t: Any, p: Any) -> Any:
    """Where a line's remembered values begin after t samples; lines follow one another."""
    return p.starts[line] + p.line_numbers[line] * T + t


def advance(
    memory: Any, pure: Any, noise: Any, place: Any, noisy: Any, T: Any, t: Any, p: Any
) -> None:
    """Update the memory by the t-th sample, in levels, which is read through noise, if any."""
    find_grid(memory, pure, p)
    if p.combinations > 0:
        memory[p.starts["moment"]] += p.moments_per_sample
    sample = pure
    if noisy:
        clean = memory[p.starts["clean"]]
        grid = memory[p.starts["grid"]]
        steps = round((clean + p.levels["slow"].floor) * noise[place] / grid)
        sample = limited(pure + steps * grid)
        error = adapt(memory, pure + OFFSET, len(p.lattices), p)
        memory[p.starts["clean"]] = mean(clean, error, p.levels["slow"])
    disturbed = sample - pure
    sample = sample + OFFSET
    samples = memory[start_of("samples", T, t, p) :]
    errors = memory[start_of("errors", T, t, p) :]
    slow_errors = memory[start_of("slow errors", T, t, p) :]
    last = p.lines["errors"] - 1
    slope = sample - samples[14]
    error = adapt(memory, sample, 0, p)
    adapt(memory, sample, 1, p)
    adapt(memory, sample, 2, p)
    slow_errors[7] = adapt(memory, sample, 3, p)
    follow(memory, "slow", error - disturbed, p)
    follow(memory, "fast", error - disturbed, p)
    follow(memory, "loud", sample - disturbed, p)
    follow(memory, "sharp", slope - disturbed, p)
    follow(memory, "initial", OFFSET, p)
    dc = memory[p.starts["dc"]]
    memory[p.starts["dc"]] = dc + (sample - disturbed - dc) * (1 - p.levels["dc"].forgetting)
    samples[15] = sample
    errors[last] = error
    if p.pitch_line == "smooth":
        total = error
        for n in unrolled(1, p.pitch.step):
            total += errors[last - n]
        smooth = memory[start_of("smooth", T, t, p) :]
        smooth[p.lines["smooth"] - 1] = total * (1 / p.pitch.step)
    find_pitch(memory, memory[start_of(p.pitch_line, T, t, p) :], p)


def find_grid(memory: Any, sample: Any, p: Any) -> None:
    """Find the grid after a sample: the largest power of two that divides all samples so far.

    While all are 0, it is the usual one. Recordings of fewer than 16 bits are on a grid of several
    levels, such as 256 for 8 bits, and are far more likely under a distribution over its points.
    FLAC also exploits these "wasted bits". `seen` counts the evidence, see `MAX_SEEN`.
    """
    old = memory[p.starts["grid"]]
    seen = memory[p.starts["seen"]]
    whole = round(sample)
    bits = int(whole)
    found = float(bits & -bits) if whole == sample else 1.0
    found = min(found, old) if seen > 0.0 else found
    memory[p.starts["grid"]] = old if sample == 0.0 else found
    memory[p.starts["seen"]] = seen if sample == 0.0 else min(seen + 1.0, float(MAX_SEEN))


def adapt(memory: Any, sample: Any, n: int, p: Any) -> Any:
    """The error of the n-th lattice, which then adapts to the sample.

    Stage m turns the forward and backward errors f_m and b_m of order m, f_0 = b_0 = the sample,
    into

        f_m+1(t) = f_m(t) - k_m b_m(t-1),    b_m+1(t) = b_m(t-1) - k_m f_m(t).

    Its reflection coefficient k_m = 2 sum f_m b_m / sum (f_m^2 + b_m^2), over the past with
    exponentially decaying weights, minimises the sum of both squared errors (Burg 1967, "Maximum
    entropy spectral analysis"; the lattice: Itakura, Saito 1971, "Digital filtering techniques for
    speech analysis and synthesis"). It is always inside (-1, 1), so the predictor is the stable
    filter of an all-pole model at every moment (Makhoul 1977, "Stable and efficient lattice methods
    for linear prediction"), unlike recursive least squares, which blows up when it reads its own
    samples. The memory holds k, b, the two sums, and the prediction.
    """
    lattice = p.lattices[n % len(p.lattices)]
    order = lattice.order
    k = memory[p.lattice_starts[n] :]
    b = k[order:]
    num = k[2 * order :]
    den = k[3 * order :]
    predicted = k[4 * order :]
    error = sample - predicted[0]
    f = sample
    newest = sample
    following = 0.0
    for m in range(order):
        k_m = k[m]
        b_m = b[m]
        num_m = num[m] * lattice.forgetting + (f + f) * b_m
        den_m = (den[m] * lattice.forgetting + 2 * QUANTISATION) + f * f + b_m * b_m
        k_now = num_m * INSIDE / den_m
        num[m] = num_m
        den[m] = den_m
        k[m] = k_now
        b[m] = newest
        following += k_now * newest
        newest = b_m - k_m * f
        f -= k_m * b_m
    predicted[0] = limited(following)
    return error


def follow(memory: Any, name: str, value: Any, p: Any) -> None:
    """Update a level by a value."""
    memory[p.starts[name]] = mean(memory[p.starts[name]], value, p.levels[name])


def mean(former: Any, value: Any, level: Any) -> Any:
    """The recent mean absolute value after one more value."""
    return former * level.forgetting + max(value, -value) * (1 - level.forgetting)


def find_pitch(memory: Any, line: Any, p: Any) -> None:
    """Find the lag at which the line is most like itself, after its newest value.

    Voiced speech is nearly periodic, and its linear prediction residual has a pulse per period, so
    the residual one period ago predicts the next (Atal, Schroeder 1970, "Adaptive predictive coding
    of speech signals"). The autocorrelation is summed over the past with exponentially decaying
    weights. The memory holds it at each lag, the energy, plus one squared level per sample, the lag
    of the peak, and the peak over the energy.
    """
    last = p.lines[p.pitch_line] - 1
    newest = line[last]
    energy = memory[p.starts["energy"]] * p.pitch.forgetting + 1.0 + newest * newest
    acf = memory[p.starts["acf"] :]
    peak = energy * MIN_PEAK
    lag = float(p.pitch.shortest)
    for n in range(p.pitch.lags):
        ago = line[last - (n + p.pitch.shortest) * p.pitch.step]
        value = acf[n] * p.pitch.forgetting + newest * ago
        acf[n] = value
        lag = float(n + p.pitch.shortest) if value > peak else lag
        peak = max(peak, value)
    memory[p.starts["energy"]] = energy
    memory[p.starts["lag"]] = lag
    memory[p.starts["peak"]] = peak / energy


def write_features(f: Any, memory: Any, x: Any, T: Any, t: Any) -> None:
    """The features x (I,) after t samples, all about 1 in size or less and limited.

    In order (those over a level are limited to +- `CLIP`):

    - the last samples less the anchor, the first lattice's prediction, over the level `loud`;
    - its last errors over the level `slow`, halved;
    - the other lattices' predictions less the anchor, over `slow`;
    - the last lattice's last errors over `slow`, halved;
    - the first lattice's first reflection coefficients;
    - the logarithms of three levels, halved and moved towards 0;
    - nine of the first lattice's errors around one period ago, over `slow`, halved; how periodic
      these are, and log2 of the period over the longest one;
    - for pieces whose labels have a course, what it would add to the anchor, over `slow`, and by
      how much, in logarithms, the sound is too soft for it;
    - how certain the recording's grid is, and the grid, full scale being 1;
    - the anchor and the level `slow`, full scale being 1, both steered (`steering.py`).
    """
    p = f.p
    anchor = predicted(memory, 0, p)
    slow = level_of(memory, "slow", p)
    inverse = 1.0 / slow
    samples = memory[start_of("samples", T, t, p) :]
    of_samples = 1.0 / level_of(memory, "loud", p)
    for n in independent(16):
        x[n] = clipped((samples[15 - n] - anchor) * of_samples)
    errors = memory[start_of("errors", T, t, p) + p.lines["errors"] - 24 :]
    of_errors = x[p.columns["errors"].start :]
    for n in independent(24):
        of_errors[n] = clipped(errors[23 - n] * inverse) * 0.5
    for n in unrolled(1, len(p.lattices)):
        x[p.columns["rivals"].start + n - 1] = clipped((predicted(memory, n, p) - anchor) / slow)
    slow_errors = memory[start_of("slow errors", T, t, p) :]
    of_slow = x[p.columns["slow errors"].start :]
    for n in independent(8):
        of_slow[n] = clipped(slow_errors[7 - n] * inverse) * 0.5
    for n in independent(p.reported_coefficients):
        x[p.columns["reflections"].start + n] = memory[p.lattice_starts[0] + n]
    levels = x[p.columns["loudness"].start :]
    levels[0] = log(slow) * 0.5 - 2.0
    levels[1] = log(level_of(memory, "fast", p)) * 0.5 - 2.0
    levels[2] = log(level_of(memory, "loud", p)) * 0.5 - 3.0
    period = x[p.columns["period"].start :]
    for n in independent(2 * TAPS + 1):
        period[n] = clipped(one_period_ago(memory, n - TAPS, T, t, p) * inverse) * 0.5
    period[2 * TAPS + 1] = memory[p.starts["peak"]]
    period[2 * TAPS + 2] = log(memory[p.starts["lag"]] * (1 / p.pitch.longest)) * (1 / LOG_2)
    if p.combinations > 0:
        write_course(memory, f.known, x[p.columns["course"].start :], p)
    grid = x[p.columns["grid"].start :]
    grid[0] = certainty(memory, f.known[0], p)
    grid[1] = memory[p.starts["grid"]] * (1 / FULL)
    write_anchor(memory, f.known, f.strengths, x, T, t, p)


def predicted(memory: Any, n: int, p: Any) -> Any:
    """The n-th lattice's prediction of the next sample."""
    return memory[p.lattice_starts[n] + 4 * p.lattices[n].order]


def level_of(memory: Any, name: str, p: Any) -> Any:
    """A level, always above 0."""
    return memory[p.starts[name]] + p.levels[name].floor


def limited(sample: Any) -> Any:
    """A sample within full scale."""
    return min(max(sample, -FULL), FULL - 1)


def clipped(value: Any) -> Any:
    """A feature within +- `CLIP`."""
    return min(max(value, -CLIP), CLIP)


def one_period_ago(memory: Any, off: int, T: Any, t: Any, p: Any) -> Any:
    """The residual one period before the next, or `off` steps later."""
    line = memory[start_of(p.pitch_line, T, t, p) :]
    return line[p.lines[p.pitch_line] - (int(memory[p.starts["lag"]]) - off) * p.pitch.step]


def certainty(memory: Any, share: Any, p: Any) -> Any:
    """The probability that the next sample is on the grid because the recording is; 0 for grid 1.

    It follows from the share of training recordings that have a grid, and from the chance that one
    without would have matched it so far: a sample is on a grid G by chance once in G times.
    """
    grid = memory[p.starts["grid"]]
    odds = 1.0
    for n in unrolled(MAX_SEEN):
        odds = odds * grid if memory[p.starts["seen"]] > float(n) else odds
    odds = odds * share
    return 0.0 if grid <= 1.0 else odds / (odds + (1.0 - share))


def write_course(memory: Any, known: Any, x: Any, p: Any) -> None:
    """How far the anchor and the loudness are from the course of the piece's labels, if any."""
    M = p.reported_coefficients
    number = memory[p.starts["combination"]]
    moment = limited_node(memory[p.starts["moment"]], MOMENTS)
    there = course_share(memory, p)
    widths = known[RANGES + NODES * 2 * M + 1 + node_below(moment, MOMENTS) * (M + 1) :]
    means = widths[(int(number) + 1) * MOMENTS * (M + 1) :]
    off = 0.0
    for m in independent(M):
        k = memory[p.lattice_starts[0] + m]
        b = memory[p.lattice_starts[0] + p.lattices[0].order + m]
        centre = between(means, M + 1, m, moment, MOMENTS)
        width = between(widths, M + 1, m, moment, MOMENTS)
        off += (min(max(k, centre - width), centre + width) - k) * b
    missing = between(means, M + 1, M, moment, MOMENTS) - log(level_of(memory, "loud", p))
    x[0] = clipped(off / level_of(memory, "slow", p)) * there
    x[1] = clipped(missing) * there


def course_share(memory: Any, p: Any) -> Any:
    """1 while there is a course, falling to 0 at its end."""
    left = (MOMENTS - memory[p.starts["moment"]]) * (1 / FADING)
    return min(max(left, 0.0), 1.0) if memory[p.starts["combination"]] > 0.0 else 0.0


def write_anchor(memory: Any, known: Any, strengths: Any, x: Any, T: Any, t: Any, p: Any) -> None:
    """The anchor and its level, moved as in `steering`, which takes no time at strength 0."""
    anchor = predicted(memory, 0, p)
    level = level_of(memory, "slow", p)
    strength = strengths[0]
    guidance = strengths[1]
    if strength != 0.0:
        M = p.reported_coefficients
        echo = one_period_ago(memory, 0, T, t, p)
        peak = memory[p.starts["peak"]]
        octaves = log(memory[p.starts["lag"]] * (1 / p.pitch.longest)) * (AN_OCTAVE / LOG_2)
        period = limited_node(octaves + (NODES - 1), NODES)
        voice = between(known[VOICES + node_below(period, NODES) :], 1, 0, period, NODES)
        sharper = max(level_of(memory, "sharp", p) / known[2], 1.0)
        anchor = anchor * exp(-strength * log(sharper))
        loudness = log(level_of(memory, "loud", p))
        place = limited_node(loudness * (1 / LOG_2), NODES)
        ranges = known[RANGES + node_below(place, NODES) * 2 * M :]
        pull = 0.0
        for m in independent(M):
            k = memory[p.lattice_starts[0] + m]
            b = memory[p.lattice_starts[0] + p.lattices[0].order + m]
            low = between(ranges, 2 * M, m, place, NODES)
            high = between(ranges, 2 * M, M + m, place, NODES)
            pull += (min(max(k, low), high) - k) * OUTSIDE * b
        dc = memory[p.starts["dc"]]
        pull += (min(max(dc, -strengths[2]), strengths[2]) - dc) * OUTSIDE
        softer = anchor * max(1.0 - strengths[3] / level_of(memory, "loud", p), 0.0) * OUTSIDE
        pull -= min(max(softer, -level), level)
        push = between(known[PUSHES + node_below(place, NODES) :], 1, 0, place, NODES)
        if p.combinations > 0:
            afforded = known[RANGES + NODES * 2 * M] * guidance
            kept_up = min(max(guidance, 1.0), MAX_KEPT_UP)
            voice = voice * (1.0 + course_share(memory, p) * (kept_up - 1.0))
            course = x[p.columns["course"].start :]
            pull += min(max(course[0], -MAX_FOLLOWED), MAX_FOLLOWED) * level * afforded
            push += min(max(course[1] * LOUDER, -MAX_LOUDER), MAX_LOUDER) * afforded
        anchor = anchor + strength * (pull + peak * (1.0 - peak) * voice * echo)
        level = min(level, known[3] + level_of(memory, "initial", p)) * exp(strength * push)
    at = p.columns["anchor"].start
    x[at] = limited(anchor) * (1 / FULL)
    x[at + 1] = level * (1 / FULL)


def limited_node(place: Any, nodes: int) -> Any:
    """The place limited to between the first node and the last."""
    return min(max(place, 0.0), nodes - 1.0)


def node_below(place: Any, nodes: int) -> Any:
    """The node below a place, at most the last but one."""
    return int(min(place, nodes - 1.5))


def between(table: Any, size: int, column: Any, place: Any, nodes: int) -> Any:
    """A column at a place, interpolated; the table's rows of `size` begin at the node below."""
    below = table[column]
    return below + (table[size + column] - below) * (place - float(node_below(place, nodes)))
