"""Guard model call: the question of an organization's rule to a guard model, in the form of a client's HTTP request.

It passes the pipeline like any other request of the API key, is paid by it and has its own row in the log. It has no
guardrails, and counts for no limit on requests: the request that it is about has been counted.
"""

# alone: the pipeline makes requests by it, and is not a folder
from __future__ import annotations

from typing import Any, Final

from apps.gateway.client.client_disconnect import CancelSwitch, ClientDisconnect
from apps.gateway.client.http_request import ClientRequest
from apps.kernel.rest.routes import route_table

# The route in the log, which tells these requests from those of clients, and the API that has their format.
ROUTE: Final = "guard_model"
_PATH: Final = "/v1/chat/completions"
# The headers of the client's request that hold for the question as well.
_KEPT: Final = ("cdn-loop", "traceparent", "tracestate")


class GuardModelCall(ClientRequest):
    """A request that the gateway makes to itself: an OpenAI chat completion, which `switch` cancels."""

    is_guard_model_call = True

    def __init__(self, client: ClientRequest, rule_id: str, body: bytes, switch: CancelSwitch) -> None:
        # The log finds it beside the client's request, and by the rule.
        sent = {**client.headers(*_KEPT), "x-gateway-guardrail-rule": rule_id}
        environ: dict[str, Any] = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in sent.items()}
        environ |= {"REQUEST_METHOD": "POST", "PATH_INFO": _PATH, "CONTENT_LENGTH": str(len(body))}
        super().__init__(environ, route_table().exact["POST", _PATH])
        self._client, self._body, self._switch = client, body, switch

    @property
    def request_id(self) -> str:
        """The id of the client's request."""
        return self._client.request_id

    def body(self) -> bytes:
        """Return the body."""
        return self._body

    def watch_disconnect(self) -> ClientDisconnect:
        """Return the switch that ends it."""
        return self._switch
