"""Request intake: what every request passes ahead of the application: byte limit, token bucket, body, admission.

Plain requests, whose bytes are all there and can be read in one way only, take a shorter way. A token bucket for each
client address rejects a flood of sign-ins before its bodies are read. A body is read whole before anything else
happens, or by its endpoint as it arrives, within its time and a minimum rate.
"""

from __future__ import annotations

import re
import time
from collections import Counter as Counts
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

from apps.kernel.errors import ApiError, BodyTooLarge, Overloaded, RateLimited, RequestTimeout, Unauthenticated
from apps.kernel.json_bounds import FORM_ROOM
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.request_headers import KEY_HEADERS, MISSING_KEY, believed_address
from apps.kernel.rest.routes import family_of, route_table
from gateway_project.http.admission_control import SHED, AdmissionControl
from gateway_project.http.limits import (
    SMALLEST,
    ClientLimits,
    is_model_route,
    is_workspace_page,
    limit_of,
    streamed_limit_of,
)
from gateway_project.http.request_parser import BadRequest, HeadLimits, IncomingRequest
from gateway_project.http.response_writer import shed_answer

# Seconds before a body must have kept to the minimum rate.
_GRACE = 10.0
# Seconds that a body may take at most, however large it is.
_MAX_TIMEOUT = 1800.0
# Bytes of memory for a body that is read as it arrives, with its endpoint's use of them.
STREAMED_MEMORY = 4 * 1024 * 1024


class BodyAborted(OSError):
    """The client closed its connection before its request was complete."""


class BodySource(Protocol):
    """A connection, as far as reading a body goes."""

    def receive(self, patience: float | None = None) -> bool:
        """Take in what arrives next within so many seconds; False at the end. Raises TimeoutError, OSError."""

    def go_on(self) -> None:
        """Tell a client that waits for it to send its body."""

    def has_left(self) -> bool:
        """Tell whether the client has closed the connection."""


