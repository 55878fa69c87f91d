"""Erasure of the MCP servers of a deleted organization."""

from __future__ import annotations

from uuid import UUID

from apps.mcp_servers.models import McpServer


def erase(organization_id: UUID) -> None:
    """Remove every server, with its credentials."""
    McpServer.objects.filter(organization=organization_id).delete()
