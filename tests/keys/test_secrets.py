"""How API keys are made and recognized, and credentials sealed; which key a request presents."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Any

import pytest
from cryptography.fernet import Fernet

from apps.kernel.errors import Unauthenticated
from apps.kernel.rest.request_headers import find_presented_key
from apps.keys import secrets


def test_a_token_is_a_prefix_and_forty_letters_and_digits(settings: Any) -> None:
    tokens = {secrets.new_token() for _ in range(200)}
    assert len(tokens) == 200
    assert all(re.fullmatch(r"gw_dev_[0-9A-Za-z]{40}", token) for token in tokens)
    settings.DEVELOPMENT = False
    assert re.fullmatch(r"gw_live_[0-9A-Za-z]{40}", secrets.new_token())


def test_the_digest_is_an_hmac_under_the_pepper(settings: Any) -> None:
    settings.API_KEY_PEPPER = "pepper"
    assert secrets.digest_of("gw_dev_x") == hmac.new(b"pepper", b"gw_dev_x", hashlib.sha256).digest()
    settings.API_KEY_PEPPER = "another"
    assert secrets.digest_of("gw_dev_x") != hmac.new(b"pepper", b"gw_dev_x", hashlib.sha256).digest()


def test_credentials_survive_a_rotation_of_keys(settings: Any) -> None:
    old, new, strange = (Fernet.generate_key().decode() for _ in range(3))
    settings.ENCRYPTION_KEYS = [old]
    sealed = secrets.encrypt_credential("sk-provider-secret")
    assert b"sk-provider" not in sealed
    settings.ENCRYPTION_KEYS = [new, old]
    assert secrets.decrypt_credential(sealed) == "sk-provider-secret"
    assert Fernet(new).decrypt(secrets.encrypt_credential("later")) == b"later"
    settings.ENCRYPTION_KEYS = [strange]
    with pytest.raises(secrets.UnreadableSecretError) as raised:
        secrets.decrypt_credential(sealed)
    assert "sk-provider" not in str(raised.value)


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer gw_dev_x"},
        {"authorization": "bearer   gw_dev_x "},
        {"x-api-key": "gw_dev_x"},
        {"x-api-key": " gw_dev_x "},
        {"authorization": "Bearer gw_dev_x", "x-api-key": "gw_dev_x"},
        {"authorization": "Basic dXNlcjpwYXNz", "x-api-key": "gw_dev_x"},
        {"authorization": "Bearer ", "x-api-key": "gw_dev_x"},
        {"api-key": "gw_dev_x"},
        {"x-goog-api-key": " gw_dev_x "},
        {"authorization": "Bearer gw_dev_x", "x-api-key": "gw_dev_x", "api-key": "gw_dev_x"},
    ],
)
def test_a_key_is_presented_as_bearer_or_in_a_header_of_its_own(headers: dict[str, str]) -> None:
    assert find_presented_key(headers) == "gw_dev_x"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "gw_dev_x"},
        {"authorization": "Basic gw_dev_x"},
        {"x-api-key": "  "},
        {"x-api-key": "x" * 513},
        {"authorization": f"Bearer {'x' * 513}"},
    ],
)
def test_nothing_presented_is_401(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated) as raised:
        find_presented_key(headers)
    assert raised.value.message == "Missing or invalid API key"


@pytest.mark.parametrize(
    "query", ["key=gw_dev_x", "alt=sse&key=gw_dev_x", "key=gw_dev_x&key=gw_dev_x", "key=gw%5Fdev%5Fx"]
)
def test_a_key_is_presented_in_the_query_where_that_is_read(query: str) -> None:
    assert find_presented_key({}, query) == "gw_dev_x"
    assert find_presented_key({"x-goog-api-key": "gw_dev_x"}, query) == "gw_dev_x"


@pytest.mark.parametrize(
    ("headers", "query", "places"),
    [
        ({"authorization": "Bearer gw_dev_one", "x-api-key": "gw_dev_two"}, "", "headers Authorization and x-api-key"),
        ({"api-key": "gw_dev_one", "x-goog-api-key": "gw_dev_two"}, "", "headers api-key and x-goog-api-key"),
        ({"x-goog-api-key": "gw_dev_one"}, "key=gw_dev_two", "headers and parameters x-goog-api-key and key"),
        ({}, "key=gw_dev_one&key=gw_dev_two", "headers and parameters key and key (1)"),
    ],
)
def test_two_keys_that_differ_are_401(headers: dict[str, str], query: str, places: str) -> None:
    with pytest.raises(Unauthenticated) as raised:
        find_presented_key(headers, query)
    assert raised.value.message == f"The {places} carry different keys"
