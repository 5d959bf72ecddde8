"""Progress of commands on stderr: a live bar on a terminal, plain lines elsewhere.

Without a terminal, a line is printed now and then, so that logs show that work goes on.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from seqmodel.cli.common import Verbosity, message
from seqmodel.config import Config
from seqmodel.media.samples import Progress
from seqmodel.media.words import epochs_text, hms, printable
from seqmodel.runs.files import VALID_PIECES

if TYPE_CHECKING:
    from seqmodel.training.trackers import Listener, Tick

SILENCE = 10.0
"""Without a terminal, seconds without a line until one reports progress."""
LONG_SILENCE = 60.0
"""The same, but for the first of these lines, for long work that also prints its own."""
BEAT = 1.0
"""Seconds between checks whether a line is due."""
NEWS = 1 / 2
"""Share by which a plan must differ from the one last announced to be announced too."""


class Display(NamedTuple):
    """Where a command shows its work."""

    say: Callable[[str], None]
    """Prints a line."""
    show: Callable[..., None]
    """Called with the name of the work, news of it, the most important first, and, if known, how
    much is `done` and the `total`."""
    show_part: Callable[..., None]
    """Called with the name of a part in progress, news of it and the `share` done, to give it its
    own bar on a terminal; without news that bar is removed."""


@contextmanager
def display(what: str, silence: float = SILENCE) -> Iterator[Display]:
    """Yield a display of the work `what` on stderr; it shows nothing with --quiet."""
    if Verbosity.quiet:
        yield Display(_silent, _silent, _silent)
        return
    with _bar(what) if sys.stderr.isatty() else _lines(what, silence) as shown:
        yield shown


def _silent(*news: object, **of: object) -> None:
    """Show nothing."""


@contextmanager
def _bar(what: str) -> Iterator[Display]:
    """A bar on a terminal, erased at the end; a full one without news is hidden."""
    from seqmodel.cli.bars import Bars

    with Bars() as bars:
        bars.add_task(what, total=None, news=())
        (task,), parts = bars.tasks, dict[str, Any]()

        def show(what: str, *news: str, done: int = 0, total: int | None = None) -> None:
            task.total = total  # `update` would ignore None
            visible = total is None or done < total or bool(news)
            bars.update(task.id, description=what, completed=done, news=news, visible=visible)

        def show_part(name: str, *news: str, share: float = 0.0) -> None:
            if news:
                if name not in parts:  # without a total the bar is indeterminate
                    parts[name] = bars.add_task(printable(name), total=None, news=())
                bars.update(parts[name], total=1 if share else None, completed=share, news=news)
            elif name in parts:
                bars.remove_task(parts.pop(name))

        yield Display(lambda line: bars.say(printable(line)), show, show_part)


@contextmanager
def _lines(what: str, silence: float) -> Iterator[Display]:
    """Plain lines: all that is said and, from a thread, after each `silence` the progress."""
    last_line_at = work_began = monotonic()
    latest, finished, lock, due = [what], Event(), Lock(), SILENCE

    def say(line: str) -> None:
        nonlocal last_line_at
        last_line_at = monotonic()
        message(line)

    def show(what: str, *news: str, done: int = 0, total: int | None = None) -> None:
        nonlocal latest, work_began
        work_began = work_began if what == latest[0] else monotonic()
        latest = [what, *([f"{done / total:.0%}"] if total else []), *news]
        beat()

    def beat() -> None:
        nonlocal due
        with lock:
            if monotonic() - last_line_at >= due:
                so_far = [f"{hms(monotonic() - work_began)} so far"] * (len(latest) == 1)
                say("  ".join([*latest, *so_far]))
                due = silence

    def watch() -> None:
        while not finished.wait(BEAT):
            with suppress(OSError):  # the reader has gone: for the main thread to handle
                beat()

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield Display(say, show, _silent)
    finally:
        finished.set()
        thread.join()


def counting(shown: Display, what: str, then: str = "") -> Progress:
    """A function that shows how much of a total is done; `then` names what follows."""
    before, began = 0, monotonic()

    def count(done: int, total: int) -> None:
        nonlocal before, began
        began = monotonic() if done < before else began  # again from the start
        before, spent = done, monotonic() - began
        left = [f"{hms(spent / done * (total - done))} left"] if done and spent > 1 else []
        if then and done >= total:
            shown.show(then)
        else:
            shown.show(what, f"{done:,}/{total:,}", *left, done=done, total=total)

    return count


@contextmanager
def counter(what: str, then: str = "") -> Iterator[Progress]:
    """Yield such a function, with its own display."""
    with display(what) as shown:
        yield counting(shown, what, then)


@contextmanager
def training_progress(config: Config, title: str) -> Iterator["Listener"]:
    """Yield a listener that shows `title` before the first event, then each event."""
    from seqmodel.media.marks import MARK_FIGURES  # loads NumPy
    from seqmodel.training.trackers import Listener

    suffix = f"/{config.epochs}" * bool(config.epochs)
    with display("starting", silence=LONG_SILENCE) as shown:

        @cache
        def begin() -> None:  # at the first event: an earlier error is printed without the title
            shown.say(title)

        def tick(event: "Tick") -> None:
            begin()
            news, left = list[str](), event.seconds_left
            if event.nats_per_frame is not None:
                time_left = [] if left is None else [f"{hms(left)} left"]
                speed = f"{event.frames_per_second:,.0f} frames/s"
                news = [f"{event.nats_per_frame:.4f}", *time_left, speed]
            what = f"{'epoch' if news else 'valid'} {event.epoch}{suffix}"
            shown.show(what, *news, done=event.done, total=event.total)

        def epoch(line: dict[str, Any], is_best: bool) -> None:
            begin()
            figures = ((name, line.get(f"valid_{key}")) for name, key in MARK_FIGURES.items())
            marks = "".join(f"{name} {nats:.4f}  " for name, nats in figures if nats is not None)
            shown.say(
                f"epoch {epochs_text(line['epoch']):>{len(suffix) - 1 if suffix else 3}}{suffix}"
                f"  train {line['train_nats_per_frame']:8.4f}"
                f"  valid {line['valid_nats_per_frame']:8.4f}{'*' if is_best else ' '}"
                f"  {marks}{line['frames_per_second']:>7,} frames/s{partial_note(line)}"
            )

        def draw(number: int, count: int, rate: float) -> None:
            begin()
            shown.say(f"learning rate {number} of {count}: {rate:.3g}")

        announced = 0.0

        def planned(epochs: float, updates: int) -> None:
            nonlocal announced
            if abs(epochs - announced) > NEWS * epochs:
                announced = epochs
                about = f"about {epochs:.3g} epochs, {updates:,} updates"
                shown.say(f"planned for {config.minutes:g} min: {about}")

        yield Listener(tick, epoch, draw, planned=planned)


def partial_note(line: Mapping[str, Any]) -> str:
    """A note on a line's figure on valid if only some pieces are scored."""
    pieces = line.get(VALID_PIECES)
    return "" if pieces is None else f"  ({pieces:,} pieces of valid)"
