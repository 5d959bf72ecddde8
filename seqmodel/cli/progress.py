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
                draw=lambda *draw: message(_draw_line(*draw)),
            ),
            lambda: message(title),
        )


def _titled(listener: Listener, print_title: Callable[[], None]) -> Listener:
    """The listener, printing the title only with the first event: an early error stands alone."""
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


def _draw_line(number: int, count: int, rate: float, final: bool) -> str:
    goes_on = ", among the best, goes on" if final else ""
    return f"learning rate {number} of {count}: {rate:.3g}{goes_on}"


@contextmanager
def _live(config: Config, title: str) -> Iterator[Listener]:
    from seqmodel.cli.bars import Bars

    with Bars() as bars:
        task = bars.add_task("starting", total=None, news=())

        def tick(event: Tick) -> None:
            scoring = event.nats_per_frame is None
            news = []
            if event.nats_per_frame is not None:
                news.append(f"{event.nats_per_frame:.4f}")
                if event.seconds_left is not None:
                    news.append(f"{clock(event.seconds_left)} left")
                news.append(f"{event.frames_per_second:,.0f} frames/s")
            bars.update(
                task,
                description=f"{'valid' if scoring else 'epoch'} {event.epoch}/{config.epochs}",
                completed=event.done,
                total=event.total,
                news=news,
                visible=not scoring or event.done < event.total,  # what follows has no bar
            )

        def epoch(line: dict[str, Any], is_best: bool) -> None:
            bars.say(printable(_epoch_line(config, line, is_best)))

        def draw(number: int, count: int, rate: float, final: bool) -> None:
            bars.say(_draw_line(number, count, rate, final))

        yield _titled(Listener(tick, epoch, draw), lambda: bars.say(printable(title)))
