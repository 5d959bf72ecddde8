"""What `seqmodel compare` shows while it runs: the runs at hand, or a line for each that ended."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from seqmodel.cli.common import clock, message, printable
from seqmodel.experiment.worker import Event


@contextmanager
def shown(total: int, done: int, *, quiet: bool) -> Iterator[Callable[[Event], None]]:
    """Yield a function that takes events; `total` runs make up the experiment, `done` are."""
    if quiet:
        yield lambda event: None
    elif sys.stderr.isatty():
        with _table(total, done) as take:
            yield take
    else:
        count = done

        def take_line(event: Event) -> None:
            nonlocal count
            if event.ended is not None:
                count += 1
                message(f"{count}/{total}  {_line(event)}")

        yield take_line


def _line(event: Event) -> str:
    figure = "no figure" if event.valid is None else f"{event.valid:.4f}"
    return f"{event.run}  {figure}  {event.ended}"


@contextmanager
def _table(total: int, done: int) -> Iterator[Callable[[Event], None]]:
    from seqmodel.cli.bars import Bars

    began, at_start = time.monotonic(), done
    tasks = {}
    with Bars() as bars:
        whole = bars.add_task("all runs", total=total, completed=done, news=[f"{done}/{total}"])

        def take(event: Event) -> None:
            nonlocal done
            if event.run not in tasks:
                tasks[event.run] = bars.add_task(printable(event.run), total=event.epochs, news=())
            news = [f"{event.epoch}/{event.epochs}"]
            if event.valid is not None:
                news.append(f"{event.valid:.4f}")
            bars.update(tasks[event.run], completed=event.epoch, news=news)
            if event.ended is None:
                return
            bars.remove_task(tasks.pop(event.run))
            done += 1
            left = (time.monotonic() - began) / (done - at_start) * (total - done)
            news = [f"{done}/{total}", f"{clock(left)} left"]
            bars.update(whole, completed=done, news=news[: 1 + (done < total)])
            bars.say(printable(f"{done}/{total}  {_line(event)}"))

        yield take
