"""Metre: time signatures on a grid of frames, and which one the onsets of a piece suggest.

A frame's position in the bar is counted in units, of which a frame has as many as the signature's
lower number, so that everything is an integer on any grid: if a bar of 3/8 has one and a half
frames, it has twelve units, and a frame eight.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqmodel.media.music.grid import Grid
from seqmodel.media.words import by_count, plural, some

Metre = tuple[int, int]
"""A time signature, such as (6, 8)."""
COMMON_TIME: Metre = 4, 4
"""The time signature of a MIDI file that states none."""
MAX_BEATS, MAX_BAR, SHORTEST_NOTE = 32, 16, 64
"""A bar has at most this many beats and quarter notes; its beats are notes of at least one over
SHORTEST_NOTE."""
MAX_SIGNATURES = 64
"""Per piece; later changes are dropped."""
NEVER_FRAME = 1 << 40
"""A frame that no piece has."""
REAL_TIME_STEPS = 4
"""The number of frames in a beat that models are given on a grid of real time."""


def is_possible(metre: Metre) -> bool:
    """Whether music can have such a time signature."""
    beats, of = metre
    return (
        1 <= beats <= MAX_BEATS
        and 1 <= of <= SHORTEST_NOTE
        and of & (of - 1) == 0
        and 4 * beats <= MAX_BAR * of
    )


def parse_metre(text: str) -> Metre:
    """(6, 8) for "6/8"; ValueError says what the text must be instead."""
    beats, _, of = text.partition("/")
    numbers = len(text) <= 5 and beats.isdecimal() and of.isdecimal()
    metre = (int(beats), int(of)) if numbers else (0, 0)
    if not is_possible(metre):
        raise ValueError(
            f"a time signature such as 3/4 or 6/8, of at most {MAX_BEATS} beats and {MAX_BAR} "
            f"quarter notes, not {text!r}"
        )
    return metre


def metre_name(metre: Metre) -> str:
    """6/8 for (6, 8)."""
    return f"{metre[0]}/{metre[1]}"


class Units(NamedTuple):
    """The lengths of a signature on a grid, all in units, and the parts of a beat.

    Dotted beats, as in 6/8, 9/8 and 12/8, have 3 parts, others 2; in real time all is nominal.
    """

    frame: int
    beat: int
    bar: int
    parts: int

    @classmethod
    def of(cls, metre: Metre, grid: Grid) -> "Units":
        beats, of = metre
        note = 4 * (grid.steps_per_beat or REAL_TIME_STEPS)
        parts = 3 if of >= 8 and beats > 3 and beats % 3 == 0 else 2
        return cls(of, note * (3 if parts == 3 else 1), note * beats, parts)


class Signature(NamedTuple):
    """A time signature from `frame` on, which is below 0 in a piece cut out within a bar."""

    frame: int
    beats: int
    of: int

    @property
    def metre(self) -> Metre:
        return self.beats, self.of


def signatures(found: Iterable[tuple[int, Metre]], length: int) -> tuple[Signature, ...]:
    """The signatures of a piece of `length` frames, from (frame, metre) in order; at least one.

    Of several at one frame the last counts; of equal ones in a row the first. Before the first,
    music is in common time.
    """
    last = {frame: metre for frame, metre in found if frame < length}
    if not last or min(last) > 0:
        last = {0: COMMON_TIME, **last}
    distinct = (next(same) for _, same in groupby(last.items(), lambda item: item[1]))
    return tuple(Signature(frame, *metre) for frame, metre in distinct)


def metre_from_json(values: Any) -> tuple[Signature, ...]:
    """The signatures in a piece's facts; ValueError if they are invalid."""
    if not isinstance(values, list) or not values:
        raise ValueError("metre must be a list of time signatures")
    found = []
    for value in values:
        if not (isinstance(value, list) and [*map(type, value)] == [int, int, int]):
            raise ValueError(f"metre must hold whole numbers [frame, beats, of], not {value!r:.40}")
        found.append(Signature(*value))
        if not is_possible(found[-1].metre):
            raise ValueError(f"metre has the impossible signature {value[1]}/{value[2]}")
    frames = [each.frame for each in found]
    in_range = -NEVER_FRAME < frames[0] <= 0 and frames[-1] < NEVER_FRAME
    if not in_range or sorted(set(frames)) != frames:
        raise ValueError("metre must have signatures in order of time, the first from frame 0 on")
    return tuple(found)


def shifted(metre: Sequence[Sequence[int]], begin: int) -> list[list[int]]:
    """The signatures of a piece as they apply from frame `begin` on."""
    relative = [[frame - begin, *metre] for frame, *metre in metre]
    begun = sum(frame <= 0 for frame, *_ in relative)
    return relative[max(0, begun - 1) :]


def file_signatures(metre: Sequence[Signature], grid: Grid) -> Iterator[Signature]:
    """The signatures as stated in a file, which has none before frame 0.

    The rest of a bar that began earlier gets its own signature, like a pickup: at least as long,
    since the next one cuts it off; none if the bar ends between frames.
    """
    if not metre:
        return
    first, later = metre[0], metre[1:]
    unit = Units.of(first.metre, grid)
    remaining = first.frame * unit.frame % unit.bar  # in units
    end = 0 if remaining % unit.frame else remaining // unit.frame
    if end:
        rest = Fraction(end, 4 * (grid.steps_per_beat or REAL_TIME_STEPS))
        powers = (2**k for k in range(SHORTEST_NOTE.bit_length()))
        candidates = [(math.ceil(rest * of), of) for of in (first.of, *powers)]
        possible = [metre for metre in candidates if is_possible(metre) and metre != first.metre]
        yield Signature(0, *min(possible, key=lambda metre: Fraction(*metre)))
    if not later or end < later[0].frame:
        yield first._replace(frame=end)
    yield from later


