"""The session that the log groups requests by: which header or field names it, in which order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.client.http_request import ClientRequest
from apps.gateway.dialects import client_dialect_of
from apps.gateway.routing.request_profile import logged_session
from apps.kernel.rest.routes import route_table

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
CLAUDE = json.dumps({"device_id": "d", "account_uuid": "a", "session_id": "claude"})
USER = {"role": "user", "content": "hi"}


def request(**headers: str) -> ClientRequest:
    environ: dict[str, Any] = {f"HTTP_{name.upper()}": value for name, value in headers.items()}
    return ClientRequest(environ, route_table().exact["POST", "/v1/messages"])


def message(user: str | None) -> Any:
    metadata = {} if user is None else {"metadata": {"user_id": user}}
    body = {"model": "m", "max_tokens": 5, "messages": [USER], **metadata}
    return client_dialect_of("anthropic").read_request(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        ({"x_claude_code_session_id": "claude-code"}, "claude-code"),
        ({"x_session_id": "opencode"}, "opencode"),
        ({"x_session_affinity": "opencode"}, "opencode"),
        ({"session_id": "codex"}, "codex"),
        ({"x_session_id": "one", "session_id": "other", "traceparent": TRACEPARENT}, "one"),
        ({"traceparent": TRACEPARENT}, TRACE),
        ({"traceparent": "00-" + "0" * 32 + "-00f067aa0ba902b7-01"}, None),
        ({"traceparent": "nonsense"}, None),
        ({"x_session_id": "line\nbreak"}, None),
        ({"x_session_id": "\u202eover"}, None),
        ({}, None),
    ],
)
def test_a_header_names_the_session(headers: dict[str, str], session: str | None) -> None:
    assert logged_session(request(**headers)) == session


@pytest.mark.parametrize(
    ("user", "session"),
    [
        (CLAUDE, "claude"),
        ("user_abc_account__session_0199", "0199"),
        ("ada@example.com", None),
        ('{"session_id": 5}', None),
        ('{"session_id": "x"', None),
        (None, None),
    ],
)
def test_the_user_of_a_message_names_a_session_only_as_claude_code_does(user: str | None, session: str | None) -> None:
    assert logged_session(request(), message(user)) == session
    assert logged_session(request(traceparent=TRACEPARENT), message(user)) == (session or TRACE)
    assert logged_session(request(x_session_id="own"), message(user)) == "own"


def test_a_field_names_the_session() -> None:
    body = {"model": "m", "messages": [USER], "session_id": "router", "prompt_cache_key": "shared"}
    chat = client_dialect_of("openai").read_request(json.dumps(body).encode())
    assert logged_session(request(), chat) == "router"
    del body["session_id"]
    # Many conversations may share a cache key.
    assert logged_session(request(), client_dialect_of("openai").read_request(json.dumps(body).encode())) is None


def test_a_conversation_stands_above_all_and_a_chain_below_what_the_client_names() -> None:
    call = request(x_session_id="own")
    call.conversation_id, call.response_chain = "conv_1", "resp_1"
    assert logged_session(call) == "conv_1"
    call.conversation_id = ""
    assert logged_session(call) == "own"
    chained = request(traceparent=TRACEPARENT)
    chained.response_chain = "resp_1"
    assert logged_session(chained) == "resp_1"


@pytest.mark.parametrize(
    ("sent", "program"),
    [
        ("claude-cli/2.1.197 (external, cli)", "claude-cli/2.1.197"),
        ("OpenAI/Python 3.52.0", "OpenAI/Python"),
        ("  ", None),
        ("", None),
        ("x" * 300, "x" * 256),
    ],
)
def test_the_first_product_of_the_user_agent_is_the_program(sent: str, program: str | None) -> None:
    assert request(user_agent=sent).user_agent == program
    assert request().user_agent is None
