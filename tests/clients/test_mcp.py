"""The official client of the Model Context Protocol, in each revision: tools, progress, cancelling, resuming."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import mcp.client.session as sessions
import pytest
from mcp import Client, ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import ClientMessageMetadata
from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

from tests.clients.gateway import Gateway, Key
from tests.stack.product import eventually

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.usefixtures("one_loop")]

EARLIER, LATER, NEWEST = "2025-06-18", "2025-11-25", "2026-07-28"
NAMES = ["chat", "list-models", "generate-image", "list-image-models"]


@asynccontextmanager
async def connected(
    gateway: Gateway, key: Key, revision: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Client]:
    """A client that speaks the revision."""
    if revision != NEWEST:
        monkeypatch.setattr(sessions, "LATEST_HANDSHAKE_VERSION", revision)
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key.token}"}, timeout=30) as http,
        Client(
            streamable_http_client(f"{gateway.url}/mcp", http_client=http),
            mode="auto" if revision == NEWEST else "legacy",
        ) as client,
    ):
        assert client.protocol_version == revision
        yield client


def chat_of(text: str) -> dict[str, Any]:
    """Return arguments of the tool `chat`."""
    return {"model": "sandbox/echo", "messages": [{"role": "user", "content": text}]}


@pytest.mark.parametrize("revision", [EARLIER, LATER, NEWEST])
async def test_it_lists_and_calls_every_tool(gateway: Gateway, revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = gateway.new_key(f"MCP {revision}")
    async with connected(gateway, key, revision, monkeypatch) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == NAMES
        told: list[str] = []

        async def progress(so_far: float, total: float | None, message: str | None) -> None:
            told.append(message or "")

        text = "[[sandbox words=30 chunks=6 gap=120]] count"
        answer = await client.call_tool("chat", chat_of(text), progress_callback=progress)
        assert answer.is_error is False
        assert answer.structured_content is not None
        whole = answer.structured_content["content"]
        assert len(told) >= 3
        assert "".join(told) == whole
        plain = await client.call_tool("chat", chat_of("hello"))
        assert plain.content[0].model_dump()["text"] == "You said: hello"
        drawn = await client.call_tool("generate-image", {"prompt": "a cat", "model": "sandbox/painter"})
        assert [block.type for block in drawn.content] == ["image"]
        for name in ("list-models", "list-image-models"):
            listed = await client.call_tool(name, {"family": "sandbox"})
            assert (listed.structured_content or {})["models"]
        wrong = await client.call_tool("chat", {"messages": []})
        assert wrong.is_error is True
    assert [log["statusCode"] for log in gateway.logs_of(key)] == [200, 200, 200]
    if revision == NEWEST:
        assert gateway.is_paid_to_the_last_digit()


@pytest.mark.parametrize("revision", [LATER, NEWEST])
async def test_a_call_that_is_cancelled_is_cut_off_and_paid_as_far_as_it_came(
    gateway: Gateway, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = gateway.new_key(f"MCP cancelled {revision}")
    async with connected(gateway, key, revision, monkeypatch) as client:
        begun = anyio.Event()

        async def progress(so_far: float, total: float | None, message: str | None) -> None:
            begun.set()

        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                text = "[[sandbox words=400 chunks=200 gap=100]] count"
                await client.call_tool("chat", chat_of(text), progress_callback=progress)

            tasks.start_soon(ask)
            await begun.wait()
            tasks.cancel_scope.cancel()
        (log,) = await anyio.to_thread.run_sync(lambda: eventually(lambda: gateway.logs_of(key)))
    assert (log["statusCode"], log["canceled"], log["unifiedFinishReason"]) == (499, True, "canceled")
    assert log["cost"] > 0


async def test_a_stream_that_broke_is_resumed(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    key = gateway.new_key("MCP resumed")
    headers = {"Authorization": f"Bearer {key.token}"}
    seen: list[str] = []
    has_begun = anyio.Event()
    request = CallToolRequest(
        params=CallToolRequestParams(name="chat", arguments=chat_of("[[sandbox words=60 chunks=20 gap=100]] count"))
    )

    async def note(event_id: str) -> None:
        seen.append(event_id)
        has_begun.set()

    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(f"{gateway.url}/mcp", http_client=http, terminate_on_close=False)
        async with transport as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            async with anyio.create_task_group() as tasks:

                async def ask() -> None:
                    await session.send_request(
                        request, CallToolResult, metadata=ClientMessageMetadata(on_resumption_token_update=note)
                    )

                tasks.start_soon(ask)
                await has_begun.wait()
                # The connection is gone; no client has cancelled the call.
                resumed = await session.send_request(
                    request, CallToolResult, metadata=ClientMessageMetadata(resumption_token=seen[-1])
                )
                tasks.cancel_scope.cancel()
    assert resumed.is_error is False
    (log,) = gateway.logs_of(key)
    assert (log["statusCode"], log["unifiedFinishReason"]) == (200, "completed")
