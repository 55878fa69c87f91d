"""Rotation: encrypts the credentials of MCP servers with the newest encryption key."""

from __future__ import annotations

from apps.kernel.secrets.encryption import Rotated, reencrypt_rows
from apps.mcp_servers.credentials import decrypt_credentials, encrypt_credentials
from apps.mcp_servers.models import McpServer

# Name of the secrets for the operator.
WORDS = "credentials of MCP servers"


def rotate() -> Rotated:
    """Encrypt every server's credentials with the newest encryption key, so that older ones can be removed."""
    living = McpServer.objects.exclude(status=McpServer.Status.DELETED)
    return reencrypt_rows(living, "encrypted_credentials", _reencrypt)


def _reencrypt(encrypted: bytes) -> bytes:
    return encrypt_credentials(decrypt_credentials(encrypted))
