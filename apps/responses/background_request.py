"""Background request: a run's question in the form of a client's HTTP request, with no client behind it."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec
from gevent.event import Event as Signal

from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.routing.request_profile import SESSION_HEADERS
from apps.kernel.rest.routes import route_table
from apps.responses.cancel_switch import CancelSwitch
from apps.responses.run_leases import RunRequest

# The headers that mean anything once a request was let in. Credentials are none of them: they are never stored.
_KEPT: Final = (
    "x-request-id",
    "x-source",
    "x-no-fallback",
    "x-strict",
    "x-hedge",
    "x-hedge-max-cost",
    "cdn-loop",
    *SESSION_HEADERS,
)


class BackgroundRequest(ClientRequest):
    """A request that a worker makes to itself."""

    def __init__(self, request: RunRequest, log_id: UUID, switch: CancelSwitch, admitted: Signal) -> None:
        """Take the request of a run. `switch` ends the run; `admitted` is set when it has been let in."""
        self._body = msgspec.json.encode(request.wire)
        environ = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()}
        environ |= {"REQUEST_METHOD": "POST", "PATH_INFO": "/v1/responses", "CONTENT_LENGTH": str(len(self._body))}
        super().__init__(environ, route_table().exact["POST", "/v1/responses"])
        self.log_id = log_id
        self._switch, self._admitted = switch, admitted

    @property
    def body_limit(self) -> int:
        """As many bytes as it has: what it grew by was bounded where it was put together."""
        return len(self._body)

    def body(self) -> bytes:
        """Return the body."""
        return self._body

    def watch_disconnect(self) -> ClientDisconnect:
        """Return the switch that ends the run; the pipeline asks for it once a request has been admitted."""
        self._admitted.set()
        return self._switch


def kept_headers(request: ClientRequest) -> dict[str, str]:
    """Return what a run must know of its client's headers, wherever and whenever it goes on."""
    tags = {f"x-gateway-{name}": value for name, value in (request.custom_headers or {}).items()}
    return {**request.headers(*_KEPT), "x-request-id": request.request_id, **tags}
