"""Access control of MCP servers: admins manage those of their organization; API keys use those open to their
project."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from django.db.models import QuerySet

from apps.mcp_servers.models import McpServer
from apps.organizations.access import access_row_as_admin, access_rows_as_admin
from apps.organizations.models import User

NO_SERVER = "MCP server not found"


def access_servers(user: User, organization_id: str) -> QuerySet[McpServer]:
    """Return the servers of an organization that the user administers, by name. Raises NotFound, Forbidden."""
    return access_rows_as_admin(McpServer, user, organization_id).order_by("name")


def access_server(user: User, identifier: str) -> McpServer:
    """Return a server of an organization that the user administers. Raises NotFound, Forbidden."""
    return access_row_as_admin(McpServer, user, identifier, NO_SERVER)


def usable_servers(organization_id: UUID, project_id: UUID, names: Collection[str] | None = None) -> list[McpServer]:
    """Return the active servers for keys of a project, by name; with `names` only those."""
    rows = McpServer.objects.filter(organization=organization_id, status=McpServer.Status.ACTIVE)
    if names is not None:
        rows = rows.filter(name__in=names)
    return [row for row in rows.order_by("name") if _is_open_to(row, project_id)]


def _is_open_to(server: McpServer, project_id: UUID) -> bool:
    return server.project_ids is None or str(project_id) in server.project_ids
