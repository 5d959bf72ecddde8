"""What `seqmodel compare --status` prints."""

from typing import Any

from seqmodel.cli.common import clock
from seqmodel.experiment.progress import Running, Status


def status_lines(status: Status) -> list[str]:
    """For people: a line per cell and per run in progress, and a total."""
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
    event, figure, host = running.event, running.valid, running.host
    parts = [f"running: {running.run}", f"epoch {running.epoch} done"]
    if event is not None:
        parts[1] = f"{event.done:.0%}  {event.epoch}/{event.epochs}"
    parts += [] if figure is None else [f"{figure:.4f}"]
    return "  ".join(parts if host is None else [*parts, f"on {host}"])


def status_values(status: Status) -> dict[str, Any]:
    """For programs."""
    return {
        "runs": status.total,
        "done": status.done,
        "seconds_left": status.seconds_left,
        "cells": [
            {"cell": name, **counts._asdict(), "best_valid_nats_per_frame": valid}
            for name, counts, valid in status.cells
        ],
        "running": [
            {
                "run": running.run,
                "epoch": running.epoch,
                "epochs": running.event and running.event.epochs,
                "share_done": running.event and running.event.done,
                "best_valid_nats_per_frame": running.valid,
                "host": running.host,
            }
            for running in status.running
        ],
    }
