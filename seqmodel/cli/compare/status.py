"""What `seqmodel compare --status` prints."""

from typing import Any

from seqmodel.cli.common import clock
from seqmodel.experiment.progress import Running, Status


def status_lines(status: Status) -> list[str]:
    """For people: a line per cell and per run in progress, and a total."""
    lines = []
    for cell in status.cells:
        best = "" if cell.valid is None else f"  best valid {cell.valid:.4f}"
        counts = cell.counts
        parts = [f"{counts.trials_done} of {counts.trials} trials"]
        parts += [f"{counts.finals_done} of {counts.finals} finals"] if counts.finals else []
        parts.append(f"{counts.seeds_done} of {counts.seeds} seeds")
        lines.append(f"{cell.name}: {', '.join(parts)}{best}")
    lines += map(_line, status.running)
    whole = [f"{status.done}/{status.total} runs done"]
    if status.done == status.total:
        return [*lines, *whole]
    left = status.seconds_left
    whole += [f"about {clock(left)} left"] if left is not None else []
    whole += [] if status.running else ["none in progress: run the same command to resume"]
    return [*lines, ", ".join(whole)]


def _line(running: Running) -> str:
    event = running.event
    parts = [f"running: {running.run}"]
    if event is None:
        parts.append(f"epoch {running.epoch} done")
    else:
        parts.append(f"{event.done:.0%}  {event.epoch}/{event.epochs}")
    if running.valid is not None:
        parts.append(f"{running.valid:.4f}")
    if running.host is not None:
        parts.append(f"on {running.host}")
    return "  ".join(parts)


def status_values(status: Status) -> dict[str, Any]:
    """For programs."""
    return {
        "runs": status.total,
        "done": status.done,
        "seconds_left": status.seconds_left,
        "cells": [
            {
                "cell": cell.name,
                **cell.counts._asdict(),
                "best_valid_nats_per_frame": cell.valid,
            }
            for cell in status.cells
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
