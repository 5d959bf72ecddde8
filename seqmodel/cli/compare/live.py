"""What `seqmodel compare` shows of an experiment under way: as it runs it, and with --status."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

from seqmodel.cli.common import clock, printable
from seqmodel.cli.progress import LONG_SILENCE, display
from seqmodel.experiment.progress import Counts, Event, Running, Status, seconds_left


@contextmanager
def shown(
    counts: Mapping[str, Counts], *, quiet: bool
) -> Iterator[tuple[Callable[[Event], None], Callable[[str], None]]]:
    """Yield a function that takes the events of processes, and one that prints a line.

    `counts` are each cell's counts at the start.
    """
    whole = _Whole(counts)
    if sys.stderr.isatty() and not quiet:
        with _table(whole) as both:
            yield both
        return

    def take(event: Event) -> None:
        whole.take(event)
        counted, *news = whole.summary(event)
        if event.ended is None:
            lines.show(counted, *news)
        else:
            lines.say("  ".join([counted, *news]))

    with display("starting", quiet=quiet, silence=LONG_SILENCE) as lines:
        yield take, lines.say


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

    def summary(self, event: Event) -> list[str]:
        """How many runs have ended, a run's progress or end, and how long the others will take."""
        figure = "no figure" if event.valid is None else f"{event.valid:.4f}"
        counted, *left = self.news()
        how = event.ended or f"epoch {event.epoch}/{event.epochs}"
        return [counted, event.run, figure, how, *left]


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
                bars.say(printable("  ".join(whole.summary(event))))

        yield take, lambda line: bars.say(printable(line))


def status_lines(status: Status) -> list[str]:
    """What --status says: a line per cell and per run in progress, and a total."""
    lines = []
    for name, counts, valid in status.cells:
        best = "" if valid is None else f"  best valid {valid:.4f}"
        parts = [f"{counts.trials_done} of {counts.trials} trials"]
        parts += [f"{counts.finals_done} of {counts.finals} finals"] if counts.finals else []
        parts.append(f"{counts.seeds_done} of {counts.seeds} seeds")
        lines.append(f"{name}: {', '.join(parts)}{best}")
    lines += map(_line, status.running)
    whole = [f"{status.done}/{status.total} runs done"]
    if status.done == status.total:
        return [*lines, *whole]
    left = status.seconds_left
    whole += [f"about {clock(left)} left"] if left is not None else []
    whole += [] if status.running else ["none in progress: run the same command to resume"]
    return [*lines, ", ".join(whole)]


def _line(running: Running) -> str:
    run, epoch, epochs, share, figure, host = running
    parts = [f"running: {run}"]
    parts += [f"epoch {epoch} done"] if share is None else [f"{share:.0%}", f"{epoch}/{epochs}"]
    parts += [] if figure is None else [f"{figure:.4f}"]
    return "  ".join(parts if host is None else [*parts, f"on {host}"])


def status_values(status: Status) -> dict[str, Any]:
    """The same for programs."""
    return {
        "runs": status.total,
        "done": status.done,
        "seconds_left": status.seconds_left,
        "cells": [
            {"cell": name, **counts._asdict(), "best_valid_nats_per_frame": valid}
            for name, counts, valid in status.cells
        ],
        "running": [running._asdict() for running in status.running],
    }
