"""Button of MCP servers in the admin: delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.mcp_servers.access import SERVERS
from apps.mcp_servers.models import McpServer
from apps.organizations.operators.admin_buttons import ButtonQuestion, Done, button, is_living


class DeleteServerQuestion(ButtonQuestion):
    """Asks whether to remove a server."""

    text = "{row} can no longer be used, and its credentials are erased. This cannot be undone."


@button(
    "Delete",
    permission="mcp_servers.delete_mcpserver",
    icon="delete",
    danger=True,
    question=DeleteServerQuestion,
    offered=is_living,
)
def delete_server(page: Any, server: McpServer, fields: Mapping[str, Any]) -> Done:
    """Remove a server, and erase its credentials."""
    SERVERS.delete(server)
    return Done(f"{server} was removed")
