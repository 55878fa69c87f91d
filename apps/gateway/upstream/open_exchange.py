"""A call of a provider, by its inputs and its outcome so far, and the HTTP exchange of each attempt: the credential
(BYOK or the service's), URL, headers, and what a refusal means.

The only way to call a provider, one exchange for each attempt: nothing is retried here. A tenant's own address is
pinned to the IP that passed the SSRF guard (`keys/ssrf_guard.py`), which defeats DNS rebinding, and gets the header of
loop detection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import Protocol
from urllib.parse import urlsplit
from uuid import UUID

import msgspec

from apps.gateway.access.schemes import SignableRequest, authorize, collect_secrets, fill_base_url
from apps.gateway.canonical.chat import Chat, DroppedField, Target
from apps.gateway.canonical.events import Event, Waiting
from apps.gateway.client import http_request
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.reading.answers import status_of
from apps.gateway.failures import UpstreamFailure, error_type_for_status, first_of, retry_after_in, retry_after_of
from apps.gateway.routing.candidate import Candidate
from apps.gateway.tasks import CallPart
from apps.gateway.tracing.request_trace import AttemptSpan
from apps.gateway.upstream import connection_pool
from apps.gateway.upstream.http_response import Timeouts, UpstreamResponse, timeouts_within
from apps.gateway.upstream.json_repair import JsonRepair
from apps.gateway.upstream.remote_media import RemoteMedia
from apps.gateway.upstream.thought_signature_cache import ThoughtSignatureCache
from apps.kernel.secrets.redaction import StreamMask
from apps.keys.ssrf_guard import BusyAddressError, SilentAddressError, UnsafeAddressError, resolve_safe_address


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
    """The provider's status, the times of a new connection, its headers and its first content (monotonic), the changes
    to the request."""

    status: int | None = None
    # None where a connection of the pool was used; only the second is None where a new one failed.
    connect_started_at: float | None = None
    connected_at: float | None = None
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

    def note_connection(self, started_at: float, connected_at: float | None) -> None:
        """Keep when a new connection was begun, and when it was ready; None where it failed."""
        self.connect_started_at, self.connected_at = started_at, connected_at

    def begin_as(self, first: ProviderCallOutcome, calls: int = 1) -> None:
        """Begin as the first of several calls did: each was sent as much, and each has begun to answer."""
        self.dropped_fields, self.changed_fields = first.dropped_fields, first.changed_fields
        self.status, self.calls, self.first_content_at = first.status, calls, time.monotonic()
        self.headers_at = first.headers_at
        self.connect_started_at, self.connected_at = first.connect_started_at, first.connected_at


# Seconds for which a name that was looked up keeps its address, and how many are remembered.
_MAX_AGE, _MAX_NAMES = 30.0, 10_000
# Seconds for which it keeps it while it cannot be looked up again: a checked address stays checked.
_MAX_STALE = 600.0
_pinned: dict[str, tuple[float, str]] = {}


def pinned_ip(url: str, owner: UUID | None) -> str:
    """Return the one address at which the URL's host may be called now; `owner` is the organization whose provider it
    is. Raises UpstreamFailure."""
    parts = urlsplit(url)
    url = f"{parts.scheme}://{parts.netloc}"
    found = _pinned.get(url)
    if found is not None and time.monotonic() - found[0] < _MAX_AGE:
        return found[1]
    try:
        address = resolve_safe_address(url, owner)
    except (BusyAddressError, SilentAddressError) as error:
        if found is not None and time.monotonic() - found[0] < _MAX_STALE:
            return found[1]
        raise UpstreamFailure("network", f"its address cannot be called: {error}") from error
    except UnsafeAddressError as error:
        _pinned.pop(url, None)
        raise UpstreamFailure("network", f"its address cannot be called: {error}") from error
    if len(_pinned) >= _MAX_NAMES:
        _pinned.clear()
    _pinned[url] = (time.monotonic(), address.ip)
    return address.ip


def forget_addresses() -> None:
    """Forget the pinned addresses, so that each name is looked up again."""
    _pinned.clear()


_MAX_ERROR_BYTES = 256 * 1024
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class ProviderRequest(msgspec.Struct, frozen=True):
    """A request for a provider: a body in its dialect, and `url_for`, which returns the URL below a base URL."""

    dialect: ProviderDialect
    chat: Chat
    target: Target
    body: bytes
    url_for: Callable[[str], str]
    method: str = "POST"


class ProviderResponse(Protocol):
    """A provider's answer, from a connection or a batch."""

    status: int
    headers: dict[str, str]

    @property
    def bytes_received(self) -> int:
        """The size of what arrived."""

    def read(self, limit: int, report_size: Callable[[int], object] | None = None) -> bytes:
        """Return the whole body. Raises UpstreamFailure, also where it is longer than so many bytes."""

    def iterate_body(self) -> Iterator[bytes]:
        """Yield the body as it is asked for."""

    def close(self) -> None:
        """Be done with it."""


