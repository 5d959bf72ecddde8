"""What `seqmodel compare` shows while it runs: runs in progress, and a line for each that ended."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic

from seqmodel.cli.common import clock, message, printable
from seqmodel.experiment.progress import AtHand, Counts, Event, Took, seconds_left


@contextmanager
def shown(
    counts: Mapping[str, Counts], processes: int, *, quiet: bool
) -> Iterator[Callable[[Event], None]]:
    """Yield a function that takes the events of `processes` processes.

    `counts` are each cell's counts at the start.
    """
    if quiet:
        yield lambda event: None
        return
    whole = _Whole(counts, processes)
    if sys.stderr.isatty():
        with _table(whole) as take:
            yield take
    else:

        def take_line(event: Event) -> None:
            whole.take(event)
            if event.ended is not None:
                message(whole.line(event))

        yield take_line


class _Whole:
    """The state of the experiment, as known from its events."""

    def __init__(self, counts: Mapping[str, Counts], processes: int) -> None:
        self._counts, self._processes = dict(counts), processes
        self._at_hand: dict[str, tuple[Event, float]] = {}
        self._began: dict[str, float] = {}
        self._took: dict[str, list[Took]] = {}

    @property
    def total(self) -> int:
        """The number of runs."""
        return sum(cell.total for cell in self._counts.values())

    @property
    def ended(self) -> int:
        """The number of runs that have ended."""
        return sum(cell.done for cell in self._counts.values())

    def take(self, event: Event) -> None:
        """Record an event."""
        now = monotonic()
        began = self._began.setdefault(event.run, now)
        self._at_hand[event.run] = event, now
        if event.ended is None:
            return
        del self._at_hand[event.run], self._began[event.run]
        if event.counts is not None:
            self._counts[event.cell] = event.counts
        if not event.trained_before:
            self._took.setdefault(event.cell, []).append(Took(now - began, event.size))

    def done(self) -> float:
        """The number of runs that have ended, plus the shares done of those in progress."""
        shares = sum(event.done for event, _ in self._at_hand.values())
        return min(self.ended + shares, self.total)

    def news(self) -> list[str]:
        """How many runs have ended, and how long the others will take, if known."""
        counted = f"{self.ended}/{self.total}"
        left = None if self.ended == self.total else self._left()
        return [counted] if left is None else [counted, f"{clock(left)} left"]

    def line(self, event: Event) -> str:
        """A run's result, how many have ended, and how long the others will take, if known."""
        figure = "no figure" if event.valid is None else f"{event.valid:.4f}"
        counted, *left = self.news()
        return "  ".join([counted, event.run, figure, str(event.ended), *left])

    def _left(self) -> float | None:
        now, at_hand = monotonic(), []
        for event, told in self._at_hand.values():
            if event.trained_before:
                continue
            left = event.seconds_left
            if left is not None:
                left = max(0.0, left - (now - told))
            elapsed = now - self._began[event.run]
            at_hand.append(AtHand(event.cell, elapsed, left, event.size))
        return seconds_left(at_hand, self._counts, self._took, self._processes)


@contextmanager
def _table(whole: _Whole) -> Iterator[Callable[[Event], None]]:
    from seqmodel.cli.bars import Bars

    tasks = {}
    with Bars() as bars:
        total, begun = whole.total, whole.ended
        first = bars.add_task("all runs", total=total, completed=begun, news=whole.news())

        def take(event: Event) -> None:
            whole.take(event)
            if event.ended is None:
                if event.run not in tasks:
                    tasks[event.run] = bars.add_task(printable(event.run), total=None, news=())
                at_work = 1 if event.done else None  # an indeterminate bar until the first update
                bars.update(
                    tasks[event.run], total=at_work, completed=event.done, news=_news(event)
                )
            elif event.run in tasks:
                bars.remove_task(tasks.pop(event.run))
            bars.update(first, completed=whole.done(), news=whole.news())
            if event.ended is not None:
                bars.say(printable(whole.line(event)))

        yield take


def _news(event: Event) -> list[str]:
    news = [f"{event.epoch}/{event.epochs}"]
    if event.valid is not None:
        news.append(f"{event.valid:.4f}")
    if event.seconds_left:
        news.append(f"{clock(event.seconds_left)} left")
    return news
