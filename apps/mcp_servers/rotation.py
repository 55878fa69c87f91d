"""Rotation: credentials of MCP servers are sealed anew with the newest encryption key."""

from __future__ import annotations

from apps.kernel.reencryption import Rotated, reencrypt_rows
from apps.mcp_servers.credentials import seal, unseal
from apps.mcp_servers.models import McpServer

# What is sealed, in words for whoever rotates.
WORDS = "credentials of MCP servers"


def rotate() -> Rotated:
    """Seal every server's credentials with the newest encryption key, so that older ones can be taken away."""
    living = McpServer.objects.exclude(status=McpServer.Status.DELETED)
    return reencrypt_rows(living, "encrypted_credentials", lambda sealed: seal(unseal(sealed)))
