"""OTLP over HTTP: values, resources and attributes of spans as protocol buffers, and their delivery to a collector.

OTLP states which answers allow a retry. Headers are never logged: they hold the collector's credentials. Attributes of
spans are encoded where they are known, what repeats from request to request once. Numbers are OTLP's field numbers.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

import requests
import structlog
from django.conf import settings

from apps.gateway.tracing import wire
from apps.gateway.tracing.request_trace import AttributeValue
from apps.logs.genai_names import SCHEMA_URL

log = structlog.get_logger(__name__)

# Seconds: to connect, and for an answer; pauses before each further try.
_CONNECT, _ANSWER = 3.0, 10.0
_PAUSES = (1.0, 2.0, 4.0)
_MAX_PAUSE = 30.0
# By OTLP's rules, the statuses after which the same may be sent again.
_RETRYABLE = frozenset({429, 502, 503, 504})
_SCOPE = "model-gateway"
# `schema_url`, which has the same number in a resource's and in a scope's message.
_SCHEMA = wire.text(3, SCHEMA_URL)


def attribute(name: str, value: AttributeValue) -> bytes:
    """Return one attribute: a `KeyValue`."""
    return _name(name) + wire.data(2, _any_value(value))


@lru_cache(maxsize=1024)
def _name(name: str) -> bytes:
    return wire.text(1, name)


def _any_value(value: AttributeValue) -> bytes:
    if isinstance(value, str):
        return wire.text(1, value)
    # Before int: it is one of them.
    if isinstance(value, bool):
        return wire.integer(2, int(value))
    if isinstance(value, int):
        return wire.integer(3, value)
    if isinstance(value, float):
        return wire.double(4, value)
    return wire.data(5, b"".join(wire.data(1, _any_value(one)) for one in value))


def attributes(field: int, values: Iterable[tuple[str, AttributeValue]]) -> bytes:
    """Return attributes as a field of a message."""
    return b"".join([wire.data(field, attribute(name, value)) for name, value in values])


@cache
def resource() -> bytes:
    """Return what this process is, a `Resource`: service, version, instance, and what the operator adds."""
    told = settings.TELEMETRY
    values = {
        "service.name": told.service_name,
        "service.version": settings.VERSION,
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
        "host.name": socket.gethostname(),
        **told.resource_attributes,
    }
    return attributes(1, values.items())


@cache
def scope() -> bytes:
    """Return by whom spans and metrics are made, an `InstrumentationScope`."""
    return wire.text(1, _SCOPE) + wire.text(2, settings.VERSION)


def export_request(scoped: Iterable[bytes]) -> bytes:
    """Return the whole message: a resource, a scope, and its spans or metrics, whose messages have the same numbers."""
    return message([wire.data(2, one) for one in scoped])


def message(fields: Sequence[bytes]) -> bytes:
    """Return the whole message of spans or metrics that are fields of their scope already; they are copied once."""
    of_scope, of_resource = wire.data(1, scope()) + _SCHEMA, wire.data(1, resource()) + _SCHEMA
    size = len(of_scope) + sum(map(len, fields))
    head = of_resource + wire.head(2, size) + of_scope
    return b"".join([wire.head(1, len(of_resource) + len(wire.head(2, size)) + size), head, *fields])


def deliver(
    session: requests.Session,
    path: str,
    body: bytes,
    pauses: Sequence[float] = _PAUSES,
    sleep: Callable[[float], Any] = time.sleep,
) -> bool:
    """Send a message to the collector, again where it asks for that; return whether it was taken. Raises nothing."""
    told = settings.TELEMETRY
    headers = {"Content-Type": "application/x-protobuf", "User-Agent": "model-gateway", **told.headers}
    for pause in (*pauses, None):
        try:
            answer = session.post(
                f"{told.endpoint}{path}", data=body, headers=headers, timeout=(_CONNECT, _ANSWER), allow_redirects=False
            )
        except requests.RequestException as error:
            problem, asked = type(error).__name__, ""
        else:
            if answer.ok:
                return True
            problem, asked = str(answer.status_code), answer.headers.get("Retry-After", "")
            if answer.status_code not in _RETRYABLE:
                break
        if pause is not None:
            sleep(min(float(asked) if asked.isdecimal() else pause, _MAX_PAUSE))
    log.warning("telemetry.not_delivered", path=path, problem=problem)
    return False


# Field numbers of `Span`, `KeyValue` and `AnyValue`.
_ATTRIBUTES, _VALUE, _TEXT, _DOUBLE = 9, 2, 1, 4
_BYTES_OF_DOUBLE = 8


def constant(*values: tuple[str, AttributeValue]) -> bytes:
    """Return attributes; for those that the caller keeps, as each takes a dozen steps."""
    return attributes(_ATTRIBUTES, values)


def text(name: str, value: str) -> bytes:
    """Return an attribute of a text that is another one in each request."""
    encoded = value.encode()
    return _text_head(name, len(encoded)) + encoded


@lru_cache(maxsize=2048)
def integer(name: str, value: int) -> bytes:
    """Return an attribute of a whole number; small ones come again."""
    return constant((name, value))


def double(name: str, value: float) -> bytes:
    """Return an attribute of a number of double precision."""
    return _double_head(name) + wire.double(_DOUBLE, value)


@lru_cache(maxsize=2048)
def _text_head(name: str, length: int) -> bytes:
    return _head(name, wire.head(_TEXT, length), length)


@lru_cache(maxsize=64)
def _double_head(name: str) -> bytes:
    return _head(name, b"", _BYTES_OF_DOUBLE + 1)


def _head(name: str, before: bytes, length: int) -> bytes:
    """Return all of an attribute up to its value, which is so many bytes long and has a head `before` it."""
    value = wire.head(_VALUE, len(before) + length) + before
    key = wire.text(1, name) + value
    return wire.head(_ATTRIBUTES, len(key) + length) + key
