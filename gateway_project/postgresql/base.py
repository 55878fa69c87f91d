"""The backend that `DATABASES` names: connections come from the pool within the patience of the work at hand."""

from __future__ import annotations

import time
from typing import Any

from django.db.backends.postgresql import base
from psycopg import IsolationLevel
from psycopg_pool import ConnectionPool, PoolTimeout

from apps.kernel.postgres.database import TimeoutConnection, apply_timeouts, current_timeouts

# A wait that ends this many seconds late means that the worker is slow, not the database: it waits again, so many
# times.
_LATE, _MAX_WAITS = 0.2, 4
# Seconds after which a waiting caller asks the pool again.
_ASK_AGAIN = 0.5


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's own, but for where connections come from."""

    @property
    def pool(self) -> Any:
        """The process's pool; None where each request opens a connection of its own."""
        options = self.settings_dict["OPTIONS"].get("pool")
        if options:
            options.setdefault("connection_class", TimeoutConnection)
        return super().pool

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection. Raises OperationalError."""
        pool, limit = self.pool, current_timeouts()
        self.isolation_level = IsolationLevel.READ_COMMITTED
        if not pool:
            return TimeoutConnection.connect(**conn_params)
        with apply_timeouts(None):
            # Its greenlets live on.
            pool.open()
        if limit is None:
            return wait_for_connection(pool, pool.timeout)
        for wait in range(1, _MAX_WAITS + 1):
            began = time.monotonic()
            try:
                return wait_for_connection(pool, limit.connection)
            except PoolTimeout:
                if time.monotonic() - began < limit.connection + _LATE or wait == _MAX_WAITS:
                    raise
        return None


def wait_for_connection(pool: ConnectionPool[Any], patience: float) -> Any:
    """Return a connection of a pool within so many seconds, asking it again and again. Raises PoolTimeout.

    Asked once, a pool lets its callers wait in vain though the database is back: it opens connections when it is asked,
    tries for two seconds, and gives up. And it finds dead connections out one by one, with a pause that doubles after
    each.
    """
    deadline = time.monotonic() + patience
    while True:
        left = deadline - time.monotonic()
        try:
            return pool.getconn(timeout=min(left, _ASK_AGAIN))
        except PoolTimeout:
            if left <= _ASK_AGAIN:
                raise
