"""Addresses that tenants give: which are refused, and that a call goes where was looked."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import certifi
import pytest
import requests

from apps.kernel.concurrency import name_lookup
from apps.keys import ssrf_guard
from apps.keys.ssrf_guard import SafeAddress, UnsafeAddressError, is_public, resolve_safe_address
from tests.support.tls_front import tls_front

OWNER = uuid4()
PRIVATE = [
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
    *("100.64.0.1", "100.127.255.255", "192.0.0.9", "192.0.0.170", "192.0.2.1", "198.18.0.1", "198.51.100.1"),
    *("203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.88.99.1"),
    *("::", "::1", "fe80::1", "fe80::1%1", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "::ffff:8.8.8.8"),
    *("::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "2002:7f00:1::"),
    *("2001::1", "2001:0:7f00:1::", "2001:db8::1", "3fff::1", "100::1", "5f00::1"),
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "2a00:1450:4001:80b::200e"]


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_public_unicast_is_refused(address: str) -> None:
    assert not is_public(address)
    host = f"[{address}]" if ":" in address else address
    if "%" not in address:
        with pytest.raises(UnsafeAddressError, match=r"private, loopback or link-local|is not known|their platform"):
            resolve_safe_address(f"https://{host}/v1", OWNER)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_passes(address: str) -> None:
    assert is_public(address)
    host = f"[{address}]" if ":" in address else address
    assert resolve_safe_address(f"https://{host}/v1?a=b", OWNER) == SafeAddress(
        f"https://{host}/v1?a=b", address, host, address
    )


@pytest.mark.parametrize(
    "url",
    [
        *("http://localhost/v1", "http://localhost.:80", "http://127.1", "http://2130706433", "http://0x7f000001"),
        *("http://0177.0.0.1", "http://0/", "http://[::ffff:7f00:1]/", "http://127.0.0.1:9000"),
    ],
)
def test_other_spellings_of_the_inside_are_refused(url: str) -> None:
    with pytest.raises(UnsafeAddressError):
        resolve_safe_address(url, OWNER)


@pytest.mark.parametrize(
    "url",
    [
        *("", "v1", "//1.1.1.1/v1", "ftp://1.1.1.1", "file:///etc/passwd", "gopher://1.1.1.1", "javascript:alert(1)"),
        *("https://", "https:///v1", "https://1.1.1.1:99999/", "https://[::1", "https://1.1.1.1/\r\nX: y"),
        *("https://user:secret@1.1.1.1/", "https://1.1.1.1@127.0.0.1/"),
        *("https://1.1.1.1\\@127.0.0.1/", "https://1.1.1.1/ x", f"https://1.1.1.1/{'x' * 2000}", "https://ⓔ.com/"),
    ],
)
def test_what_is_no_plain_url_is_refused(url: str) -> None:
    with pytest.raises(UnsafeAddressError):
        resolve_safe_address(url, OWNER)


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let names resolve to these addresses, one answer a time; return the names that were asked for."""
    asked, left = [], list(answers)

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in left.pop(0)]

    monkeypatch.setattr(name_lookup, "_getaddrinfo", look_up)
    return asked


def test_one_private_address_among_public_ones_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["8.8.8.8", "10.0.0.1"])
    with pytest.raises(UnsafeAddressError):
        resolve_safe_address("https://models.example.com/v1", OWNER)


def test_a_name_is_resolved_once_and_called_where_it_was_looked_up(
    monkeypatch: pytest.MonkeyPatch, sandbox_url: str, settings: Any
) -> None:
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
    with monkeypatch.context() as patched:
        asked = resolving(patched, ["127.0.0.1"])
        port = sandbox_url.rpartition(":")[2]
        address = resolve_safe_address(f"http://models.example.com:{port}/v1", OWNER)
        assert asked == ["models.example.com"]
    # The name means nothing to anyone else.
    with address.session() as session:
        response = session.get(f"{address.url}/models", headers={"Authorization": "Bearer some-key"}, timeout=5)
    assert response.status_code == 200
    assert response.request.headers["Host"] == f"models.example.com:{port}"


def test_the_operator_may_allow_private_addresses(settings: Any) -> None:
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
    assert resolve_safe_address("http://127.0.0.1:9000/v1", OWNER).ip == "127.0.0.1"
    with pytest.raises(UnsafeAddressError):
        resolve_safe_address("ftp://127.0.0.1", OWNER)


