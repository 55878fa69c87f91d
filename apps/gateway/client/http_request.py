"""Client request and response: one HTTP call, with or without Django in front; loop detection; guard model calls.

A request is read from a WSGI environment. `CDN-Loop` (RFC 8586) recognizes one that a tenant's provider sends back
here. The header goes to addresses that tenants give, and nowhere else. A token stands for a deployment: the deployment
recognizes it, and it means nothing to others. It carries no address, version, or content of a request.

`GuardModelCall` is the question of an organization's rule to a guard model, in the form of a client's request. It
passes the pipeline like any other request of the API key, is paid by it and has its own row in the log. It has no
guardrails, and counts for no limit on requests: the request that it is about has been counted.
"""

from __future__ import annotations

import hmac
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from io import BytesIO
from types import MappingProxyType
from typing import Any, Final, Protocol
from urllib.parse import parse_qs
from uuid import UUID

import gevent
import msgspec
from django.conf import settings

from apps.gateway.client.client_disconnect import CancelSwitch, ClientDisconnect
from apps.gateway.content_decoding import unpack
from apps.kernel.concurrency.cached_setting import CachedSetting
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import ApiError, BodyTooLarge, ClientGone, InvalidRequest, RequestTimeout, UnsupportedMediaType
from apps.kernel.ids import request_id_of
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.request_headers import KEY_HEADERS, find_presented_key
from apps.kernel.rest.routes import DEPLOYMENT, Route, route_table

# Custom headers kept with a log: so many, of so many characters each.
_MAX_TAGS, _MAX_TAG_LENGTH = 20, 256
_TAG_PREFIX = "HTTP_X_GATEWAY_"
_BODY_LIMIT = CachedSetting("BODY_LIMIT")
# Parameters of a query that are read.
_MAX_PARAMETERS = 100
_JSON = "application/json"
_GONE = "The client closed the connection before its request was complete"
# Digits of a length that is taken for one.
_MAX_DIGITS = 16
# Bytes of a piece of a body that is read as it comes.
_PIECE = 64 * 1024


class Releasable(Protocol):
    """A resource that a call holds until its answer has left."""

    def release(self) -> None:
        """Release it; a second call does nothing."""


class TrackedResponse(Protocol):
    """The response object of a request to `/v1/responses` while it is answered (`endpoints/response_state.py`)."""

    @property
    def response_id(self) -> str:
        """Its id."""

    @property
    def echo(self) -> dict[str, Any]:
        """Fields that every response object of the request bears."""

    @property
    def wants_events(self) -> bool:
        """Whether `event` is to be called for every event of a stream."""

    def event(self, event: dict[str, Any]) -> None:
        """Take note of an event of a stream, before it goes out."""

    def finished(self, response: dict[str, Any]) -> None:
        """Take note of the final response object, once, before the last of the answer goes out."""

    def failed(self, error: ApiError) -> None:
        """Take note of an error before anything was written, once, instead of `finished`."""


class BatchExchange(Protocol):
    """The exchange of a batch's line by a provider's own batch API (`upstream/batch_exchange.py`)."""

    @property
    def is_settled(self) -> bool:
        """Whether the provider has answered: the line was admitted, with its hold, when it was handed over."""


