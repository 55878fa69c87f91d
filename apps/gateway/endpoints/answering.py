"""Chat responses: turn an admitted chat into an HTTP response in the client's format: whole, streamed, or an error.

Also the WSGI and Django adapters of the model endpoints: one function serves both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from http import HTTPStatus
from itertools import chain
from math import ceil
from urllib.parse import quote
from wsgiref.types import StartResponse, WSGIEnvironment

import structlog
from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from apps.gateway.access.policy import count_refusal
from apps.gateway.admission.admit import rate_headers
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Event, Failed, Reply, Summary
from apps.gateway.client.http_request import ClientRequest, ClientResponse, Releasable
from apps.gateway.dialects import EVENTS as EVENTS
from apps.gateway.dialects import ClientDialect, ClientErrorWriter
from apps.gateway.framing import escape_separators
from apps.gateway.metrics import RouteName
from apps.gateway.pipeline import open_chat
from apps.gateway.response_cache import CacheEntry
from apps.gateway.run import ChatRun
from apps.gateway.server_tools.loop import ToolLoop
from apps.kernel.concurrency.native_thread_pool import offload, offload_or_run
from apps.kernel.errors import NO_RETRY, ApiError, InternalError, Overloaded
from apps.kernel.ids import HEADER
from apps.kernel.rest.routes import Route

# Statuses that HTTP's registry does not know.
_REASONS = {499: "Client Closed Request", **{status.value: status.phrase for status in HTTPStatus}}

# The header that Django's middleware adds to every other answer (`kernel/rest/middleware.py`).
_NOT_KEPT = ("Cache-Control", "no-store")
SECURITY_HEADERS = [_NOT_KEPT, ("X-Content-Type-Options", "nosniff")]
if settings.SECURE_HSTS_SECONDS:
    SECURITY_HEADERS.append(("Strict-Transport-Security", f"max-age={settings.SECURE_HSTS_SECONDS}"))


def respond(
    route: Route, environ: WSGIEnvironment, start_response: StartResponse, parameters: Mapping[str, str] | None = None
) -> Iterable[bytes]:
    """Serve a call straight from WSGI; `parameters` are what its path says beside the route's."""
    answer: ClientResponse = route.endpoint(ClientRequest(environ, route, parameters))
    answer.headers += SECURITY_HEADERS
    if answer.cache_control is not None:
        answer.headers.remove(_NOT_KEPT)
        answer.headers.append((_NOT_KEPT[0], answer.cache_control))
    start_response(f"{answer.status} {_REASONS.get(answer.status, 'Unknown')}", answer.headers)
    return answer.body


def view_of(routes: Iterable[Route]) -> Callable[..., HttpResponseBase]:
    """Return the Django view of the model endpoints of one path, for the URL map and the test client."""
    by_method = {route.method: route for route in routes if route.method is not None}
    if "GET" in by_method:
        by_method["HEAD"] = by_method["GET"]

    @csrf_exempt
    @require_http_methods(list(by_method))
    def view(request: HttpRequest, **parameters: str) -> HttpResponseBase:
        route = by_method[request.method or ""]
        answer: ClientResponse = route.endpoint(ClientRequest(request.META, route, parameters))
        response: HttpResponseBase
        if isinstance(answer.body, list):
            response = HttpResponse(b"".join(answer.body), status=answer.status)
        else:
            response = StreamingHttpResponse(answer.body, status=answer.status)
        for name, value in answer.headers:
            response[name] = value
        if answer.cache_control is not None:
            response["Cache-Control"] = answer.cache_control
        return response

    # By which metrics tell views apart.
    view.__name__ = next(iter(by_method.values())).endpoint.__name__
    # The middleware reads this before it refuses a body.
    view.http_methods = frozenset(by_method)  # type: ignore[attr-defined] # a function takes any attribute
    return view


log = structlog.get_logger(__name__)

ReplyWriter = Callable[[Reply, Summary, Chat], bytes]
EventWriter = Callable[[Iterable[Event], Chat], Iterator[bytes]]

# Statuses that say that every provider has been tried.
_EXHAUSTED = frozenset({502, 504})
# Dropped fields that a header names, and the characters of each.
_MAX_DROPPED, _MAX_PARAM, _PLAIN = 50, 100, "[]._-"

_JSON = "application/json"
# The content types of streams that are no text: audio, and AWS's event streams.
_BINARY = ("audio/", "application/vnd.amazon.eventstream")
# Proxies that buffer would hold a stream back.
_UNBUFFERED = ("X-Accel-Buffering", "no")


def answer_chat(
    request: ClientRequest,
    route: RouteName,
    dialect: ClientDialect,
    read_request: Callable[[bytes], Chat] | None = None,
) -> ClientResponse:
    """Run a chat and write its answer in the client's dialect. `read_request` is the dialect's own unless given."""

    def run_chat() -> ClientResponse:
        return run_in_dialect(request, route, dialect, read_request)

    return answer_with_errors(request, route, dialect, run_chat)


def run_in_dialect(
    request: ClientRequest,
    route: RouteName,
    dialect: ClientDialect,
    read_request: Callable[[bytes], Chat] | None = None,
) -> ClientResponse:
    """Run a chat and return its answer as `answer_chat` does. Raises ApiError."""

    def read(body: bytes) -> Chat:
        return offload(len(body), dialect.read_request, body)

    run = open_chat(request, route, request.presented_key, read_request or read)
    if run.chat.stream:
        return stream_response(run, dialect.write_events, dialect.stream_type)
    return complete_response(run, dialect.write_reply)


