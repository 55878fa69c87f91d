"""Response state: what becomes of a response beside its answer: stored, resumed, continued by a later request.

The seam between `POST /v1/responses` and whoever stores responses: nobody does until `install` is called. Knows what
is asked of whoever does. Must never store anything.
"""

from __future__ import annotations

import secrets
from typing import Any, Protocol

import structlog

from apps.gateway.access.policy import Policy
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.kernel.errors import ApiError, InvalidRequest

log = structlog.get_logger(__name__)

Record = dict[str, Any]

# Fields that ask for a stored response, an earlier one or this one.
_STORED = ("previous_response_id", "conversation", "background", "prompt")


class ResponseState:
    """One request's state. This one stores nothing."""

    # Whether `event` wants to be told of every event of a stream.
    wants_events = False

    def __init__(self, response_id: str | None = None, echo: Record | None = None) -> None:
        self.response_id = response_id or f"resp_{secrets.token_hex(24)}"
        # Fields that every response object of the request bears.
        self.echo: Record = echo if echo is not None else {"store": False}

    def event(self, event: Record) -> None:
        """Take note of an event of a stream, before it goes out."""

    def finished(self, response: Record) -> None:
        """Take note of the final response object, once, before the last of the answer goes out."""

    def failed(self, error: ApiError) -> None:
        """Take note of an error before anything was written, once, in the place of `finished`."""


class AnsweredElsewhere(Exception):
    """The request is answered otherwise: `answer` is what its client gets, now."""

    def __init__(self, answer: ClientResponse) -> None:
        super().__init__()
        self.answer = answer


class ResponseStates(Protocol):
    """Whoever stores responses."""

    def open(self, request: ClientRequest, policy: Policy, wire: Record) -> ResponseState:
        """Return a request's state, with the earlier items that `wire` (its body) refers to put into `wire["input"]`.

        Raises ApiError for what it refers to in vain, AnsweredElsewhere for what is to be answered in the background.
        """


class _Nobody:
    """Nobody stores responses: whatever needs one is refused by its name."""

    def open(self, request: ClientRequest, policy: Policy, wire: Record) -> ResponseState:
        for name in _STORED:
            value = wire.get(name)
            if value is not None and not (name == "background" and value is False):
                raise InvalidRequest(
                    f"{name}: responses are not stored here: send all items in `input`",
                    code="unsupported_feature",
                    param=name,
                )
        return ResponseState()


_installed: list[ResponseStates] = [_Nobody()]


def install(states: ResponseStates) -> None:
    """Have responses stored from now on."""
    _installed[0] = states


def open_state(request: ClientRequest, policy: Policy, wire: Record) -> ResponseState:
    """Return the state of a request, and put the items that it refers to into its body. Raises ApiError."""
    own: ResponseState | None = request.response_state
    return own if own is not None else _installed[0].open(request, policy, wire)


def items_of(wire: Record) -> list[Any]:
    """Return the input of a request's body as items: a string is what the user says."""
    given = wire.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    return list(given) if isinstance(given, list) else []
