"""What commands show of their progress on stderr: a live bar on a terminal, plain lines elsewhere.

Without a terminal there is a line now and then, lest a log look as if nothing happened.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from seqmodel.cli.common import clock, message, printable
from seqmodel.config import Config

if TYPE_CHECKING:
    from seqmodel.training.loop import Listener, Tick

SILENCE = 10.0
"""Seconds without a line, where there is no terminal, after which one tells how far the work is."""
LONG_SILENCE = 60.0
"""The same for work that prints lines of its own, and lasts."""
BEAT = 1.0
"""Seconds between two looks whether it is time for a line."""


class Display:
    """What is shown of a command's work; this one shows nothing, as with --quiet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def say(self, line: str) -> None:
        """Print a line."""

    def show(
        self, what: str, done: float = 0, total: float | None = None, news: Sequence[str] = ()
    ) -> None:
        """Show how far the work is: so much is done of the total, if known.

        Of `news` the most important comes first.
        """


class Bar(Display):
    """A bar on a terminal, erased at the end."""

    def __init__(self, what: str) -> None:
        from seqmodel.cli.bars import Bars

        self._bars = Bars()
        self._bars.add_task(what, total=None, news=())

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._bars.say(printable(line))

    def show(
        self, what: str, done: float = 0, total: float | None = None, news: Sequence[str] = ()
    ) -> None:
        """Move the bar; a full one without news is hidden."""
        (task,) = self._bars.tasks
        if total is None:
            task.total = None  # which `update` would leave as it was
        visible = total is None or done < total or bool(news)
        self._bars.update(
            task.id, description=what, completed=done, total=total, news=news, visible=visible
        )


class Lines(Display):
    """Plain lines: those that are said and, after so many seconds without, how far the work is.

    A thread looks after the time, as some work cannot tell how far it is.
    """

    def __init__(self, what: str, silence: float) -> None:
        self._silence, self._said, self._since = silence, monotonic(), monotonic()
        self._what, self._news = what, list[str]()
        self._over, self._lock = Event(), Lock()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def say(self, line: str) -> None:
        """Print a line."""
        self._said = monotonic()
        message(line)

    def show(
        self, what: str, done: float = 0, total: float | None = None, news: Sequence[str] = ()
    ) -> None:
        """Take note of how far the work is, and print it if it is time."""
        if what != self._what:
            self._since = monotonic()
        share = [f"{done / total:.0%}"] if total else []
        self._what, self._news = what, [*share, *news]
        self._beat()

    def _watch(self) -> None:
        while not self._over.wait(BEAT):
            with suppress(OSError):  # whoever read the lines has gone: not for us to decide
                self._beat()

    def _beat(self) -> None:
        with self._lock:
            if monotonic() - self._said >= self._silence:
                news = self._news or [f"{clock(monotonic() - self._since)} so far"]
                self.say("  ".join([self._what, *news]))


def display(what: str, *, quiet: bool, silence: float = SILENCE) -> Display:
    """What stderr can show of the work `what`, within a `with` block."""
    if quiet:
        return Display()
    return Bar(what) if sys.stderr.isatty() else Lines(what, silence)


class Count:
    """Shows how much of some work is done; `then` is what follows once all is."""

    def __init__(self, shown: Display, what: str, then: str = "") -> None:
        self._shown, self._what, self._then = shown, what, then
        self._done, self._began = 0, monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Show that so much of the total is done."""
        if done < self._done:  # again from the start
            self._began = monotonic()
        self._done, spent = done, monotonic() - self._began
        if self._then and done >= total:
            self._shown.show(self._then)
            return
        left = [f"{clock(spent / done * (total - done))} left"] if done and spent > 1 else []
        self._shown.show(self._what, done, total, [f"{done:,}/{total:,}", *left])

    def part(self, k: int, parts: int) -> Callable[[int, int], None]:
        """The same for one of equal parts, counted from 0: what is done of it, and its total."""
        return lambda done, total: self(k * total + done, parts * total)


@contextmanager
def counter(what: str, *, quiet: bool, then: str = "") -> Iterator[Count]:
    """Yield a `Count` on a display of its own."""
    with display(what, quiet=quiet) as shown:
        yield Count(shown, what, then)


@contextmanager
def training_progress(config: Config, title: str, *, quiet: bool) -> Iterator["Listener"]:
    """Yield a listener that shows `title` before the first event, then each event."""
    from seqmodel.training.loop import Listener

    printed = False
    with display("starting", quiet=quiet, silence=LONG_SILENCE) as shown:

        def titled(event: Callable[..., None]) -> Callable[..., None]:
            """Only with the first event: an early error stands alone."""

            def called(*values: Any) -> None:
                nonlocal printed
                if not printed:
                    printed = True
                    shown.say(title)
                event(*values)

            return called

        def tick(event: "Tick") -> None:
            shown.show(*_shown_of(event, config))

        def epoch(line: dict[str, Any], is_best: bool) -> None:
            shown.say(
                f"epoch {line['epoch']:>{len(str(config.epochs))}}/{config.epochs}"
                f"  train {line['train_nats_per_frame']:8.4f}"
                f"  valid {line['valid_nats_per_frame']:8.4f}{'*' if is_best else ' '}"
                f"  {line['frames_per_second']:>7,} frames/s"
            )

        def draw(number: int, count: int, rate: float, final: bool) -> None:
            goes_on = ", among the best, goes on" if final else ""
            shown.say(f"learning rate {number} of {count}: {rate:.3g}{goes_on}")

        yield Listener(titled(tick), titled(epoch), titled(draw))


def _shown_of(event: "Tick", config: Config) -> tuple[str, int, int, list[str]]:
    what = "valid" if event.nats_per_frame is None else "epoch"
    news = []
    if event.nats_per_frame is not None:
        news.append(f"{event.nats_per_frame:.4f}")
        if event.seconds_left is not None:
            news.append(f"{clock(event.seconds_left)} left")
        news.append(f"{event.frames_per_second:,.0f} frames/s")
    return f"{what} {event.epoch}/{config.epochs}", event.done, event.total, news
