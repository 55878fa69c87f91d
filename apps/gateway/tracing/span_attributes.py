"""Span attributes: encoded where they are known, what repeats from request to request once. Pure, and quick.

The numbers are OTLP's field numbers.
"""

from __future__ import annotations

from functools import lru_cache

from apps.gateway.tracing import otlp, wire
from apps.gateway.tracing.request_trace import AttributeValue

# Field numbers of `Span`, `KeyValue` and `AnyValue`.
_ATTRIBUTES, _VALUE, _TEXT, _DOUBLE = 9, 2, 1, 4
_BYTES_OF_DOUBLE = 8


def constant(*values: tuple[str, AttributeValue]) -> bytes:
    """Return attributes; for those that the caller keeps, as each takes a dozen steps."""
    return otlp.attributes(_ATTRIBUTES, values)


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
