"""Turn request: the request of a further turn, which the gateway makes for the client of the first.

It has the client's headers, connection and request id, and a record of its own.
"""

from __future__ import annotations

from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.client.http_request import ClientRequest


class TurnRequest(ClientRequest):
    """A client's request with another body, which contains the answer so far."""

    def __init__(self, first: ClientRequest, body: bytes) -> None:
        """Take the client's own request, and the body, which is JSON."""
        super().__init__(first.environ_with_body(body), first.route, first.parameters)
        self._first = first
        self.conversation_id = first.conversation_id

    @property
    def request_id(self) -> str:
        """That of the client's own request: the log finds all turns by it."""
        return self._first.request_id

    def watch_disconnect(self) -> ClientDisconnect:
        """Return a watch on the client's connection, or whatever else ends its request."""
        return self._first.watch_disconnect()
