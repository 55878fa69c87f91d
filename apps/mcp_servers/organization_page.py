"""MCP servers on an organization's page in the admin."""

from __future__ import annotations

from typing import Any

from apps.mcp_servers.models import McpServer
from apps.organizations.models import Organization
from apps.organizations.operators.organization_tabs import Tab, link_to, list_of, moment


def _servers(organization: Organization) -> Any:
    return McpServer.objects.filter(organization=organization).order_by("-id")


TABS = [
    Tab(
        "mcp-servers",
        "MCP servers",
        "mcp_servers.view_mcpserver",
        lambda row: list_of("mcp_servers_mcpserver", organization__id__exact=row.pk),
        ("Name", "Address", "Status", "Created"),
        _servers,
        lambda row: (link_to(row), row.url, row.status, moment(row.created_at)),
    ),
]
