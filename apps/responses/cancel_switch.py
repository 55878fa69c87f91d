"""Cancel switch: ends the waits of a run without a connected client, as a disconnect does for other requests."""

from __future__ import annotations

from types import TracebackType

import gevent
from greenlet import getcurrent

from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.kernel.errors import ClientGone


class CancelSwitch(ClientDisconnect):
    """The watch on a connection that is not there: only `cancel` ends a wait."""

    def __init__(self) -> None:
        super().__init__(None)

    @property
    def is_thrown(self) -> bool:
        """Whether the run was cancelled."""
        return self._gone

    def cancel(self) -> None:
        """End every wait of the run, and each that it would begin. May be called from any greenlet."""
        self._gone = True
        if self._waiting:
            gevent.get_hub().loop.run_callback(self.raise_in_waiters)

    def __enter__(self) -> None:
        if self._gone:
            raise ClientGone("The response was cancelled")
        self._waiting.append(getcurrent())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.remove(getcurrent())

    def close(self) -> None:
        """End the watch; there is none."""
