"""MCP servers in the admin: operators see them without credentials, switch them off and remove them."""

from __future__ import annotations

from django.test import Client
from django.urls import reverse

from apps.mcp_servers.credentials import Credentials, encrypt_credentials
from apps.mcp_servers.models import McpServer
from tests.admin.test_buttons import last_entry, operator, press
from tests.support.cast import World

__all__ = ["operator"]


def test_an_mcp_server_is_seen_switched_off_and_removed(operator: Client, world: World) -> None:
    server = McpServer.objects.create(
        organization=world.acme,
        name="tickets",
        url="https://tools.example.com/mcp",
        encrypted_credentials=encrypt_credentials(Credentials("tok-good")),
    )
    lists = [reverse("admin:mcp_servers_mcpserver_changelist")]
    page = reverse("admin:mcp_servers_mcpserver_change", args=[server.pk])
    for path in (*lists, f"{lists[0]}?q=acme", page):
        shown = operator.get(path)
        assert (shown.status_code, "tickets" in shown.content.decode()) == (200, True)
    assert "tok-good" not in operator.get(page).content.decode()
    moved = operator.post(page, {"status": "inactive", "url": "https://elsewhere.example.com/mcp"})
    assert (moved.status_code, last_entry()[0]) == (302, "mcp_server.update")
    server.refresh_from_db()
    assert (server.status, server.url) == ("inactive", "https://tools.example.com/mcp")
    press(operator, server, "delete_server")
    server.refresh_from_db()
    assert (server.status, bytes(server.encrypted_credentials)) == ("deleted", b"")
    assert last_entry() == ("mcp_server.delete", "admin", "op@example.com")
