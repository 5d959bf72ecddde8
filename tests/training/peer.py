"""A process that trains runs with others: a JSON object on stdin for each."""

import json
import sys
from pathlib import Path

import torch

from seqmodel.config import Config
from seqmodel.data.dataset import open_dataset
from seqmodel.runs.folder import LAST
from seqmodel.training.loop import Listener, Trainer
from seqmodel.training.processes import Group, join, rendezvous
from seqmodel.training.stopping import InterruptError, StopRequest


def train(rank, size, group, config, data, folder, *, resume, stop_at, stopped_by):
    """Train a run; after tick `stop_at` a signal comes to process `stopped_by`."""
    stop, seen = StopRequest(), 0

    def tick(event):
        nonlocal seen
        seen += 1
        if seen == stop_at and rank == stopped_by:
            stop.signal = 15

    folder = Path(folder)
    settings = Config.from_json(config, folder)
    trainer = Trainer(settings, open_dataset(data), folder if rank == 0 else None, group=group)
    if resume:
        trainer.resume(folder / LAST)
    try:
        trainer.run(Listener(tick=tick), stop)
    except InterruptError:
        return "stopped"
    return "done"


def main():
    for line in sys.stdin:
        order = json.loads(line)
        torch.set_num_threads(order.pop("threads"))
        rank, size, port = (order.pop(name) for name in ("rank", "size", "port"))
        if size == 1:
            said = train(rank, size, Group(), **order)
        else:
            with join(rank, size, rendezvous(port)) as group:
                said = train(rank, size, group, **order)
        print(said, flush=True)


if __name__ == "__main__":
    main()
