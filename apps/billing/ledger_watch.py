"""Detects a store that is older than before; runs periodically in a settling process.

A replaced or restarted Valkey server may hold older data. One that evicts keys may lack the notes of reservations that
balances still hold. The database may be older after a restore or failover. `balance_copies` repairs the differences.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from apps.billing import balance_copies, balances, ledger, ledger_epoch
from apps.billing.balance_copies import Resynced
from apps.kernel.valkey.redis import ServerState, client, read_server_state
from apps.kernel.valkey.shards import ask_each

log = structlog.get_logger(__name__)

# Recent copies and ledger entries to compare: a store that falls back loses the latest changes.
_LATEST = 100


class LedgerWatch:
    """State between two checks: the server's state, and which copies were behind."""

    def __init__(self, read_state: Callable[[], ServerState] = read_server_state) -> None:
        self._read_state = read_state
        self._server: ServerState | None = None
        self._behind: set[tuple[str, int]] = set()

    def look(self) -> Resynced | None:
        """Compare recent changes, and everything if they or the server's state differ; the first check always does.

        Returns the result of comparing everything. Raises DatabaseError, RedisError; the next check then starts over.
        """
        server = self._read_state()
        if server == self._server and not self._falls_back():
            return None
        self._server = None
        done = balance_copies.resync()
        self._server, self._behind = server, set()
        return done

    def _falls_back(self) -> bool:
        if set(ledger_epoch.read_epochs_in_redis()) != {ledger_epoch.read_epoch()}:
            return True
        moved = ask_each(lambda shard: client().lrange(balances.MOVED[shard], 0, _LATEST - 1))
        latest = {str(name) for names in moved for name in names}
        latest.update(one.name for one in ledger.moved_last(_LATEST))
        strays = balance_copies.find_divergent_copies(sorted(latest))
        # A copy that is behind once is being settled; the same version twice means that its update was lost.
        behind = {(one.true.name, one.version) for one in strays}
        stuck, self._behind = behind & self._behind, behind
        return bool(stuck) or any(one.is_ahead for one in strays)