class MaskedResponse:
    """The answer of a tenant's own server, without the credential that it was sent: members of the organization may
    use a credential that they may not see."""

    def __init__(self, response: ProviderResponse, secrets: list[str]) -> None:
        self._response = response
        self._mask = StreamMask(secrets)
        self.status, self.headers = response.status, response.headers

    @property
    def bytes_received(self) -> int:
        """The size of what arrived."""
        return self._response.bytes_received

    def read(self, limit: int, report_size: Callable[[int], object] | None = None) -> bytes:
        """Return the whole body. Raises UpstreamFailure, also where it is longer than so many bytes."""
        return self._mask.add(self._response.read(limit, report_size)) + self._mask.end()

    def iterate_body(self) -> Iterator[bytes]:
        """Yield the body as it is asked for; b"" means that nothing has come for a while. Raises UpstreamFailure."""
        for piece in self._response.iterate_body():
            yield self._mask.add(piece)
        if waiting := self._mask.end():
            yield waiting

    def close(self) -> None:
        """Free or close the connection."""
        self._response.close()


class OpenExchange(msgspec.Struct, frozen=True):
    """The exchange with a provider that answered 2xx, and the credential and headers that were presented to it."""

    response: ProviderResponse
    secret: str
    presented: dict[str, str]
    # Where it was asked.
    url: str

    def __repr__(self) -> str:
        """Show nothing that was presented."""
        return f"OpenExchange({self.response.status})"

    def redact(self, failure: UpstreamFailure) -> None:
        """Redact the credential from a failure: a provider's message may quote it."""
        failure.redact(collect_secrets(self.secret, self.presented))


def open_exchange(
    candidate: Candidate,
    request: ProviderRequest,
    timeouts: Timeouts,
    client_disconnect: ClientDisconnect,
    *,
    cdn_loop: str = "",
    new_connection: bool = False,
    trace_headers: Mapping[str, str] = NO_HEADERS,
    on_connect: connection_pool.OnConnect | None = None,
) -> Generator[Event, None, OpenExchange]:
    """Return the exchange with a candidate's provider once it answered 2xx; yields `Waiting` while it is silent.

    `cdn_loop` lists the deployments that the request has passed (`http_request.py`); `new_connection` is for one that
    may not use an idle connection of the pool; `trace_headers` go with a traced one, unsigned; `on_connect` gets the
    times of a new connection. Raises UpstreamFailure without secrets in it, and ClientGone.
    """
    provider, credential = candidate.offer.provider, candidate.credential
    secret, own_address = credential.secret(), credential.base_url
    presented: dict[str, str] = {}
    try:
        own = credential.own is not None
        url = request.url_for(own_address or fill_base_url(provider.auth, secret, provider.base_url, own=own))
        headers = _headers_of(request)
        if own_address:
            headers[http_request.HEADER] = http_request.append_own_token(cdn_loop)
        waiting = client_disconnect.raise_while_waiting()
        with waiting:
            presented = authorize(provider.auth, secret, SignableRequest(request.method, url, headers, request.body))
            headers |= {**presented, **trace_headers}
            ip = pinned_ip(url, credential.organization_id) if own_address else None
        sending = connection_pool.send(
            request.method,
            url,
            headers,
            request.body,
            timeouts,
            ip,
            new_connection=new_connection,
            on_connect=on_connect,
        )
        try:
            while True:
                try:
                    with waiting:
                        next(sending)
                except StopIteration as done:
                    response: UpstreamResponse = done.value
                    break
                yield Waiting()
        finally:
            sending.close()
        if 200 <= response.status < 300:
            masked = MaskedResponse(response, collect_secrets(secret, presented)) if own_address else response
            return OpenExchange(masked, secret, presented, url)
        raise refusal_of(request.dialect, response)
    except UpstreamFailure as failure:
        failure.redact(collect_secrets(secret, presented))
        raise


def _headers_of(request: ProviderRequest) -> dict[str, str]:
    """Return the headers of a request but for those that present the credential."""
    return {
        "Content-Type": "application/json",
        "Accept": "text/event-stream" if request.chat.stream else "application/json",
        "User-Agent": "model-gateway",
        **request.dialect.headers(request.chat, request.target),
    }


def refusal_of(dialect: ProviderDialect, response: ProviderResponse) -> UpstreamFailure:
    """Return the failure that a response other than 2xx means; close it. Raises UpstreamFailure if it breaks off."""
    with closing(response):
        refusal = dialect.read_failure(response.status, response.read(_MAX_ERROR_BYTES))
        status = status_of(refusal.code, refusal.status or response.status)
        return UpstreamFailure(
            error_type_for_status(status),
            refusal.message,
            status=status,
            code=refusal.code,
            param=refusal.param,
            retry_after=first_of(
                (
                    retry_after_of(response.headers, status),
                    refusal.retry_after,
                    retry_after_in(refusal.message) if status == 429 else None,
                )
            ),
        )
