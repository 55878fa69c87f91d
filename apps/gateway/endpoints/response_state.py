"""Response state: what becomes of a response beside its answer: stored, resumed, continued by a later request.

The interface between `POST /v1/responses` and the app that stores responses, which calls `install`. Thinking that a
client carries is encrypted for its organization.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import msgspec
import structlog

from apps.kernel.errors import ApiError, InvalidRequest
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt_content, encrypt_content

if TYPE_CHECKING:
    # The app that installs itself here does so in every process; most of them answer no request.
    from apps.gateway.access.policy import Policy
    from apps.gateway.client.http_request import ClientRequest, ClientResponse, TrackedResponse

log = structlog.get_logger(__name__)

Record = dict[str, Any]

# Fields that ask for a stored response, an earlier one or this one.
_STORED = ("previous_response_id", "conversation", "background", "prompt")


class ResponseState:
    """One request's state. This one stores nothing."""

    # Whether `event` is to be called for every event of a stream.
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
        """Take note of an error before anything was written, once, instead of `finished`."""


class AnsweredElsewhere(Exception):
    """The request is answered otherwise: `answer` is what its client gets, now."""

    def __init__(self, answer: ClientResponse) -> None:
        super().__init__()
        self.answer = answer


class ResponseStates(Protocol):
    """Stores responses."""

    def open(self, request: ClientRequest, policy: Policy, wire: Record) -> ResponseState:
        """Return a request's state, with the earlier items that `wire` (its body) refers to put into `wire["input"]`.

        Raises ApiError for a reference to a missing response, AnsweredElsewhere for a request to answer in the
        background.
        """


class _NoResponseStore:
    """The default until `install` is called: a request that needs a stored response is refused, naming the field."""

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


_installed: list[Callable[[], ResponseStates]] = [_NoResponseStore]


def install(load: Callable[[], ResponseStates]) -> None:
    """Have responses stored from now on. `load` is called once, for the first request: most processes have none."""
    _installed[0] = cache(load)


def open_state(request: ClientRequest, policy: Policy, wire: Record) -> TrackedResponse:
    """Return the state of a request, and put the items that it refers to into its body. Raises ApiError."""
    own = request.response_state
    return own if own is not None else _installed[0]().open(request, policy, wire)


def items_of(wire: Record) -> list[Any]:
    """Return the input of a request's body as items: a string is what the user says."""
    given = wire.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    return list(given) if isinstance(given, list) else []


class OrganizationCipher(msgspec.Struct, frozen=True):
    """The cipher of one organization's reasoning. Keys are exchanged as everywhere: old ones still open."""

    organization_id: UUID

    def encrypt(self, content: bytes) -> str:
        """Return the content encrypted, with the organization authenticated."""
        return encrypt_content(content, self._name).decode()

    def decrypt(self, text: str) -> bytes:
        """Return the content. Raises ValueError for a text that was changed, or made for another organization."""
        try:
            return decrypt_content(text, self._name)
        except UnreadableSecretError as error:
            raise ValueError(str(error)) from None

    @property
    def _name(self) -> str:
        return f"reasoning:{self.organization_id}"
