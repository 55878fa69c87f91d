"""`/mcp-servers`: registering, changing and removing servers of tools, and looking at what they offer."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from apps.kernel.secrets.encryption import decrypt
from apps.mcp_servers import actions
from apps.mcp_servers.client import Tool
from apps.mcp_servers.credentials import decrypt_credentials
from apps.mcp_servers.hooks import rotate
from apps.mcp_servers.models import McpServer
from apps.mcp_servers.tool_pins import digest_of
from apps.organizations.models import AuditEntry
from tests.support.cast import Caller, World, signed_in
from tests.support.mcp_stand_in import TOKEN, StandIn, tool

UNASKED = "?validate=false"
HEADER = "a-header-that-is-secret-2"


@pytest.fixture
def adam(world: World) -> Caller:
    return signed_in(world.adam)


def create(caller: Caller, world: World, query: str = UNASKED, **changes: Any) -> Any:
    body = {
        "organizationId": str(world.acme.id),
        "name": "tickets",
        "url": "https://93.184.215.14/mcp",
        "token": TOKEN,
        "headers": {"x-team": HEADER},
        **changes,
    }
    return caller.post(f"/mcp-servers{query}", {name: value for name, value in body.items() if value is not ...})


def test_a_server_is_kept_sealed_and_shown_masked(world: World, adam: Caller) -> None:
    response = create(adam, world, allowedTools=["echo", "echo"], projectIds=[str(world.project.id)])
    assert response.status_code == 200, response.content
    row = McpServer.objects.get()
    shown = {
        "id": str(row.id),
        "name": "tickets",
        "url": "https://93.184.215.14/mcp",
        "status": "active",
        "organizationId": str(world.acme.id),
        "maskedToken": "...me-1",
        "headerNames": ["x-team"],
        "allowedTools": ["echo"],
        "changedTools": [],
        "projectIds": [str(world.project.id)],
        "timeoutSeconds": 60,
        "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
        "updatedAt": row.updated_at.isoformat().replace("+00:00", "Z"),
    }
    assert response.json() == {"mcpServer": shown}
    assert adam.get("/mcp-servers", organizationId=str(world.acme.id)).json() == {"mcpServers": [shown]}
    sealed = decrypt_credentials(bytes(row.encrypted_credentials))
    assert (sealed.token, sealed.headers) == (TOKEN, {"x-team": HEADER})
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT row_to_json(it)::text, encode(encrypted_credentials, 'escape') FROM mcp_servers_mcpserver it"
        )
        stored = str(cursor.fetchall()) + str(list(AuditEntry.objects.values()))
    assert (TOKEN in stored, HEADER in stored) == (False, False)
    entry = AuditEntry.objects.get(action="mcp_server.create")
    assert (entry.resource_id, entry.details["url"]) == (str(row.id), "https://93.184.215.14/mcp")


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"name": "Tickets"}, "name", "Must be 1 to 40 of a-z, 0-9 and -"),
        ({"name": "my_server"}, "name", "Must be 1 to 40 of a-z, 0-9 and -"),
        ({"name": "all"}, "name", "all is reserved for all servers together"),
        ({"url": "ftp://93.184.215.14"}, "url", "Must be an http or https URL"),
        ({"url": "https://93.184.215.14/#a"}, "url", "Must be a URL without a fragment"),
        ({"url": "http://127.0.0.1:9000/"}, "url", "Must not lead to a private, loopback or link-local address"),
        (
            {"url": "http://169.254.169.254/"},
            "url",
            "Must not lead to an address that clouds keep for their platform and its metadata",
        ),
        ({"token": "a\nb"}, "token", "Must be printable ASCII characters"),
        ({"headers": {"Host": "x"}}, "headers", "Host: The gateway sets this header"),
        ({"headers": {"mcp-session-id": "x"}}, "headers", "mcp-session-id: The gateway sets this header"),
        ({"headers": {"authorization": "x"}}, "headers", "authorization: Give a token or this header, not both"),
        ({"headers": {"a b": "x"}}, "headers", "Names must be letters, digits and hyphens, at most 64"),
        (
            {"headers": {"x-a": "1\r\nx-b: 2"}},
            "headers",
            "x-a: Must be printable ASCII characters without leading or trailing spaces",
        ),
        ({"timeoutSeconds": 301}, "timeoutSeconds", "Must be at most 300"),
        ({"projectIds": ["x"]}, "projectIds", "Must be ids of projects"),
    ],
)
def test_a_bad_field_is_named(world: World, adam: Caller, changes: dict[str, Any], path: str, message: str) -> None:
    response = create(adam, world, **changes)
    assert (response.status_code, response.json()["issues"]) == (400, [{"path": path, "message": message}])
    assert (TOKEN in response.content.decode(), McpServer.objects.exists()) == (False, False)


def test_another_organizations_project_cannot_be_named(world: World, adam: Caller) -> None:
    strange = str(world.elsewhere_project.id)
    response = create(adam, world, projectIds=[strange])
    message = f"{strange}: There is no such project in the organization"
    assert (response.status_code, response.json()["issues"]) == (400, [{"path": "projectIds", "message": message}])
    assert not McpServer.objects.exists()


def test_a_name_is_unique_and_servers_are_limited(world: World, adam: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    first = create(adam, world).json()["mcpServer"]["id"]
    response = create(adam, world)
    issue = {"path": "name", "message": "Another MCP server has this name"}
    assert (response.status_code, response.json()["issues"]) == (400, [issue])
    monkeypatch.setattr(actions, "MAX_SERVERS", 1)
    assert create(adam, world, name="other").json()["message"] == "Maximum 1 MCP servers per organization"
    assert adam.send("DELETE", f"/mcp-servers/{first}", {}).status_code == 200
    assert bytes(McpServer.objects.get().encrypted_credentials) == b""
    assert create(adam, world).status_code == 200


def test_a_server_is_asked_before_it_is_kept(world: World, adam: Caller, mcp_server: StandIn) -> None:
    mcp_server.failure = (401, b'{"error": {"message": "who are you"}}')
    response = create(adam, world, "", url=mcp_server.url)
    assert response.status_code == 400
    assert response.json()["message"] == ("The MCP server rejected its registered credentials (401: who are you)")
    assert not McpServer.objects.exists()
    mcp_server.failure = None
    assert create(adam, world, "", url=mcp_server.url).status_code == 200
    assert mcp_server.headers_of("tools/list")["authorization"] == f"Bearer {TOKEN}"


def test_its_tools_can_be_looked_at(world: World, adam: Caller, mcp_server: StandIn) -> None:
    server = create(adam, world, url=mcp_server.url, allowedTools=["add"]).json()["mcpServer"]["id"]
    mcp_server.tools = [tool("echo", "Says it again."), tool("add")]
    schema = {"type": "object"}
    echo, add = (digest_of(Tool(one["name"], one)) for one in mcp_server.tools)
    assert adam.get(f"/mcp-servers/{server}/tools").json() == {
        "tools": [
            {
                "name": "echo",
                "description": "Says it again.",
                "isAllowed": False,
                "isChanged": False,
                "digest": echo,
                "inputSchema": schema,
            },
            {
                "name": "add",
                "description": "",
                "isAllowed": True,
                "isChanged": False,
                "digest": add,
                "inputSchema": schema,
            },
        ]
    }


def test_a_tool_that_changed_is_told_and_accepted_as_it_was_seen(
    world: World, adam: Caller, mcp_server: StandIn
) -> None:
    # Registering a server asks it for its tools, and allows them as they are then.
    server = create(adam, world, "", url=mcp_server.url, allowedTools=["echo"]).json()["mcpServer"]["id"]
    assert list(McpServer.objects.get().tool_pins) == ["echo"]
    mcp_server.tools = [tool("echo", "Something else."), tool("add")]
    McpServer.objects.update(changed_tools=["echo"])
    seen = adam.get(f"/mcp-servers/{server}/tools").json()["tools"]
    assert [(one["name"], one["isAllowed"], one["isChanged"]) for one in seen] == [
        ("echo", True, True),
        ("add", False, False),
    ]
    url = f"/mcp-servers/{server}"
    before = McpServer.objects.get().tool_pins
    for bad in ({"echo": "x"}, {"echo": seen[0]["digest"] + "0"}, {"x" * 129: seen[0]["digest"]}, "echo"):
        assert adam.send("PATCH", url, {"acceptedTools": bad}).status_code == 400
    assert McpServer.objects.get().tool_pins == before
    changed = adam.send("PATCH", url, {"acceptedTools": {"echo": seen[0]["digest"]}}).json()["mcpServer"]
    assert changed["changedTools"] == []
    assert McpServer.objects.get().tool_pins == {"echo": seen[0]["digest"]}


def test_credentials_are_replaced_one_by_one_and_the_address_never(world: World, adam: Caller) -> None:
    server = create(adam, world).json()["mcpServer"]["id"]
    url = f"/mcp-servers/{server}"
    changed = adam.send(
        "PATCH", url, {"token": None, "status": "inactive", "allowedTools": [], "url": "https://1.1.1.1"}
    )
    assert changed.status_code == 200, changed.content
    row = McpServer.objects.get()
    sealed = decrypt_credentials(bytes(row.encrypted_credentials))
    assert (sealed.token, sealed.headers, row.last_four) == ("", {"x-team": HEADER}, "")
    assert (row.status, row.allowed_tools, row.url) == ("inactive", [], "https://93.184.215.14/mcp")
    entry = AuditEntry.objects.get(action="mcp_server.update")
    assert entry.details["credentials"] == "replaced"
    refused = adam.send("PATCH", url, {"headers": {"host": "x"}})
    assert refused.status_code == 400
    assert decrypt_credentials(bytes(McpServer.objects.get().encrypted_credentials)) == sealed
    assert adam.send("PATCH", url, {}).json()["issues"] == [{"path": "status", "message": "Required"}]


def test_credentials_are_sealed_anew_with_a_newer_key(world: World, adam: Caller, settings: Any) -> None:
    create(adam, world)
    newer = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXowMTIzNDU="
    settings.ENCRYPTION_KEYS = [newer, *settings.ENCRYPTION_KEYS]
    assert rotate().count == 1
    settings.ENCRYPTION_KEYS = [newer]
    assert TOKEN.encode() in decrypt(bytes(McpServer.objects.get().encrypted_credentials))
