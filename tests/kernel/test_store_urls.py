"""The address of a store, as logs and people see it."""

from __future__ import annotations

import pytest

from apps.kernel.store_urls import address_of


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("redis://user:secret@cache.example:6379/0?ssl=secret@x", "redis://cache.example:6379/0"),
        ("rediss+cluster://:secret@a:1,[::1]:2", "rediss+cluster://a:1,[::1]:2"),
        (
            "redis+sentinel://u:secret@s1,s2:26379/0?service=x&sentinel_password=secret",
            "redis+sentinel://s1,s2:26379/0",
        ),
        ("unix:///run/valkey.sock?password=secret", "unix:///run/valkey.sock"),
        ("postgres://u:secret@db.example/gateway#secret", "postgres://db.example/gateway"),
        # A password that is not escaped ends the host early.
        ("redis://:secret/a@cache.example/0", "redis://…"),
        ("redis:///secret@cache.example/0", "redis://…"),
    ],
)
def test_an_address_has_no_credentials(url: str, address: str) -> None:
    assert address_of(url) == address
    assert "secret" not in address_of(url)
