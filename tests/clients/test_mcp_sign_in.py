"""The official client of the Model Context Protocol registers itself, has a person sign it in, and calls a tool."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.clients.gateway import Gateway

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]

CALLBACK = "http://127.0.0.1:3030/callback"
NAMED = re.compile(r'name="([^"]+)"[^>]*value="([^"]*)"')


class Kept:
    """The client's storage."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """A signed-in user who approves each request for access."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.led_to: dict[str, str] = {}

    async def open(self, url: str) -> None:
        """Open the page of consent, and allow it."""
        cookies = {"gateway-session": self.gateway.demo["sessionToken"]}
        async with httpx2.AsyncClient(cookies=cookies) as browser:
            page = await browser.get(url)
            assert page.status_code == 200, page.text
            fields: dict[str, Any] = {name: html.unescape(value) for name, value in NAMED.findall(page.text)}
            fields |= {"decision": "allow", "projectId": self.gateway.demo["projectId"], "budget": "5"}
            headers = {"Origin": self.gateway.url, "Referer": f"{self.gateway.url}/"}
            answer = await browser.post(url, data={**fields, "period": "month"}, headers=headers)
        assert answer.status_code == 302, answer.text
        query = parse_qs(urlsplit(answer.headers["location"]).query)
        self.led_to = {name: values[0] for name, values in query.items()}

    async def come_back(self) -> AuthorizationCodeResult:
        """Return what the browser was led back with."""
        return AuthorizationCodeResult(**{name: self.led_to.get(name) for name in ("code", "state", "iss")})


async def test_it_registers_signs_in_and_calls_a_tool(gateway: Gateway) -> None:
    kept, person = Kept(), Person(gateway)
    described = OAuthClientMetadata(
        client_name="Official client",
        redirect_uris=[CALLBACK],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    signing_in = OAuthClientProvider(
        server_url=f"{gateway.url}/mcp",
        client_metadata=described,
        storage=kept,
        redirect_handler=person.open,
        callback_handler=person.come_back,
    )
    async with (
        httpx2.AsyncClient(auth=signing_in, timeout=30) as http,
        Client(streamable_http_client(f"{gateway.url}/mcp", http_client=http)) as client,
    ):
        assert [tool.name for tool in (await client.list_tools()).tools][:1] == ["chat"]
        asked = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "signed in"}]}
        answer = await client.call_tool("chat", asked)
        assert (answer.structured_content or {})["content"] == "You said: signed in"
    assert kept.tokens is not None
    # The token is good at its resource alone.
    bearer = {"Authorization": f"Bearer {kept.tokens.access_token}"}
    body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hello"}]}
    async with httpx2.AsyncClient(headers=bearer) as elsewhere:
        assert (await elsewhere.post(f"{gateway.url}/v1/chat/completions", json=body)).status_code == 401