class BodyMemory:
    """Count of the bytes of large bodies held by one worker, for all clients together and for each."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._held_by: Counts[str] = Counts()

    def hold(self, address: str | None, size: int) -> None:
        """Account for so many bytes more. Raises Overloaded when that is too much, for all or for half of it by one.

        Without an address (a proxy's clients) only the whole counts.
        """
        if self._held + size > self._most or (address and self._held_by[address] + size > self._most // 2):
            raise Overloaded("The gateway holds too many large requests right now; try again shortly", retry_after=1)
        self._held += size
        if address:
            self._held_by[address] += size

    def let_go(self, address: str | None, size: int) -> None:
        """Give bytes back."""
        self._held -= size
        if address:
            self._held_by[address] -= size
            if self._held_by[address] <= 0:
                del self._held_by[address]


def read_body(
    source: BodySource,
    request: IncomingRequest,
    limit: int,
    limits: ClientLimits,
    hold: Callable[[int], object],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Read the rest of a request's body; `hold` is called with the bytes beyond the smallest limit as they arrive.

    Raises BodyTooLarge, RequestTimeout, Overloaded, BadRequest, BodyAborted.
    """
    began = clock()
    held = 0
    source.go_on()
    while True:
        if request.received > limit:
            raise too_large(limit)
        if request.received - held > SMALLEST:
            hold(request.received - held)
            held = request.received
        if request.complete:
            return
        patience = min(limits.body_timeout, _GRACE + request.received / limits.body_rate) - (clock() - began)
        try:
            if patience <= 0:
                raise TimeoutError
            arrived = source.receive(patience)
        except TimeoutError:
            raise _too_slow(limits, clock() - began, limits.body_timeout) from None
        except OSError as error:
            raise BodyAborted(str(error)) from error
        if not arrived:
            raise BodyAborted("The client closed the connection before its request was complete")


class StreamedBody:
    """A body whose endpoint reads it as it comes (`wsgi.input`): the client is waited for when more is asked for.

    The time that the endpoint takes between two reads is not the client's. A body that is larger than the largest that
    is read whole may take longer in proportion.
    """

    def __init__(
        self,
        source: BodySource,
        request: IncomingRequest,
        length: int,
        limits: ClientLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._request = request
        self._limits = limits
        self._timeout = min(
            limits.body_timeout * max(1.0, length / limits.body), max(_MAX_TIMEOUT, limits.body_timeout)
        )
        self._clock = clock
        self._waited = 0.0

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer at the end only. Raises RequestTimeout, BodyAborted."""
        pieces: list[bytes] = []
        left = size
        while left and (piece := self._next_piece(left)):
            pieces.append(piece)
            if left > 0:
                left -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _next_piece(self, size: int) -> bytes:
        """Return the next bytes, at most `size` unless that is negative; empty at the end."""
        body = self._request.body
        self._source.go_on()
        while not body:
            if self._request.complete:
                return b""
            self._receive()
        piece = body.popleft()
        if 0 <= size < len(piece):
            body.appendleft(piece[size:])
            piece = piece[:size]
        return piece

    def _receive(self) -> None:
        began, limits = self._clock(), self._limits
        patience = min(self._timeout, _GRACE + self._request.received / limits.body_rate) - self._waited
        try:
            if patience <= 0:
                raise TimeoutError
            arrived = self._source.receive(patience)
        except TimeoutError:
            raise _too_slow(limits, self._waited + self._clock() - began, self._timeout) from None
        except OSError as error:
            raise BodyAborted(str(error)) from error
        except BadRequest as error:
            # It is in what follows the body, of which nothing will be read.
            self._request.keep_alive = False
            if not self._request.complete:
                raise BodyAborted(error.message) from error
            return
        self._waited += self._clock() - began
        if not arrived:
            raise BodyAborted("The client closed the connection before its request was complete")


def too_large(limit: int) -> BodyTooLarge:
    """Return the error that names the limit."""
    return BodyTooLarge(f"The request body is larger than {limit} bytes")


def _too_slow(limits: ClientLimits, passed: float, timeout: float) -> RequestTimeout:
    if passed >= timeout:
        return RequestTimeout(f"The request body did not arrive within {timeout:g} s")
    return RequestTimeout(f"The request body arrived at less than {limits.body_rate} bytes a second")


# Tries at once, and tries that come back each second.
_BURST, _PER_SECOND = 60.0, 1.0
# Addresses that are remembered; beyond them the one that was quiet for longest is forgotten.
_MAX_ADDRESSES = 20_000


class AddressRateLimiter:
    """The buckets of one worker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By address, the one that tried last at the end: tokens left, and when they were counted.
        self._buckets: dict[str, tuple[float, float]] = {}

    def count_try(self, address: str) -> None:
        """Take a token from the address's bucket. Raises RateLimited when there is none."""
        now = self._clock()
        left, since = self._buckets.pop(address, (_BURST, now))
        left = min(_BURST, left + (now - since) * _PER_SECOND)
        allowed = left >= 1
        self._buckets[address] = (left - 1 if allowed else left, now)
        if len(self._buckets) > _MAX_ADDRESSES:
            del self._buckets[next(iter(self._buckets))]
        if not allowed:
            raise RateLimited("Too many attempts; try again later", retry_after=(1 - left) / _PER_SECOND)


# Bytes of a head that is looked at, and digits of a body's length.
_MAX_HEAD, _MAX_DIGITS = 4096, 6
# Names that HTTP has (RFC 9110, 5.1), values without control characters, no line folded. Headers that say how the
# request is framed, or that the client waits for something, are the parser's to read; so is an id of the client's own,
# which its answer repeats.
_HEAD = re.compile(
    rb"POST (/[\w./:~-]*) HTTP/1\.1"
    rb"(?i:\r\n(?!transfer-encoding:|(?:proxy-)?connection:(?! keep-alive\r)|upgrade:|expect:|x-request-id:)"
    rb"[\w!#$%&'*+.^`|~-]+:[\t\x20-\x7e\x80-\xff]*+)+\r\n\r\n"
)
_LENGTH = re.compile(rb"\r\ncontent-length: ?([0-9]{1,%d})\r\n" % _MAX_DIGITS)


def path_of_plain(data: bytes, limits: HeadLimits) -> str | None:
    """Return the path of a plain request that is exactly these bytes; None for anything else."""
    match = _HEAD.match(data, 0, min(_MAX_HEAD, limits.line, limits.header))
    if match is None:
        return None
    head = data[: match.end()].lower()
    length = _LENGTH.search(head)
    if (
        length is None
        or head.count(b"\r\ncontent-length:") != 1
        or head.count(b"\r\nhost:") != 1
        # Two of the line ends do not belong to a header.
        or head.count(b"\r\n") - 2 > limits.headers
        or len(data) - match.end() != int(length[1])
    ):
        return None
    return match[1].decode("ascii")


# A browser's session, under the names that `apps.console.browser_session` gives its cookie.
_SESSION_COOKIE = re.compile("(?:^|; ?)(?:__Host-)?gateway-session=[^; ]")
_NO_SESSION = "You are signed out; sign in and send it again"
_KEY_IN_QUERY = re.compile("(?:^|&)key=([^&]+)")
# Never shed: what a load balancer, an orchestrator and a monitor ask.
_ALWAYS_ANSWERED = frozenset({"/", "/livez", "/readyz", "/metrics"})
_KEY_HEADERS = tuple(f"HTTP_{name.upper().replace('-', '_')}" for name in KEY_HEADERS)
# By the status of a refusal, its name in the metrics.
_REASONS = {401: "no_credential", 408: "too_slow", 413: "too_large", 429: "throttled", 503: "overloaded"}


class RequestIntake:
    """The intake of one worker. `on_refused` is called with the reason each time that a request is refused."""

    def __init__(
        self,
        limits: ClientLimits,
        admission: AdmissionControl,
        trusts: Callable[[str], bool],
        on_refused: Callable[[str], Any],
    ) -> None:
        self._limits = limits
        self._admission = admission
        self._throttle = AddressRateLimiter()
        self._memory = BodyMemory(limits.body_memory)
        self._trusts = trusts
        # Peers come again, and to look one up among networks takes longer than to refuse it.
        self._address_of_peer = lru_cache(maxsize=4096)(self._find_address)
        self._on_refused = on_refused

    def enter(self, source: BodySource, request: IncomingRequest) -> Callable[[], object]:
        """Let a request in whose head has arrived, with all of its body; the caller calls the result at its end.

        A body that its endpoint reads as it comes is in the environment (`wsgi.input`), and the request not complete.

        Raises ApiError, BadRequest; OSError when the client left.
        """
        environ = request.environ
        path = environ["PATH_INFO"]
        try:
            if request.complete and request.received <= SMALLEST and not path.startswith("/auth/"):
                # Nearly every request: there is nothing to look at.
                if path in _ALWAYS_ANSWERED:
                    return _leave_nothing
                self._enter(source, environ)
                return self._admission.leave
            return self._enter_slowly(source, request)
        except ApiError as error:
            self._on_refused(_REASONS.get(error.status, "malformed"))
            raise

    def shed(self, peer: str, data: bytes, limits: HeadLimits) -> bytes | None:
        """Return the answer to a request of this peer that is shed, None when it is not, or not for these bytes to say.

        For plain requests of clients that are known by their address. In a flood, all else that is done to read a
        request and to refuse it takes as long again.
        """
        address = None if self._limits.proxies else self._address_of_peer(peer)
        if address is None or not (seconds := self._admission.shed(address)):
            return None
        path = path_of_plain(data, limits) if len(data) <= SMALLEST else None
        if path is None or path in _ALWAYS_ANSWERED or path.startswith("/auth/"):
            return None
        self._admission.note(address)
        self._on_refused(_REASONS[503])
        return shed_answer(path, SHED, seconds)

    def _enter_slowly(self, source: BodySource, request: IncomingRequest) -> Callable[[], object]:
        environ = request.environ
        # Another form of a path has the limits of the path that it stands for.
        route_table().normalize(environ)
        path = environ["PATH_INFO"]
        streamed_limit = self._streamed_limit_of(request)
        limit = limit_of(path, self._limits.body) if streamed_limit is None else streamed_limit
        if path.startswith("/auth/") and environ["REQUEST_METHOD"] == "POST":
            self._count_try(environ)
        announced = environ.get("CONTENT_LENGTH", "")
        # A length that is not a number was rejected with the head; one with many digits is too large.
        if announced and (len(announced) > 18 or int(announced) > limit):
            raise too_large(limit if streamed_limit is None else limit - FORM_ROOM)
        exempt = path in _ALWAYS_ANSWERED
        if not exempt and not request.complete:
            self._admission.check(self._client_of(environ))
        missing = _missing_credential(path, environ)
        if missing and announced and int(announced) > SMALLEST:
            raise Unauthenticated(missing)
        held: list[int] = []
        address = self._address_of(environ)

        def hold(size: int) -> None:
            if missing:
                raise Unauthenticated(missing)
            self._memory.hold(address, size)
            held.append(size)

        def leave() -> None:
            self._memory.let_go(address, sum(held))
            if entered:
                self._admission.leave()

        entered = False
        try:
            if streamed_limit is None:
                read_body(source, request, limit, self._limits, hold)
            else:
                hold(min(int(announced), STREAMED_MEMORY))
                environ["wsgi.input"] = StreamedBody(source, request, int(announced), self._limits)
            if not exempt:
                self._enter(source, environ)
                entered = True
        except BaseException:
            leave()
            raise
        return leave

    def _streamed_limit_of(self, request: IncomingRequest) -> int | None:
        """Return the most bytes of a request's body if its endpoint reads it as it comes, None if it is read whole.

        A small one is, and one that is packed, or does not say how long it is.
        """
        environ = request.environ
        announced = environ.get("CONTENT_LENGTH", "")
        if environ["REQUEST_METHOD"] != "POST" or request.complete or "HTTP_CONTENT_ENCODING" in environ:
            return None
        if not announced or (len(announced) <= 18 and int(announced) <= SMALLEST):
            return None
        return streamed_limit_of(environ["PATH_INFO"], self._limits.body, self._limits.file)

    def _enter(self, source: BodySource, environ: dict[str, Any]) -> None:
        """Let the request in, in its turn when there is no time at once.

        Raises Overloaded; BodyAborted when its client has not waited for it.
        """
        client = self._client_of(environ)
        if self._admission.enter_at_once(client):
            return
        self._admission.enter_in_turn(client)
        if source.has_left():
            self._admission.leave()
            raise BodyAborted("The client closed the connection before its request had its turn")

    def _count_try(self, environ: dict[str, Any]) -> None:
        address = self._address_of(environ)
        if address is not None:
            self._throttle.count_try(address)

    def _client_of(self, environ: dict[str, Any]) -> str:
        """Return whose requests wait for one another: an address's; a credential's where only a proxy is known."""
        return self._address_of(environ) or _credential_of(environ)

    def _address_of(self, environ: dict[str, Any]) -> str | None:
        """Return the client's address; None when all that is known is a proxy's, which stands for many."""
        peer, proxies = environ["REMOTE_ADDR"], self._limits.proxies
        if not proxies:
            return self._address_of_peer(peer)
        return believed_address(peer, environ.get("HTTP_X_FORWARDED_FOR", ""), proxies) if peer else None

    def _find_address(self, peer: str) -> str | None:
        return None if not peer or self._trusts(peer) else believed_address(peer, "", 0)


def _credential_of(environ: dict[str, Any]) -> str:
    """Return a request's credential, empty for none. It has not been checked yet."""
    for name in _KEY_HEADERS:
        if sent := environ.get(name):
            return str(sent)
    query = str(environ.get("QUERY_STRING") or "")
    return query if "key=" in query and family_of(environ["PATH_INFO"]) is Family.GOOGLE else ""


def _missing_credential(path: str, environ: dict[str, Any]) -> str:
    """Return the error message for a request without a credential on a route that needs one; else an empty text."""
    if is_workspace_page(path):
        return "" if _SESSION_COOKIE.search(environ.get("HTTP_COOKIE", "")) else _NO_SESSION
    return MISSING_KEY if is_model_route(path) and not _credential_of(environ) else ""


def _leave_nothing() -> None:
    """Do nothing: the end of a request that holds no bytes."""
