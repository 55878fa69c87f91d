"""Jobs: a provider that takes a request, and is asked after its result until that is there.

A dialect whose provider works in this way has `read_job(body)`, the address at which a job is asked after (None where
the body is the answer already), `is_pending(body)`, and `provider_hosts(target)`. Only addresses of the provider's own
are called, with its credential: those of the host that took the job, and over TLS those of the hosts that the catalog
states. A request is never sent twice.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import closing
from typing import Final
from urllib.parse import urlsplit

import gevent
from msgspec.structs import replace

from apps.gateway.canonical.events import Event, ImageMade, Waiting
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.dialects import JobReader
from apps.gateway.failures import UpstreamFailure
from apps.gateway.routing.candidate import Candidate
from apps.gateway.upstream.http_response import Timeouts
from apps.gateway.upstream.open_exchange import OpenExchange, ProviderRequest, open_exchange

# Seconds between two looks: at first, how they grow, and at most.
_FIRST_PAUSE, _GROWTH, _MAX_PAUSE = 0.5, 1.25, 2.0
# Looks in a row that may fail: an accepted job is paid for, and no other provider is asked because of a hiccup.
_MAX_FAILURES: Final = 3
_MAX_BYTES: Final = 1024 * 1024
_MAX_URL_LENGTH: Final = 2_000


def follow_job(
    jobs: JobReader,
    body: bytes,
    request: ProviderRequest,
    opened: OpenExchange,
    candidate: Candidate,
    timeouts: Timeouts,
    until: float,
    client_disconnect: ClientDisconnect,
    cdn_loop: str = "",
) -> Generator[Event, None, bytes]:
    """Return what a provider says of a job once it is over; `body` is what it said when it took the job.

    Yields `Waiting` while it goes on. Raises UpstreamFailure, also when it is not over `until` then (monotonic), and
    ClientGone: a client that leaves ends the looks, not the job, which no such provider can cancel.
    """
    address = jobs.read_address(body)
    if address is None:
        return body
    check_address(address, opened.url, jobs.hosts(request.target))
    look = replace(request, method="GET", body=b"", url_for=lambda _: address)
    pause, failed, told_at = _FIRST_PAUSE, 0, time.monotonic()
    while True:
        if time.monotonic() + pause >= until:
            raise UpstreamFailure("timeout", f"its job was not done within {timeouts.total:g} s")
        with client_disconnect.raise_while_waiting():
            gevent.sleep(pause)
        pause = min(pause * _GROWTH, _MAX_PAUSE)
        if time.monotonic() - told_at >= timeouts.tick:
            told_at = time.monotonic()
            yield Waiting()
        try:
            answer = yield from _look(look, candidate, _left(timeouts, until), client_disconnect, cdn_loop)
        except UpstreamFailure as failure:
            failed += 1
            if failed >= _MAX_FAILURES or not failure.retryable:
                # Final, whatever its kind: the job was accepted, so the request may not be sent a second time.
                raise _as_final(failure) from failure
            continue
        failed = 0
        if not jobs.is_pending(answer):
            return answer


def check_made(
    jobs: JobReader, events: Iterable[Event], request: ProviderRequest, opened: OpenExchange
) -> Iterator[Event]:
    """Yield an answer's events. Raises UpstreamFailure where an image's URL has a foreign host."""
    hosts = jobs.hosts(request.target)
    for event in events:
        if type(event) is ImageMade and not event.url.startswith("data:"):
            check_address(event.url, opened.url, hosts)
        yield event


def check_address(address: str, asked: str, hosts: Collection[str]) -> None:
    """Raise UpstreamFailure unless an address is the provider's: where it was `asked`, or at one of its hosts."""
    try:
        there, port = urlsplit(address), urlsplit(address).port
    except ValueError:
        raise _foreign() from None
    if len(address) > _MAX_URL_LENGTH or not (address.isascii() and address.isprintable()):
        raise _foreign()
    if "@" in there.netloc or " " in address or "\\" in address:
        raise _foreign()
    where = urlsplit(asked)
    if (there.scheme, there.netloc.lower()) == (where.scheme, where.netloc.lower()):
        return
    host = (there.hostname or "").rstrip(".")
    is_named = any(host == one or host.endswith(f".{one}") for one in hosts)
    if not is_named or there.scheme != "https" or port not in {None, 443}:
        raise _foreign()


def _look(
    look: ProviderRequest, candidate: Candidate, timeouts: Timeouts, client_disconnect: ClientDisconnect, cdn_loop: str
) -> Generator[Event, None, bytes]:
    opened = yield from open_exchange(candidate, look, timeouts, client_disconnect, cdn_loop=cdn_loop)
    with closing(opened.response), client_disconnect.raise_while_waiting():
        return opened.response.read(_MAX_BYTES)


def _left(timeouts: Timeouts, until: float) -> Timeouts:
    left = max(until - time.monotonic(), 0.001)
    return replace(timeouts, first_byte=min(timeouts.first_byte, left), total=left)


def _as_final(failure: UpstreamFailure) -> UpstreamFailure:
    return UpstreamFailure(
        failure.error_type,
        f"its job could not be asked after: {failure.message}",
        status=failure.status,
        code=failure.code,
        param=failure.param,
        retry_after=failure.retry_after,
    )


def _foreign() -> UpstreamFailure:
    return UpstreamFailure("upstream_error", "it named an address that is not its own")
