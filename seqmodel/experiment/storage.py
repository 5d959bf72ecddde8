"""The state that an experiment's processes share: Optuna's storage, a journal or a database."""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from seqmodel.experiment.journal import Journal
from seqmodel.training.stopping import StopRequest

_ROOT = "goes_on_with"


def open_storage(
    folder: Path,
    url: str | None,
    say: Callable[[str], None] = lambda line: None,
    stop: StopRequest | None = None,
) -> BaseStorage:
    """The storage at `url`, or the journal in the experiment's `folder`.

    `say` and `stop` are those of `Database`.

    Raises:
        SeqmodelError: if it cannot be reached, or holds something else.
    """
    optuna.logging.set_verbosity(logging.ERROR)
    if url is None:
        folder.mkdir(parents=True, exist_ok=True)
        return Journal(folder)
    from seqmodel.experiment.database import Database  # sqlalchemy takes a while to load

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # heartbeats
        return Database(url, queue_again, say, stop or StopRequest())


def queue_again(study: optuna.Study, trial: FrozenTrial) -> None:
    """Queue a trial that continues a failed one, which `root` returns."""
    study.add_trial(
        optuna.create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            system_attrs={_ROOT: root(trial)},
        )
    )


def root(trial: FrozenTrial) -> int:
    """The number of the first trial in the chain that this one continues, or its own."""
    return int(trial.system_attrs.get(_ROOT, trial.number))