def answer_authenticated(
    request: ClientRequest,
    route: str,
    dialect: ClientErrorWriter,
    answer_for: Callable[[str], ClientResponse],
) -> ClientResponse:
    """Answer a call for the token it presents; an error is written in the client's dialect."""
    return answer_with_errors(request, route, dialect, lambda: answer_for(request.presented_key))


def answer_with_errors(
    request: ClientRequest, route: str, dialect: ClientErrorWriter, answer_it: Callable[[], ClientResponse]
) -> ClientResponse:
    """Answer a call; an error is written in the client's dialect."""
    try:
        answer = answer_it()
    except ApiError as error:
        count_refusal(request, error)
        answer = _error_response(error, dialect)
    except DatabaseError as error:
        # The process has just started, and has loaded neither keys nor models yet.
        log.warning("endpoint.without_database", route=route, error=type(error).__name__)
        answer = _error_response(
            Overloaded("The gateway cannot reach its database right now; try again shortly"), dialect
        )
    except Exception:
        log.exception("endpoint.failed", route=route, request_id=request.request_id)
        answer = _error_response(InternalError("The gateway failed to answer this request"), dialect)
    answer.headers.append((HEADER, request.request_id))
    if dialect.request_id_header is not None:
        answer.headers.append((dialect.request_id_header, request.request_id))
    if (hold := request.byte_reservation) is not None:
        if isinstance(answer.body, StreamBody):
            answer.body.byte_reservation = hold
        else:
            hold.release()
    return answer


def complete_response(
    run: ChatRun | ToolLoop,
    write_reply: ReplyWriter,
    content_type: str = _JSON,
    change_reply: Callable[[Reply], None] | None = None,
) -> ClientResponse:
    """Run to the end and return the whole answer, after `change_reply` has changed what the client gets.

    Raises ApiError.
    """
    # All of its events are in the reply but the last, which is the summary or an error.
    last = deque(run.events(), maxlen=1)
    summary = last[0] if last else None
    if type(summary) is Failed:
        raise summary.error
    if type(summary) is not Summary:
        raise InternalError("The answer ended without a summary")
    reply = run.reply()
    if change_reply is not None:
        change_reply(reply)
    body = offload_or_run(run.answer_bytes, write_reply, reply, summary, run.chat)
    answer = whole_response(body, content_type)
    answer.headers += headers_about(run)
    return answer


def json_response(body: bytes) -> ClientResponse:
    """Return a whole JSON answer."""
    return whole_response(body, _JSON)


def whole_response(body: bytes, content_type: str) -> ClientResponse:
    """Return a whole answer."""
    return ClientResponse(200, [("Content-Type", content_type), ("Content-Length", str(len(body)))], [body])


def stream_response(run: ChatRun | ToolLoop, write_events: EventWriter, content_type: str = EVENTS) -> ClientResponse:
    """Return a streamed answer. Its status waits for the first bytes: until then a failure is a plain error."""
    events = run.events()
    pieces = write_events(events, run.chat)
    if not content_type.startswith(_BINARY):
        pieces = map(escape_separators, pieces)
    first = next(pieces, b"")
    # Nothing is known yet of a provider that is slow to begin: the answer's `metadata` has it all the same.
    headers = [("Content-Type", content_type), _UNBUFFERED, *headers_about(run)]
    return ClientResponse(200, headers, StreamBody(first, pieces, events))


def headers_about(run: ChatRun | ToolLoop) -> list[tuple[str, str]]:
    """Return the headers for dropped fields, the limit that rerouted the request, the client's rate limits, and whether
    the answer is stored."""
    headers: list[tuple[str, str]] = []
    if dropped_fields := run.attempts.dropped_fields:
        # A client's own names are made safe for a header.
        fields = ", ".join(quote(one.param[:_MAX_PARAM], safe=_PLAIN) for one in dropped_fields[:_MAX_DROPPED])
        headers.append(("x-gateway-loss", fields))
    if run.attempts.rerouted_by is not None:
        headers.append(("x-gateway-rerouted", quote(run.attempts.rerouted_by, safe="")))
    if run.rate is not None:
        headers += rate_headers(run.rate)
    if run.cache is not None:
        headers.append(("x-gateway-cache", _word_for(run.cache)))
    return headers


def _word_for(cache: CacheEntry) -> str:
    if cache.hit:
        return "hit"
    return "partial" if cache.kept_inputs else "miss"


class StreamBody:
    """The pieces of a streamed answer. Closing it, which the server does when the client leaves, ends the run: that
    closes the provider's connection and records, also when not one piece could be sent."""

    def __init__(self, first: bytes, rest: Iterator[bytes], events: Generator[Event, None, None]) -> None:
        self._pieces = chain((first,), rest)
        self._events = events
        # Given back with the end of the answer.
        self.byte_reservation: Releasable | None = None

    def __iter__(self) -> Iterator[bytes]:
        """Yield the pieces."""
        return self._pieces

    def close(self) -> None:
        """End the run."""
        try:
            self._events.close()
        finally:
            if self.byte_reservation is not None:
                self.byte_reservation.release()


def _error_response(error: ApiError, dialect: ClientErrorWriter) -> ClientResponse:
    if dialect.client_error is not None:
        error = dialect.client_error(error)
    body = dialect.write_error(error)
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    headers += error.headers
    if error.forbids_retry or (error.from_provider and error.status in _EXHAUSTED):
        # Every provider was tried: a client library that tries again at once would only do the same again.
        headers.append(NO_RETRY)
    if error.status in {408, 413}:
        # The unsent rest of the body would be taken for the client's next request.
        headers.append(("Connection", "close"))
    if error.retry_after is not None:
        headers.append(("Retry-After", str(max(1, ceil(error.retry_after)))))
    return ClientResponse(error.status, headers, [body])
