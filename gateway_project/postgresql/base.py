"""The backend that `DATABASES` names: connections come from the pool within the patience of the work at hand.

Knows Django's way to a new connection. Must never know what the connection is for.
"""

from __future__ import annotations

import time
from typing import Any

from django.db.backends.postgresql import base
from psycopg import IsolationLevel
from psycopg_pool import PoolTimeout

from apps.kernel.database import TimeoutConnection, apply_timeouts, current_timeouts

# Seconds by which a wait may end late before it is the worker that is slow, and not the database; and how often then.
_LATE, _MOST_WAITS = 0.2, 4


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
        if not pool:
            self.isolation_level = IsolationLevel.READ_COMMITTED
            return TimeoutConnection.connect(**conn_params)
        if limit is None:
            return super().get_new_connection(conn_params)
        self.isolation_level = IsolationLevel.READ_COMMITTED
        with apply_timeouts(None):
            # Its greenlets live on.
            pool.open()
        for wait in range(1, _MOST_WAITS + 1):
            began = time.monotonic()
            try:
                return pool.getconn(timeout=limit.connection)
            except PoolTimeout:
                if time.monotonic() - began < limit.connection + _LATE or wait == _MOST_WAITS:
                    raise
        return None