class ClientRequest:
    """A client's HTTP request."""

    # The share of the byte budget that its body takes up, once it is read.
    byte_reservation: Releasable | None = None
    # The id of its record, where that was chosen before it came.
    log_id: UUID | None = None
    # The state of a response that the gateway itself requests, on a client's behalf.
    response_state: TrackedResponse | None = None
    # The stored conversation that the request goes on with.
    conversation_id: str = ""
    # The first response of the chain of stored responses that the request continues or begins.
    response_chain: str = ""
    # How a line of a batch is exchanged with its provider, where that is by the provider's own batch API.
    batch_exchange: BatchExchange | None = None
    # Whether a tool has effects, by its name, where its MCP server states that.
    stated_effects: Mapping[str, bool] = MappingProxyType({})
    # Whether the gateway asks a guard model by it, for another request's sake.
    is_guard_model_call: bool = False

    def __init__(self, environ: dict[str, Any], route: Route, parameters: Mapping[str, str] | None = None) -> None:
        """Take the environment, the route that the request was sent to, and what its path says beside the route's."""
        self.route = route
        self.parameters = parameters or {}
        self._environ = environ
        self._request_id: str | None = None
        # The content types of bodies that are read.
        self.accepted_content_types: tuple[str, ...] = (_JSON,)

    def header(self, name: str) -> str | None:
        """Return a header's value by its lower-case name."""
        value = self._environ.get(_wsgi_name(name))
        return None if value is None else str(value)

    def headers(self, *names: str) -> dict[str, str]:
        """Return those of the headers that were sent."""
        environ, known = self._environ, _wsgi_names(names)
        if environ.keys().isdisjoint(known):
            return {}
        return {name: str(value) for wsgi, name in known.items() if (value := environ.get(wsgi)) is not None}

    def query_parameter(self, name: str) -> str | None:
        """Return the first value of a parameter of the query, None where it has none, or an empty one.

        Raises InvalidRequest.
        """
        if name not in str(self._environ.get("QUERY_STRING") or ""):
            return None
        return self.query_values.get(name, [None])[0] or None

    def is_header_true(self, name: str) -> bool:
        """Return whether a header is `true`."""
        value = self._environ.get(_wsgi_name(name))
        return value is not None and str(value).strip().lower() == "true"

    @property
    def request_id(self) -> str:
        """The client's `x-request-id` when it is sane, else a new one."""
        if self._request_id is None:
            self._request_id = request_id_of(self.header("x-request-id"))
        return self._request_id

    @property
    def source(self) -> str | None:
        """The client's own name for where the request comes from (`x-source`)."""
        value = self.header("x-source")
        return value[:_MAX_TAG_LENGTH] if value else None

    @property
    def user_agent(self) -> str | None:
        """The first product of the client's `User-Agent`, such as `claude-cli/2.1.197`."""
        value = self.header("user-agent")
        return (value.split(maxsplit=1) or [""])[0][:_MAX_TAG_LENGTH] or None if value else None

    @property
    def custom_headers(self) -> dict[str, str] | None:
        """The `x-gateway-<name>` headers, by name."""
        if _TAG_PREFIX not in " ".join(self._environ):
            # The common case, told sooner than name by name.
            return None
        names = [name for name in self._environ if name.startswith(_TAG_PREFIX)][:_MAX_TAGS]
        found = {
            name[len(_TAG_PREFIX) :].lower().replace("_", "-")[:_MAX_TAG_LENGTH]: str(self._environ[name])[
                :_MAX_TAG_LENGTH
            ]
            for name in names
        }
        return found or None

    @property
    def query_values(self) -> dict[str, list[str]]:
        """The values of each parameter behind the path. Raises InvalidRequest for more than a hundred."""
        try:
            query = str(self._environ.get("QUERY_STRING") or "")
            return parse_qs(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
        except ValueError:
            raise InvalidRequest(f"The address has more than {_MAX_PARAMETERS} parameters") from None

    @property
    def content_type(self) -> str:
        """The body's media type, in lower case and without parameters."""
        return self.content_type_header.partition(";")[0].strip().lower()

    @property
    def content_type_header(self) -> str:
        """The whole `Content-Type`, parameters included."""
        return str(self._environ.get("CONTENT_TYPE") or "")

    def watch_disconnect(self) -> ClientDisconnect:
        """Return the watch on the client's connection."""
        client = self._environ.get("gunicorn.socket")
        return ClientDisconnect(client if isinstance(client, socket.socket) or hasattr(client, "recv") else None)

    @property
    def content_length(self) -> int | None:
        """The body's length as the client states it; None where it does not, or that is no number."""
        stated = str(self._environ.get("CONTENT_LENGTH") or "")
        return int(stated) if stated.isdecimal() and stated.isascii() and len(stated) < _MAX_DIGITS else None

    @property
    def body_limit(self) -> int:
        """Bytes of the largest body that is read."""
        limit: int = _BODY_LIMIT.value
        return limit

    @property
    def deployment(self) -> str | None:
        """The model that the path names, where it is in Azure's form (`/openai/deployments/{model}/...`)."""
        return self._environ.get(DEPLOYMENT)

    @property
    def presented_key(self) -> str:
        """The API key, whether it is any good or not. Raises Unauthenticated when there is none, or several."""
        query = str(self._environ.get("QUERY_STRING") or "") if self.route.family is Family.GOOGLE else ""
        return find_presented_key(self.headers(*KEY_HEADERS), query)

    def with_body(self, body: bytes) -> ClientRequest:
        """Return the same client's request with another body, which is JSON."""
        return ClientRequest(self.environ_with_body(body), self.route, self.parameters)

    def environ_with_body(self, body: bytes) -> dict[str, Any]:
        """Return the environment of the same request with another body, which is JSON."""
        own = {"CONTENT_TYPE": _JSON, "CONTENT_LENGTH": str(len(body)), "wsgi.input": BytesIO(body)}
        # It is not packed, whatever the client's own was.
        environ = {name: value for name, value in self._environ.items() if name != "HTTP_CONTENT_ENCODING"}
        return {**environ, **own}

    def release_bytes(self) -> None:
        """Release its body's share of the byte budget; the creator of the request calls this at its end."""
        if self.byte_reservation is not None:
            self.byte_reservation.release()

    def body(self) -> bytes:
        """Return the body, unpacked; the model of an Azure path is put into it.

        Raises UnsupportedMediaType (415), BodyTooLarge (413), RequestTimeout (408), InvalidRequest, ClientGone.
        """
        self._insist_on_content_type()
        limit: int = _BODY_LIMIT.value
        stated = self._environ.get("CONTENT_LENGTH") or None
        if stated is None and not self._environ.get("wsgi.input_terminated"):
            return b""
        try:
            length = None if stated is None else int(stated)
        except ValueError:
            raise InvalidRequest("Content-Length must be a number", code="invalid_parameters") from None
        if length is not None and length > limit:
            raise _too_large(limit)
        body = self._read(limit + 1 if length is None else length)
        if len(body) > limit:
            raise _too_large(limit)
        if length is not None and len(body) < length:
            raise ClientGone(_GONE)
        if (coding := self._environ.get("HTTP_CONTENT_ENCODING")) is not None:
            body = unpack(body, str(coding), limit)
        if self.deployment is not None and self.content_type == _JSON:
            return offload(len(body), partial(_with_model, body, self.deployment))
        return body

    @property
    def is_streamable(self) -> bool:
        """Whether `body_pieces` can read it: a body that says how long it is, and is not packed."""
        return self.content_length is not None and self.header("content-encoding") is None

    def body_pieces(self, limit: int) -> Iterator[bytes]:
        """Return a body as it comes, in pieces of 64 KB.

        Raises UnsupportedMediaType (415), BodyTooLarge (413) before anything is read; as it is read RequestTimeout
        (408), ClientGone.
        """
        self._insist_on_content_type()
        length = self.content_length or 0
        if length > limit:
            raise _too_large(limit)
        return self._pieces_of(length)

    def _pieces_of(self, left: int) -> Iterator[bytes]:
        while left:
            piece = self._read(min(left, _PIECE))
            if not piece:
                raise ClientGone(_GONE)
            left -= len(piece)
            yield piece

    def _insist_on_content_type(self) -> None:
        if self.content_type not in self.accepted_content_types:
            raise UnsupportedMediaType(f"Content-Type must be {' or '.join(self.accepted_content_types)}")

    def _read(self, size: int) -> bytes:
        source = self._environ["wsgi.input"]
        if type(source) is BytesIO:
            # It is all here: nothing to wait for.
            return source.read(size)
        try:
            with gevent.Timeout(settings.BODY_TIMEOUT, _body_timeout()):
                return bytes(source.read(size))
        except OSError as error:
            raise ClientGone(_GONE) from error


def _with_model(body: bytes, model: str) -> bytes:
    """Return a JSON body with this model; one that is no object stays what it is: its reader says what is wrong."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return body
    return msgspec.json.encode({**fields, "model": model})


@cache
def _wsgi_name(name: str) -> str:
    """Return a header's name in a WSGI environment; only names that are written here are asked for."""
    return f"HTTP_{name.upper().replace('-', '_')}"


@cache
def _wsgi_names(names: tuple[str, ...]) -> dict[str, str]:
    """Return headers' names by their names in a WSGI environment."""
    return {_wsgi_name(name): name for name in names}


def _body_timeout() -> RequestTimeout:
    return RequestTimeout(f"The request body did not arrive within {settings.BODY_TIMEOUT:g} s")


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The request body is larger than {limit} bytes")


class ClientResponse(msgspec.Struct, eq=False):
    """The HTTP response: a status, headers, and a body in one or more pieces."""

    status: int
    headers: list[tuple[str, str]] = []
    body: Iterable[bytes] = ()
    # The `Cache-Control` of the answer; None where no cache may store it.
    cache_control: str | None = None


HEADER: Final = "CDN-Loop"
# Deployments of this product that a request may have passed before it comes here.
MAX_HOPS: Final = 5
_TOKEN = re.compile(r"gw-[0-9a-f]{24}")


def read_cdn_loop(request: ClientRequest) -> str:
    """Return the `CDN-Loop` tokens of the deployments that a request has passed; other tokens are left out.

    Raises InvalidRequest when it has passed this one, or too many.
    """
    tokens_header = request.header("cdn-loop")
    if tokens_header is None:
        return ""
    tokens = _TOKEN.findall(tokens_header)
    if own_token() in tokens:
        raise _looping("This request has passed through this gateway before: a provider key's baseUrl leads back to it")
    if len(tokens) > MAX_HOPS:
        raise _looping(f"This request has passed through more than {MAX_HOPS} gateways: a baseUrl leads in a circle")
    return ", ".join(tokens)


def append_own_token(cdn_loop: str) -> str:
    """Return the header's value to send, with this deployment's token at its end."""
    return f"{cdn_loop}, {own_token()}" if cdn_loop else own_token()


def own_token() -> str:
    """Return this deployment's token: the same in all of its processes, and impossible to forge."""
    return _token_of(settings.SECRET_KEY)


@lru_cache(maxsize=2)
def _token_of(secret: str) -> str:
    return "gw-" + hmac.digest(secret.encode(), b"a request of this deployment", "sha256").hex()[:24]


def _looping(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="loop_detected", param="model")


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
