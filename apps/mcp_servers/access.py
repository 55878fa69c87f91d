"""Access control of MCP servers: admins manage those of their organization; API keys use those open to their
project."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from apps.mcp_servers.models import McpServer
from apps.organizations.integrations.table import IntegrationTable

SERVERS = IntegrationTable(
    model=McpServer,
    thing="mcp_server",
    noun="MCP server",
    order=("name",),
    masks=("last_four",),
    noted_new=("name", "url", "masked_token", "header_names", "allowed_tools", "project_ids", "timeout_seconds"),
)
NO_SERVER = SERVERS.missing


def usable_servers(organization_id: UUID, project_id: UUID, names: Collection[str] | None = None) -> list[McpServer]:
    """Return the active servers for keys of a project, by name; with `names` only those."""
    rows = McpServer.objects.filter(organization=organization_id, status=McpServer.Status.ACTIVE)
    if names is not None:
        rows = rows.filter(name__in=names)
    return [row for row in rows.order_by("name") if _is_open_to(row, project_id)]


def _is_open_to(server: McpServer, project_id: UUID) -> bool:
    return server.project_ids is None or str(project_id) in server.project_ids
