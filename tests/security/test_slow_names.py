"""Names whose servers never answer: forty of one tenant keep no sign-in, no other tenant and no provider waiting."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import uuid4

import gevent
import pytest

from apps.gateway.failures import UpstreamFailure
from apps.gateway.upstream import connection_pool, open_exchange, remote_media
from apps.gateway.upstream.open_exchange import pinned_ip
from apps.gateway.upstream.remote_media import (
    MAX_INPUT_BYTES,
    FetchTimeouts,
    UnfetchableError,
    fetch_file,
    fetch_image,
)
from apps.kernel.concurrency import name_lookup
from apps.kernel.concurrency.fairness import OwnerSlots
from apps.kernel.concurrency.name_lookup import TENANT_SHARE, TenantLookups
from apps.kernel.errors import RateLimited
from apps.keys import ssrf_guard
from apps.keys.ssrf_guard import UnsafeAddressError, check_url_field
from apps.organizations.credentials import passwords
from tests.support.hanging_names import HangingNames, hanging_names, wait_until
from tests.support.image_requests import PNG, data_url

OURS, THEIRS = uuid4(), uuid4()


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> TenantLookups:
    """Lookups that remember nothing of other tests."""
    fresh = TenantLookups()
    monkeypatch.setattr(ssrf_guard, "TENANT_NAMES", fresh)
    return fresh


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch, settings: Any, lookups: TenantLookups) -> Iterator[HangingNames]:
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
    connection_pool._lookups.clear()
    connection_pool._answers.clear()
    open_exchange.forget_addresses()
    with hanging_names(monkeypatch) as service:
        yield service


@pytest.fixture
def pictures() -> Iterator[int]:
    """The port of a web server with one picture."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Picture)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Picture(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer with the picture."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(PNG)))
        self.end_headers()
        self.wfile.write(PNG)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def fetched(url: str, owner: object) -> str:
    try:
        return fetch_image(url, MAX_INPUT_BYTES, owner)  # type: ignore[arg-type] # any value tells owners apart
    except (UnfetchableError, RateLimited) as error:
        return str(error.args[0])


def test_sign_in_other_tenants_and_providers_go_on_while_forty_names_hang(names: HangingNames, pictures: int) -> None:
    stored = passwords.hash_of("a quite long password")
    asking = [gevent.spawn(fetched, f"https://tar{number}.example/cat.png", THEIRS) for number in range(40)]
    wait_until(lambda: len(names.hanging) == TENANT_SHARE)

    assert passwords.matches("a quite long password", stored)
    assert fetched(f"http://pictures.example:{pictures}/cat.png", OURS) == data_url(PNG)
    connection_pool.connect("api.provider.example", pictures, 60.0).close()

    assert (len(names.hanging), names.is_released) == (TENANT_SHARE, False)
    gevent.killall(asking)
    # Also the lines of those who left are empty: what hangs holds its thread and its turn, and nothing else.
    assert len(remote_media._SLOTS) == 0


def test_a_tenant_fetches_a_few_files_at_a_time_and_another_has_its_own_turns(
    names: HangingNames, pictures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_media, "_SLOTS", OwnerSlots(2))
    asking = [gevent.spawn(fetched, f"https://tar{number}.example/cat.png", THEIRS) for number in range(2)]
    wait_until(lambda: len(names.hanging) == 2)
    url, soon = f"http://pictures.example:{pictures}/cat.png", FetchTimeouts(5.0, 5.0, 0.01)
    with pytest.raises(RateLimited) as refused:
        fetch_file(url, MAX_INPUT_BYTES, soon, THEIRS)
    assert refused.value.message == "Too many files by address are being fetched; send fewer at once"
    assert fetched(url, OURS) == data_url(PNG)
    assert names.asked == ["tar0.example", "tar1.example", "pictures.example"]
    names.release()
    gevent.joinall(asking, timeout=60)
    assert fetched(url, THEIRS) == data_url(PNG)


def test_a_tenants_own_pictures_come_again_when_its_names_answer(names: HangingNames, pictures: int) -> None:
    asking = [gevent.spawn(fetched, f"https://tar{number}.example/cat.png", THEIRS) for number in range(TENANT_SHARE)]
    wait_until(lambda: len(names.hanging) == TENANT_SHARE)
    names.release()
    gevent.joinall(asking, timeout=60)
    assert fetched(f"http://pictures.example:{pictures}/cat.png", THEIRS) == data_url(PNG)


def test_who_has_no_turn_is_told_to_come_again_and_not_that_the_address_is_wrong(
    names: HangingNames, lookups: TenantLookups, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = [gevent.spawn(fetched, f"https://tar{number}.example/cat.png", THEIRS) for number in range(TENANT_SHARE)]
    wait_until(lambda: len(names.hanging) == TENANT_SHARE)
    find = lookups.find
    monkeypatch.setattr(lookups, "find", lambda host, port, owner: find(host, port, owner, 0.01))
    with pytest.raises(RateLimited) as refused:
        fetch_image("https://pictures.example/cat.png", MAX_INPUT_BYTES, THEIRS)
    assert (refused.value.code, refused.value.retry_after) == ("too_many_outside_calls", 5.0)
    with pytest.raises(RateLimited) as refused:
        check_url_field("https://pictures.example/mcp", "url", THEIRS)
    assert refused.value.param == "url"
    gevent.killall(asking)


def test_a_name_that_is_silent_is_called_so(names: HangingNames, lookups: TenantLookups) -> None:
    with pytest.raises(name_lookup.SilentName):
        lookups.find("tar.example", 443, THEIRS, 0.01)
    with pytest.raises(UnsafeAddressError, match="The name servers of its host do not answer"):
        ssrf_guard.resolve_safe_address("https://tar.example/v1", OURS)
    assert fetched("https://tar.example/cat.png", OURS) == "the name servers of its host do not answer"
    assert names.asked == ["tar.example"]


def test_a_tenants_own_provider_keeps_its_address_while_its_name_is_silent(
    names: HangingNames, lookups: TenantLookups, monkeypatch: pytest.MonkeyPatch
) -> None:
    names.release()
    url = "https://tar.models.example/v1"
    assert pinned_ip(url, OURS) == "127.0.0.1"
    failing = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    monkeypatch.setattr(name_lookup, "_getaddrinfo", _raising(failing))
    now = open_exchange.time.monotonic()
    monkeypatch.setattr(open_exchange.time, "monotonic", lambda: now + 599)
    assert pinned_ip(url, OURS) == "127.0.0.1"
    monkeypatch.setattr(open_exchange.time, "monotonic", lambda: now + 601)
    with pytest.raises(UpstreamFailure, match="The name servers of its host do not answer"):
        pinned_ip(url, OURS)


def test_a_name_that_leads_inside_by_now_loses_the_address_that_was_checked(
    names: HangingNames, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "https://models.example/v1"
    assert pinned_ip(url, OURS) == "127.0.0.1"
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = False
    now = open_exchange.time.monotonic()
    monkeypatch.setattr(open_exchange.time, "monotonic", lambda: now + 31)
    for _ in range(2):
        with pytest.raises(UpstreamFailure, match="Must not lead to a private"):
            pinned_ip(url, OURS)


def _raising(error: OSError) -> Any:
    def look_up(*_: Any, **__: Any) -> list[Any]:
        raise error

    return look_up
