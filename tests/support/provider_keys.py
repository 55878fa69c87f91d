"""Provider keys of Acme: who asks for them, the catalog they are for, and a provider that is asked about them."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from apps.catalog import catalog_cache
from apps.kernel.valkey import generation
from apps.organizations.models import Plan
from tests.support.cast import Caller, World, signed_in
from tests.support.shipped_catalog import stock

UNASKED = "?validate=false"
TOKEN = "sk-a-secret-of-acme"


@pytest.fixture
def administrator(world: World) -> Caller:
    """Adam, who administers Acme, which is on the plan pro."""
    world.acme.plan = Plan.PRO
    world.acme.save()
    return signed_in(world.adam)


@pytest.fixture
def with_catalog(world: World) -> None:
    """The catalog as its files have it."""
    stock()
    catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))


def create(caller: Caller, world: World, query: str = "", **changes: Any) -> Any:
    """Ask for a custom provider key of Acme; return the response."""
    body = {
        "provider": "custom",
        "providerName": "our-own",
        "baseUrl": "https://93.184.215.14/v1/",
        "token": TOKEN,
        "organizationId": str(world.acme.id),
        **changes,
    }
    return caller.post(f"/keys/provider{query}", {name: value for name, value in body.items() if value is not ...})


class _Provider(BaseHTTPRequestHandler):
    """Sends its server's answer, and remembers each request with its credentials."""

    def do_GET(self) -> None:
        server: Any = self.server
        headers = [self.headers[name] for name in ("Authorization", "x-api-key", "anthropic-version")]
        server.asked.append((self.path, *filter(None, headers)))
        status, body = server.answer
        self.send_response(status)
        self.send_header("Location", f"http://127.0.0.1:{server.server_port}/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def provider(settings: Any) -> Iterator[Any]:
    """A provider at a private address, which the operator allows."""
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = True
    server: Any = HTTPServer(("127.0.0.1", 0), _Provider)
    server.asked, server.answer = [], (200, b"{}")
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
