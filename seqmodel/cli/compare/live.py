"""What `seqmodel compare` shows while it runs: runs in progress, and a line for each that ended."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic

from seqmodel.cli.common import clock, message, printable
from seqmodel.experiment.progress import Counts, Event, seconds_left

SILENCE = 60
"""Seconds without a line, where there is no terminal, after which the next event makes one."""


@contextmanager
def shown(
    counts: Mapping[str, Counts], *, quiet: bool
) -> Iterator[tuple[Callable[[Event], None], Callable[[str], None]]]:
    """Yield a function that takes the events of processes, and one that prints a line.

    `counts` are each cell's counts at the start.
    """
    if quiet:
        yield lambda event: None, lambda line: None
        return
    whole = _Whole(counts)
    if sys.stderr.isatty():
        with _table(whole) as both:
            yield both
        return
    last = monotonic()

    def take(event: Event) -> None:
        nonlocal last
        whole.take(event)
        if event.ended is not None or monotonic() - last >= SILENCE:
            message(whole.line(event))
            last = monotonic()

    yield take, message


class _Whole:
    """The state of the experiment, as known from its events."""

    def __init__(self, counts: Mapping[str, Counts]) -> None:
        self._counts = dict(counts)
        self.total = sum(cell.total for cell in counts.values())
        self.ended = sum(cell.done for cell in counts.values())
        self._at_hand: dict[str, Event] = {}
        self._began: float | None = None
        self._gained = 0.0  # whole runs' worth of ended runs

    def take(self, event: Event) -> None:
        """Record an event."""
        self._began = self._began or monotonic()
        if event.ended is None:
            self._at_hand[event.run] = event
            return
        self._at_hand.pop(event.run, None)
        self._gained += self._counts[event.cell].weight(event.run) * event.gained
        if event.counts is not None:
            self._counts[event.cell] = event.counts
        # Others may have ended too, whose events are still to come, or runs of other commands.
        counted = sum(cell.done for cell in self._counts.values())
        self.ended = max(self.ended + 1, counted - len(self._at_hand))

    def done(self) -> float:
        """The number of runs that have ended, plus the shares done of those in progress."""
        return min(self.ended + sum(event.done for event in self._at_hand.values()), self.total)

    def news(self) -> list[str]:
        """How many runs have ended, and how long the others will take, if known."""
        left, gained = sum(cell.left for cell in self._counts.values()), self._gained
        for event in self._at_hand.values():
            weight = self._counts[event.cell].weight(event.run)
            left, gained = left - weight * event.done, gained + weight * event.gained
        spent = monotonic() - (self._began or 0.0)
        seconds = seconds_left(max(left, 0.0), gained, spent, 1)
        counted = f"{self.ended}/{self.total}"
        if self.ended == self.total:
            return [counted]
        return [counted] if seconds is None else [counted, f"{clock(seconds)} left"]

    def line(self, event: Event) -> str:
        """A run's progress or end, how many have ended, and how long the others will take."""
        figure = "no figure" if event.valid is None else f"{event.valid:.4f}"
        counted, *left = self.news()
        how = event.ended or f"epoch {event.epoch}/{event.epochs}"
        return "  ".join([counted, event.run, figure, how, *left])


@contextmanager
def _table(whole: _Whole) -> Iterator[tuple[Callable[[Event], None], Callable[[str], None]]]:
    from seqmodel.cli.bars import Bars

    tasks = {}
    with Bars() as bars:
        first = bars.add_task(
            "all runs", total=whole.total, completed=whole.ended, news=whole.news()
        )

        def take(event: Event) -> None:
            whole.take(event)
            if event.ended is None:
                if event.run not in tasks:
                    tasks[event.run] = bars.add_task(printable(event.run), total=None, news=())
                at_work = 1 if event.done else None  # an indeterminate bar until the first update
                news = [f"{event.epoch}/{event.epochs}"]
                news += [] if event.valid is None else [f"{event.valid:.4f}"]
                bars.update(tasks[event.run], total=at_work, completed=event.done, news=news)
            elif event.run in tasks:
                bars.remove_task(tasks.pop(event.run))
            bars.update(first, completed=whole.done(), news=whole.news())
            if event.ended is not None:
                bars.say(printable(whole.line(event)))

        yield take, lambda line: bars.say(printable(line))