def bar_lines(metre: Sequence[Signature], grid: Grid, length: int) -> list[int]:
    """The frame nearest to the beginning of each bar of a piece of `length` frames, from 0 on."""
    lines = list[int]()
    for first, end in zip(metre, [*(each.frame for each in metre[1:]), length], strict=True):
        unit = Units.of(first.metre, grid)
        bars = range(-(-(end - first.frame) * unit.frame // unit.bar))
        places = (2 * bar * unit.bar + unit.frame for bar in bars)
        lines += [first.frame + place // (2 * unit.frame) for place in places]
    return [line for line in lines if 0 <= line < length]


def signature_row(metre: Sequence[Signature], grid: Grid) -> NDArray[np.int64]:
    """What a model is given of a piece's signatures, in one row.

    For each, where it begins, and the units in a frame, a beat and a bar; unused ones never begin.
    """
    rows = np.zeros((MAX_SIGNATURES, 4), np.int64)
    rows[:, 0] = NEVER_FRAME
    for row, each in zip(rows, metre, strict=False):
        row[:] = each.frame, *Units.of(each.metre, grid)[:3]
    return rows.ravel()


# ---- what onsets suggest -------------------------------------------------------------------------

MIN_MARGIN = 0.1
"""A metre is inferred if its autocorrelation exceeds the others by this. Of 285 files that state a
metre, it is then inferred for 133 and another for 4; on a grid of eighths for 156 and 16."""
MIN_BARS = 8
"""The length, in bars of four quarter notes, of a piece whose metre can be inferred."""


def infer_metre(onsets: NDArray[Any], grid: Grid) -> Metre | None:
    """4/4, 3/4 or 6/8 if the onsets (T,), the notes beginning in each frame, clearly suggest it.

    They do if they correlate more with themselves one and two bars later than after bars of other
    lengths; 3/4 and 6/8 differ in the correlation after a beat (Brown 1993, "Determination of the
    meter of musical scores by autocorrelation").
    """
    quarter = grid.steps_per_beat
    if quarter is None or quarter == 1 or len(onsets) < 4 * MIN_BARS * quarter:
        return None
    centred = onsets - onsets.mean()

    def autocorrelation(*lags: int) -> float:
        return sum(float(centred[lag:] @ centred[: len(centred) - lag]) for lag in lags)

    triple = autocorrelation(3 * quarter, 6 * quarter) - autocorrelation(4 * quarter, 8 * quarter)
    if abs(triple) <= 2 * MIN_MARGIN * autocorrelation(0):
        return None
    if triple < 0:
        return COMMON_TIME
    dotted = quarter % 2 == 0 and autocorrelation(3 * quarter // 2) > autocorrelation(quarter)
    return (6, 8) if dotted else (3, 4)


# ---- over all pieces -----------------------------------------------------------------------------

REPORTED_SHARE = 0.1
"""Contradictions are reported from this share of pieces on, since a few are always there."""


class Metres:
    """Finds the signatures of pieces on a grid of beats, and counts their sources."""

    def __init__(self) -> None:
        self._pieces = Counter({"stated": 0, "inferred": 0, "assumed": 0})
        self._named = {"stated": Counter[str](), "inferred": Counter[str]()}
        self._contradicted = list[str]()

    def of(
        self, stated: Sequence[tuple[int, Metre]], onsets: NDArray[Any], grid: Grid
    ) -> tuple[Signature, ...]:
        """The signatures that a piece states, or the one that its onsets (T,) suggest, or 4/4."""
        inferred = infer_metre(onsets, grid)
        found = signatures(stated or [(0, inferred or COMMON_TIME)], len(onsets))
        origin = "stated" if stated else "inferred" if inferred else "assumed"
        if stated:
            threes = {each.beats % 3 == 0 for each in found}
            if inferred and threes == {inferred[0] % 3 > 0}:
                names = f"{metre_name(found[0].metre)}, heard {metre_name(inferred)}"
                self._contradicted.append(f"({names})")
        self._pieces[origin] += 1
        if origin in self._named:
            self._named[origin].update({metre_name(each.metre) for each in found})
        return found

    def update(self, other: "Metres", source: str) -> None:
        """Add another's counts, of pieces of the `source`."""
        self._pieces.update(other._pieces)
        for origin, names in other._named.items():
            self._named[origin].update(names)
        self._contradicted += [f"{source} {names}" for names in other._contradicted]

    def to_json(self) -> dict[str, Any]:
        named = {origin: by_count(names) for origin, names in self._named.items()}
        return {**self._pieces, "named": named, "contradicted": self._contradicted}


def metre_line(values: Mapping[str, Any]) -> str:
    """`Metres.to_json` in words."""
    parts, clashes = [], values["contradicted"]
    for origin, words in (("stated", "stated by"), ("inferred", "inferred from the onsets of")):
        if values[origin]:
            names = some(values["named"][origin])
            parts.append(f"{names} {words} {plural(values[origin], 'piece')}")
            if origin == "stated" and len(clashes) > REPORTED_SHARE * values["stated"]:
                sound = "sounds" if len(clashes) == 1 else "sound"
                parts.append(f"{len(clashes):,} of which {sound} otherwise, such as {clashes[0]}")
    if values["assumed"]:
        parts.append(f"4/4 assumed for {plural(values['assumed'], 'piece')}")
    return f"metre: {', '.join(parts)}"
