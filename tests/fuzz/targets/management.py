"""Management's JSON: `ParseError` at most; and every shape takes or refuses whatever value comes out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import Any

import msgspec
from rest_framework.exceptions import APIException, ParseError
from rest_framework.serializers import BaseSerializer, ModelSerializer, Serializer

from apps.gateway.guard.json_text import JsonText, encode_json, parse_json_text
from apps.kernel.errors import ApiError
from apps.kernel.rest.endpoint import JsonParser
from tests.fuzz.target import Target

_MODULES = (
    "apps.billing.serializers",
    "apps.billing.serializers",
    "apps.guardrails.serializers",
    "apps.keys.serializers",
    "apps.logs.serializers",
    "apps.organizations.serializers",
)
SEEDS = [
    b'{"email":"olivia@example.com","password":"correct horse","name":"Olivia","ref":null}',
    b'{"name":"Default","organizationId":"0199","mode":"credits","cachingEnabled":true,"cacheDurationSeconds":60}',
    b'{"description":"a key","projectId":"0199","usageLimit":"10.5","expiresAt":"2027-01-01T00:00:00Z"}',
    b'{"ruleType":"allow_models","ruleValue":{"models":["gpt-5"],"maxInputPrice":1.5},"status":"active"}',
    b'{"provider":"custom","providerName":"ours","baseUrl":"https://example.com/v1","token":"sk-1"}',
    b'{"name":"terms","type":"blocked_terms","config":{"terms":["a"],"pattern":"(a+)+$"},"action":"block","priority":1}',
    b'{"enabled":true,"systemRules":{"pii":{"enabled":true,"action":"redact"}},"allowedFileTypes":["image/png"],'
    b'"maxFileSizeMb":10,"scanOutput":false}',
    b'{"amount":"25.00","paymentMethodId":"pm_1","autoTopUpEnabled":true,"autoTopUpThreshold":10}',
]


@cache
def shapes() -> list[type[BaseSerializer[Any]]]:
    """Return the shapes of requests that ask no store."""
    return sorted(set(_shapes()), key=lambda shape: f"{shape.__module__}.{shape.__name__}")


def _shapes() -> Iterator[type[BaseSerializer[Any]]]:
    for name in _MODULES:
        for one in vars(import_module(name)).values():
            if isinstance(one, type) and issubclass(one, Serializer) and not issubclass(one, ModelSerializer):
                yield one


def run_body(data: bytes) -> None:
    """Read a body, and hold its value against every shape."""
    try:
        value = JsonParser().parse(BytesIO(data))
    except ParseError:
        return
    for shape in shapes():
        serializer = shape(data=value)
        with contextlib.suppress(APIException, ApiError):
            serializer.is_valid(raise_exception=True)


def run_json_text(data: bytes) -> None:
    """Read JSON as guardrails read it: its strings and files stand where they are said to."""
    with contextlib.suppress(UnicodeDecodeError):
        parse_json_text(data.decode())
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = msgspec.json.decode(data)
        text = JsonText(value)
        assert isinstance(text.text, str)
        encode_json(value)


TARGETS = [
    Target("management_json", run_body, lambda: SEEDS, shape="json", runs=200),
    Target("json_text", run_json_text, lambda: SEEDS, shape="json", runs=200),
]
