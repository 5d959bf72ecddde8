"""How training reports progress; trackers, named by `train --track`, follow how a run learns.

TensorBoard's is built in. Any installed package can provide others: entry points of the group
`seqmodel.trackers`, each a function of a run's config and folder that returns a `Listener`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from seqmodel.config import Config
from seqmodel.errors import SeqmodelError, UsageError


@dataclass(frozen=True)
class Tick:
    """Progress within an epoch, reported after each update and while valid is scored."""

    epoch: int
    done: int
    total: int
    """Frames in this pass; `done` so far."""
    nats_per_frame: float | None
    """The training loss since the last look at valid; None while valid is scored."""
    frames_per_second: float = 0.0
    seconds_left: float | None = None
    """Seconds until the last epoch, or the minutes, end, without early stopping (with auto, if no
    epoch is better); None while too little is known."""


@dataclass(frozen=True)
class Listener:
    """Callbacks through which training reports; only the command line prints."""

    tick: Callable[[Tick], None] = lambda tick: None
    epoch: Callable[[dict[str, Any], bool], bool | None] = lambda metrics, is_best: None
    """Called with each line of metrics.jsonl, for an epoch or a look within one, and whether it is
    the best so far, once its files are on disk. Returning True ends the run, which can still be
    resumed."""
    draw: Callable[[int, int, float], None] = lambda number, count, rate: None
    """Called by a learning-rate search before a trial: its number from 1, their count, its rate."""
    resumed: Callable[[Sequence[dict[str, Any]]], bool | None] = lambda lines: None
    """Called with the earlier lines when a run resumes. Returning True ends it."""
    ended: Callable[[BaseException | None], None] = lambda error: None
    """Called last by `train_run`, with the error that stopped it, or None."""
    planned: Callable[[float, int], None] = lambda epochs, updates: None
    """Called with the approximate number of epochs, and updates, that fit into the given minutes,
    once the speed is known, and at each new plan."""


Tracker = Callable[[Config, Path], Listener]
"""Starts following a run, given its config and folder, which may already have epochs."""

GROUP = "seqmodel.trackers"
BUILT_IN = EntryPoint("tensorboard", "seqmodel.training.tensorboard:tensorboard", GROUP)


def find_trackers(names: Iterable[str]) -> dict[str, Tracker]:
    """The trackers of these names; UsageError for unknown ones, SeqmodelError for broken ones."""
    known = {entry.name: entry for entry in (*entry_points(group=GROUP), BUILT_IN)}
    found = dict[str, Tracker]()
    for name in names:
        if name not in known:
            choices = ", ".join(sorted(known))
            raise UsageError(f"--track {name}: there is no such tracker; choose from {choices}")
        try:
            found[name] = known[name].load()
        except Exception as error:
            advice = ""
            if known[name] is BUILT_IN and isinstance(error, ImportError):
                advice = "; pip install 'seqmodel[track]'"
            raise SeqmodelError(
                f"--track {name} cannot be loaded: {_error_text(error)}{advice}"
            ) from error
    return found


def with_trackers(
    listener: Listener, trackers: Mapping[str, Tracker], config: Config, folder: Path
) -> Listener:
    """`listener`, followed at each event by the trackers of the run in `folder`.

    What they return is ignored; what they raise becomes a SeqmodelError that names the tracker.
    """
    listeners = dict[str, Listener]()
    for name, tracker in trackers.items():
        with _named_in_errors(name):
            started = tracker(config, folder)
        if not isinstance(started, Listener):
            raise SeqmodelError(f"--track {name} returns {type(started).__name__}, not a Listener")
        listeners[name] = started

    def notify_all(event: str) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            result = getattr(listener, event)(*values)
            for name, one in listeners.items():
                with _named_in_errors(name):
                    getattr(one, event)(*values)
            return result

        return call

    return Listener(**{event.name: notify_all(event.name) for event in fields(Listener)})


@contextmanager
def _named_in_errors(name: str) -> Iterator[None]:
    try:
        yield
    except SeqmodelError:
        raise
    except Exception as error:
        raise SeqmodelError(
            f"--track {name} failed: {_error_text(error)}; continue the saved run with --resume"
        ) from error


def _error_text(error: Exception) -> str:
    """The error's type and message, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
