"""`/mcp` with access tokens: whom they stand for, for which resource, and that a session is its grant's alone.

Which tokens are good is held to in tests/oauth; here a token's grant is stated.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from apps.kernel.ids import new_id
from apps.logs.models import RequestLog
from apps.mcp import endpoints
from apps.oauth.access import AccessGrant
from tests.mcp.conftest import LATER, McpClient, chat_of, error_of
from tests.support.upstream import Caller, nothing_happened, settle_all

TOKEN = "gw_oauth_of_a_program"
RESOURCE = "http://127.0.0.1:8000/mcp"


class Grants:
    """The grants there are, by token and resource."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], AccessGrant] = {}

    def __call__(self, token: str, *, resource: str) -> AccessGrant | None:
        return self.known.get((token, resource))

    def add(self, api_key_id: UUID, *scopes: str, resource: str = RESOURCE) -> None:
        """Grant the token an API key."""
        self.known[TOKEN, resource] = AccessGrant(api_key_id, new_id(), new_id(), frozenset(scopes))


@pytest.fixture
def grants(monkeypatch: pytest.MonkeyPatch) -> Grants:
    """No grants yet."""
    grants = Grants()
    monkeypatch.setattr(endpoints, "authenticate_access_token", grants)
    return grants


@pytest.fixture
def program(mcp: McpClient) -> McpClient:
    """A client with an access token."""
    mcp.token = TOKEN
    return mcp


def test_a_token_stands_for_its_key(program: McpClient, caller: Caller, grants: Grants) -> None:
    grants.add(caller.key.id, "models", "tools")
    assert program.result("chat", chat_of("hello"))["isError"] is False
    assert settle_all() == 1
    assert RequestLog.objects.get().api_key_id == caller.key.id


def test_a_token_for_another_resource_opens_nothing(program: McpClient, caller: Caller, grants: Grants) -> None:
    grants.add(caller.key.id, "models", resource="http://127.0.0.1:8000/mcp/other")
    answer = program.call("chat", chat_of("hello"))
    error_of(answer, 401, -32600)
    assert answer["WWW-Authenticate"].startswith('Bearer error="invalid_token", resource_metadata=')
    assert nothing_happened(caller)


def test_a_token_without_the_scope_is_told_which(program: McpClient, caller: Caller, grants: Grants) -> None:
    grants.add(caller.key.id, "tools")
    answer = program.call("chat", chat_of("hello"))
    assert error_of(answer, 403, -32600)["data"]["code"] == "insufficient_scope"
    assert 'error="insufficient_scope", scope="models", ' in answer["WWW-Authenticate"]
    assert nothing_happened(caller)


def test_a_session_is_the_grants_and_not_the_keys(program: McpClient, caller: Caller, grants: Grants) -> None:
    grants.add(caller.key.id, "models")
    program.open(LATER)
    holder = McpClient(caller, caller.token, session=program.session, revision=LATER)
    error_of(holder.ask("ping"), 404, -32600)
    assert program.ask("ping").status_code == 200
    grants.known.clear()
    error_of(program.ask("ping"), 401, -32600)
