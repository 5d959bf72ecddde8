"""An experiment's state in a database: its address, and waiting while the database is away."""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages._rdb.models import BaseModel
from optuna.trial import FrozenTrial
from sqlalchemy import URL, exc, make_url

from seqmodel.errors import SeqmodelError, UsageError
from seqmodel.experiment.folder import GRACE, RESUME_HINT
from seqmodel.training.stopping import InterruptError, StopRequest

HEARTBEAT = 10
"""Seconds between a process's heartbeats."""
PATIENCE = 600
"""Seconds that a database may be away, as during a restart, before the experiment stops."""
RECONNECTING = "8s2b"
"""SQLAlchemy's code for a connection that ended within a transaction."""
OPEN_ATTEMPTS = 10
"""Attempts at opening a database in which other hosts are creating the tables."""
POOL = {"pool_size": 1, "max_overflow": 2, "pool_pre_ping": True}
"""One connection is kept per process, and tested before use; heartbeats may open another."""


def without_password(address: str) -> str:
    """A database's address without secrets; UsageError, without it, if it is not an address."""
    url = _parsed(address)
    bare = url.set(query={}).render_as_string(hide_password=True)
    query = "&".join(f"{key}=***" for key in url.query)  # ?password= is one, sslpassword another
    return f"{bare}?{query}" if query else bare


def _parsed(address: str) -> URL:
    with suppress(exc.ArgumentError, ValueError):
        url = make_url(address)
        # Part of a password that contains unquoted @ or /, or does not follow a colon, would be
        # parsed as another part, and shown.
        file = url.host is None and url.drivername.startswith("sqlite")
        rest = f"{url.host}{'' if file else url.database}"
        if "@" not in rest and re.fullmatch(r"[\w.-]*", url.username or ""):
            return url
    raise UsageError(
        "--storage is not a database URL, such as postgresql://me:password@host/name (in a "
        "password, write @ as %40 and / as %2F)"
    )


def is_new(address: str) -> bool:
    """Whether the database is a file that does not exist yet, which opening it would create."""
    url = _parsed(address)
    is_file = url.drivername.startswith("sqlite") and not url.query  # with uri=, not a plain path
    return is_file and not Path(url.database or "").is_file()


class Database(RDBStorage):
    """Optuna's storage in the database at an address.

    While that is away, calls are repeated for up to `PATIENCE` seconds, which is reported to `say`
    in one line; they end early once `stop` is set.
    """

    def __init__(
        self,
        address: str,
        on_dead_trial: Callable[[optuna.Study, FrozenTrial], None],
        say: Callable[[str], None],
        stop: StopRequest,
    ) -> None:
        url, self._shown = _parsed(address), without_password(address)
        if url.drivername in ("postgresql", "postgres"):  # SQLAlchemy 2.0 would choose psycopg2
            url = url.set(drivername="postgresql+psycopg")
        self._secrets = [url.password, *url.query.values()]
        self._say, self._stop, self._last_outage = say, stop, -float(GRACE)
        connect = partial(
            super().__init__,
            url.render_as_string(hide_password=False),
            {**POOL},
            heartbeat_interval=HEARTBEAT,
            grace_period=GRACE,
            heartbeat_stale_trial_callback=on_dead_trial,
        )
        try:
            for left in reversed(range(OPEN_ATTEMPTS)):
                try:
                    connect()
                    for table in BaseModel.metadata.tables.values():
                        for index in table.indexes:  # after a kill SQLite has tables without
                            index.create(self.engine, checkfirst=True)
                    return
                except exc.DBAPIError as error:
                    if not left or "already exists" not in str(error):  # another was faster
                        raise
                time.sleep(0.5)
        except Exception as error:  # whatever the database's driver raises
            reason = self._reason(error)
            if isinstance(error, ImportError):
                reason = "its driver is missing (for PostgreSQL: pip install 'seqmodel[postgres]')"
            raise SeqmodelError(f"--storage {self._shown} cannot be used: {reason}") from error

    def record_heartbeat(self, trial_id: int) -> None:
        """Show that a trial's process lives; while the database is away, leave it to the next."""
        try:
            super().record_heartbeat(trial_id)
        except Exception as error:
            if not _is_unreachable(error):
                raise

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        """Trials of dead processes; none for a while after an outage, which blocked heartbeats."""
        if time.monotonic() - self._last_outage < GRACE:
            return []
        return super()._get_stale_trial_ids(study_id)

    def _reason(self, error: Exception) -> str:
        """The first line of a driver's error, without passwords."""
        original = getattr(error.__cause__ or error, "orig", None) or error
        reason = next(iter(str(original).strip().splitlines()), type(error).__name__)
        for secret in self._secrets:
            reason = reason.replace(str(secret), "***") if secret else reason
        return reason


def _is_unreachable(error: Exception) -> bool:
    """Whether the database could not be reached, or closed the connection."""
    cause = error.__cause__ if isinstance(error, StorageInternalError) else error
    if isinstance(cause, exc.PendingRollbackError):
        return cause.code == RECONNECTING
    return isinstance(cause, exc.OperationalError | exc.InterfaceError) or (
        isinstance(cause, exc.DBAPIError) and cause.connection_invalidated
    )


def retrying(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of `Database`, repeated while that is away."""

    @wraps(method)
    def call(self: Database, *arguments: Any, **options: Any) -> Any:
        start, pause, reported = time.monotonic(), 0.25, False
        while True:
            try:
                return method(self, *arguments, **options)
            except Exception as error:
                if not _is_unreachable(error):
                    raise
                reason = f"--storage {self._shown}: {self._reason(error)}"
                self._last_outage = time.monotonic()
                if self._last_outage - start > PATIENCE:
                    raise SeqmodelError(f"{reason}; {RESUME_HINT}") from error
            if not reported:
                self._say(f"{reason}; trying again for {PATIENCE // 60} minutes")
                reported = True
            if self._stop.signal is not None:
                raise InterruptError("stopped", self._stop.signal)
            time.sleep(pause)
            pause = min(2 * pause, 5.0)

    return call


# Everything that Optuna may call, directly or through its cache.
for _name in (
    *BaseStorage.__abstractmethods__,
    "_create_new_trial",
    "_get_stale_trial_ids",
    "_get_trials",
    "_set_trial_param",
    "get_trial_id_from_study_id_trial_number",
):
    setattr(Database, _name, retrying(getattr(Database, _name)))
