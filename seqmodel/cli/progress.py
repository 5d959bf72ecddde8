"""The progress of a training run: a live bar on a terminal, one plain line per epoch elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from seqmodel.cli.common import clock, message, printable
from seqmodel.config import Config
from seqmodel.training.loop import Listener, Tick


@contextmanager
def training_progress(config: Config, title: str, *, quiet: bool) -> Iterator[Listener]:
    """Yield a listener that writes to stderr: `title` before the first event, then each event."""
    if quiet:
        yield Listener()
    elif sys.stderr.isatty():
        with _live(config, title) as listener:
            yield listener
    else:
        yield _titled(
            Listener(
                epoch=lambda line, is_best: message(_epoch_line(config, line, is_best)),
                draw=lambda number, count, rate: message(_draw_line(number, count, rate)),
            ),
            lambda: message(title),
        )


def _titled(listener: Listener, print_title: Callable[[], None]) -> Listener:
    """The listener, with the title printed before the first event: an early error stands alone."""
    printed = False

    def titled(event: Callable[..., Any]) -> Callable[..., Any]:
        def called(*values: Any) -> Any:
            nonlocal printed
            if not printed:
                printed = True
                print_title()
            return event(*values)

        return called

    return Listener(titled(listener.tick), titled(listener.epoch), titled(listener.draw))


def _epoch_line(config: Config, line: dict[str, Any], is_best: bool) -> str:
    return (
        f"epoch {line['epoch']:>{len(str(config.epochs))}}/{config.epochs}"
        f"  train {line['train_nats_per_frame']:8.4f}  valid {line['valid_nats_per_frame']:8.4f}"
        f"{'*' if is_best else ' '}  {line['frames_per_second']:>7,} frames/s"
    )


def _draw_line(number: int, count: int, rate: float) -> str:
    return f"learning rate {number} of {count}: {rate:.3g}"


@contextmanager
def _live(config: Config, title: str) -> Iterator[Listener]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[news]}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None, news="")

        def tick(event: Tick) -> None:
            if event.nats_per_frame is None:
                what, news = "valid", ""
            else:
                what = f"epoch {event.epoch}/{config.epochs}"
                left = "" if event.seconds_left is None else f"  {clock(event.seconds_left)} left"
                news = f"{event.nats_per_frame:.4f}  {event.frames_per_second:,.0f} frames/s{left}"
            bar.update(task, description=what, completed=event.done, total=event.total, news=news)

        def say(line: str) -> None:
            console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

        def epoch(line: dict[str, Any], is_best: bool) -> None:
            say(_epoch_line(config, line, is_best))

        def draw(number: int, count: int, rate: float) -> None:
            say(_draw_line(number, count, rate))

        yield _titled(Listener(tick, epoch, draw), lambda: say(title))
