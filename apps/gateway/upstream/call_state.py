"""The two halves of a provider call: the inputs that it is made with, and its outcome so far."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from apps.gateway.canonical.chat import Chat, DroppedField
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.routing.candidate import Candidate
from apps.gateway.tasks import CallPart
from apps.gateway.tracing.request_trace import AttemptSpan
from apps.gateway.upstream.http_response import Timeouts, timeouts_within
from apps.gateway.upstream.json_repair import JsonRepair
from apps.gateway.upstream.remote_media import RemoteMedia
from apps.gateway.upstream.thought_signature_cache import ThoughtSignatureCache


class ProviderCallInputs(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The chat to send, the candidate to send it to, and the limits of the call."""

    chat: Chat
    candidate: Candidate
    client_disconnect: ClientDisconnect
    media: RemoteMedia
    thought_signatures: ThoughtSignatureCache | None = None
    # Whether what the provider cannot take is a reason not to ask it.
    strict: bool = False
    # Seconds for the first byte and for the whole call, None where no limit is shorter than the usual one.
    first_byte_timeout: float | None = None
    timeout: float | None = None
    # The deployments that the request has passed (`http_request.py`).
    cdn_loop: str = ""
    # The tokens that each answer may have for its hold, None where no further limit is needed.
    token_limit: int | None = None
    # Whether it goes over a connection of its own.
    new_connection: bool = False
    # About how many tokens the prompt has.
    prompt_tokens: int = 0
    # Bytes of the client's body, and the callback for those of a large answer.
    size: int = 0
    hold_answer: Callable[[int], object] | None = None
    # The part of the request that this call is for, where it takes several calls.
    part: CallPart | None = None
    # The attempt, where the request is traced.
    span: AttemptSpan | None = None

    def __repr__(self) -> str:
        """Show the candidate, never a credential."""
        return f"ProviderCallInputs({self.candidate.mapping})"

    @property
    def timeouts(self) -> Timeouts:
        """The seconds that it may take."""
        return timeouts_within(self.first_byte_timeout, self.timeout)


class ProviderCallOutcome(msgspec.Struct, eq=False, kw_only=True):
    """The provider's status, the times of its headers and its first content (monotonic), the changes to the request."""

    status: int | None = None
    headers_at: float | None = None
    first_content_at: float | None = None
    bytes_received: int = 0
    # Concurrent calls of the provider that it took.
    calls: int = 1
    # Fields left out of the request.
    dropped_fields: list[DroppedField] = []
    # Fields set that the client did not send.
    changed_fields: list[DroppedField] = []
    json_repair: JsonRepair | None = None

    @property
    def has_content(self) -> bool:
        """Whether content has come: from then on there is no failover."""
        return self.first_content_at is not None

    def begin_as(self, first: ProviderCallOutcome, calls: int = 1) -> None:
        """Begin as the first of several calls did: each was sent as much, and each has begun to answer."""
        self.dropped_fields, self.changed_fields = first.dropped_fields, first.changed_fields
        self.status, self.calls, self.first_content_at = first.status, calls, time.monotonic()
        self.headers_at = first.headers_at
