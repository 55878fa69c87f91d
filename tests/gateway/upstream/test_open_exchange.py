"""Calls to a provider, from every caller: the request, the meaning of a refusal, and what clients never learn of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from apps.gateway.access.credentials import CREDITS, Credential
from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.dialects.chat import openai
from apps.gateway.failures import UpstreamFailure
from apps.gateway.routing.candidate import Candidate
from apps.gateway.upstream.http_response import Timeouts
from apps.gateway.upstream.open_exchange import OpenExchange, ProviderRequest, open_exchange
from tests.catalog.small import offer, provider

SECRET = "sk-very-secret-and-long-0123456789"
BUDGET = Timeouts(connect=5, first_byte=5, idle=5, total=10, tick=1)


class Studio(BaseHTTPRequestHandler):
    """Answers with a status of the path's, and in the words of an error that quotes what it was sent."""

    protocol_version = "HTTP/1.1"
    seen: list[dict[str, str]]

    def do_POST(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append({name.lower(): value for name, value in self.headers.items()})
        quoted = f"bad key {self.headers['Authorization']}"
        body = json.dumps({"error": {"message": quoted, "code": "invalid_api_key"}}).encode()
        self.send_response(int(self.path.strip("/").split("/")[0]))
        self.send_header("Retry-After", "7")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def studio(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The base URL of a provider."""
    monkeypatch.setattr(Studio, "seen", [], raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Studio) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def opened(base_url: str, path: str, *, stream: bool = False) -> OpenExchange:
    """Open an exchange with the provider at a path."""
    one = offer("studio", "m", provider=provider("studio", base_url=base_url))
    chat = Chat(model="m", messages=[], stream=stream)
    target = Target(model_name="m", facts={})
    request = ProviderRequest(openai.PROVIDER, chat, target, b"{}", lambda base: f"{base}/{path}")
    candidate = Candidate(one, Credential(CREDITS, service_secret=SECRET, label="studio#1"), "m")
    with closing(open_exchange(candidate, request, BUDGET, ClientDisconnect(None))) as opening:
        while True:
            try:
                next(opening)
            except StopIteration as done:
                exchange: OpenExchange = done.value
                return exchange


@pytest.mark.parametrize(("stream", "accept"), [(False, "application/json"), (True, "text/event-stream")])
def test_a_provider_of_the_catalog_is_sent_its_credential_and_no_loop_header(
    studio: str, stream: bool, accept: str
) -> None:
    answer = opened(studio, "200", stream=stream)
    with closing(answer.response):
        assert answer.response.status == 200
    [headers] = Studio.seen
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert (headers["accept"], headers["user-agent"]) == (accept, "model-gateway")
    assert "cdn-loop" not in headers
    assert SECRET not in repr(answer)


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_refusal_is_told_without_the_secret_it_quotes(studio: str, status: int) -> None:
    with pytest.raises(UpstreamFailure) as refused:
        opened(studio, str(status))
    failure = refused.value
    assert (failure.status, failure.code, failure.retry_after) == (status, "invalid_api_key", 7.0)
    assert failure.message.startswith("bad key ")
    assert SECRET not in failure.message
    assert SECRET not in str(failure)


def test_a_failure_behind_the_head_is_redacted_by_the_exchange(studio: str) -> None:
    answer = opened(studio, "200")
    answer.response.close()
    failure = UpstreamFailure("network", f"broke off at {SECRET}")
    answer.redact(failure)
    assert SECRET not in failure.message
