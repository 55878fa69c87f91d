"""A canary: a credential, or content, that is looked for in every place where something is written down or told."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from django.db import connection

from apps.gateway.access import policy
from apps.gateway.settlement import outbox
from apps.gateway.upstream import open_exchange
from apps.kernel.valkey.redis import cache_client
from apps.kernel.valkey.redis import client as valkey
from apps.keys.models import ProviderKey
from apps.keys.secrets import encrypt_credential
from apps.organizations.models import Organization, Project
from tests.support.upstream import Caller, settle_all

CANARY = "sk-canary-0123456789+/abcdefghijklmnopqrstuv"


class _Gossip(BaseHTTPRequestHandler):
    """A provider that quotes whatever it was sent, in one of several ways."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        sent = self.headers["Authorization"]
        key = sent.removeprefix("Bearer ")
        server: Any = self.server
        status, form = server.says
        words = {
            "header": f"I was sent Authorization: {sent}",
            "key": f"Incorrect API key provided: {key}.",
            "part": f"Incorrect API key provided: {key[:24]}*****",
            "encoded": f"{quote(key, safe='')} {b64encode(f'user:{key}'.encode()).decode()}",
        }[form]
        error = {"error": {"message": words, "type": "auth", "code": key, "param": key}}
        text = json.dumps(error)
        body = f"data: {text}\n\n".encode() if status == 200 else text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/event-stream" if status == 200 else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def provider() -> Iterator[Any]:
    """A provider that quotes credentials: one for all tests, as an address that is new has the catalog read again."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Gossip)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def gossip(provider: Any, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The catalog's sandbox at that provider, called with the canary; everything is retained."""
    monkeypatch.setenv("SANDBOX_BASE_URL", f"http://127.0.0.1:{provider.server_port}/v1")
    monkeypatch.setenv("SANDBOX_API_KEY", CANARY)
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    policy.forget_all()
    open_exchange.forget_addresses()
    return provider


def everything_in_valkey() -> str:
    """Return all that the stores hold, as text."""
    return "\n".join(everything_in(store) for store in (valkey(), cache_client()))


def everything_in(store: Any) -> str:
    """Return the whole content of a store, as text."""
    told = []
    for key in store.keys("*"):
        kind = store.type(key)
        read = {
            "string": store.get,
            "hash": store.hgetall,
            "zset": lambda one: store.zrange(one, 0, -1),
            "set": store.smembers,
            "list": lambda one: store.lrange(one, 0, -1),
            "stream": lambda one: store.xrange(one),
        }[kind]
        told.append(f"{key} {read(key)}")
    return "\n".join(told)


def everything_in_the_database() -> str:
    """Return every row of every table, as text."""
    told = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT t::text FROM "{table}" t')
            told += [row[0] for row in cursor.fetchall()]
    return "\n".join(told)


def everything_on_disk() -> str:
    """Return the files in the home beside the stores: the spool, logs, metrics."""
    told = []
    for path in django_settings.GATEWAY_HOME.rglob("*"):
        stores = {"postgres", "valkey", "cache", "secrets.json"} & set(
            path.relative_to(django_settings.GATEWAY_HOME).parts
        )
        if path.is_file() and not stores:
            told.append(path.read_bytes().decode("latin-1"))
    return "\n".join(told)


def quoted(text: str) -> list[str]:
    """Return the parts of the canary, sixteen characters long, that a text has: as it is, or encoded."""
    encoded = b64encode(f"user:{CANARY}".encode()).decode()[8:]
    return [
        one[start : start + 16]
        for one in (CANARY, quote(CANARY, safe=""), encoded)
        for start in range(len(one) - 15)
        if one[start : start + 16] in text
    ]


@pytest.mark.parametrize("form", ["header", "key", "part", "encoded"])
@pytest.mark.parametrize(("status", "stream"), [(401, False), (400, True), (500, False), (200, True)])
@pytest.mark.parametrize("own", [False, True])
def test_a_provider_that_quotes_a_credential_tells_nobody(
    caller: Caller,
    gossip: Any,
    form: str,
    status: int,
    stream: bool,
    own: bool,
    settings: Any,
    capfd: pytest.CaptureFixture[str],
) -> None:
    gossip.says = (status, form)
    model = "sandbox/echo"
    if own:
        settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES, model = True, "custom:our-own/echo"
        ProviderKey.objects.create(
            organization_id=caller.organization_id,
            provider="custom",
            provider_name="our-own",
            base_url=f"http://127.0.0.1:{gossip.server_port}/v1",
            encrypted_token=encrypt_credential(CANARY),
        )
        policy.forget_all()
    response = caller.chat(model=model, stream=stream)
    assert response.status_code == {401: 502, 400: 400, 500: 502, 200: 502}[status], response.content
    before = everything_in_valkey()
    assert settle_all() == 1
    told = {
        "answer": response.content.decode() + str(response.headers),
        "valkey": before + everything_in_valkey(),
        "database": everything_in_the_database(),
        "disk": everything_on_disk(),
        "log": "".join(capfd.readouterr()),
        "metrics": caller.client.get("/metrics").content.decode(),
    }
    assert {place: quoted(text) for place, text in told.items() if quoted(text)} == {}
    assert "..." in told["answer"]
    assert '"message"' in told["database"], "the error's words were kept: what was looked for could have been there"


def test_content_that_may_not_be_kept_lies_nowhere_in_clear(caller: Caller) -> None:
    """A kept answer at retention `none`."""
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    policy.forget_all()
    canary = f"canary-{uuid4().hex}"
    first, second = caller.chat(canary), caller.chat(canary)
    assert [one["x-gateway-cache"] for one in (first, second)] == ["miss", "hit"]
    assert second.json()["choices"] == first.json()["choices"]
    assert canary in first.json()["choices"][0]["message"]["content"]
    outbox.flush_pending(5)
    before = everything_in_valkey()
    assert "answer:" in before
    assert settle_all() == 2
    for text in (before, everything_in_valkey(), everything_in_the_database(), everything_on_disk()):
        assert canary not in text