PLATFORM = [
    *("169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "192.0.0.192", "161.26.0.7", "166.9.0.1"),
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fe80::a9fe:a9fe"),
    # The same by other names: mapped, compatible, translated, NAT64, 6to4, Teredo (server, and client turned).
    *("::ffff:169.254.169.254", "::ffff:a83f:8110", "::a9fe:a9fe", "::ffff:0:168.63.129.16", "64:ff9b::a9fe:a9fe"),
    *(
        "64:ff9b::168.63.129.16",
        "2002:a9fe:a9fe::1",
        "2002:a83f:8110::",
        "2001:0:a9fe:a9fe::1",
        "2001:0:1:2::5601:5601",
    ),
]


@pytest.mark.parametrize("private_allowed", [False, True])
@pytest.mark.parametrize("address", PLATFORM)
def test_a_clouds_platform_is_never_reached(address: str, private_allowed: bool, settings: Any) -> None:
    """Also where the operator allows private addresses: what answers there gives credentials away."""
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = private_allowed
    assert not is_public(address)
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(UnsafeAddressError, match="for their platform and its metadata"):
        resolve_safe_address(f"https://{host}/v1", OWNER)


@pytest.mark.parametrize("private_allowed", [False, True])
@pytest.mark.parametrize(
    "port", [0, 1, 21, 22, 25, 53, 81, 444, 1023, 2375, 2379, 3306, 5432, 6379, 9200, 10250, 11211, 27017]
)
def test_no_store_is_reached_by_its_port(port: int, private_allowed: bool, settings: Any) -> None:
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = private_allowed
    with pytest.raises(UnsafeAddressError, match="Must have port 80 or 443"):
        resolve_safe_address(f"http://93.184.215.14:{port}/v1", OWNER)


@pytest.mark.parametrize("port", [80, 443, 1024, 1234, 8000, 8001, 8080, 8443, 9000, 11434, 30000, 65535])
def test_where_models_are_served_is_reached(port: int) -> None:
    assert resolve_safe_address(f"http://93.184.215.14:{port}/v1", OWNER).ip == "93.184.215.14"


@pytest.mark.parametrize(
    "url",
    [
        *("https://gateway.example/v1", "https://GATEWAY.example./v1", "http://gateway.example/v1"),
        *("https://gateway.example:443", "http://gateway.example:8000/v1", "https://api.gateway.example/v1"),
    ],
)
def test_a_url_of_the_gateways_own_is_refused(url: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PUBLIC_URL, settings.PORT = "https://gateway.example", 8000
    settings.ALLOWED_HOSTS = ["gateway.example", "api.gateway.example"]
    resolving(monkeypatch, ["93.184.215.14"])
    with pytest.raises(UnsafeAddressError, match="Must not lead back to this gateway"):
        resolve_safe_address(url, OWNER)


def test_the_gateways_own_listening_address_is_refused(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES, settings.PORT = True, 8000
    resolving(monkeypatch, ["127.0.0.1"], ["127.0.0.1"])
    with pytest.raises(UnsafeAddressError, match="Must not lead back to this gateway"):
        resolve_safe_address("http://a-name-for-this-machine.example:8000/v1", OWNER)
    assert resolve_safe_address("http://a-name-for-this-machine.example:8001/v1", OWNER).ip == "127.0.0.1"


def test_a_neighbour_of_the_gateway_is_not_refused(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PUBLIC_URL, settings.PORT, settings.ALLOWED_HOSTS = "https://gateway.example", 8000, [".example"]
    resolving(monkeypatch, ["93.184.215.14"], ["93.184.215.14"])
    assert resolve_safe_address("https://gateway.example:9443/v1", OWNER).ip == "93.184.215.14"
    assert resolve_safe_address("https://models.example/v1", OWNER).ip == "93.184.215.14"


@pytest.fixture
def roots_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Forget the roots that were read, and collect the files from which they are read again."""
    read: list[str] = []

    class Context(ssl.SSLContext):
        def load_verify_locations(self, cafile: Any = None, capath: Any = None, cadata: Any = None) -> None:
            read.append(cafile)
            super().load_verify_locations(cafile, capath, cadata)

    monkeypatch.setattr(ssrf_guard, "create_urllib3_context", lambda: Context(ssl.PROTOCOL_TLS_CLIENT))
    ssrf_guard._trusted_roots.cache_clear()
    yield read
    ssrf_guard._trusted_roots.cache_clear()


def test_certificates_are_checked_against_roots_that_are_read_once(
    monkeypatch: pytest.MonkeyPatch, roots_read: list[str], sandbox_url: str, tmp_path: Path
) -> None:
    with tls_front(int(sandbox_url.rpartition(":")[2]), tmp_path) as (front, authority):
        port = front.rpartition(":")[2]
        known = SafeAddress(f"https://localhost:{port}/v1/models", "localhost", f"localhost:{port}", "127.0.0.1")
        other = SafeAddress(f"https://example.com:{port}/v1/models", "example.com", f"example.com:{port}", "127.0.0.1")
        with (
            known.session() as session,
            pytest.raises(requests.exceptions.SSLError, match="local issuer"),
        ):
            session.get(known.url, timeout=5)
        assert roots_read == [certifi.where()]
        roots_read.clear()
        ssrf_guard._trusted_roots.cache_clear()
        monkeypatch.setattr(ssrf_guard, "DEFAULT_CA_BUNDLE_PATH", str(authority))
        for _ in range(3):
            with known.session() as session:
                assert session.get(known.url, timeout=5, headers={"Authorization": "Bearer k"}).status_code == 200
        with other.session() as session, pytest.raises(requests.exceptions.SSLError, match="hostname"):
            session.get(other.url, timeout=5)
        assert roots_read == [str(authority)]
