"""Passwords in the URLs of stores, read without a store."""

from __future__ import annotations

import pytest

from gateway_project.diagnosis.unsafe_settings import fault_of, is_local

NONE, DEFAULT = (
    "leads over a network and has no password",
    "leads over a network and has a password that is tried first",
)


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("https://default:@clickhouse.example:8443/gateway", NONE),
        ("https://default:default@clickhouse.example:8443/gateway", DEFAULT),
        ("https://reader:Wd3-Pk7zQ0vYx9@clickhouse.example:8443/gateway", None),
        ("postgresql://postgres:postgres@db.example/gateway", DEFAULT),
        ("postgresql://owner:%70assword@db.example/gateway", DEFAULT),
        ("postgresql://owner@/gateway?host=db.example", NONE),
        ("postgresql://owner@/gateway?host=/run/postgresql", None),
        ("postgresql://owner@%2Frun%2Fpostgresql/gateway", None),
        ("postgresql://owner@localhost,db.example/gateway", NONE),
        ("redis://[2001:db8::1]:6379/0", NONE),
        ("redis://[::1]:6379/0", None),
        ("redis+sentinel://10.0.0.8/0?service=main&sentinel_password=Wd3-Pk7zQ0vYx9", NONE),
        ("redis+socket:///run/valkey.sock?virtual_host=1", None),
        ("memory://", None),
        ("", None),
    ],
)
def test_a_store_over_a_network_has_a_password_of_its_own(url: str, fault: str | None) -> None:
    assert fault_of(url, {}) == fault


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "", "/run/postgresql"])
def test_this_machine_is_known(host: str) -> None:
    assert is_local(host)
    assert not any(map(is_local, ("10.0.0.1", "localhost.example", "127.0.0.1.example", "192.168.1.1", "postgres")))
