"""HTTP exchange with a provider: the credential (BYOK or the service's), URL, headers, and what a refusal means.

The only way to call a provider, one exchange for each attempt: nothing is retried here. A tenant's own address is
pinned to the IP that passed the SSRF guard, and gets the header of loop detection.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import Protocol

import msgspec

from apps.gateway.access.pinned_address import pinned_ip
from apps.gateway.access.schemes import SignableRequest, authorize, collect_secrets, fill_base_url
from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Waiting
from apps.gateway.client import http_request
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.reading.answers import status_of
from apps.gateway.failures import UpstreamFailure, error_type_for_status
from apps.gateway.retry_after import first_of, retry_after_in, retry_after_of
from apps.gateway.routing.candidate import Candidate
from apps.gateway.upstream import connection_pool
from apps.gateway.upstream.http_response import Timeouts, UpstreamResponse
from apps.kernel.secrets.redaction import StreamMask

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
) -> Generator[Event, None, OpenExchange]:
    """Return the exchange with a candidate's provider once it answered 2xx; yields `Waiting` while it is silent.

    `cdn_loop` lists the deployments that the request has passed (`http_request.py`); `new_connection` is for one that
    may not use an idle connection of the pool; `trace_headers` go with a traced one, unsigned. Raises UpstreamFailure
    without secrets in it, and ClientGone.
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
            request.method, url, headers, request.body, timeouts, ip, new_connection=new_connection
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
