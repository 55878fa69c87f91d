"""Hooks of organizations: MCP servers in the admin, their erasure, and the rotation of their credentials."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.kernel.secrets.encryption import Rotated
from apps.mcp_servers.access import SERVERS
from apps.mcp_servers.credentials import decrypt_credentials, encrypt_credentials
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


def erase(organization_id: UUID) -> None:
    """Remove every server, with its credentials."""
    McpServer.objects.filter(organization=organization_id).delete()


# Name of the secrets for the operator.
WORDS = "credentials of MCP servers"


def rotate() -> Rotated:
    """Encrypt every server's credentials with the newest encryption key, so that older ones can be removed."""
    return SERVERS.rotate(_reencrypt)


def _reencrypt(encrypted: bytes) -> bytes:
    return encrypt_credentials(decrypt_credentials(encrypted))
